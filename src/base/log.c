/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static const char *log_program = "space";
static enum log_level log_max = LOG_LEVEL_INFO;
static bool log_json;
static _Thread_local struct log_request request;

void log_init(const char *program)
{
    const char *at = getenv("SPACE_LOG");

    log_program = program;
    while (at && *at) {
        size_t len = strcspn(at, ",");

        for (size_t i = 0; i < ARRAY_SIZE(level_names); i++) {
            if (strlen(level_names[i]) == len && strncmp(level_names[i], at, len) == 0) {
                log_max = (enum log_level)i;
            }
        }
        log_json = log_json || (len == 4 && strncmp(at, "json", 4) == 0);
        at += len + (at[len] == ',');
    }
}

void log_request_set(const struct log_request *r)
{
    request = r ? *r : (struct log_request){0};
}

const struct log_request *log_request(void)
{
    return &request;
}

bool log_request_id_fine(const char *id)
{
    size_t len = id ? strnlen(id, LOG_REQUEST_SIZE) : 0;

    for (size_t i = 0; i < len; i++) {
        if (!isalnum((unsigned char)id[i]) && !strchr("-_.", id[i])) {
            return false;
        }
    }
    return len >= 1 && len < LOG_REQUEST_SIZE;
}

void log_request_identify(struct log_request *r, const char *id)
{
    if (log_request_id_fine(id)) {
        snprintf(r->id, sizeof(r->id), "%s", id);
    }
}

/* A line under way; what does not fit is cut, and room is kept for the end. */
struct line {
    char text[LINE_MAX_BYTES];
    size_t len;
};
#define LINE_ROOM (LINE_MAX_BYTES - 4) /* quote, brace, newline or the end */

static void add(struct line *line, const char *fmt, ...) PRINTF(2, 3);

static void add(struct line *line, const char *fmt, ...)
{
    size_t room = LINE_ROOM - line->len;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(line->text + line->len, room, fmt, ap);
    va_end(ap);
    ASSERT(n >= 0);
    line->len += MIN((size_t)n, room - 1);
}

static void escape_controls(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            *text = '?';
        }
    }
}

/* How many bytes the character at s has; 0: it is none of UTF-8. */
static size_t utf8_len(const unsigned char *s)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : (s[0] & 0xe0) == 0xc0 ? 2 : (s[0] & 0xf0) == 0xe0 ? 3 : 4;
    unsigned c = n == 1 ? s[0] : s[0] & (0x7fu >> n);

    if (s[0] >= 0xf8 || (s[0] & 0xc0) == 0x80) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) { /* the NUL, too */
            return 0;
        }
        c = c << 6 | (s[i] & 0x3f);
    }
    return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

#define FIELD_MAX 64u

/* ,"name":"text"; what is longer than max, or does not fit, is cut between two characters. */
static void add_field(struct line *line, const char *name, const char *text, size_t max)
{
    const char *begin = text;

    add(line, "%c\"%s\":\"", line->len == 0 ? '{' : ',', name);
    while (*text && (size_t)(text - begin) < max && line->len + 8 < LINE_ROOM) {
        size_t n = utf8_len((const unsigned char *)text);

        if (n == 0) {
            line->text[line->len++] = '?';
            text++;
            continue;
        }
        if (*text == '"' || *text == '\\') {
            line->text[line->len++] = '\\';
        }
        memcpy(line->text + line->len, text, n);
        line->len += n;
        text += n;
    }
    line->text[line->len++] = '"';
}

static void print_json(struct line *line, const char *time, enum log_level level,
                       const struct log_ctx *ctx, const char *message)
{
    add_field(line, "time", time, FIELD_MAX);
    add_field(line, "level", level_names[level], FIELD_MAX);
    add_field(line, "program", log_program, FIELD_MAX);
    if (ctx->request) {
        add_field(line, "request", ctx->request, FIELD_MAX);
    }
    if (request.trace[0]) {
        add_field(line, "trace", request.trace, FIELD_MAX);
    }
    if (ctx->sandbox) {
        add_field(line, "sandbox", ctx->sandbox, FIELD_MAX);
    }
    /* Last, since it may be too long. */
    add_field(line, "message", message, LINE_MAX_BYTES);
    line->text[line->len++] = '}';
}

static void print_text(struct line *line, const char *time, enum log_level level,
                       const struct log_ctx *ctx, const char *message)
{
    add(line, "%s %s %s: ", time, level_names[level], log_program);
    if (ctx->sandbox) {
        add(line, "[sandbox %.64s] ", ctx->sandbox);
    }
    if (ctx->request) {
        add(line, "[request %.64s] ", ctx->request);
    }
    add(line, "%s", message);
}

void log_write(enum log_level level, const struct log_ctx *ctx, const char *fmt, ...)
{
    int saved = errno;
    struct log_ctx full = ctx ? *ctx : (struct log_ctx){0};
    char message[LINE_MAX_BYTES];
    struct line line = {.len = 0};
    struct timespec now;
    struct tm tm;
    char time[32];
    va_list ap;
    int n;

    if (level > log_max) {
        return;
    }
    if (!full.request && request.id[0]) {
        full.request = request.id;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(time + strlen(time), sizeof(time) - strlen(time), ".%03ldZ", now.tv_nsec / 1000000);
    errno = saved; /* for %m */
    va_start(ap, fmt);
    n = vsnprintf(message, sizeof(message), fmt, ap);
    va_end(ap);
    ASSERT(n >= 0);
    if (log_json) {
        print_json(&line, time, level, &full, message);
    } else {
        print_text(&line, time, level, &full, message);
    }
    line.text[line.len] = '\0';
    escape_controls(line.text);
    line.text[line.len++] = '\n';
    if (write(STDERR_FILENO, line.text, line.len) < 0) {
        errno = saved; /* nowhere left to say so */
    }
    errno = saved;
}

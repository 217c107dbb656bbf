/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static const char *log_program = "space";
static enum log_level log_max = LOG_LEVEL_INFO;

void log_init(const char *program)
{
    const char *wanted = getenv("SPACE_LOG");

    log_program = program;
    for (size_t i = 0; wanted && i < ARRAY_SIZE(level_names); i++) {
        if (str_eq(wanted, level_names[i])) {
            log_max = (enum log_level)i;
        }
    }
}

static void escape_controls(char *line, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) {
            line[i] = '?';
        }
    }
}

static size_t clamp(int printed, size_t room)
{
    ASSERT(printed >= 0);
    return MIN((size_t)printed, room ? room - 1 : 0);
}

void log_write(enum log_level level, const struct log_ctx *ctx, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    struct timespec now;
    struct tm tm;
    size_t len;
    va_list ap;
    int saved = errno;

    if (level > log_max) {
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    len = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
    len += clamp(snprintf(line + len, sizeof(line) - len, ".%03ldZ %s %s: ", now.tv_nsec / 1000000,
                          level_names[level], log_program),
                 sizeof(line) - len);
    if (ctx && ctx->sandbox) {
        len += clamp(snprintf(line + len, sizeof(line) - len, "[sandbox %s] ", ctx->sandbox),
                     sizeof(line) - len);
    }
    if (ctx && ctx->request) {
        len += clamp(snprintf(line + len, sizeof(line) - len, "[request %s] ", ctx->request),
                     sizeof(line) - len);
    }
    va_start(ap, fmt);
    len += clamp(vsnprintf(line + len, sizeof(line) - len, fmt, ap), sizeof(line) - len);
    va_end(ap);
    escape_controls(line, len);
    len = MIN(len, sizeof(line) - 1);
    line[len++] = '\n';
    if (write(STDERR_FILENO, line, len) < 0) {
        errno = saved; /* nowhere left to say so */
    }
    errno = saved;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/ui.h"

#include <inttypes.h>
#include <jansson.h>
#include <locale.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

static const char *const colours[UI_COLOUR_COUNT_] = {
    [UI_PLAIN] = "\033[0m", [UI_BOLD] = "\033[1m",   [UI_DIM] = "\033[2m",
    [UI_RED] = "\033[31m",  [UI_GREEN] = "\033[32m", [UI_YELLOW] = "\033[33m",
};

void ui_init(struct ui *ui)
{
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    bool wanted = str_empty(no_color) && (!term || !str_eq(term, "dumb"));

    /* Only for wcwidth(); where there is no such locale, every character counts as one column. */
    if (!setlocale(LC_CTYPE, "C.UTF-8")) {
        setlocale(LC_CTYPE, "");
    }
    *ui = (struct ui){.out_tty = isatty(STDOUT_FILENO), .err_tty = isatty(STDERR_FILENO)};
    ui->out_colour = ui->out_tty && wanted;
    ui->err_colour = ui->err_tty && wanted;
}

unsigned ui_width(const struct ui *ui)
{
    struct winsize size = {0};

    if (!ui->out_tty) {
        return 0;
    }
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0) {
        return 80;
    }
    return size.ws_col;
}

const char *ui_out_colour(const struct ui *ui, enum ui_colour c)
{
    return ui->out_colour ? colours[c] : "";
}

const char *ui_err_colour(const struct ui *ui, enum ui_colour c)
{
    return ui->err_colour ? colours[c] : "";
}

static PRINTF(4, 0) void ui_line(const struct ui *ui, enum ui_colour c, const char *word,
                                 const char *fmt, va_list ap)
{
    char text[UI_TEXT_MAX];
    cleanup_free char *clean = NULL;

    vsnprintf(text, sizeof(text), fmt, ap);
    clean = ui_clean(text, strlen(text), /* lines */ true);
    fprintf(stderr, "space: %s%s%s%s\n", word ? ui_err_colour(ui, c) : "", word ? word : "",
            word ? ui_err_colour(ui, UI_PLAIN) : "", clean);
}

void ui_note(const struct ui *ui, const char *fmt, ...)
{
    va_list ap;

    if (ui->quiet) {
        return;
    }
    va_start(ap, fmt);
    ui_line(ui, UI_PLAIN, /* word */ NULL, fmt, ap);
    va_end(ap);
}

void ui_warn(const struct ui *ui, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    ui_line(ui, UI_YELLOW, "warning: ", fmt, ap);
    va_end(ap);
}

static void ui_line_args(const struct ui *ui, enum ui_colour c, const char *word, const char *fmt,
                         ...) PRINTF(4, 5);
static void ui_line_args(const struct ui *ui, enum ui_colour c, const char *word, const char *fmt,
                         ...)
{
    va_list ap;

    va_start(ap, fmt);
    ui_line(ui, c, word, fmt, ap);
    va_end(ap);
}

static void ui_error_json(const struct err *e, const char *message)
{
    json_t *body = json_pack("{s:s, s:s}", "code", err_reason(e), "message", message);
    json_t *doc;

    if (body && e->field[0]) {
        json_object_set_new(body, "field", json_string(e->field));
    }
    doc = body ? json_pack("{s:o}", "error", body) : NULL;
    if (doc) {
        json_dumpf(doc, stderr, JSON_COMPACT);
        fputc('\n', stderr);
        json_decref(doc);
    }
}

void ui_error(const struct ui *ui, const struct err *e)
{
    const char *text = e->msg[0] ? e->msg : strerror(-e->code);
    cleanup_free char *clean = ui_clean(text, strlen(text), /* lines */ true);

    fflush(stdout);
    if (ui->json) {
        ui_error_json(e, clean);
        return;
    }
    if (e->field[0]) {
        ui_line_args(ui, UI_RED, "error: ", "%s (%s)", clean, e->field);
        return;
    }
    ui_line_args(ui, UI_RED, "error: ", "%s", clean);
}

/* Length of the UTF-8 character at p (n bytes are left), 0 when there is none. */
static size_t utf8_length(const unsigned char *p, size_t n, uint32_t *ret)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = p[0] < 0x80             ? 1
                 : (p[0] & 0xe0) == 0xc0 ? 2
                 : (p[0] & 0xf0) == 0xe0 ? 3
                 : (p[0] & 0xf8) == 0xf0 ? 4
                                         : 0;
    uint32_t c;

    if (len == 0 || len > n) {
        return 0;
    }
    c = len == 1 ? p[0] : p[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
        c = c << 6 | (p[i] & 0x3fu);
    }
    if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) {
        return 0;
    }
    *ret = c;
    return len;
}

/* Characters that move the cursor, hide text or turn its direction round. */
static bool char_is_unsafe(uint32_t c, bool lines)
{
    if (lines && (c == '\n' || c == '\t')) {
        return false;
    }
    return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

char *ui_clean(const char *text, size_t len, bool lines)
{
    const unsigned char *p = (const unsigned char *)text;
    char *out = xmalloc(UI_TEXT_MAX + 16 + 1);
    size_t used = 0;

    while (len > 0 && used < UI_TEXT_MAX) {
        uint32_t c = 0;
        size_t n = utf8_length(p, len, &c);

        if (n == 0 || char_is_unsafe(c, lines)) {
            n = n ? n : 1;
            for (size_t i = 0; i < n; i++) {
                used += (size_t)snprintf(out + used, 5, "\\x%02x", p[i]);
            }
        } else {
            memcpy(out + used, p, n);
            used += n;
        }
        p += n;
        len -= n;
    }
    out[used] = '\0';
    return out;
}

static size_t char_columns(uint32_t c)
{
    int w = wcwidth((wchar_t)c);

    return w < 0 ? 1 : (size_t)w;
}

size_t ui_columns(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t left = strlen(text);
    size_t columns = 0;

    while (left > 0) {
        uint32_t c = *p;
        size_t n = utf8_length(p, left, &c);

        columns += n ? char_columns(c) : 1;
        n = n ? n : 1;
        p += n;
        left -= n;
    }
    return columns;
}

size_t ui_prefix(const char *text, size_t columns)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t left = strlen(text);
    size_t used = 0;

    while (left > 0) {
        uint32_t c = *p;
        size_t n = utf8_length(p, left, &c);
        size_t w = n ? char_columns(c) : 1;

        if (used + w > columns) {
            break;
        }
        used += w;
        n = n ? n : 1;
        p += n;
        left -= n;
    }
    return (size_t)(p - (const unsigned char *)text);
}

void ui_size(uint64_t bytes, char *ret, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1023.95 && unit + 1 < ARRAY_SIZE(units)) {
        value /= 1024;
        unit++;
    }
    if (unit == 0 || value >= 99.95) {
        snprintf(ret, size, "%.0f %s", value, units[unit]);
    } else {
        snprintf(ret, size, "%.1f %s", value, units[unit]);
    }
}

void ui_age(uint64_t s, char *ret, size_t size)
{
    if (s < 60) {
        snprintf(ret, size, "%" PRIu64 "s", s);
    } else if (s < 3600) {
        snprintf(ret, size, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
    } else if (s < 48 * 3600) {
        snprintf(ret, size, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
    } else {
        snprintf(ret, size, "%" PRIu64 "d", s / 86400);
    }
}

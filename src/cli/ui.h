/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the command line says to people: notes, warnings and errors on standard error, results on standard output.
 *
 * Everything that comes from a service or a guest is foreign text. On its way to a terminal it goes through ui_clean(),
 * which turns control characters, direction overrides and bytes that are not UTF-8 into \xNN, so that a hostile
 * guest cannot move the cursor or rewrite what was printed above. (Output of commands is the user's own and stays as it is.)
 *
 * Colours appear on a terminal only, and never when NO_COLOR is set or TERM is "dumb". `--quiet` drops notes, never
 * errors. With `--json` an error is the API's own error object, one line, on standard error.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

/* Longest foreign text shown in one place. */
#define UI_TEXT_MAX 4096u

enum ui_colour {
    UI_PLAIN,
    UI_BOLD,
    UI_DIM,
    UI_RED,
    UI_GREEN,
    UI_YELLOW,
    UI_COLOUR_COUNT_,
};

struct ui {
    bool out_tty;
    bool err_tty;
    bool out_colour;
    bool err_colour;
    bool quiet;
    bool json;
};

void ui_init(struct ui *ui);
/* Columns of the terminal behind standard output; 0 when it is none: do not cut anything. */
unsigned ui_width(const struct ui *ui);

/* The sequence that starts a colour on standard output, or "". UI_PLAIN ends it. */
const char *ui_out_colour(const struct ui *ui, enum ui_colour c);
const char *ui_err_colour(const struct ui *ui, enum ui_colour c);

/* One line each, on standard error. */
void ui_note(const struct ui *ui, const char *fmt, ...) PRINTF(2, 3);
void ui_warn(const struct ui *ui, const char *fmt, ...) PRINTF(2, 3);
/* The error; and the request field it blames. */
void ui_error(const struct ui *ui, const struct err *e);

/* A copy that may be shown, at most UI_TEXT_MAX bytes. lines: newline and tab stay. */
char *ui_clean(const char *text, size_t len, bool lines);
/* Columns that clean UTF-8 takes on a terminal. */
size_t ui_columns(const char *text);
/* Bytes of the longest start of `text` that takes at most `columns`. */
size_t ui_prefix(const char *text, size_t columns);

/* "1.5 GiB", "820 KiB", "12 B". */
void ui_size(uint64_t bytes, char *ret, size_t size);
/* "3s", "4m12s", "2h05m", "9d". */
void ui_age(uint64_t seconds, char *ret, size_t size);

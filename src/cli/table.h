/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table for people: aligned columns, two spaces between them, a dim heading.
 *
 * On a terminal the table never wraps: the columns marked `cut` give up width, the widest first, and show "..." where text is
 * missing. Into a pipe or file everything is written in full. Cells are cleaned (ui_clean) when they are added.
 */
#pragma once

#include "cli/ui.h"

#define TABLE_COLUMNS_MAX 12u

struct table_column {
    const char *title;
    bool right; /* numbers */
    bool cut;   /* may be shortened on a narrow terminal */
};

struct table {
    const struct table_column *columns; /* static */
    size_t n_columns;
    char **cells; /* owned, row after row */
    size_t n_cells;
};

void table_init(struct table *t, const struct table_column *columns, size_t n_columns);
void table_done(struct table *t);
/* Adds the next cell of the current row; NULL is shown as "-". */
void table_cell(struct table *t, const char *text);
void table_cellf(struct table *t, const char *fmt, ...) PRINTF(2, 3);
/* width 0: no limit. */
void table_print(const struct table *t, const struct ui *ui, FILE *out, unsigned width);

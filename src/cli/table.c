/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/table.h"

#include <stdarg.h>
#include <string.h>

#define COLUMN_GAP 2u
#define COLUMN_LEAST 5u

void table_init(struct table *t, const struct table_column *columns, size_t n_columns)
{
    ASSERT(n_columns > 0 && n_columns <= TABLE_COLUMNS_MAX);
    *t = (struct table){.columns = columns, .n_columns = n_columns};
}

void table_done(struct table *t)
{
    for (size_t i = 0; i < t->n_cells; i++) {
        free(t->cells[i]);
    }
    free(t->cells);
    *t = (struct table){0};
}

void table_cell(struct table *t, const char *text)
{
    const char *shown = str_empty(text) ? "-" : text;

    /* Grows by doubling whenever the count is a power of two. */
    if ((t->n_cells & (t->n_cells - 1)) == 0) {
        t->cells = xrealloc(t->cells, MAX(t->n_cells * 2, (size_t)16) * sizeof(*t->cells));
    }
    t->cells[t->n_cells++] = ui_clean(shown, strlen(shown), /* lines */ false);
}

void table_cellf(struct table *t, const char *fmt, ...)
{
    char text[UI_TEXT_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    table_cell(t, text);
}

static void table_measure(const struct table *t, size_t *widths)
{
    for (size_t c = 0; c < t->n_columns; c++) {
        widths[c] = ui_columns(t->columns[c].title);
    }
    for (size_t i = 0; i < t->n_cells; i++) {
        size_t w = ui_columns(t->cells[i]);

        widths[i % t->n_columns] = MAX(widths[i % t->n_columns], w);
    }
}

/* Takes one column at a time from the widest that may give, until the table fits or nothing is left to give. */
static void table_fit(const struct table *t, size_t *widths, unsigned limit)
{
    for (;;) {
        size_t total = (t->n_columns - 1) * COLUMN_GAP;
        size_t widest = t->n_columns;

        for (size_t c = 0; c < t->n_columns; c++) {
            total += widths[c];
            if (t->columns[c].cut && widths[c] > COLUMN_LEAST &&
                (widest == t->n_columns || widths[c] > widths[widest])) {
                widest = c;
            }
        }
        if (total <= limit || widest == t->n_columns) {
            return;
        }
        widths[widest]--;
    }
}

static void table_put(FILE *out, const char *text, size_t width, bool right, bool last)
{
    size_t columns = ui_columns(text);
    size_t bytes = strlen(text);
    const char *tail = "";

    if (columns > width) {
        bytes = ui_prefix(text, width - 3);
        cleanup_free char *cut = xstrndup(text, bytes);
        columns = ui_columns(cut) + 3;
        tail = "...";
    }
    if (right) {
        fprintf(out, "%*s", (int)(width - columns), "");
    }
    fprintf(out, "%.*s%s", (int)bytes, text, tail);
    if (!right && !last) {
        fprintf(out, "%*s", (int)(width - columns), "");
    }
    if (!last) {
        fprintf(out, "%*s", (int)COLUMN_GAP, "");
    }
}

void table_print(const struct table *t, const struct ui *ui, FILE *out, unsigned width)
{
    size_t widths[TABLE_COLUMNS_MAX];

    ASSERT(t->n_cells % t->n_columns == 0);

    table_measure(t, widths);
    if (width > 0) {
        table_fit(t, widths, width);
    }
    fputs(ui_out_colour(ui, UI_DIM), out);
    for (size_t c = 0; c < t->n_columns; c++) {
        table_put(out, t->columns[c].title, widths[c], t->columns[c].right, c + 1 == t->n_columns);
    }
    fprintf(out, "%s\n", ui_out_colour(ui, UI_PLAIN));
    for (size_t i = 0; i < t->n_cells; i++) {
        size_t c = i % t->n_columns;

        table_put(out, t->cells[i], widths[c], t->columns[c].right, c + 1 == t->n_columns);
        if (c + 1 == t->n_columns) {
            fputc('\n', out);
        }
    }
}

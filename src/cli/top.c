/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `space top`: what running sandboxes use, from the guests' own figures. Processor time is a counter, so a figure needs two looks;
 * between them we wait one interval. On a terminal the table is drawn again and again on the alternate screen, so
 * that nothing of what was there before is lost.
 */
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/rawtty.h"
#include "cli/sigs.h"
#include "cli/table.h"
#include "cli/verbs.h"

#define TOP_INTERVAL_S 2u
#define TOP_METRICS_MS 3000u

struct top_row {
    json_t *sandbox; /* owned */
    json_t *metrics; /* owned; NULL: it did not answer */
    uint64_t when_ns;
    double cpu_percent; /* of one processor; negative: not known yet */
};

struct top_look {
    struct top_row *rows; /* owned */
    size_t n;
};

static void look_done(struct top_look *l)
{
    for (size_t i = 0; i < l->n; i++) {
        json_decref(l->rows[i].sandbox);
        json_decref(l->rows[i].metrics);
    }
    free(l->rows);
    *l = (struct top_look){0};
}

static int64_t busy_ms(json_t *metrics)
{
    json_t *cpu = json_object_get(metrics, "cpu");

    return json_get_int(cpu, "user_ms", 0) + json_get_int(cpu, "system_ms", 0);
}

static void row_measure(struct cli *cli, struct top_row *row, const struct top_look *before)
{
    const char *id = json_get_string(row->sandbox, "id", "");
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/metrics", id);
    struct http_json_opts opts = {
        .method = "GET", .target = target, .deadline_ns = deadline_in_ms(TOP_METRICS_MS)};

    row->cpu_percent = -1;
    if (cli_call_opts(cli, &opts, &row->metrics, /* e */ NULL) < 0) {
        row->metrics = NULL;
        return;
    }
    row->when_ns = clock_now_ns();
    for (size_t i = 0; i < before->n; i++) {
        const struct top_row *old = &before->rows[i];
        double ms = (double)(row->when_ns - old->when_ns) / (double)NS_PER_MS;

        if (old->metrics && ms > 0 && str_eq(json_get_string(old->sandbox, "id", ""), id)) {
            /* A guest that started afresh counts from zero again. */
            row->cpu_percent =
                (double)MAX(busy_ms(row->metrics) - busy_ms(old->metrics), (int64_t)0) * 100 / ms;
        }
    }
}

static bool top_wanted(const struct args *a, const char *id)
{
    for (size_t i = 0; i < a->n_operands; i++) {
        if (str_starts(id, a->operands[i])) {
            return true;
        }
    }
    return a->n_operands == 0;
}

static int look_take(struct cli *cli, const struct top_look *before, struct top_look *ret,
                     struct err *e)
{
    cleanup_json json_t *list = NULL;
    int r;

    r = cli_list(cli, "/v1/sandboxes?state=running", "sandboxes", 0, &list, e);
    if (r < 0) {
        return r;
    }
    *ret = (struct top_look){.rows = xnew_n(struct top_row, json_array_size(list) + 1)};
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *sandbox = json_array_get(list, i);

        if (top_wanted(cli->args, json_get_string(sandbox, "id", ""))) {
            struct top_row *row = &ret->rows[ret->n++];

            row->sandbox = json_incref(sandbox);
            row_measure(cli, row, before);
        }
    }
    return 0;
}

static void cell_bytes(struct table *t, int64_t bytes)
{
    char text[32];

    if (bytes < 0) {
        table_cell(t, NULL);
        return;
    }
    ui_size((uint64_t)bytes, text, sizeof(text));
    table_cell(t, text);
}

static void look_print(struct cli *cli, const struct top_look *l, FILE *out, unsigned width)
{
    static const struct table_column columns[] = {
        {.title = "ID"},
        {.title = "TEMPLATE", .cut = true},
        {.title = "CPU%", .right = true},
        {.title = "CPUS", .right = true},
        {.title = "MEMORY", .right = true},
        {.title = "OF", .right = true},
        {.title = "LOAD", .right = true},
        {.title = "THREADS", .right = true},
        {.title = "AGE", .right = true},
    };
    int64_t now_ms = (int64_t)clock_wall_ms();
    struct table t;

    table_init(&t, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < l->n; i++) {
        const struct top_row *row = &l->rows[i];
        json_t *memory = json_object_get(row->metrics, "memory");
        int64_t total = json_get_int(memory, "total_bytes", -1);
        int64_t available = json_get_int(memory, "available_bytes", -1);
        int64_t made_ms = json_get_int(row->sandbox, "created_at_ms", now_ms);
        double load = json_number_value(json_array_get(json_object_get(row->metrics, "load"), 0));
        char age[32];

        ui_age(made_ms < now_ms ? (uint64_t)(now_ms - made_ms) / 1000 : 0, age, sizeof(age));
        table_cell(&t, json_get_string(row->sandbox, "id", NULL));
        table_cell(&t, json_get_string(row->sandbox, "template", NULL));
        if (row->cpu_percent < 0) {
            table_cell(&t, NULL);
        } else {
            table_cellf(&t, "%.1f", row->cpu_percent);
        }
        table_cellf(&t, "%" PRId64, json_get_int(row->sandbox, "vcpus", 0));
        cell_bytes(&t, total >= 0 && available >= 0 && available <= total ? total - available : -1);
        cell_bytes(&t, total);
        table_cellf(&t, "%.2f", load);
        table_cellf(&t, "%" PRId64, json_get_int(row->metrics, "threads", 0));
        table_cell(&t, age);
    }
    table_print(&t, &cli->ui, out, width);
    table_done(&t);
}

static void look_json(struct cli *cli, const struct top_look *l)
{
    cleanup_json json_t *list = json_array();
    cleanup_json json_t *doc = NULL;

    for (size_t i = 0; i < l->n; i++) {
        const struct top_row *row = &l->rows[i];
        json_t *item = json_pack("{s:O}", "sandbox", row->sandbox);

        json_object_set(item, "metrics", row->metrics ? row->metrics : json_null());
        json_object_set_new(item, "cpu_percent",
                            row->cpu_percent < 0 ? json_null() : json_real(row->cpu_percent));
        json_array_append_new(list, item);
    }
    doc = json_pack("{s:O}", "sandboxes", list);
    cli_print_json(cli, doc);
}

/* True: the user wants to end. */
static bool top_pause(const struct sigs *sigs, bool keys, uint64_t until_ns)
{
    struct pollfd p[] = {{.fd = sigs->fd, .events = POLLIN},
                         {.fd = keys ? STDIN_FILENO : -1, .events = POLLIN}};

    while (!deadline_passed(until_ns)) {
        char c = 0;
        int signo;

        if (poll(p, ARRAY_SIZE(p), deadline_poll_ms(until_ns)) <= 0) {
            continue;
        }
        if (p[0].revents) {
            signo = sigs_read(sigs);
            if (sigs_is_end(signo)) {
                return true;
            }
            /* The window changed: draw at once. */
            if (signo == SIGWINCH) {
                return false;
            }
        }
        if (p[1].revents &&
            (read(STDIN_FILENO, &c, 1) <= 0 || c == 'q' || c == 'Q' || c == '\003')) {
            return true;
        }
    }
    return false;
}

/* The whole screen in one write, so that it does not flicker. */
static void top_draw(struct cli *cli, const struct top_look *l)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    ASSERT(out);
    look_print(cli, l, out, ui_width(&cli->ui));
    fclose(out);
    fputs("\033[H", stdout);
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "\n");

        printf("%.*s\033[K\r\n", (int)n, at);
        at += n + (at[n] ? 1 : 0);
    }
    fputs("\033[J", stdout);
    fflush(stdout);
    free(text);
}

static int top_live(struct cli *cli, uint64_t interval_ms, struct err *e)
{
    struct sigs sigs = SIGS_INIT;
    CLEANUP(look_done) struct top_look now = {0};
    bool keys = isatty(STDIN_FILENO);
    int r;

    r = sigs_open(&sigs, /* with_window */ true, e);
    if (r < 0) {
        return r;
    }
    if (keys && rawtty_enter(STDIN_FILENO, e) < 0) {
        keys = false;
    }
    fputs("\033[?1049h\033[?25l", stdout);
    do {
        CLEANUP(look_done) struct top_look next = {0};

        r = look_take(cli, &now, &next, e);
        if (r < 0) {
            break;
        }
        look_done(&now);
        now = next;
        next = (struct top_look){0};
        top_draw(cli, &now);
    } while (!top_pause(&sigs, keys, deadline_in_ms(interval_ms)));
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    rawtty_leave();
    sigs_done(&sigs);
    return r;
}

static int top_once(struct cli *cli, struct err *e)
{
    CLEANUP(look_done) struct top_look first = {0};
    CLEANUP(look_done) struct top_look second = {0};
    struct sigs sigs = SIGS_INIT;
    bool ended = false;
    int r;

    r = look_take(cli, &(struct top_look){0}, &first, e);
    if (r == 0 && first.n > 0) {
        r = sigs_open(&sigs, /* with_window */ false, e);
        ended = r < 0 || top_pause(&sigs, /* keys */ false, deadline_in_ms(1000));
        sigs_done(&sigs);
    }
    if (r == 0 && !ended) {
        r = look_take(cli, &first, &second, e);
    }
    if (r < 0) {
        return r;
    }
    if (cli->args->json) {
        look_json(cli, &second);
    } else {
        look_print(cli, &second, stdout, ui_width(&cli->ui));
    }
    return 0;
}

int verb_top(struct cli *cli)
{
    const struct args *a = cli->args;
    uint64_t interval_s = a->interval_s ? a->interval_s : TOP_INTERVAL_S;
    struct err e = {0};
    int r;

    r = cli_connect(cli, &e);
    if (r == 0) {
        bool live = cli->ui.out_tty && !a->once && !a->json;

        r = live ? top_live(cli, interval_s * 1000, &e) : top_once(cli, &e);
    }
    if (r < 0) {
        ui_error(&cli->ui, &e);
        return CLI_EXIT_FAILED;
    }
    return CLI_EXIT_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs about the nodes of a cluster, for operators. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/verbs.h"

#define NODES "/v1/nodes"
#define POLL_MS 1000
/* A drain that gets nowhere for so long is at its end: what is left stays. */
#define STUCK_MS 150000

static int failed(struct cli *cli, const struct err *e)
{
    ui_error(&cli->ui, e);
    return CLI_EXIT_FAILED;
}

/* One exchange about the node of the first operand. method NULL: GET. */
static int call(struct cli *cli, const char *method, const json_t *body, json_t **ret,
                struct err *e)
{
    cleanup_buf struct buf target = BUF_INIT(1024);

    if (buf_add_str(&target, NODES "/") < 0 || cli_encode(&target, cli->args->operands[0]) < 0) {
        return err_set(e, -EINVAL, "usage", "that is too long for the name of a node");
    }
    return cli_call(cli, method, buf_str(&target), body, ret, e);
}

/* ---- showing ---- */

static void cell_size(struct table *t, int64_t bytes)
{
    char size[32];

    if (bytes <= 0) {
        table_cell(t, NULL);
        return;
    }
    ui_size((uint64_t)bytes, size, sizeof(size));
    table_cell(t, size);
}

static void row(struct table *t, json_t *node)
{
    json_t *cap = json_object_get(node, "capacity");

    table_cell(t, json_get_string(node, "name", NULL));
    table_cell(t, json_get_string(node, "health", NULL));
    table_cell(t, json_get_string(node, "wanted", NULL));
    table_cellf(t, "%" PRId64, json_get_int(node, "sandboxes", 0));
    table_cellf(t, "%" PRId64, json_get_int(cap, "vcpus", 0));
    cell_size(t, json_get_int(cap, "memory_free_mib", 0) << 20);
    cell_size(t, json_get_int(cap, "pool_free_bytes", 0));
    table_cellf(t, "%" PRId64, json_get_int(cap, "warm", 0));
    table_cell(t, json_get_string(node, "accel", NULL));
    table_cell(t, json_get_string(node, "address", NULL));
}

int verb_node_ls(struct cli *cli)
{
    static const struct table_column columns[] = {{.title = "NODE"},
                                                  {.title = "HEALTH"},
                                                  {.title = "WANTED"},
                                                  {.title = "SANDBOXES", .right = true},
                                                  {.title = "CPUS", .right = true},
                                                  {.title = "MEMORY FREE", .right = true},
                                                  {.title = "POOL FREE", .right = true},
                                                  {.title = "WARM", .right = true},
                                                  {.title = "ACCEL"},
                                                  {.title = "ADDRESS", .cut = true}};
    cleanup_json json_t *answer = NULL;
    struct err e = {0};
    struct table t;
    json_t *list;
    int r = cli_connect(cli, &e);

    r = r < 0 ? r : cli_call(cli, "GET", NODES, /* body */ NULL, &answer, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, answer);
        return CLI_EXIT_OK;
    }
    list = json_object_get(answer, "nodes");
    if (cli->args->quiet) {
        for (size_t i = 0; i < json_array_size(list); i++) {
            printf("%s\n", json_get_string(json_array_get(list, i), "name", ""));
        }
        return CLI_EXIT_OK;
    }
    if (json_array_size(list) == 0) {
        ui_note(&cli->ui,
                "no nodes were added: there is this machine's own; see 'space node add --help'");
        return CLI_EXIT_OK;
    }
    table_init(&t, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        row(&t, json_array_get(list, i));
    }
    table_print(&t, &cli->ui, stdout, ui_width(&cli->ui));
    table_done(&t);
    return CLI_EXIT_OK;
}

static void print_node(struct cli *cli, json_t *node)
{
    static const char *const words[] = {"name",    "id",    "address",     "health",    "wanted",
                                        "version", "accel", "vmm_version", "cpu_model", "kernel"};
    json_t *templates = json_object_get(node, "templates");

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        const char *value = json_get_string(node, words[i], "");

        if (value[0]) {
            printf("%-12s %s\n", words[i], value);
        }
    }
    printf("%-12s %" PRId64 "\n", "sandboxes", json_get_int(node, "sandboxes", 0));
    if (json_is_integer(json_object_get(node, "lease_left_ms"))) {
        printf("%-12s %.1f s\n", "lease left",
               (double)json_get_int(node, "lease_left_ms", 0) / 1e3);
    }
    if (json_is_integer(json_object_get(node, "told_ago_ms"))) {
        printf("%-12s %.1f s ago\n", "told", (double)json_get_int(node, "told_ago_ms", 0) / 1e3);
    }
    for (size_t i = 0; i < json_array_size(templates); i++) {
        printf("%-12s %s\n", i == 0 ? "templates" : "",
               json_string_value(json_array_get(templates, i)));
    }
    fflush(stdout);
    IGNORE_RESULT(cli);
}

static int show(struct cli *cli, int r, json_t *node, struct err *e)
{
    if (r < 0) {
        return failed(cli, e);
    }
    if (cli->args->json) {
        cli_print_json(cli, node);
    } else if (!cli->args->quiet) {
        print_node(cli, node);
    }
    return CLI_EXIT_OK;
}

int verb_node_show(struct cli *cli)
{
    cleanup_json json_t *node = NULL;
    struct err e = {0};
    int r = cli_connect(cli, &e);

    r = r < 0 ? r : call(cli, "GET", NULL, &node, &e);
    return show(cli, r, node, &e);
}

/* ---- changing ---- */

int verb_node_add(struct cli *cli)
{
    cleanup_json json_t *body =
        json_pack("{s:s, s:s}", "name", cli->args->operands[0], "address", cli->args->operands[1]);
    cleanup_json json_t *node = NULL;
    struct err e = {0};
    int r = body ? cli_connect(cli, &e)
                 : err_set(&e, -EINVAL, "usage", "name and address must be UTF-8");

    r = r < 0 ? r : cli_call(cli, "POST", NODES, body, &node, &e);
    return show(cli, r, node, &e);
}

static int want(struct cli *cli, const char *wanted, json_t **ret, struct err *e)
{
    cleanup_json json_t *body = json_pack("{s:s}", "wanted", wanted);
    int r = cli_connect(cli, e);

    return r < 0 ? r : call(cli, "PATCH", body, ret, e);
}

int verb_node_cordon(struct cli *cli)
{
    cleanup_json json_t *node = NULL;
    struct err e = {0};
    int r = want(cli, "cordoned", &node, &e);

    return show(cli, r, node, &e);
}

int verb_node_uncordon(struct cli *cli)
{
    cleanup_json json_t *node = NULL;
    struct err e = {0};
    int r = want(cli, "ready", &node, &e);

    return show(cli, r, node, &e);
}

/* Until it is empty, nothing has moved for too long, or the time is over; returns how many are there still. */
static int wait_empty(struct cli *cli, int64_t *ret_left, struct err *e)
{
    CLEANUP(progress_endp)
    struct progress *p = progress_start(&cli->ui, "draining %s", cli->args->operands[0]);
    uint64_t end_ns = cli->args->timeout_s > 0
                          ? deadline_in_ms((uint64_t)cli->args->timeout_s * 1000)
                          : UINT64_MAX;
    uint64_t stuck_ns = deadline_in_ms(STUCK_MS);
    int64_t first = -1;

    for (;;) {
        cleanup_json json_t *node = NULL;
        int r = call(cli, "GET", NULL, &node, e);
        int64_t left = json_get_int(node, "sandboxes", 0);

        if (r < 0) {
            return r;
        }
        if (first < 0 || left < *ret_left) {
            stuck_ns = deadline_in_ms(STUCK_MS);
        }
        first = MAX(first, left);
        *ret_left = left;
        progress_text(p, "draining %s: %" PRId64 " of %" PRId64 " sandboxes are still there",
                      cli->args->operands[0], left, first);
        if (left == 0 || deadline_passed(end_ns) || deadline_passed(stuck_ns)) {
            return 0;
        }
        IGNORE_RESULT(poll(NULL, 0, POLL_MS)); /* the API has no event for it */
    }
}

int verb_node_drain(struct cli *cli)
{
    cleanup_json json_t *node = NULL;
    struct err e = {0};
    int64_t left = 0;
    int r = want(cli, "draining", &node, &e);

    r = r < 0 || cli->args->no_wait ? r : wait_empty(cli, &left, &e);
    if (r == 0 && left > 0) {
        r = err_set(&e, -EBUSY, "node_not_empty",
                    "%" PRId64
                    " sandboxes are still there: those that are stopped, or have snapshots "
                    "that are kept, stay until they are started elsewhere or deleted; others wait "
                    "for room, see 'space schedule explain'",
                    left);
    }
    return show(cli, r, node, &e);
}

int verb_node_rm(struct cli *cli)
{
    struct err e = {0};
    int r = cli_connect(cli, &e);

    r = r < 0 ? r : call(cli, "DELETE", NULL, NULL, &e);
    return r < 0 ? failed(cli, &e) : CLI_EXIT_OK;
}

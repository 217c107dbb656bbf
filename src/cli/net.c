/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs about what a sandbox may reach. */
#include "cli/net.h"

#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "cli/output.h"
#include "cli/sandbox.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "model/netpolicy.h"
#include "wire/url.h"

#define LOG_PAGE 200

/* A word is a preset; anything else is the name of a file. */
int net_read(const char *text, json_t **ret, struct err *e)
{
    static const char *const presets[] = {"none", "registries", "internet", "inherit"};
    cleanup_buf struct buf file = BUF_INIT(NETPOLICY_TEXT_MAX);
    int r;

    for (size_t i = 0; i < ARRAY_SIZE(presets); i++) {
        if (str_eq(text, presets[i])) {
            *ret = json_pack("{s:s}", "preset", text);
            return 0;
        }
    }
    r = fs_read_file(AT_FDCWD, text, &file);
    if (r < 0) {
        return err_wrap(
            e, r, "'%s' is no preset (none, registries, internet, inherit), and reading it", text);
    }
    r = json_parse_object(buf_str(&file), file.len, ret, e);
    return r < 0 ? err_wrap(e, r, "the network policy in '%s'", text) : 0;
}

static int net_call(struct cli *cli, const char *method, const char *rest, const json_t *body,
                    json_t **ret, struct err *e)
{
    cleanup_free char *target = NULL;
    char id[ID_SIZE];
    int r = cli_connect(cli, e);

    r = r < 0 ? r : cli_sandbox_id(cli, cli->args->operands[0], id, e);
    if (r < 0) {
        return r;
    }
    target = xasprintf("/v1/sandboxes/%s/network%s", id, rest);
    return cli_call(cli, method, target, body, ret, e);
}

static int failed(struct cli *cli, const struct err *e)
{
    ui_error(&cli->ui, e);
    return CLI_EXIT_FAILED;
}

static int show(struct cli *cli, json_t *answer)
{
    if (cli->args->json) {
        cli_print_json(cli, answer);
    } else {
        sandbox_print_object(cli, answer);
    }
    return CLI_EXIT_OK;
}

int verb_net_show(struct cli *cli)
{
    cleanup_json json_t *answer = NULL;
    struct err e = {0};

    return net_call(cli, "GET", "", NULL, &answer, &e) < 0 ? failed(cli, &e) : show(cli, answer);
}

int verb_net_set(struct cli *cli)
{
    cleanup_json json_t *policy = NULL;
    cleanup_json json_t *answer = NULL;
    struct err e = {0};
    int r = net_read(cli->args->operands[1], &policy, &e);

    r = r < 0 ? r : net_call(cli, "PATCH", "", policy, &answer, &e);
    return r < 0 ? failed(cli, &e) : show(cli, answer);
}

/* "organisation", or a project's name or id; with a second operand, it is set. */
int verb_net_level(struct cli *cli)
{
    const struct args *a = cli->args;
    cleanup_buf struct buf target = BUF_INIT(1024);
    cleanup_json json_t *policy = NULL;
    cleanup_json json_t *answer = NULL;
    const char *level = a->operands[0];
    struct err e = {0};
    int r = a->n_operands > 1 ? net_read(a->operands[1], &policy, &e) : 0;

    if (r == 0 && str_eq(level, "organisation")) {
        r = buf_add_str(&target, "/v1/organisation/network");
    } else if (r == 0) {
        r = buf_add_str(&target, "/v1/projects/");
        r = r < 0 ? r : url_encode(&target, level, strlen(level), 0);
        r = r < 0 ? r : buf_add_str(&target, "/network");
        r = r < 0 ? err_wrap(&e, r, "the name '%.60s'", level) : 0;
    }
    r = r < 0 ? r : cli_connect(cli, &e);
    r = r < 0 ? r : cli_call(cli, policy ? "PUT" : "GET", buf_str(&target), policy, &answer, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    cli_print_json(cli, a->json ? answer : json_object_get(answer, "network"));
    return CLI_EXIT_OK;
}

int verb_net_propose(struct cli *cli)
{
    cleanup_json json_t *answer = NULL;
    struct err e = {0};

    if (net_call(cli, "GET", "/proposal", NULL, &answer, &e) < 0) {
        return failed(cli, &e);
    }
    cli_print_json(cli, json_object_get(answer, "network"));
    return CLI_EXIT_OK;
}

/* A request: "GET host/path"; else the host or the address. */
static void log_where(struct table *t, json_t *entry)
{
    const char *host = json_get_string(entry, "host", json_get_string(entry, "addr", "?"));

    if (str_eq(json_get_string(entry, "kind", ""), "request")) {
        table_cellf(t, "%s %s%s", json_get_string(entry, "method", "?"), host,
                    json_get_string(entry, "path", ""));
    } else {
        table_cell(t, host);
    }
}

static void log_number(struct table *t, json_t *entry, const char *name)
{
    if (json_object_get(entry, name)) {
        table_cellf(t, "%lld", (long long)json_get_int(entry, name, 0));
    } else {
        table_cell(t, NULL);
    }
}

static void log_table(struct cli *cli, const json_t *entries)
{
    static const struct table_column columns[] = {
        {.title = "WHEN"},
        {.title = "DECISION"},
        {.title = "HOST", .cut = true},
        {.title = "PORT", .right = true},
        {.title = "STATUS", .right = true},
        {.title = "CREDENTIAL"},
        {.title = "UP", .right = true},
        {.title = "DOWN", .right = true},
        {.title = "WHY"},
    };
    struct table t;

    table_init(&t, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < json_array_size(entries); i++) {
        json_t *entry = json_array_get(entries, i);
        int64_t rule = json_get_int(entry, "rule", -1);
        int64_t port = json_get_int(entry, "port", 53);

        sandbox_cell_when(&t, json_get_int(entry, "at_ms", 0));
        table_cell(&t, json_get_string(entry, "action", NULL));
        log_where(&t, entry);
        table_cellf(&t, "%lld", (long long)port);
        log_number(&t, entry, "status");
        table_cell(&t, json_get_string(entry, "credential", NULL));
        log_number(&t, entry, "bytes_up");
        log_number(&t, entry, "bytes_down");
        if (json_is_string(json_object_get(entry, "reason"))) {
            table_cell(&t, json_get_string(entry, "reason", NULL));
        } else if (rule >= 0) {
            table_cellf(&t, "%s, rule %lld", json_get_string(entry, "level", "sandbox"),
                        (long long)rule);
        } else {
            table_cell(&t, json_get_bool(entry, "observed", false) ? "observed" : NULL);
        }
    }
    table_print(&t, &cli->ui, stdout, ui_width(&cli->ui));
    table_done(&t);
}

int verb_net_log(struct cli *cli)
{
    cleanup_free char *rest = xasprintf("/log?limit=%d", LOG_PAGE);
    cleanup_json json_t *answer = NULL;
    struct err e = {0};

    if (net_call(cli, "GET", rest, NULL, &answer, &e) < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, json_object_get(answer, "entries"));
    } else {
        log_table(cli, json_object_get(answer, "entries"));
    }
    return CLI_EXIT_OK;
}

static void top_table(struct cli *cli, json_t *status)
{
    static const struct table_column columns[] = {
        {.title = "HOST", .cut = true}, {.title = "PORT", .right = true}, {.title = "STATE"},
        {.title = "UP", .right = true}, {.title = "DOWN", .right = true},
    };
    json_t *open = json_object_get(status, "open");
    struct table t;

    table_init(&t, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < json_array_size(open); i++) {
        json_t *c = json_array_get(open, i);

        table_cell(&t, json_get_string(c, "host", json_get_string(c, "addr", NULL)));
        table_cellf(&t, "%lld", (long long)json_get_int(c, "port", 0));
        table_cell(&t, json_get_string(c, "state", NULL));
        table_cellf(&t, "%lld", (long long)json_get_int(c, "bytes_up", 0));
        table_cellf(&t, "%lld", (long long)json_get_int(c, "bytes_down", 0));
    }
    table_print(&t, &cli->ui, stdout, ui_width(&cli->ui));
    table_done(&t);
}

int verb_net_top(struct cli *cli)
{
    cleanup_json json_t *answer = NULL;
    struct err e = {0};

    if (net_call(cli, "GET", "", NULL, &answer, &e) < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, json_object_get(answer, "status"));
    } else {
        top_table(cli, json_object_get(answer, "status"));
    }
    return CLI_EXIT_OK;
}

/* What decides, and where there are several levels, what each says by itself. */
static void print_explanation(json_t *answer)
{
    json_t *levels = json_object_get(answer, "levels");

    printf("%s: %s\n", json_get_string(answer, "action", "?"),
           json_get_string(answer, "explanation", "?"));
    for (size_t i = 0; json_array_size(levels) > 1 && i < json_array_size(levels); i++) {
        json_t *level = json_array_get(levels, i);

        printf("  %s: %s: %s\n", json_get_string(level, "level", "?"),
               json_get_string(level, "action", "nothing"),
               json_get_string(level, "explanation", "?"));
    }
}

int verb_net_explain(struct cli *cli)
{
    const struct args *a = cli->args;
    cleanup_json json_t *question = NULL;
    cleanup_json json_t *answer = NULL;
    struct err e = {0};
    uint64_t port = 0;
    int r = str_to_u64(a->operands[2], UINT16_MAX, &port);

    if (r < 0) {
        r = err_set(&e, -EINVAL, "usage", "'%s' is no port", a->operands[2]);
    } else {
        question = json_pack("{s:s, s:i}", "host", a->operands[1], "port", (int)port);
        r = question ? net_call(cli, "POST", "/explain", question, &answer, &e)
                     : err_set(&e, -EINVAL, "usage", "a host must be UTF-8");
    }
    if (r < 0) {
        return failed(cli, &e);
    }
    if (a->json) {
        cli_print_json(cli, answer);
    } else {
        print_explanation(answer);
    }
    return CLI_EXIT_OK;
}

static int answer_ask(struct cli *cli, bool allow)
{
    cleanup_json json_t *body = json_pack("{s:b}", "allow", allow);
    cleanup_json json_t *answer = NULL;
    uint64_t remember_s = cli->args->remember_s;
    cleanup_free char *rest = NULL;
    struct err e = {0};
    uint64_t number = 0;
    int r = str_to_u64(cli->args->operands[1], INT64_MAX, &number);

    if (r < 0) {
        err_set(&e, -EINVAL, "usage", "'%s' is no number of 'space net show'",
                cli->args->operands[1]);
        return failed(cli, &e);
    }
    if (remember_s > 0) {
        json_object_set_new(body, "remember_s", json_integer((json_int_t)remember_s));
    }
    rest = xasprintf("/asks/%llu", (unsigned long long)number);
    return net_call(cli, "POST", rest, body, &answer, &e) < 0 ? failed(cli, &e) : CLI_EXIT_OK;
}

int verb_net_approve(struct cli *cli)
{
    return answer_ask(cli, true);
}

int verb_net_deny(struct cli *cli)
{
    return answer_ask(cli, false);
}

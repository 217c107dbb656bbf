/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/sandbox.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/net.h"
#include "cli/policy.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "wire/url.h"

#define KEY_SIZE 33
#define CREATE_TRIES 3u

int64_t sandbox_time(json_t *object, const char *name)
{
    return json_get_int(object, name, 0);
}

int sandbox_shape_body(const struct args *a, json_t **ret, struct err *e)
{
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"vcpus", a->vcpus},
        {"memory_mib", a->memory_mib},
        {"disk_mib", a->disk_mib},
    };
    cleanup_json json_t *body = json_object();
    json_t *part = NULL;

    ASSERT(body);
    if (a->template) {
        int r = cli_json_text(a->template, "the name of a template", &part, e);

        if (r < 0) {
            return r;
        }
        json_object_set_new(body, "template", part);
    }
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        if (numbers[i].value > 0) {
            json_object_set_new(body, numbers[i].name, json_integer((json_int_t)numbers[i].value));
        }
    }
    *ret = TAKE_PTR(body);
    return 0;
}

static int sandbox_body(const struct args *a, uint64_t timeout_s, json_t *env, json_t **ret,
                        struct err *e)
{
    cleanup_json json_t *body = NULL;
    json_t *part = NULL;
    int r = sandbox_shape_body(a, &body, e);

    if (r < 0) {
        return r;
    }
    if (env && json_object_size(env) > 0) {
        json_object_set(body, "env", env);
    }
    if (a->metadata.n > 0) {
        r = cli_pairs(&a->metadata, "metadata", &part, e);
        if (r < 0) {
            return r;
        }
        json_object_set_new(body, "metadata", part);
    }
    if (a->policy) {
        r = policy_read(a->policy, &part, e);
        if (r < 0) {
            return r;
        }
        json_object_set_new(body, "policy", part);
    }
    if (a->network) {
        r = net_read(a->network, &part, e);
        if (r < 0) {
            return r;
        }
        json_object_set_new(body, "network", part);
    }
    if (timeout_s != UINT64_MAX) {
        json_object_set_new(body, "timeout_s", json_integer((json_int_t)timeout_s));
    }
    *ret = TAKE_PTR(body);
    return 0;
}

/* What a new attempt with the same idempotency key can repair: the connection, not the request. */
static bool error_is_broken_connection(const struct err *e)
{
    return e->code == -ECONNRESET || e->code == -EPIPE || str_eq(e->reason, "answer_cut");
}

int sandbox_post_once(struct cli *cli, const char *target, const json_t *body,
                      const struct pollfd *watch, json_t **ret, struct err *e)
{
    struct http_headers headers = HTTP_HEADERS_INIT;
    struct err mine = {0};
    unsigned char random[(KEY_SIZE - 1) / 2];
    char key[KEY_SIZE];
    int r = 0;

    random_bytes(random, sizeof(random));
    hex_encode(random, sizeof(random), key);
    http_headers_add(&headers, "Idempotency-Key", key);
    for (unsigned i = 0; i < CREATE_TRIES; i++) {
        struct http_json_opts opts = {
            .method = "POST",
            .target = target,
            .body = body,
            .headers = &headers,
            .deadline_ns = deadline_in_ms(CLI_CREATE_TIMEOUT_MS),
            .watch = watch,
        };

        mine = (struct err){0};
        r = cli_call_opts(cli, &opts, ret, &mine);
        if (r == 0 || !error_is_broken_connection(&mine)) {
            break;
        }
    }
    http_headers_done(&headers);
    if (r < 0 && e) {
        *e = mine;
    }
    return r;
}

int sandbox_create(struct cli *cli, uint64_t timeout_s, json_t *env, const struct pollfd *watch,
                   json_t **ret, struct err *e)
{
    cleanup_json json_t *body = NULL;
    int r;

    r = sandbox_body(cli->args, timeout_s, env, &body, e);
    r = r < 0 ? r : sandbox_post_once(cli, "/v1/sandboxes", body, watch, ret, e);
    if (r == 0 && !id_valid(ID_SANDBOX, json_get_string(*ret, "id", ""))) {
        json_decref(*ret);
        return err_set(e, -EBADMSG, "bad_answer",
                       "the service made a sandbox but gave no valid id");
    }
    return r;
}

int sandbox_remove(struct cli *cli, const char *id, bool missing_ok, struct err *e)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s", id);
    struct err mine = {0};
    int r;

    r = cli_call(cli, "DELETE", target, /* body */ NULL, /* ret */ NULL, &mine);
    if (r == -ENOENT && missing_ok) {
        return 0;
    }
    if (r < 0 && e) {
        *e = mine;
    }
    return r;
}

static int failed(struct cli *cli, const struct err *e)
{
    ui_error(&cli->ui, e);
    return CLI_EXIT_FAILED;
}

int verb_create(struct cli *cli)
{
    const struct args *a = cli->args;
    cleanup_json json_t *env = NULL;
    cleanup_json json_t *sandbox = NULL;
    uint64_t started_ns = clock_now_ns();
    struct progress *progress;
    struct err e = {0};
    int r;

    r = cli_connect(cli, &e);
    if (r == 0) {
        r = cli_pairs(&a->env, "env", &env, &e);
    }
    if (r < 0) {
        return failed(cli, &e);
    }
    progress = progress_start(&cli->ui, "making a sandbox");
    r = sandbox_create(cli, a->timeout_given ? a->timeout_s : UINT64_MAX, env, /* watch */ NULL,
                       &sandbox, &e);
    progress_end(progress);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (a->json) {
        cli_print_json(cli, sandbox);
        return CLI_EXIT_OK;
    }
    printf("%s\n", json_get_string(sandbox, "id", ""));
    if (cli->ui.err_tty) {
        ui_note(&cli->ui, "%s, %s after %.1f s", json_get_string(sandbox, "template", "?"),
                json_get_string(sandbox, "state", "?"),
                (double)(clock_now_ns() - started_ns) / (double)NS_PER_S);
    }
    return CLI_EXIT_OK;
}

static void cell_mib(struct table *t, json_t *object, const char *name)
{
    int64_t mib = json_get_int(object, name, -1);
    char text[32];

    if (mib < 0) {
        table_cell(t, NULL);
        return;
    }
    ui_size((uint64_t)mib << 20, text, sizeof(text));
    table_cell(t, text);
}

static void cell_age(struct table *t, json_t *object, const char *name)
{
    int64_t then_ms = sandbox_time(object, name);
    int64_t now_ms = (int64_t)clock_wall_ms();
    char text[32];

    if (then_ms <= 0) {
        table_cell(t, NULL);
        return;
    }
    ui_age(then_ms < now_ms ? (uint64_t)(now_ms - then_ms) / 1000 : 0, text, sizeof(text));
    table_cell(t, text);
}

static void cell_map(struct table *t, json_t *map)
{
    cleanup_buf struct buf b = BUF_INIT(UI_TEXT_MAX);
    const char *name;
    json_t *value;

    json_object_foreach(map, name, value)
    {
        const char *text = json_is_string(value) ? json_string_value(value) : "...";

        if (buf_printf(&b, "%s%s=%s", b.len ? " " : "", name, text) < 0) {
            break;
        }
    }
    table_cell(t, buf_str(&b));
}

static int ls_target(const struct args *a, struct buf *b, struct err *e)
{
    int r;

    r = buf_add_str(b, "/v1/sandboxes");
    if (r == 0 && a->state) {
        r = url_add_query(b, "state", a->state);
    }
    if (r == 0 && a->builders) {
        r = url_add_query(b, "builders", "true");
    }
    for (size_t i = 0; r == 0 && i < a->metadata.n; i++) {
        const char *equals = strchr(a->metadata.items[i], '=');

        if (!equals || equals == a->metadata.items[i]) {
            return err_set(e, -EINVAL, "usage", "'--metadata' wants NAME=VALUE, not '%s'",
                           a->metadata.items[i]);
        }
        cleanup_free char *name =
            xasprintf("metadata.%.*s", (int)(equals - a->metadata.items[i]), a->metadata.items[i]);
        r = url_add_query(b, name, equals + 1);
    }
    return r < 0 ? err_wrap(e, r, "the filters are too long") : 0;
}

static void ls_table(struct cli *cli, json_t *list)
{
    static const struct table_column columns[] = {
        {.title = "ID"},
        {.title = "TEMPLATE", .cut = true},
        {.title = "STATE"},
        {.title = "CPUS", .right = true},
        {.title = "MEMORY", .right = true},
        {.title = "DISK", .right = true},
        {.title = "AGE", .right = true},
        {.title = "METADATA", .cut = true},
    };
    struct table t;

    table_init(&t, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *s = json_array_get(list, i);

        table_cell(&t, json_get_string(s, "id", NULL));
        table_cell(&t, json_get_string(s, "template", NULL));
        table_cell(&t, json_get_string(s, "state", NULL));
        table_cellf(&t, "%" PRId64, json_get_int(s, "vcpus", 0));
        cell_mib(&t, s, "memory_mib");
        cell_mib(&t, s, "disk_mib");
        cell_age(&t, s, "created_at_ms");
        cell_map(&t, json_object_get(s, "metadata"));
    }
    table_print(&t, &cli->ui, stdout, ui_width(&cli->ui));
    table_done(&t);
}

/* --json keeps the API's envelope, so that a script reads .sandboxes from the command as from the API. */
static void print_envelope(struct cli *cli, const char *member, json_t *list)
{
    cleanup_json json_t *doc = json_pack("{s:O, s:n}", member, list, "next_cursor");

    cli_print_json(cli, doc);
}

int verb_ls(struct cli *cli)
{
    const struct args *a = cli->args;
    cleanup_buf struct buf target = BUF_INIT(CLI_TARGET_MAX);
    cleanup_json json_t *list = NULL;
    struct err e = {0};
    int r;

    r = cli_connect(cli, &e);
    r = r < 0 ? r : ls_target(a, &target, &e);
    r = r < 0 ? r : cli_list(cli, buf_str(&target), "sandboxes", a->limit, &list, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (a->json) {
        print_envelope(cli, "sandboxes", list);
        return CLI_EXIT_OK;
    }
    if (a->quiet) {
        for (size_t i = 0; i < json_array_size(list); i++) {
            printf("%s\n", json_get_string(json_array_get(list, i), "id", ""));
        }
        return CLI_EXIT_OK;
    }
    if (json_array_size(list) == 0 && cli->ui.out_tty) {
        ui_note(&cli->ui, "no sandboxes; make one with 'space create'");
        return CLI_EXIT_OK;
    }
    ls_table(cli, list);
    return CLI_EXIT_OK;
}

/* "memory_mib" -> "memory"; the unit goes to the value. */
static void info_value(json_t *value, const char *name, char *ret, size_t size)
{
    size_t len = strlen(name);
    bool mib = len > 4 && str_eq(name + len - 4, "_mib");
    bool bytes = len > 6 && str_eq(name + len - 6, "_bytes");
    bool ms = len > 6 && str_eq(name + len - 6, "_at_ms");
    cleanup_free char *text = NULL;

    if (json_is_integer(value) && (mib || bytes) && json_integer_value(value) >= 0) {
        ui_size((uint64_t)json_integer_value(value) << (mib ? 20 : 0), ret, size);
        return;
    }
    if (json_is_integer(value) && ms && json_integer_value(value) > 0) {
        time_t when = json_integer_value(value) / 1000;
        struct tm tm;

        localtime_r(&when, &tm);
        strftime(ret, size, "%Y-%m-%d %H:%M:%S %z", &tm);
        return;
    }
    if (json_is_null(value)) {
        snprintf(ret, size, "-");
        return;
    }
    if (json_is_string(value)) {
        text = ui_clean(json_string_value(value), json_string_length(value), /* lines */ false);
    } else {
        cleanup_free char *raw = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

        text = ui_clean(raw ? raw : "", raw ? strlen(raw) : 0, /* lines */ false);
    }
    snprintf(ret, size, "%s", text);
}

void sandbox_print_object(struct cli *cli, json_t *object)
{
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value)
    {
        char text[UI_TEXT_MAX];
        cleanup_free char *label = ui_clean(name, strlen(name), /* lines */ false);
        char *unit = strstr(label, "_mib");

        unit = unit ? unit : strstr(label, "_bytes");
        unit = unit ? unit : strstr(label, "_ms");
        if (unit && strchr(unit + 1, '_') == NULL) {
            *unit = '\0';
        }
        for (char *c = label; *c; c++) {
            *c = *c == '_' ? ' ' : *c;
        }
        info_value(value, name, text, sizeof(text));
        printf("%s%-16s%s  %s\n", ui_out_colour(&cli->ui, UI_DIM), label,
               ui_out_colour(&cli->ui, UI_PLAIN), text);
    }
}

/* How old is what is in the object store, and with it what a lost node would cost? Nothing is shown when nobody can tell. */
static void print_stored(struct cli *cli, const char *id)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/stored", id);
    cleanup_json json_t *stored = NULL;
    struct err e = {0};
    char age[32];
    int r = cli_call(cli, "GET", target, /* body */ NULL, &stored, &e);

    if (r == 0) {
        ui_age((uint64_t)MAX(json_get_int(stored, "age_ms", 0), (int64_t)0) / 1000, age,
               sizeof(age));
        printf("%s%-16s%s  %s ago\n", ui_out_colour(&cli->ui, UI_DIM), "stored",
               ui_out_colour(&cli->ui, UI_PLAIN), age);
    } else if (str_eq(e.reason, "not_stored")) {
        printf("%s%-16s%s  never: it is on its node alone\n", ui_out_colour(&cli->ui, UI_DIM),
               "stored", ui_out_colour(&cli->ui, UI_PLAIN));
    }
}

int verb_info(struct cli *cli)
{
    cleanup_json json_t *sandbox = NULL;
    cleanup_free char *target = NULL;
    char id[ID_SIZE];
    struct err e = {0};
    int r;

    r = cli_connect(cli, &e);
    r = r < 0 ? r : cli_sandbox_id(cli, cli->args->operands[0], id, &e);
    if (r == 0) {
        target = xasprintf("/v1/sandboxes/%s", id);
        r = cli_call(cli, "GET", target, /* body */ NULL, &sandbox, &e);
    }
    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, sandbox);
    } else {
        sandbox_print_object(cli, sandbox);
        print_stored(cli, id);
    }
    return CLI_EXIT_OK;
}

/* Does `one` to every sandbox named; goes on after a failure and says so in the end. */
static int each_sandbox(struct cli *cli, const char *doing, bool missing_ok,
                        int (*one)(struct cli *cli, const char *id, json_t **ret, struct err *e))
{
    cleanup_json json_t *answers = json_array();
    int code = CLI_EXIT_OK;

    for (size_t i = 0; i < cli->args->n_operands; i++) {
        cleanup_json json_t *answer = NULL;
        struct progress *progress;
        struct err e = {0};
        char id[ID_SIZE];
        int r;

        progress = progress_start(&cli->ui, "%s %s", doing, cli->args->operands[i]);
        r = cli_sandbox_id(cli, cli->args->operands[i], id, &e);
        r = r < 0 ? r : one(cli, id, &answer, &e);
        progress_end(progress);
        if (r == -ENOENT && missing_ok) {
            continue;
        }
        if (r < 0) {
            code = failed(cli, &e);
        } else if (answer) {
            json_array_append(answers, answer);
        } else {
            json_array_append_new(answers, json_pack("{s:s}", "id", id));
        }
        if (r == 0 && !cli->args->json) {
            printf("%s\n", id);
        }
    }
    if (cli->args->json) {
        cli_print_json(cli, answers);
    }
    return code;
}

int sandbox_post(struct cli *cli, const char *id, const char *word, const json_t *body,
                 json_t **ret, struct err *e)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/%s", id, word);
    struct http_json_opts opts = {.method = "POST",
                                  .target = target,
                                  .body = body,
                                  .deadline_ns = deadline_in_ms(CLI_CREATE_TIMEOUT_MS)};

    return cli_call_opts(cli, &opts, ret, e);
}

static int stop_one(struct cli *cli, const char *id, json_t **ret, struct err *e)
{
    return sandbox_post(cli, id, "stop", /* body */ NULL, ret, e);
}

static int start_one(struct cli *cli, const char *id, json_t **ret, struct err *e)
{
    return sandbox_post(cli, id, "start", /* body */ NULL, ret, e);
}

static int rm_one(struct cli *cli, const char *id, json_t **ret, struct err *e)
{
    (void)ret;
    return sandbox_remove(cli, id, /* missing_ok */ false, e);
}

int sandbox_each(struct cli *cli, const char *doing, bool missing_ok,
                 int (*one)(struct cli *cli, const char *id, json_t **ret, struct err *e))
{
    struct err e = {0};

    return cli_connect(cli, &e) < 0 ? failed(cli, &e) : each_sandbox(cli, doing, missing_ok, one);
}

int verb_stop(struct cli *cli)
{
    return sandbox_each(cli, "stopping", /* missing_ok */ false, stop_one);
}

int verb_start(struct cli *cli)
{
    return sandbox_each(cli, "starting", /* missing_ok */ false, start_one);
}

static int rm_all(struct cli *cli)
{
    cleanup_json json_t *list = NULL;
    const struct args *given = cli->args;
    struct args args = *given;
    struct err e = {0};
    int code;
    int r;

    r = cli_connect(cli, &e);
    r = r < 0 ? r : cli_list(cli, "/v1/sandboxes", "sandboxes", 0, &list, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    args.n_operands = json_array_size(list);
    args.operands = xnew_n(const char *, args.n_operands + 1);
    for (size_t i = 0; i < args.n_operands; i++) {
        args.operands[i] = json_get_string(json_array_get(list, i), "id", "");
    }
    cli->args = &args;
    code = each_sandbox(cli, "removing", /* missing_ok */ true, rm_one);
    cli->args = given;
    free(args.operands);
    return code;
}

int verb_rm(struct cli *cli)
{
    const struct args *a = cli->args;

    if (a->all == (a->n_operands > 0)) {
        ui_error(&cli->ui,
                 &(struct err){.code = -EINVAL,
                               .reason = "usage",
                               .msg = "name the sandboxes to remove, or say --all, not both"});
        return CLI_EXIT_USAGE;
    }
    return a->all ? rm_all(cli) : sandbox_each(cli, "removing", a->force, rm_one);
}

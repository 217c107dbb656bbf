/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs about secrets that sandboxes use without seeing them. A value comes from standard input or a file, never from the command line. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "credential/audit-check.h"
#include "credential/credential.h"
#include "credential/secret.h"

static int failed(struct cli *cli, const struct err *e)
{
    ui_error(&cli->ui, e);
    return CLI_EXIT_FAILED;
}

/* ---- what is said on the command line ---- */

static int put_text(json_t *object, const char *name, const char *text, struct err *e)
{
    json_t *value = NULL;
    int r = text ? cli_json_text(text, name, &value, e) : 0;

    if (value) {
        json_object_set_new(object, name, value);
    }
    return r;
}

static int put_list(json_t *object, const char *name, const struct text_list *list, struct err *e)
{
    json_t *array = json_array();
    int r = 0;

    for (size_t i = 0; i < list->n && r == 0; i++) {
        json_t *value = NULL;

        r = cli_json_text(list->items[i], name, &value, e);
        if (value) {
            json_array_append_new(array, value);
        }
    }
    if (list->n > 0 && r == 0) {
        json_object_set(object, name, array);
    }
    json_decref(array);
    return r;
}

static int put_target(const struct args *a, json_t *body, struct err *e)
{
    cleanup_json json_t *target = json_object();
    int r = put_text(target, "host", a->host, e);

    r = r < 0 ? r : put_text(target, "path", a->path, e);
    r = r < 0 ? r : put_list(target, "methods", &a->methods, e);
    if (r == 0 && a->port > 0) {
        json_object_set_new(target, "port", json_integer((json_int_t)a->port));
    }
    if (r == 0 && json_object_size(target) > 0) {
        json_object_set(body, "target", target);
    }
    return r;
}

static int put_inject(const struct args *a, json_t *body, struct err *e)
{
    const struct {
        const char *name;
        const char *value;
    } fields[] = {
        {"type", a->inject ? a->inject : "bearer"},
        {"name", a->field},
        {"prefix", a->prefix},
        {"user", a->user},
        {"client_id", a->client_id},
        {"token_url", a->token_url},
        {"scope", a->token_scope},
        {"installation", a->installation},
        {"region", a->region},
        {"service", a->service},
    };
    cleanup_json json_t *inject = json_object();
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(fields) && r == 0; i++) {
        r = put_text(inject, fields[i].name, fields[i].value, e);
    }
    r = r < 0 ? r : put_list(inject, "in", &a->surfaces, e);
    r = r < 0 ? r : put_list(inject, "host_keys", &a->host_keys, e);
    r = r < 0 ? r : put_list(inject, "commands", &a->commands, e);
    if (r == 0 && a->refresh) {
        json_object_set_new(inject, "refresh", json_true());
    }
    if (r == 0) {
        json_object_set(body, "inject", inject);
    }
    return r;
}

/* "USES/SECONDS" */
static int put_rate(const char *text, json_t *body, struct err *e)
{
    const char *slash = text ? strchr(text, '/') : NULL;
    cleanup_free char *uses = slash ? xstrndup(text, (size_t)(slash - text)) : NULL;
    uint64_t n = 0;
    uint64_t seconds = 0;

    if (!text) {
        return 0;
    }
    if (!slash || str_to_u64(uses, UINT32_MAX, &n) < 0 ||
        str_to_u64(slash + 1, UINT32_MAX, &seconds) < 0) {
        return err_set(e, -EINVAL, "usage", "write --rate as USES/SECONDS, like 60/60");
    }
    json_object_set_new(
        body, "rate", json_pack("{s:I, s:I}", "uses", (json_int_t)n, "per_s", (json_int_t)seconds));
    return 0;
}

/* From a file or standard input, without a line's end that an editor or echo has left. */
static int put_value(const struct args *a, json_t *body, struct err *e)
{
    cleanup_secret_buf struct buf text = BUF_INIT(SECRET_MAX);
    cleanup_close int fd =
        a->value_file ? fs_open(a->value_file, O_RDONLY, 0) : fd_dup(STDIN_FILENO);
    bool of_lines;
    json_t *value;
    int r = fd < 0 ? fd : fs_read_fd(fd, &text);

    if (r < 0) {
        return err_wrap(e, r, "reading the value from %s",
                        a->value_file ? a->value_file : "standard input");
    }
    of_lines = text.len > 10 && strncmp(text.data, "-----BEGIN", 10) == 0;
    while (!of_lines && text.len > 0 &&
           (text.data[text.len - 1] == '\n' || text.data[text.len - 1] == '\r')) {
        text.data[--text.len] = '\0';
    }
    value = json_stringn(text.data ? text.data : "", text.len);
    if (!value) {
        return err_set(e, -EINVAL, "usage", "the value is not text in UTF-8");
    }
    json_object_set_new(body, "value", value);
    return 0;
}

static int add_body(const struct args *a, json_t *body, struct err *e)
{
    int r = put_text(body, "name", a->operands[0], e);

    r = r < 0 ? r : put_text(body, "scope", a->sandbox && !a->scope ? "sandbox" : a->scope, e);
    r = r < 0 ? r : put_text(body, "sandbox", a->sandbox, e);
    r = r < 0 ? r : put_text(body, "vault", a->vault, e);
    r = r < 0 ? r : put_text(body, "ref", a->ref, e);
    r = r < 0 ? r : put_target(a, body, e);
    r = r < 0 ? r : put_inject(a, body, e);
    r = r < 0 ? r : put_rate(a->rate, body, e);
    if (r == 0 && a->expires_s > 0) {
        json_object_set_new(body, "expires_at_ms",
                            json_integer((json_int_t)(clock_wall_ms() + a->expires_s * 1000)));
    }
    return r < 0 || a->ref ? r : put_value(a, body, e);
}

/* ---- the verbs ---- */

int verb_credential_add(struct cli *cli)
{
    cleanup_json json_t *body = json_object();
    cleanup_json json_t *made = NULL;
    struct err e = {0};
    int r = cli_connect(cli, &e);

    r = r < 0 ? r : add_body(cli->args, body, &e);
    r = r < 0 ? r : cli_call(cli, "POST", "/v1/credentials", body, &made, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, made);
    } else {
        printf("%s\n", json_get_string(made, "id", ""));
    }
    return CLI_EXIT_OK;
}

static void print_credential(struct table *t, json_t *c)
{
    json_t *target = json_object_get(c, "target");
    int64_t expires_ms = json_get_int(c, "expires_at_ms", 0);
    int64_t now_ms = (int64_t)clock_wall_ms();
    const char *path = json_get_string(target, "path", "/");
    char left[32] = "never";

    if (expires_ms > 0 && expires_ms <= now_ms) {
        snprintf(left, sizeof(left), "expired");
    } else if (expires_ms > 0) {
        ui_age((uint64_t)(expires_ms - now_ms) / 1000, left, sizeof(left));
    }
    table_cell(t, json_get_string(c, "id", NULL));
    table_cell(t, json_get_string(c, "name", NULL));
    table_cell(t, json_get_string(c, "scope", NULL));
    table_cellf(t, "%s:%" PRId64 "%s", json_get_string(target, "host", ""),
                json_get_int(target, "port", 443), str_eq(path, "/") ? "" : path);
    table_cell(t, json_get_string(json_object_get(c, "inject"), "type", NULL));
    table_cell(t, json_get_string(c, "vault", NULL));
    table_cell(t, left);
}

int verb_credential_ls(struct cli *cli)
{
    static const struct table_column columns[] = {{.title = "ID"},
                                                  {.title = "NAME", .cut = true},
                                                  {.title = "SCOPE"},
                                                  {.title = "TARGET", .cut = true},
                                                  {.title = "INJECT"},
                                                  {.title = "VAULT"},
                                                  {.title = "EXPIRES", .right = true}};
    cleanup_json json_t *answer = NULL;
    struct err e = {0};
    struct table t;
    json_t *list;
    int r = cli_connect(cli, &e);

    r = r < 0 ? r : cli_call(cli, "GET", "/v1/credentials", /* body */ NULL, &answer, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, answer);
        return CLI_EXIT_OK;
    }
    list = json_object_get(answer, "credentials");
    table_init(&t, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (cli->args->quiet) {
            printf("%s\n", json_get_string(json_array_get(list, i), "id", ""));
        } else {
            print_credential(&t, json_array_get(list, i));
        }
    }
    if (!cli->args->quiet) {
        table_print(&t, &cli->ui, stdout, ui_width(&cli->ui));
    }
    table_done(&t);
    return CLI_EXIT_OK;
}

/* The id of a credential by id or by a name that only one has. */
static int credential_id(struct cli *cli, const char *text, char ret[static ID_SIZE], struct err *e)
{
    cleanup_json json_t *answer = NULL;
    const char *found = NULL;
    json_t *list;
    int r;

    if (id_valid(ID_CREDENTIAL, text)) {
        snprintf(ret, ID_SIZE, "%s", text);
        return 0;
    }
    r = cli_call(cli, "GET", "/v1/credentials", /* body */ NULL, &answer, e);
    list = json_object_get(answer, "credentials");
    for (size_t i = 0; r == 0 && i < json_array_size(list); i++) {
        json_t *c = json_array_get(list, i);

        if (!str_eq(json_get_string(c, "name", ""), text)) {
            continue;
        }
        if (found) {
            return err_set(e, -EINVAL, "ambiguous",
                           "several credentials are called '%s': give the id of one", text);
        }
        found = json_get_string(c, "id", "");
    }
    if (r == 0 && (!found || !id_valid(ID_CREDENTIAL, found))) {
        return err_set(e, -ENOENT, "credential_not_found",
                       "there is no credential '%s'; 'space credential ls' shows them", text);
    }
    if (r == 0) {
        snprintf(ret, ID_SIZE, "%s", found);
    }
    return r;
}

int verb_credential_rm(struct cli *cli)
{
    struct err e = {0};
    int code = CLI_EXIT_OK;

    if (cli_connect(cli, &e) < 0) {
        return failed(cli, &e);
    }
    for (size_t i = 0; i < cli->args->n_operands; i++) {
        char id[ID_SIZE];
        char target[64];
        int r;

        e = (struct err){0};
        r = credential_id(cli, cli->args->operands[i], id, &e);
        if (r == 0) {
            snprintf(target, sizeof(target), "/v1/credentials/%s", id);
            r = cli_call(cli, "DELETE", target, /* body */ NULL, /* ret */ NULL, &e);
        }
        if (r < 0) {
            code = failed(cli, &e);
        } else if (!cli->args->json) {
            printf("%s\n", id);
        }
    }
    return code;
}

int verb_credential_rotate(struct cli *cli)
{
    cleanup_json json_t *body = json_object();
    cleanup_json json_t *answer = NULL;
    char id[ID_SIZE] = "";
    char target[64];
    struct err e = {0};
    int r = cli_connect(cli, &e);

    r = r < 0 ? r : credential_id(cli, cli->args->operands[0], id, &e);
    r = r < 0 ? r : put_value(cli->args, body, &e);
    snprintf(target, sizeof(target), "/v1/credentials/%s", id);
    r = r < 0 ? r : cli_call(cli, "PATCH", target, body, &answer, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, answer);
    } else {
        printf("%s\n", id);
    }
    return CLI_EXIT_OK;
}

static void print_event(struct table *t, json_t *ev)
{
    int64_t at_ms = json_get_int(ev, "at_ms", 0);
    int64_t now_ms = (int64_t)clock_wall_ms();
    const char *host = json_get_string(ev, "host", "");
    char age[32] = "";

    ui_age(at_ms < now_ms ? (uint64_t)(now_ms - at_ms) / 1000 : 0, age, sizeof(age));
    table_cellf(t, "%" PRId64, json_get_int(ev, "n", 0));
    table_cell(t, age);
    table_cell(t, json_get_string(ev, "event", NULL));
    table_cell(t, json_get_string(ev, "credential", NULL));
    table_cell(t, json_get_string(ev, "sandbox", NULL));
    table_cellf(t, "%s %s%s", json_get_string(ev, "method", ""), host,
                json_get_string(ev, "path", ""));
    table_cell(t, json_get_string(ev, "reason", NULL));
}

int verb_credential_log(struct cli *cli)
{
    static const struct table_column columns[] = {{.title = "N", .right = true},
                                                  {.title = "AGE", .right = true},
                                                  {.title = "EVENT"},
                                                  {.title = "CREDENTIAL", .cut = true},
                                                  {.title = "SANDBOX"},
                                                  {.title = "REQUEST", .cut = true},
                                                  {.title = "REASON"}};
    cleanup_free char *target =
        xasprintf("/v1/credential-log?limit=%" PRIu64, cli->args->limit ? cli->args->limit : 100);
    cleanup_json json_t *answer = NULL;
    struct err e = {0};
    struct table t;
    json_t *list;
    int r = cli_connect(cli, &e);

    r = r < 0 ? r : cli_call(cli, "GET", target, /* body */ NULL, &answer, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, answer);
        return CLI_EXIT_OK;
    }
    list = json_object_get(answer, "events");
    table_init(&t, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        print_event(&t, json_array_get(list, i));
    }
    table_print(&t, &cli->ui, stdout, ui_width(&cli->ui));
    table_done(&t);
    return CLI_EXIT_OK;
}

/* A copy of the log on this machine, or the one that the credential manager has. */
static int verify(struct cli *cli, json_t **ret, struct err *e)
{
    struct audit_check c;
    int r;

    if (cli->args->n_operands == 0) {
        r = cli_connect(cli, e);
        return r < 0 ? r
                     : cli_call(cli, "GET", "/v1/credential-log/verify", /* body */ NULL, ret, e);
    }
    r = audit_verify(cli->args->operands[0], &c, e);
    if (r == 0) {
        *ret = json_pack("{s:b, s:I, s:I, s:s, s:s*}", "intact", c.intact, "first",
                         (json_int_t)c.first, "last", (json_int_t)c.last, "hash", c.hash, "problem",
                         c.intact ? NULL : c.what);
    }
    return r;
}

int verb_audit_verify(struct cli *cli)
{
    cleanup_json json_t *found = NULL;
    struct err e = {0};
    int r = verify(cli, &found, &e);
    bool intact = json_get_bool(found, "intact", false);

    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, found);
    } else if (intact) {
        printf("intact: lines %" PRId64 " to %" PRId64 ", the last has the hash %s\n",
               json_get_int(found, "first", 0), json_get_int(found, "last", 0),
               json_get_string(found, "hash", ""));
    } else {
        printf("NOT intact: %s\n", json_get_string(found, "problem", ""));
    }
    return intact ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}

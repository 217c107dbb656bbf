/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "wire/url.h"

#define CLI_IDLE_CONNECTIONS 16u

static int cli_client_new(const struct conf *conf, struct http_client **ret, struct err *e)
{
    struct http_client_opts opts = {.max_idle = CLI_IDLE_CONNECTIONS, .ca_file = conf->ca_file};
    struct http_client *c = NULL;
    int r;

    r = http_client_new(conf->url, &opts, &c, e);
    if (r < 0) {
        return err_wrap(e, r, "the address '%s'", conf->url);
    }
    http_client_header(c, "User-Agent", "space/" SPACE_VERSION);
    if (conf->key) {
        cleanup_free char *value = xasprintf("Bearer %s", conf->key);

        http_client_header(c, "Authorization", value);
    }
    *ret = c;
    return 0;
}

int cli_client(const struct cli *cli, struct http_client **ret, struct err *e)
{
    return cli_client_new(&cli->conf, ret, e);
}

int cli_connect(struct cli *cli, struct err *e)
{
    int r;

    if (cli->client) {
        return 0;
    }
    r = conf_load(cli->args->url, cli->args->key, &cli->conf, e);
    if (r < 0) {
        return r;
    }
    if (cli->conf.exposed) {
        cleanup_free char *path = conf_path();

        ui_warn(&cli->ui, "other users can read your key; run: chmod 600 %s",
                path ? path : "config.json");
    }
    return cli_client_new(&cli->conf, &cli->client, e);
}

void cli_done(struct cli *cli)
{
    http_client_free(cli->client);
    cli->client = NULL;
    conf_done(&cli->conf);
}

int cli_explain(const struct cli *cli, struct err *e)
{
    const char *url = cli->conf.url ? cli->conf.url : CONF_URL_DEFAULT;

    if (!e) {
        return 0;
    }
    switch (e->code) {
    case -ECONNREFUSED:
    case -ENETUNREACH:
    case -EHOSTUNREACH:
        return err_set(e, e->code, "unreachable",
                       "nobody answers at %s; start SPACE with 'sudo space up', or name its "
                       "address with --url or SPACE_URL",
                       url);
    default:
        break;
    }
    if (err_http_status(e) == 401) {
        if (!cli->conf.key) {
            return err_set(e, e->code, "no_key",
                           "%s wants a key; set SPACE_API_KEY, or make a key as root with 'sudo "
                           "space key create --name %s'",
                           url, "me");
        }
        return err_set(
            e, e->code, e->reason[0] ? e->reason : "unauthorized",
            "%s does not know the key from %s; 'space key ls' as root shows the keys that exist",
            url, cli->conf.key_from);
    }
    return e->code;
}

int cli_call_opts(struct cli *cli, const struct http_json_opts *opts, json_t **ret, struct err *e)
{
    struct http_json_opts o = *opts;
    struct err mine = {0};
    int r;

    ASSERT(cli->client);
    if (o.deadline_ns == 0) {
        o.deadline_ns = deadline_in_ms(CLI_CALL_TIMEOUT_MS);
    }
    r = http_client_json(cli->client, &o, ret, &mine);
    if (r < 0) {
        cli_explain(cli, &mine);
        if (e) {
            *e = mine;
        }
    }
    return r;
}

int cli_call(struct cli *cli, const char *method, const char *target, const json_t *body,
             json_t **ret, struct err *e)
{
    struct http_json_opts opts = {.method = method, .target = target, .body = body};

    return cli_call_opts(cli, &opts, ret, e);
}

int cli_list(struct cli *cli, const char *target, const char *member, uint64_t limit, json_t **ret,
             struct err *e)
{
    cleanup_json json_t *all = json_array();
    cleanup_free char *cursor = NULL;

    ASSERT(all);
    do {
        cleanup_buf struct buf b = BUF_INIT(CLI_TARGET_MAX);
        cleanup_json json_t *page = NULL;
        const json_t *items;
        const char *next;
        int r;

        r = buf_printf(&b, "%s%climit=%u", target, strchr(target, '?') ? '&' : '?', CLI_PAGE);
        if (r == 0 && cursor) {
            r = buf_add_str(&b, "&cursor=");
            r = r < 0 ? r : cli_encode(&b, cursor);
        }
        if (r < 0) {
            return err_wrap(e, r, "asking for a list");
        }
        r = cli_call(cli, "GET", buf_str(&b), /* body */ NULL, &page, e);
        if (r < 0) {
            return r;
        }
        items = json_object_get(page, member);
        if (!json_is_array(items)) {
            return err_set(e, -EBADMSG, "bad_answer", "the answer of the service has no list '%s'",
                           member);
        }
        for (size_t i = 0;
             i < json_array_size(items) && (limit == 0 || json_array_size(all) < limit); i++) {
            json_array_append(all, json_array_get(items, i));
        }
        next = json_get_string(page, "next_cursor", NULL);
        if (next && cursor && str_eq(next, cursor)) {
            return err_set(e, -EBADMSG, "bad_answer", "the service repeats the same page of '%s'",
                           member);
        }
        free(cursor);
        cursor = next ? xstrdup(next) : NULL;
    } while (cursor && (limit == 0 || json_array_size(all) < limit));

    *ret = TAKE_PTR(all);
    return 0;
}

static bool id_prefix_valid(const char *text)
{
    size_t len = strlen(text);

    return len > 0 && len <= ID_LEN && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789") == len;
}

/* Which of the listed objects has an id that starts with `text`. */
static int cli_pick(json_t *list, const char *kind, const char *text, char ret[static ID_SIZE],
                    struct err *e)
{
    const char *found = NULL;

    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *id = json_get_string(json_array_get(list, i), "id", "");

        if (!str_starts(id, text) || strlen(id) >= ID_SIZE) {
            continue;
        }
        if (found) {
            return err_set(e, -EINVAL, "ambiguous_id",
                           "'%s' is the start of more than one %s: %s, %s; type more of it", text,
                           kind, found, id);
        }
        found = id;
    }
    if (!found) {
        return err_set(e, -ENOENT, "not_found", "there is no %s '%s'", kind, text);
    }
    return str_copy(ret, ID_SIZE, found);
}

int cli_sandbox_id(struct cli *cli, const char *text, char ret[static ID_SIZE], struct err *e)
{
    cleanup_json json_t *list = NULL;
    int r;

    if (id_valid(ID_SANDBOX, text)) {
        return str_copy(ret, ID_SIZE, text);
    }
    if (!id_prefix_valid(text)) {
        return err_set(e, -EINVAL, "invalid_id", "'%s' is not a sandbox id; 'space ls' shows them",
                       text);
    }
    r = cli_list(cli, "/v1/sandboxes", "sandboxes", 0, &list, e);
    if (r < 0) {
        return r;
    }
    return cli_pick(list, "sandbox", text, ret, e);
}

int cli_command_id(struct cli *cli, const char *sandbox, const char *text, char ret[static ID_SIZE],
                   struct err *e)
{
    cleanup_free char *target = NULL;
    cleanup_json json_t *answer = NULL;
    int r;

    if (id_valid(ID_COMMAND, text)) {
        return str_copy(ret, ID_SIZE, text);
    }
    if (!id_prefix_valid(text)) {
        return err_set(e, -EINVAL, "invalid_id",
                       "'%s' is not a command id; 'space ps %s' shows them", text, sandbox);
    }
    target = xasprintf("/v1/sandboxes/%s/commands", sandbox);
    r = cli_call(cli, "GET", target, /* body */ NULL, &answer, e);
    if (r < 0) {
        return r;
    }
    return cli_pick(json_object_get(answer, "commands"), "command", text, ret, e);
}

int cli_snapshot_id(struct cli *cli, const char *sandbox, const char *text,
                    char ret[static ID_SIZE], struct err *e)
{
    cleanup_free char *target = NULL;
    cleanup_json json_t *answer = NULL;
    json_t *list;
    int r;

    if (id_valid(ID_SNAPSHOT, text)) {
        return str_copy(ret, ID_SIZE, text);
    }
    target = xasprintf("/v1/sandboxes/%s/snapshots", sandbox);
    r = cli_call(cli, "GET", target, /* body */ NULL, &answer, e);
    if (r < 0) {
        return r;
    }
    list = json_object_get(answer, "snapshots");
    for (size_t i = 0; i < json_array_size(list); i++) { /* the newest of that name */
        json_t *s = json_array_get(list, i);

        if (text[0] && str_eq(json_get_string(s, "name", ""), text)) {
            return str_copy(ret, ID_SIZE, json_get_string(s, "id", ""));
        }
    }
    if (!id_prefix_valid(text)) {
        return err_set(e, -ENOENT, "snapshot_not_found",
                       "there is no snapshot '%s'; 'space snapshot ls %s' shows them", text,
                       sandbox);
    }
    return cli_pick(list, "snapshot", text, ret, e);
}

int cli_encode(struct buf *b, const char *text)
{
    return url_encode(b, text, strlen(text), URL_KEEP_SLASH);
}

int cli_target(const char *sandbox, const char *what, const char *path, const char *user,
               char **ret, struct err *e)
{
    cleanup_buf struct buf b = BUF_INIT(CLI_TARGET_MAX);
    char sep = strchr(what, '?') ? '&' : '?';
    int r;

    r = buf_printf(&b, "/v1/sandboxes/%s/%s", sandbox, what);
    if (r == 0 && path) {
        r = buf_printf(&b, "%cpath=", sep);
        r = r < 0 ? r : cli_encode(&b, path);
        sep = '&';
    }
    if (r == 0 && user) {
        r = buf_printf(&b, "%cuser=", sep);
        r = r < 0 ? r : cli_encode(&b, user);
    }
    if (r < 0) {
        return err_wrap(e, r, "the path is too long");
    }
    *ret = buf_take(&b);
    return 0;
}

void cli_print_json(const struct cli *cli, const json_t *value)
{
    json_dumpf(value, stdout, (cli->ui.out_tty ? JSON_INDENT(2) : JSON_COMPACT) | JSON_ENCODE_ANY);
    putchar('\n');
}

int cli_json_text(const char *text, const char *what, json_t **ret, struct err *e)
{
    json_t *value = json_string(text);

    if (!value) {
        return err_set(e, -EILSEQ, "not_utf8", "%s must be UTF-8", what);
    }
    *ret = value;
    return 0;
}

int cli_pairs(const struct text_list *list, const char *option, json_t **ret, struct err *e)
{
    cleanup_json json_t *object = json_object();

    ASSERT(object);
    for (size_t i = 0; i < list->n; i++) {
        const char *equals = strchr(list->items[i], '=');
        cleanup_free char *name = equals
                                      ? xstrndup(list->items[i], (size_t)(equals - list->items[i]))
                                      : xstrdup(list->items[i]);
        const char *value = equals ? equals + 1 : getenv(name);
        json_t *text = NULL;
        int r;

        if (!name[0]) {
            return err_set(e, -EINVAL, "usage", "'--%s' wants NAME=VALUE, not '%s'", option,
                           list->items[i]);
        }
        if (!value) {
            return err_set(e, -EINVAL, "usage",
                           "'--%s %s': there is no such variable here; write %s=VALUE", option,
                           name, name);
        }
        r = cli_json_text(value, "a value", &text, e);
        if (r < 0) {
            return err_wrap(e, r, "'--%s %s'", option, name);
        }
        if (json_object_set_new(object, name, text) < 0) {
            return err_set(e, -EILSEQ, "not_utf8", "the names given to '--%s' must be UTF-8",
                           option);
        }
    }
    *ret = TAKE_PTR(object);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/policy.h"

#include <fcntl.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "cli/sandbox.h"
#include "cli/verbs.h"

#define POLICY_FILE_MAX (64u * 1024)

static int bad_value(const char *name, const char *value, const char *wanted, struct err *e)
{
    return err_field(e, -EINVAL, "usage", name, "'%s=%s': %s", name, value, wanted);
}

static int set_pair(json_t *policy, const char *name, const char *value, struct err *e)
{
    size_t len = strlen(name);
    json_t *text = NULL;
    uint64_t n = 0;
    int r;

    if (len > 2 && str_eq(name + len - 2, "_s")) {
        if (opt_parse_seconds(value, &n) < 0) {
            return bad_value(name, value, "give a time, as 90s, 5m or 2h; 0 for never", e);
        }
        return json_object_set_new(policy, name, json_integer((json_int_t)n));
    }
    if (str_starts(name, "keep_")) {
        if (str_to_u64(value, INT64_MAX, &n) < 0) {
            return bad_value(name, value, "give a number", e);
        }
        return json_object_set_new(policy, name, json_integer((json_int_t)n));
    }
    r = cli_json_text(value, "a policy", &text, e);
    return r < 0 ? r : json_object_set_new(policy, name, text);
}

static int read_pairs(const char *text, json_t *policy, struct err *e)
{
    cleanup_free char *copy = xstrdup(text);
    char *rest = copy;
    char *pair;

    while ((pair = strsep(&rest, ","))) {
        char *equals = strchr(pair, '=');
        int r;

        if (!equals || equals == pair) {
            return err_set(e, -EINVAL, "usage", "a policy is NAME=VALUE,... or a file, not '%s'",
                           text);
        }
        *equals = '\0';
        r = set_pair(policy, pair, equals + 1, e);
        if (r < 0) {
            return r == -1 ? err_set(e, -EILSEQ, "not_utf8", "a policy must be UTF-8") : r;
        }
    }
    return 0;
}

static int read_file(const char *name, json_t **ret, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(POLICY_FILE_MAX);
    int r = fs_read_file(AT_FDCWD, name, &text);

    if (r < 0) {
        return err_wrap(e, r, "reading the policy in '%s'", name);
    }
    r = json_parse_object(buf_str(&text), text.len, ret, e);
    return r < 0 ? err_wrap(e, r, "the policy in '%s'", name) : 0;
}

int policy_read(const char *text, json_t **ret, struct err *e)
{
    cleanup_json json_t *policy = NULL;
    int r;

    ASSERT(text && ret);
    if (!strchr(text, '=')) {
        return read_file(text, ret, e);
    }
    policy = json_object();
    r = read_pairs(text, policy, e);
    if (r == 0) {
        *ret = TAKE_PTR(policy);
    }
    return r;
}

static int get_policy(struct cli *cli, const char *target, json_t **ret, struct err *e)
{
    cleanup_json json_t *sandbox = NULL;
    int r = cli_call(cli, "GET", target, /* body */ NULL, &sandbox, e);

    if (r == 0) {
        *ret = json_incref(json_object_get(sandbox, "policy"));
    }
    return r;
}

/* What is named changes, the rest stays as it is. */
static int set_policy(struct cli *cli, const char *target, const char *text, json_t **ret,
                      struct err *e)
{
    cleanup_json json_t *changes = NULL;
    cleanup_json json_t *policy = NULL;
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *sandbox = NULL;
    int r = policy_read(text, &changes, e);

    r = r < 0 ? r : get_policy(cli, target, &policy, e);
    if (r < 0) {
        return r;
    }
    policy = policy ? policy : json_object();
    json_object_update(policy, changes);
    body = json_pack("{s:O}", "policy", policy);
    r = cli_call(cli, "PATCH", target, body, &sandbox, e);
    if (r == 0) {
        *ret = json_incref(json_object_get(sandbox, "policy"));
    }
    return r;
}

int verb_policy(struct cli *cli)
{
    const struct args *a = cli->args;
    cleanup_free char *target = NULL;
    cleanup_json json_t *policy = NULL;
    char id[ID_SIZE];
    struct err e = {0};
    int r;

    r = cli_connect(cli, &e);
    r = r < 0 ? r : cli_sandbox_id(cli, a->operands[0], id, &e);
    if (r == 0) {
        target = xasprintf("/v1/sandboxes/%s", id);
        r = a->n_operands > 1 ? set_policy(cli, target, a->operands[1], &policy, &e)
                              : get_policy(cli, target, &policy, &e);
    }
    if (r < 0) {
        ui_error(&cli->ui, &e);
        return CLI_EXIT_FAILED;
    }
    if (a->json) {
        cli_print_json(cli, policy);
    } else {
        sandbox_print_object(cli, policy);
    }
    return CLI_EXIT_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * 'rules' of a sandbox's network: headers that are put into its HTTPS requests to a host, on their way out and
 * unseen by the sandbox. To us each header is a credential whose scope is the sandbox: the network gateway puts it in, its
 * value is in a vault and in no answer of ours, and what comes back is masked. So a value has 8 bytes or more, as
 * all credentials have. A value may end with one of the project's secrets, "${e2b.secrets.NAME}": the credential refers to it
 * then, so requests have the secret as it is at that moment. Where else E2B fills something in, here it is refused: a text that
 * looks like a secret is never sent in its place.
 *
 * Their names begin with NAME_PREFIX, and what has it is ours to remove: what the sandbox had when its rules are replaced,
 * all of it when the sandbox is killed. What is left of sandboxes that ended otherwise, leftovers.h removes. New ones are complete before old ones go, so a change that fails changes nothing.
 */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "credential/credential.h"
#include "gateway/e2b/private.h"

#define NAME_PREFIX "e2b-rule-"
#define HOSTS_MAX 10u
/* How E2B's clients write what is filled in. */
#define FILL "${e2b."
#define FILL_SECRET FILL "secrets."
#define HEADERS_MAX 20u

/* --- reading --- */

static int wrong(struct err *e, const char *host, const char *why)
{
    return err_field(e, -EINVAL, "invalid_field", "rules", "'rules' for '%.60s': %s", host, why);
}

/* As the credential manager would judge it; its words, with the place in the request. */
static int check(json_t *body, const char *host, const char *header, struct err *e)
{
    cleanup_json json_t *copy = json_copy(body);
    json_t *value = json_object_get(body, "value");
    struct credential c;
    struct err why = {0};
    char id[ID_SIZE];
    int r;

    id_new(ID_SANDBOX, id); /* it has none yet */
    json_object_set_new(copy, "sandbox", json_string(id));
    r = credential_from_json(copy, &c, &why);
    if (r == 0 && value) {
        r = credential_value_valid(&c, json_string_value(value), json_string_length(value), &why);
    }
    return r < 0 ? err_field(e, -EINVAL, "invalid_field", "rules",
                             "'rules' for '%.60s' cannot be kept: header '%.60s': %s", host, header,
                             why.msg)
                 : 0;
}

/* The value as it is, or the secret that it ends with; into the credential. */
static int set_value(json_t *one, const char *host, const char *value, struct err *e)
{
    const char *at = strstr(value, FILL);
    size_t len;

    if (!at) {
        json_object_set_new(one, "value", json_string(value));
        return 0;
    }
    if (!str_starts(at, FILL_SECRET)) {
        return wrong(e, host, "only secrets can be filled in, as '" FILL_SECRET "NAME}'");
    }
    len = strcspn(at, "}");
    if (!at[len] || at[len + 1]) {
        return wrong(e, host, "a value can have one secret, at its end");
    }
    json_object_set_new(json_object_get(one, "inject"), "prefix",
                        json_stringn(value, (size_t)(at - value)));
    json_object_set_new(one, "vault", json_string("secret"));
    json_object_set_new(one, "ref",
                        json_stringn(at + strlen(FILL_SECRET), len - strlen(FILL_SECRET)));
    return 0;
}

static int add_headers(const char *host, json_t *headers, json_t *out, struct err *e)
{
    const char *name;
    json_t *value;

    if (json_object_size(headers) > HEADERS_MAX) {
        return wrong(e, host, "at most 20 headers can be set");
    }
    json_object_foreach(headers, name, value)
    {
        cleanup_json json_t *one = NULL;
        int r;

        if (!json_is_string(value)) {
            return wrong(e, host, "the value of a header must be a string");
        }
        one = json_pack("{s:s, s:{s:s}, s:{s:s, s:s}}", "scope", "sandbox", "target", "host", host,
                        "inject", "type", "header", "name", name);
        json_object_set_new(one, "name", json_string(NAME_PREFIX "x"));
        r = set_value(one, host, json_string_value(value), e);
        r = r < 0 ? r : check(one, host, name, e);
        if (r < 0) {
            return r;
        }
        json_array_append(out, one);
    }
    return 0;
}

/* [{"transform": {"headers": {...}}}] or nothing. */
static int read_host(const char *host, json_t *list, json_t *out, struct err *e)
{
    json_t *transform = NULL;
    json_t *headers = NULL;
    json_t *rule = json_array_get(list, 0);
    int r = 0;

    if (!json_is_array(list) || json_array_size(list) > 1 || (rule && !json_is_object(rule))) {
        return wrong(e, host, "a list with one rule is wanted");
    }
    if (rule) {
        r = e2b_object(rule, "transform", &transform, e);
    }
    if (r == 0 && transform) {
        r = e2b_object(transform, "headers", &headers, e);
    }
    return r < 0 || !headers ? r : add_headers(host, headers, out, e);
}

int e2b_rules_read(json_t *network, json_t **ret, struct err *e)
{
    cleanup_json json_t *out = json_array();
    json_t *rules = NULL;
    json_t *list;
    const char *host;
    int r = e2b_object(network, "rules", &rules, e);

    if (r == 0 && json_object_size(rules) > HOSTS_MAX) {
        return err_field(e, -EINVAL, "invalid_field", "rules",
                         "'rules' can be made for at most %u hosts", HOSTS_MAX);
    }
    json_object_foreach(rules, host, list)
    {
        r = r < 0 ? r : read_host(host, list, out, e);
    }
    if (r == 0) {
        *ret = TAKE_PTR(out);
    }
    return r;
}

/* --- keeping --- */

static int remove_one(struct http_request *req, const char *id, struct err *e)
{
    char target[96];
    int r;

    if (!id_valid(ID_CREDENTIAL, id)) {
        return err_set(e, -EPROTO, "bad_answer", "the credential manager's list cannot be read");
    }
    snprintf(target, sizeof(target), "/v1/credentials/%s/remove", id);
    r = credentials_ask(req, target, NULL, /* ret */ NULL, e);
    if (r == 0) {
        control_audit(gateway_of(req)->control, actor_of(req), "credential.remove", id, "");
    }
    return r == -ENOENT ? 0 : r;
}

/* Is it one that goes? The generation's are those that were just made. */
static bool is_old(struct http_request *req, json_t *c, const char *sandbox, const char *generation)
{
    const char *name = json_get_string(c, "name", "");
    const char *of = json_get_string(c, "sandbox", "");

    if (!str_starts(name, NAME_PREFIX) || !id_valid(ID_SANDBOX, of) ||
        !str_eq(json_get_string(c, "project", ""), actor_of(req)->project)) {
        return false; /* also what another project of the organisation has */
    }
    return str_eq(of, sandbox) && !str_starts(name, generation);
}

static int remove_old(struct http_request *req, const char *sandbox, const char *generation,
                      struct err *e)
{
    cleanup_json json_t *answer = NULL;
    json_t *c;
    size_t i;
    int r = credentials_ask(req, "/v1/credentials/list", NULL, &answer, e);

    json_array_foreach(json_object_get(answer, "credentials"), i, c)
    {
        if (r == 0 && is_old(req, c, sandbox, generation)) {
            r = remove_one(req, json_get_string(c, "id", ""), e);
        }
    }
    return r;
}

/* *made: the ids of those that were added, also when one was not. */
static int add_all(struct http_request *req, const char *sandbox, json_t *rules,
                   const char *generation, json_t *made, struct err *e)
{
    json_t *rule;
    size_t i;

    json_array_foreach(rules, i, rule)
    {
        cleanup_json json_t *answer = NULL;
        cleanup_free char *name = xasprintf("%s%zu", generation, i);
        json_t *body = json_copy(rule);
        int r;

        json_object_set_new(body, "name", json_string(name));
        json_object_set_new(body, "sandbox", json_string(sandbox));
        r = credentials_ask(req, "/v1/credentials/add", body, &answer, e);
        if (r < 0) {
            return r;
        }
        json_array_append(made, json_object_get(answer, "id"));
        control_audit(gateway_of(req)->control, actor_of(req), "credential.add",
                      json_get_string(answer, "id", ""), name);
    }
    return 0;
}

int e2b_rules_set(struct http_request *req, const char *sandbox, json_t *rules, struct err *e)
{
    cleanup_json json_t *made = json_array();
    unsigned char random[6];
    char hex[2 * sizeof(random) + 1];
    char generation[sizeof(NAME_PREFIX) + sizeof(hex) + 1];
    json_t *id;
    size_t i;
    int r;

    random_bytes(random, sizeof(random));
    hex_encode(random, sizeof(random), hex);
    snprintf(generation, sizeof(generation), NAME_PREFIX "%s-", hex);
    r = add_all(req, sandbox, rules, generation, made, e);
    if (r == 0) {
        return remove_old(req, sandbox, generation, e);
    }
    json_array_foreach(made, i, id)
    {
        if (remove_one(req, json_string_value(id), NULL) < 0) {
            log_warn(&(struct log_ctx){.sandbox = sandbox},
                     "half of its network rules are left, as long as it is there");
        }
    }
    return r;
}

void e2b_rules_drop(struct http_request *req, const char *sandbox)
{
    struct err e = {0};

    if (remove_old(req, sandbox, /* generation */ NAME_PREFIX "-", &e) < 0) {
        log_warn(&(struct log_ctx){.sandbox = sandbox},
                 "the credentials of its network rules are left for a while: %s", e.msg);
    }
}

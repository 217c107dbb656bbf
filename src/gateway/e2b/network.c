/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What clients ask of a sandbox's network, as a policy of ours (model/netpolicy.h). What is not allowed is denied: a sandbox that
 * nothing was said of reaches nothing, so to deny everything is to say what is so anyway. Names can be allowed, not denied,
 * as in E2B's API, and only where everything else is denied by name.
 *
 * allow_internet_access true is not refused although it is not kept: older clients say it in each request. The sandbox
 * shows null for it then, and what tries to reach the internet fails at once.
 */
#include <string.h>

#include "gateway/e2b/private.h"
#include "model/netpolicy.h"

#define MASK_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:[]${}"

static int not_honoured(const char *field, struct err *e)
{
    return err_field(e, -EINVAL, "not_supported", field, "'%s' cannot be kept here: leave it out",
                     field);
}

/* Refused unless empty. */
static int want_empty_array(json_t *network, const char *name, struct err *e)
{
    json_t *list = NULL;
    int r = e2b_array(network, name, &list, e);

    return r == 0 && json_array_size(list) > 0 ? not_honoured(name, e) : r;
}

static int want_empty_object(json_t *network, const char *name, struct err *e)
{
    json_t *object = NULL;
    int r = e2b_object(network, name, &object, e);

    return r == 0 && json_object_size(object) > 0 ? not_honoured(name, e) : r;
}

#define EVERYTHING "0.0.0.0/0"
#define ADDRESS_CHARS "0123456789abcdefABCDEF.:/"

static bool is_address(const char *text)
{
    bool has_digit = text[strcspn(text, "0123456789")] != '\0';

    return text[0] && has_digit && text[strspn(text, ADDRESS_CHARS)] == '\0' &&
           (strchr(text, ':') || text[strspn(text, "0123456789./")] == '\0');
}

static int wrong_item(const char *field, const char *what, struct err *e)
{
    return err_field(e, -EINVAL, "invalid_field", field, "'%s' must hold %s", field, what);
}

static void add_rule(json_t *rules, const char *kind, const char *value, const char *action)
{
    json_t *rule = json_pack("{s:s, s:s}", kind, value, "action", action);

    if (rule) { /* else it is not UTF-8, and what is missing is not allowed */
        json_array_append_new(rules, rule);
    }
}

/* Addresses only. There is no IPv6 out of a sandbox, so to deny it is to say what is so. */
static int add_denied(json_t *network, json_t *rules, bool *ret_everything, struct err *e)
{
    json_t *list = NULL;
    json_t *item;
    size_t i;
    int r = e2b_array(network, "denyOut", &list, e);

    json_array_foreach(list, i, item)
    {
        const char *text = json_string_value(item);

        if (!text || !is_address(text)) {
            return wrong_item("denyOut", "addresses and ranges of addresses", e);
        }
        if (str_eq(text, EVERYTHING)) {
            *ret_everything = true;
        } else if (!strchr(text, ':')) {
            add_rule(rules, "cidr", text, "deny");
        }
    }
    return r;
}

static int add_allowed(json_t *network, json_t *rules, bool everything_denied, struct err *e)
{
    json_t *list = NULL;
    json_t *item;
    size_t i;
    int r = e2b_array(network, "allowOut", &list, e);

    json_array_foreach(list, i, item)
    {
        const char *text = json_string_value(item);

        if (!text || strchr(text, ':')) {
            return wrong_item("allowOut", "names, IPv4 addresses and ranges of them", e);
        }
        if (is_address(text)) {
            add_rule(rules, "cidr", text, "allow");
        } else if (everything_denied) {
            add_rule(rules, "host", text, "allow");
        } else {
            return err_field(e, -EINVAL, "invalid_field", "allowOut",
                             "when specifying allowed domains in allowOut, '" EVERYTHING
                             "' must be in denyOut");
        }
    }
    return r;
}

void e2b_network_done(struct e2b_network *n)
{
    free(n->policy);
    json_decref(n->rules);
    *n = (struct e2b_network){0};
}

/* The policy's text; "none" when nothing was said. */
static int read_policy(json_t *object, char **ret, struct err *e)
{
    cleanup_json json_t *allowed = json_array();
    cleanup_json json_t *denied = json_array();
    cleanup_json json_t *policy = NULL;
    struct netpolicy *checked = NULL;
    struct err why = {0};
    bool everything = false;
    int r = add_denied(object, denied, &everything, e);

    if (r == 0) {
        r = add_allowed(object, allowed, everything, e);
    }
    if (r == 0) {
        r = want_empty_object(object, "egressProxy", e);
    }
    if (r < 0) {
        return r;
    }
    json_array_extend(allowed, denied); /* allowing wins */
    policy = json_array_size(allowed)
                 ? json_pack("{s:s, s:O}", "preset", "custom", "rules", allowed)
                 : json_pack("{s:s}", "preset", "none");
    r = netpolicy_from_json(policy, &checked, &why);
    netpolicy_unref(checked);
    if (r < 0) {
        return err_field(e, -EINVAL, "invalid_field", "allowOut",
                         "'allowOut' or 'denyOut' cannot be kept: %s", why.msg);
    }
    *ret = json_text(policy);
    return 0;
}

void e2b_network_show(const char *policy, json_t *network)
{
    cleanup_json json_t *object = NULL;
    json_t *allowed = json_array();
    json_t *denied = json_array();
    json_t *rule;
    size_t i;

    if (!str_empty(policy) && json_parse_object(policy, strlen(policy), &object, NULL) == 0) {
        json_array_foreach(json_object_get(object, "rules"), i, rule)
        {
            json_t *what = json_object_get(rule, "host");
            bool deny = str_eq(json_get_string(rule, "action", ""), "deny");

            what = what ? what : json_object_get(rule, "cidr");
            json_array_append(deny ? denied : allowed, what);
        }
    }
    json_object_set_new(network, "allowOut", allowed);
    json_object_set_new(network, "denyOut", denied);
}

/* Of the way in: sandboxes' ports are reached through the gateway. */
static int check_ingress(json_t *network, struct e2b_box *box, struct err *e)
{
    const char *mask = NULL;
    bool public_traffic = true;
    int r = e2b_bool(network, "allowPublicTraffic", true, &public_traffic, e);

    if (r == 0) {
        r = e2b_string(network, "maskRequestHost", &mask, e);
    }
    if (r == 0 && mask &&
        (str_copy(box->mask_host, sizeof(box->mask_host), mask) < 0 ||
         mask[strspn(mask, MASK_CHARS)] != '\0')) {
        return err_field(e, -EINVAL, "invalid_field", "maskRequestHost",
                         "'maskRequestHost' must be a host, perhaps with ${PORT} in it");
    }
    box->private_traffic = !public_traffic;
    return r < 0 ? r : want_empty_array(network, "httpsPorts", e);
}

static int read_network(json_t *network, struct e2b_network *ret, struct err *e)
{
    int r = read_policy(network, &ret->policy, e);

    return r < 0 ? r : e2b_rules_read(network, &ret->rules, e);
}

int e2b_network_from_json(json_t *body, struct e2b_box *box, struct e2b_network *ret, struct err *e)
{
    json_t *network = NULL;
    bool denied = false;
    bool allowed = false;
    int r = e2b_bool(body, "allow_internet_access", false, &allowed, e);

    if (r == 0) {
        r = e2b_bool(body, "allow_internet_access", true, &denied, e);
        denied = !denied;
    }
    if (r == 0) {
        r = e2b_object(body, "network", &network, e);
    }
    if (r == 0 && network) {
        r = read_network(network, ret, e);
    }
    if (r == 0 && network) {
        r = check_ingress(network, box, e);
    }
    if (r == 0) {
        box->rules = json_array_size(ret->rules) > 0;
        box->internet = denied    ? E2B_INTERNET_DENIED
                        : allowed ? E2B_INTERNET_ALLOWED
                                  : E2B_INTERNET_UNSAID;
    }
    return r;
}

/* The rules are set before what may be reached is widened, and when nothing was said of them, too: all is replaced. */
static int change(struct http_request *req, const char *id, struct e2b_box *box,
                  struct e2b_network *wanted, struct err *e)
{
    cleanup_sandbox_patch struct sandbox_patch patch = {0};
    cleanup_sandbox struct sandbox sb = {0};
    bool any = json_array_size(wanted->rules) > 0;
    int r = any || box->rules ? e2b_rules_set(req, id, wanted->rules, e) : 0;

    if (r < 0) {
        return r;
    }
    box->rules = any;
    patch.network = TAKE_PTR(wanted->policy);
    patch.surface = e2b_box_text(box);
    return control_patch(gateway_of(req)->control, actor_of(req), id, &patch, &sb, e);
}

int e2b_network_handler(struct http_request *req, struct err *e)
{
    CLEANUP(e2b_network_done) struct e2b_network wanted = {0};
    CLEANUP(e2b_network_done) struct e2b_network inner = {0}; /* what newer clients do not say */
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *body = NULL;
    struct e2b_box asked = {0};
    struct e2b_box box;
    int r = e2b_find(req, &sb, &box, e);

    if (r == 0) {
        r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    }
    if (r == 0) {
        r = read_network(body, &wanted, e);
    }
    if (r == 0) {
        r = e2b_network_from_json(body, &asked, &inner, e);
    }
    if (r < 0) {
        return r;
    }
    box.internet = asked.internet;
    r = change(req, sb.id, &box, &wanted, e);
    return r < 0 ? r : http_reply_empty(req, 204, e);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The node's API for what a sandbox may reach: the policy, what the network gateway has seen, what it asks. */
#include "ipc/netgate.h"
#include "model/netpolicy.h"
#include "sandbox/network.h"
#include "sandbox/routes.h"

#include <stdio.h>
#include <string.h>

/* A policy and the braces around it. */
#define BODY_MAX (NETPOLICY_STACK_TEXT_MAX + 1024u)
#define EXPLAIN_SIZE 512

/* The policy, and with a gateway that has the sandbox, what goes on. */
static int reply_network(struct http_request *req, struct resident *res, struct err *e)
{
    CLEANUP(netpolicy_unrefp) const struct netpolicy *policy = network_policy(res);
    json_t *status = NULL;
    json_t *own = json_copy(netpolicy_json(policy));
    json_t *out = json_object();

    json_object_set(out, "outer", json_object_get(own, "outer"));
    json_object_del(own, "outer");
    json_object_set_new(out, "network", own);
    if (network_ask_take(res, "status", NULL, &status, NULL) < 0) {
        status =
            NULL; /* nothing is handed over, or the gateway is not there: then nothing goes on */
    }
    json_object_set_new(out, "attached", json_boolean(status != NULL));
    json_object_set_new(out, "status", status ? status : json_null());
    return http_reply_json_take(req, 200, out, e);
}

int route_network_get(struct http_request *req, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    int r = route_find(req, &res, e);

    return r < 0 ? r : reply_network(req, res, e);
}

int route_network_set(struct http_request *req, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    CLEANUP(netpolicy_unrefp) const struct netpolicy *policy = NULL;
    struct netpolicy *made = NULL;
    cleanup_json json_t *body = NULL;
    int r = route_find(req, &res, e);

    if (r == 0) {
        r = http_body_json(req, BODY_MAX, &body, e);
    }
    if (r == 0) {
        r = netpolicy_stack_from_json(body, &made, e);
        policy = made;
    }
    if (r == 0) {
        r = network_set_policy(res, policy, e);
    }
    return r < 0 ? r : reply_network(req, res, e);
}

int route_network_log(struct http_request *req, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    json_t *out = NULL;
    int64_t after = 0;
    int64_t limit = 100;
    int r = route_find(req, &res, e);

    if (r == 0) {
        r = http_query_int(req, "after", (struct http_query_bounds){0, INT64_MAX, 0}, &after, e);
    }
    if (r == 0) {
        r = http_query_int(req, "limit", (struct http_query_bounds){1, 500, 100}, &limit, e);
    }
    if (r < 0) {
        return r;
    }
    r = network_ask_take(
        res, "log", json_pack("{s:I, s:I}", "after", (json_int_t)after, "limit", (json_int_t)limit),
        &out, e);
    if (!out && r == -ENOENT) { /* not handed over: nothing was seen */
        out = json_pack("{s:[], s:I}", "entries", "next", (json_int_t)0);
    }
    return out ? http_reply_json_take(req, 200, out, e) : r;
}

int route_network_proposal(struct http_request *req, struct err *e)
{
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    json_t *out = NULL;
    int r = route_find(req, &res, e);

    if (r < 0) {
        return r;
    }
    r = network_ask_take(res, "propose", NULL, &out, e);
    if (r == -ENOENT) {
        out = json_pack("{s:[]}", "rules");
    }
    if (!out) {
        return r;
    }
    json_object_set_new(out, "preset", json_string("custom"));
    return http_reply_json_take(req, 200, json_pack("{s:o}", "network", out), e);
}

/* {"host", "port", "method"?, "path"?}: what the policy would say. */
int route_network_explain(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {
        {"host", JSON_FIELD_STRING, JSON_REQUIRED},
        {"port", JSON_FIELD_INT, JSON_REQUIRED},
        {"method", JSON_FIELD_STRING, 0},
        {"path", JSON_FIELD_STRING, 0},
    };
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    CLEANUP(netpolicy_unrefp) const struct netpolicy *policy = NULL;
    cleanup_json json_t *body = NULL;
    json_t *answer = NULL;
    int r = route_find(req, &res, e);

    if (r == 0) {
        r = http_body_json(req, BODY_MAX, &body, e);
    }
    if (r == 0) {
        r = json_check_object(body, fields, ARRAY_SIZE(fields), e);
    }
    if (r < 0) {
        return r;
    }
    policy = network_policy(res);
    r = netpolicy_explain_json(policy, body, &answer, e);
    return r < 0 ? r : http_reply_json_take(req, 200, answer, e);
}

int route_network_answer(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {{"allow", JSON_FIELD_BOOL, JSON_REQUIRED},
                                               {"remember_s", JSON_FIELD_INT, 0},
                                               {"token", JSON_FIELD_STRING, 0}};
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    cleanup_json json_t *body = NULL;
    int64_t remember_s = NETGATE_REMEMBER_DEFAULT_S;
    uint64_t ask = 0;
    int r = route_find(req, &res, e);

    if (r == 0) {
        r = http_body_json(req, BODY_MAX, &body, e);
    }
    if (r == 0) {
        r = json_check_object(body, fields, ARRAY_SIZE(fields), e);
    }
    if (r == 0 && str_to_u64(http_request_param(req, "ask"), INT64_MAX, &ask) < 0) {
        r = err_set(e, -ENOENT, "no_such_ask", "there is no such question");
    }
    if (r == 0 && json_object_get(body, "remember_s")) {
        remember_s = json_get_int(body, "remember_s", -1);
    }
    if (r == 0 && (remember_s < 0 || remember_s > NETGATE_REMEMBER_MAX_S)) {
        r = err_field(e, -EINVAL, "out_of_range", "remember_s", "'remember_s' must be from 0 to %d",
                      NETGATE_REMEMBER_MAX_S);
    }
    if (r == 0) {
        r = network_ask_take(res, "answer",
                             json_pack("{s:I, s:b, s:I, s:O*}", "ask", (json_int_t)ask, "allow",
                                       json_get_bool(body, "allow", false), "remember_s",
                                       (json_int_t)remember_s, "token",
                                       json_object_get(body, "token")),
                             NULL, e);
    }
    return r < 0 ? r : reply_network(req, res, e);
}

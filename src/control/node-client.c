/* SPDX-License-Identifier: Apache-2.0 */
#include "control/node-client.h"

#include "model/lifetime.h"
#include "model/netpolicy.h"

#include <stdio.h>
#include <string.h>

/* What one node can hold, with room to spare; more is not a list but an attack on our memory. */
#define NODE_SANDBOXES_MAX 100000

struct node_client {
    char name[SANDBOX_NODE_SIZE];
    struct http_client *http; /* owned */
};

int node_client_new(const char *name, const char *url, struct http_tls *tls,
                    struct node_client **ret, struct err *e)
{
    CLEANUP(node_client_freep) struct node_client *node = xnew(struct node_client);
    int r;

    ASSERT(name && url && ret);

    r = str_copy(node->name, sizeof(node->name), name);
    if (r < 0) {
        return err_set(e, r, NULL, "the name of the node is too long");
    }
    r = http_client_new(
        url, &(struct http_client_opts){.max_idle = 64, .tls = tls, .tells_request = true},
        &node->http, e);
    if (r < 0) {
        return err_wrap(e, r, "node '%s'", name);
    }
    *ret = TAKE_PTR(node);
    return 0;
}

void node_client_free(struct node_client *node)
{
    if (node) {
        if (node->http) {
            http_client_free(node->http);
        }
        free(node);
    }
}

const char *node_client_name(const struct node_client *node)
{
    return node->name;
}

struct http_client *node_client_http(struct node_client *node)
{
    return node->http;
}

void node_list_done(struct node_list *list)
{
    free(list->items);
    *list = (struct node_list){0};
}

static int compare_ids(const void *a, const void *b)
{
    return strcmp(((const struct node_sandbox *)a)->id, ((const struct node_sandbox *)b)->id);
}

const struct node_sandbox *node_list_find(const struct node_list *list, const char *id)
{
    struct node_sandbox key = {0};

    ASSERT(list && id);
    if (list->n == 0 || str_copy(key.id, sizeof(key.id), id) < 0) {
        return NULL;
    }
    return bsearch(&key, list->items, list->n, sizeof(key), compare_ids);
}

static int bad_answer(struct err *e, const char *what)
{
    return err_set(e, -EPROTO, "bad_answer", "the node's answer cannot be used: %s", what);
}

int node_sandbox_from_json(json_t *json, struct node_sandbox *ret, struct err *e)
{
    struct node_sandbox sb = {0};
    const char *id;

    ASSERT(ret);

    id = json_get_string(json, "id", "");
    if (!id_valid(ID_SANDBOX, id)) {
        return bad_answer(e, "a sandbox without a valid id");
    }
    snprintf(sb.id, sizeof(sb.id), "%s", id);
    if (!sandbox_state_parse(json_get_string(json, "state", ""), &sb.state)) {
        return bad_answer(e, "a sandbox in an unknown state");
    }
    snprintf(sb.accel, sizeof(sb.accel), "%s", json_get_string(json, "accel", ""));
    snprintf(sb.reason, sizeof(sb.reason), "%s", json_get_string(json, "reason", ""));
    sb.started_at_ms = json_get_int(json, "started_at_ms", 0);
    sb.has_end = json_is_integer(json_object_get(json, "end_at_ms")) &&
                 sandbox_at_end_parse(json_get_string(json, "at_end", ""), &sb.at_end);
    sb.end_at_ms = json_get_int(json, "end_at_ms", 0);
    sb.has_network = json_is_object(json_object_get(json, "network"));
    sb.network = netpolicy_fingerprint(json_object_get(json, "network"));
    sb.has_policy = policy_from_json(json_object_get(json, "policy"), &sb.policy, NULL) == 0;
    *ret = sb;
    return 0;
}

int node_list_from_json(json_t *json, struct node_list *ret, struct err *e)
{
    cleanup_node_list struct node_list list = {0};
    json_t *array = json_object_get(json, "sandboxes");
    size_t n = json_array_size(array);
    int r;

    ASSERT(ret);

    if (!json_is_array(array)) {
        return bad_answer(e, "it holds no list of sandboxes");
    }
    if (n > NODE_SANDBOXES_MAX) {
        return bad_answer(e, "more sandboxes than a node can hold");
    }
    list.items = xnew_n(struct node_sandbox, MAX(n, (size_t)1));
    for (size_t i = 0; i < n; i++) {
        r = node_sandbox_from_json(json_array_get(array, i), &list.items[i], e);
        if (r < 0) {
            return r;
        }
    }
    list.n = n;
    qsort(list.items, n, sizeof(*list.items), compare_ids);
    for (size_t i = 1; i < n; i++) {
        if (compare_ids(&list.items[i - 1], &list.items[i]) == 0) {
            return bad_answer(e, "the same sandbox twice");
        }
    }
    *ret = list;
    list = (struct node_list){0};
    return 0;
}

/* Transport failures get words of ours: a missing socket must not look like a missing sandbox. */
static int transport_error(int r, struct node_call *call, struct err *e)
{
    snprintf(call->why, sizeof(call->why), "%.199s", e->msg);
    call->unreached = r == -ECONNREFUSED || r == -ENOENT;
    if (r == -ECANCELED) {
        return err_set(e, r, "canceled", "the request was given up");
    }
    if (r == -ETIMEDOUT) {
        return err_set(e, r, "node_timeout", "the node did not answer in time: try again");
    }
    return err_set(e, -EHOSTDOWN, "node_unavailable", "the node cannot be reached: try again");
}

static int exchange(struct node_client *node, const struct http_json_opts *what,
                    struct node_call *call, json_t **ret, struct err *e)
{
    struct http_json_opts opts = *what;
    struct err mine = {0};
    int status = 0;
    int r;

    ASSERT(node && call && call->deadline_ns);

    opts.deadline_ns = call->deadline_ns;
    opts.watch = call->watch;
    opts.ret_status = &status;
    call->unreached = false;
    call->refused = false;
    r = http_client_json(node->http, &opts, ret, &mine);
    if (r < 0 && status < 400) {
        r = transport_error(r, call, &mine);
    } else if (r < 0) {
        call->refused = true;
    }
    if (r < 0 && e) {
        *e = mine;
    }
    return r;
}

int node_client_create(struct node_client *node, const json_t *spec, struct node_call *call,
                       struct node_sandbox *ret, struct err *e)
{
    cleanup_json json_t *answer = NULL;
    int r;

    ASSERT(spec && ret);
    r = exchange(
        node, &(struct http_json_opts){.method = "POST", .target = "/v1/sandboxes", .body = spec},
        call, &answer, e);
    return r < 0 ? r : node_sandbox_from_json(answer, ret, e);
}

int node_client_list(struct node_client *node, struct node_call *call, struct node_list *ret,
                     struct err *e)
{
    cleanup_json json_t *answer = NULL;
    int r;

    ASSERT(ret);
    r = exchange(node, &(struct http_json_opts){.method = "GET", .target = "/v1/sandboxes"}, call,
                 &answer, e);
    return r < 0 ? r : node_list_from_json(answer, ret, e);
}

/* action: "" or "/stop" ... */
static int act(struct node_client *node, const char *method, const char *id, const char *action,
               struct node_call *call, json_t **ret, struct err *e)
{
    char target[64];
    int n = snprintf(target, sizeof(target), "/v1/sandboxes/%s%s", id, action);

    ASSERT(n > 0 && (size_t)n < sizeof(target));
    return exchange(node, &(struct http_json_opts){.method = method, .target = target}, call, ret,
                    e);
}

static int forget(struct node_client *node, const char *id, const char *how, struct node_call *call,
                  struct err *e)
{
    struct err mine = {0};
    int r = act(node, "DELETE", id, how, call, /* ret */ NULL, &mine);

    if (r == -ENOENT) {
        return 0;
    }
    if (r < 0 && e) {
        *e = mine;
    }
    return r;
}

int node_client_delete(struct node_client *node, const char *id, struct node_call *call,
                       struct err *e)
{
    return forget(node, id, "", call, e);
}

int node_client_leave(struct node_client *node, const char *id, struct node_call *call,
                      struct err *e)
{
    return forget(node, id, "?stored=keep", call, e);
}

int node_client_stop(struct node_client *node, const char *id, struct node_call *call,
                     struct err *e)
{
    return act(node, "POST", id, "/stop", call, /* ret */ NULL, e);
}

int node_client_start(struct node_client *node, const char *id, struct node_call *call,
                      struct node_sandbox *ret, struct err *e)
{
    cleanup_json json_t *answer = NULL;
    int r;

    r = act(node, "POST", id, "/start", call, &answer, e);
    return r < 0 ? r : node_sandbox_from_json(answer, ret, e);
}

int node_client_ask(struct node_client *node, const struct node_ask *ask, struct node_call *call,
                    json_t **ret, struct err *e)
{
    cleanup_free char *target = NULL;

    ASSERT(ask && ask->method && ask->id && ask->rest);
    target = xasprintf("/v1/sandboxes/%s%s", ask->id, ask->rest);
    return exchange(
        node, &(struct http_json_opts){.method = ask->method, .target = target, .body = ask->body},
        call, ret, e);
}

int node_client_act(struct node_client *node, const char *id, const char *action,
                    const json_t *body, struct node_call *call, struct node_sandbox *ret,
                    json_t **ret_json, struct err *e)
{
    cleanup_free char *rest = xasprintf("/%s", action);
    cleanup_json json_t *answer = NULL;
    int r;

    ASSERT(ret);
    r = node_client_ask(node,
                        &(struct node_ask){.method = "POST", .id = id, .rest = rest, .body = body},
                        call, &answer, e);
    if (r == 0) {
        r = node_sandbox_from_json(answer, ret, e);
    }
    if (r == 0 && !str_eq(ret->id, id)) {
        r = bad_answer(e, "another sandbox");
    }
    if (r == 0 && ret_json) {
        *ret_json = TAKE_PTR(answer);
    }
    return r;
}

int node_client_fork(struct node_client *node, const char *id, const json_t *body,
                     struct node_call *call, struct node_sandbox *ret, size_t n, struct err *e)
{
    cleanup_json json_t *answer = NULL;
    json_t *array;
    int r;

    r = node_client_ask(
        node, &(struct node_ask){.method = "POST", .id = id, .rest = "/fork", .body = body}, call,
        &answer, e);
    if (r < 0) {
        return r;
    }
    array = json_object_get(answer, "sandboxes");
    if (json_array_size(array) != n) {
        return bad_answer(e, "not as many children as were asked for");
    }
    for (size_t i = 0; i < n && r == 0; i++) {
        r = node_sandbox_from_json(json_array_get(array, i), &ret[i], e);
    }
    return r;
}

int node_client_set_policy(struct node_client *node, const char *id, const struct policy *policy,
                           struct node_call *call, struct err *e)
{
    cleanup_json json_t *body = policy_to_json(policy);

    return node_client_ask(
        node, &(struct node_ask){.method = "PATCH", .id = id, .rest = "/policy", .body = body},
        call, /* ret */ NULL, e);
}

int node_client_set_network(struct node_client *node, const struct sandbox *row,
                            struct node_call *call, struct err *e)
{
    cleanup_json json_t *body = sandbox_network_stack(row);

    if (!body) {
        return err_set(e, -EUCLEAN, "database_error", "the sandbox '%s' has an unreadable network",
                       row->id);
    }
    return node_client_ask(
        node,
        &(struct node_ask){.method = "PATCH", .id = row->id, .rest = "/network", .body = body},
        call, /* ret */ NULL, e);
}

int node_client_set_end(struct node_client *node, const struct sandbox *row, int64_t now_ms,
                        struct node_call *call, struct err *e)
{
    int64_t end_at_ms = lifetime_end(row->end_at_ms, row->paused_at_ms, now_ms);
    cleanup_json json_t *body = json_pack("{s:I, s:s}", "end_at_ms", (json_int_t)end_at_ms,
                                          "at_end", sandbox_at_end_name(row->at_end));

    return node_client_ask(
        node, &(struct node_ask){.method = "PATCH", .id = row->id, .rest = "/end", .body = body},
        call, /* ret */ NULL, e);
}

int node_client_put(struct node_client *node, const char *target, const json_t *body,
                    struct node_call *call, struct err *e)
{
    ASSERT(target && body);
    return exchange(node, &(struct http_json_opts){.method = "PUT", .target = target, .body = body},
                    call,
                    /* ret */ NULL, e);
}

int node_client_forget(struct node_client *node, const char *target, struct node_call *call,
                       struct err *e)
{
    ASSERT(target);
    return exchange(node, &(struct http_json_opts){.method = "DELETE", .target = target}, call,
                    /* ret */ NULL, e);
}

int node_client_get(struct node_client *node, const char *target, struct node_call *call,
                    json_t **ret, struct err *e)
{
    cleanup_json json_t *answer = NULL;
    int r;

    ASSERT(target && ret);
    r = exchange(node, &(struct http_json_opts){.method = "GET", .target = target}, call, &answer,
                 e);
    if (r == 0 && !answer) {
        r = bad_answer(e, "it is empty");
    }
    if (r == 0) {
        *ret = TAKE_PTR(answer);
    }
    return r;
}

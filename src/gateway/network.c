/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox may reach: the row has the policy, the node and its network gateway have what goes on. Names of hosts
 * in their answers were checked there byte by byte (model/netpolicy.h).
 */
#include "gateway/gateway.h"
#include "model/netpolicy.h"

#include <string.h>

#define BODY_MAX (NETPOLICY_TEXT_MAX + 1024u)

static int ask(struct http_request *req, struct control_ask *what, struct err *e)
{
    struct pollfd watch = http_client_pollfd(req);
    json_t *answer = NULL;
    int r;

    what->watch = &watch;
    r = control_ask(gateway_of(req)->control, actor_of(req), http_request_param(req, "id"), what,
                    &answer, e);
    return r < 0 ? r : http_reply_json_take(req, 200, answer, e);
}

/* Whose sandbox it is not learns that before anything of its body is read. */
static int owned(struct http_request *req, struct sandbox *ret, struct err *e)
{
    return control_get(gateway_of(req)->control, actor_of(req), http_request_param(req, "id"), ret,
                       e);
}

int network_get_handler(struct http_request *req, struct err *e)
{
    return ask(req, &(struct control_ask){.method = "GET", .rest = "/network"}, e);
}

int network_patch_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox_patch struct sandbox_patch patch = {0};
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *body = NULL;
    int r = owned(req, &sb, e);

    if (r == 0) {
        r = http_body_json(req, BODY_MAX, &body, e);
    }
    if (r == 0) {
        r = sandbox_patch_from_network(body, &patch, e);
    }
    if (r == 0) {
        sandbox_done(&sb);
        r = control_patch(gateway_of(req)->control, actor_of(req), http_request_param(req, "id"),
                          &patch, &sb, e);
    }
    return r < 0 ? r : http_reply_json_take(req, 200, json_pack("{s:O}", "network", body), e);
}

int network_log_handler(struct http_request *req, struct err *e)
{
    cleanup_free char *rest = NULL;
    int64_t after = 0;
    int64_t limit = 100;
    int r = http_query_int(req, "after", (struct http_query_bounds){0, INT64_MAX, 0}, &after, e);

    if (r == 0) {
        r = http_query_int(req, "limit", (struct http_query_bounds){1, 500, 100}, &limit, e);
    }
    if (r < 0) {
        return r;
    }
    rest = xasprintf("/network/log?after=%lld&limit=%lld", (long long)after, (long long)limit);
    return ask(req, &(struct control_ask){.method = "GET", .rest = rest}, e);
}

int network_proposal_handler(struct http_request *req, struct err *e)
{
    return ask(req, &(struct control_ask){.method = "GET", .rest = "/network/proposal"}, e);
}

/* The node checks what is in it. */
static int ask_with_body(struct http_request *req, struct control_ask *what, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *body = NULL;
    int r = owned(req, &sb, e);

    if (r == 0) {
        r = http_body_json(req, BODY_MAX, &body, e);
    }
    what->body = body;
    return r < 0 ? r : ask(req, what, e);
}

int network_explain_handler(struct http_request *req, struct err *e)
{
    return ask_with_body(req, &(struct control_ask){.method = "POST", .rest = "/network/explain"},
                         e);
}

int network_answer_handler(struct http_request *req, struct err *e)
{
    cleanup_free char *rest = NULL;
    uint64_t number = 0;

    if (str_to_u64(http_request_param(req, "ask"), INT64_MAX, &number) < 0) {
        return err_set(e, -ENOENT, "no_such_ask", "nothing waits for an answer under that number");
    }
    rest = xasprintf("/network/asks/%llu", (unsigned long long)number);
    return ask_with_body(
        req, &(struct control_ask){.method = "POST", .rest = rest, .action = "network.answer"}, e);
}

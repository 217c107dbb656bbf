/* SPDX-License-Identifier: Apache-2.0 */
/* What is decided about one request, whichever version of HTTP it came by. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "credential/sigv4.h"
#include "network/intercept-internal.h"

/* The name in Host must be the one that the connection was judged and resolved for. */
static bool host_agrees(const struct intercept_conn *c, const struct http1_head *head)
{
    const char *name = c->target.name;
    size_t len = strlen(name);
    struct http1_view a = head->authority;
    char port[8];

    if (a.len > len && a.p[len] == '.') {
        return false; /* a dot at the end: some servers take it for another host */
    }
    if (a.len < len || strncasecmp(a.p, name, len) != 0) {
        return false;
    }
    if (a.len == len) {
        /* Without a port it means the usual one; clients leave it out elsewhere, too. */
        return true;
    }
    snprintf(port, sizeof(port), ":%u", c->target.port);
    return a.len == len + strlen(port) && memcmp(a.p + len, port, strlen(port)) == 0;
}

/* The path of CONNECT is no bytes at all. */
static char *text_of(struct http1_view v)
{
    return v.p ? xstrndup(v.p, v.len) : xstrdup("");
}

static enum netpolicy_action refuse(struct intercept_refusal *ret, int status, const char *code,
                                    const char *message)
{
    ret->status = status;
    snprintf(ret->code, sizeof(ret->code), "%s", code);
    snprintf(ret->message, sizeof(ret->message), "%s", message);
    return NETPOLICY_DENY;
}

enum netpolicy_action intercept_judge(const struct intercept_conn *c, const struct http1_head *head,
                                      struct intercept_judgement *ret_judged,
                                      struct intercept_refusal *ret)
{
    cleanup_free char *method = text_of(head->method);
    cleanup_free char *path = text_of(head->path);
    struct netpolicy_query q = {.name = c->target.name,
                                .addr = c->target.addr,
                                .port = c->target.port,
                                .method = method,
                                .path = path};
    struct netpolicy_verdict v = {
        .action = NETPOLICY_DENY, .rule = NETPOLICY_BY_DEFAULT, .level = NETPOLICY_SANDBOX};

    *ret_judged = (struct intercept_judgement){.verdict = v};
    if (head->form == HTTP1_FORM_AUTHORITY) {
        return refuse(ret, 405, "method_not_allowed", "CONNECT is of no use here");
    }
    if (!host_agrees(c, head)) {
        return refuse(ret, 421, "host_differs",
                      "the request is for another host than the connection");
    }
    if (strlen(path) != head->path.len) {
        return refuse(ret, 400, "bad_path", "the path cannot be read");
    }
    v = netpolicy_judge(c->policy, &q);
    ret_judged->verdict = v;
    ret_judged->observed = netpolicy_observed(c->policy, &q, &v);
    if (v.action == NETPOLICY_ALLOW || v.action == NETPOLICY_INSPECT) {
        return NETPOLICY_ALLOW;
    }
    if (v.action == NETPOLICY_ASK) {
        return NETPOLICY_ASK;
    }
    return refuse(ret, 403, "denied_by_policy",
                  "the sandbox's network policy does not let this request pass");
}

enum netpolicy_action intercept_ask(const struct intercept_conn *c, const struct http1_head *head,
                                    struct intercept_refusal *ret)
{
    cleanup_free char *method = text_of(head->method);
    cleanup_free char *path = text_of(head->path);
    const struct intercept_question q = {.name = c->target.name,
                                         .addr = c->target.addr,
                                         .port = c->target.port,
                                         .method = method,
                                         .path = path,
                                         .stop_fd = c->stop_fd};

    if (c->target.ask && c->target.ask(c->target.done_arg, &q) == NETPOLICY_ALLOW) {
        return NETPOLICY_ALLOW;
    }
    return refuse(ret, 403, "not_approved", "nobody has approved of this request");
}

void intercept_tell(const struct intercept_conn *c, const struct http1_head *head,
                    const struct intercept_judgement *judged, const struct plan *plan, int status,
                    const char *refused)
{
    cleanup_free char *method = text_of(head->method);
    cleanup_free char *path = text_of(head->path);

    if (c->target.note) {
        c->target.note(c->target.done_arg,
                       &(struct intercept_note){
                           .method = method,
                           .path = path,
                           .verdict = judged->verdict,
                           .observed = judged->observed,
                           .status = status,
                           .credential = plan->n > 0 ? plan->v[0].credential : NULL,
                           .refused = refused,
                       });
    }
}

void exchange_tell(struct exchange *x, int status, const char *refused)
{
    if (!x->noted) {
        x->noted = true;
        intercept_tell(x->c, &x->head, &x->judged, &x->plan, status, refused);
    }
}

bool intercept_has_plan(const struct intercept_conn *c)
{
    return c->target.is_tls &&
           intercept_wants(c->in, &c->target.owner, c->target.name, c->target.port);
}

int intercept_plan(const struct intercept_conn *c, const struct http1_head *head, struct plan *plan,
                   struct redact *redact, struct err *e)
{
    const struct http1_field *auth = http1_field_get(head, "authorization");
    cleanup_free char *method = text_of(head->method);
    cleanup_free char *path = text_of(head->path);
    char names[INJECT_NAMES_MAX][CREDENTIAL_NAME_SIZE];
    struct credential_ask ask = {
        .q = {.organisation = c->target.owner.organisation,
              .project = c->target.owner.project,
              .sandbox = c->target.owner.sandbox,
              .host = c->target.name,
              .port = c->target.port,
              .method = method,
              .path = path},
        .names = names,
    };
    int r;

    if (!intercept_has_plan(c)) {
        return 0;
    }
    ask.n_names = inject_placeholders(head, names);
    if (auth) {
        IGNORE_RESULT(
            sigv4_scope_of(auth->value.p, auth->value.len, &ask.sign)); /* most are no signature */
    }
    r = credential_client_use(c->in->credentials, &ask, deadline_in_ms(INTERCEPT_USE_MS), plan, e);
    for (size_t i = 0; i < plan->n_secrets && r == 0; i++) {
        r = redact_add(redact, plan->secrets[i]);
        r = r < 0 ? err_set(e, r, "too_many_credentials", "the answer could not be searched") : 0;
    }
    return r;
}

void intercept_failure(const struct err *e, struct intercept_refusal *ret)
{
    int status = err_http_status(e);

    if (str_eq(e->reason, "tls_not_trusted") || str_eq(e->reason, "connect_failed") ||
        status == 404 || status == 401) {
        status = 502;
    }
    refuse(ret, status, err_reason(e), e->msg);
}

char *intercept_answer_text(const char *code, const char *message)
{
    struct err why = {0};
    cleanup_json json_t *json = NULL;

    err_set(&why, -EIO, code, "%s", message);
    json = json_error_object(&why);
    return json_text(json);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/client.h"

#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "wire/ssh-agent.h"
#include "wire/url.h"

#define CALL_MS 30000u
/* More than the manager waits. */
#define TARGETS_MS 60000u
#define IDLE_MAX 64u

struct credential_client {
    struct http_client *http; /* owned */
};

int credential_client_new(const char *url, struct credential_client **ret, struct err *e)
{
    struct http_client_opts opts = {.max_idle = IDLE_MAX, .tells_request = true};
    struct http_client *http = NULL;
    int r = http_client_new(url, &opts, &http, e);

    if (r < 0) {
        return r;
    }
    *ret = xnew(struct credential_client);
    (*ret)->http = http;
    return 0;
}

void credential_client_free(struct credential_client *c)
{
    if (c) {
        http_client_free(c->http);
        free(c);
    }
}

int credential_client_call(struct credential_client *c, const char *method, const char *target,
                           const json_t *body, json_t **ret, struct err *e)
{
    return http_client_json(c->http,
                            &(struct http_json_opts){.method = method,
                                                     .target = target,
                                                     .body = body,
                                                     .deadline_ns = deadline_in_ms(CALL_MS)},
                            ret, e);
}

/* Bytes that are no UTF-8 cannot be in a credential's target either. */
static json_t *ask_json(const struct credential_ask *ask)
{
    const struct credential_request *q = &ask->q;
    json_t *names = json_array();
    json_t *json = json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:s}", "organisation", q->organisation,
                             "project", q->project, "sandbox", q->sandbox, "host", q->host, "port",
                             (int)q->port, "method", q->method, "path", q->path);

    for (size_t i = 0; i < ask->n_names; i++) {
        json_array_append_new(names, json_string(ask->names[i]));
    }
    if (!json) {
        json_decref(names);
        return NULL;
    }
    json_object_set_new(json, "placeholders", names);
    if (ask->sign.region[0]) {
        json_object_set_new(json, "region", json_string(ask->sign.region));
        json_object_set_new(json, "service", json_string(ask->sign.service));
    }
    return json;
}

int credential_client_use(struct credential_client *c, const struct credential_ask *ask,
                          uint64_t deadline_ns, struct plan *ret, struct err *e)
{
    cleanup_json json_t *body = ask_json(ask);
    cleanup_json json_t *answer = NULL;
    int r;

    if (!body) {
        return err_set(e, -EINVAL, "invalid_request", "the request's path is not text");
    }
    r = http_client_json(
        c->http,
        &(struct http_json_opts){
            .method = "POST", .target = "/v1/use", .body = body, .deadline_ns = deadline_ns},
        &answer, e);
    return r < 0 ? r : plan_from_json(answer, ret, e);
}

static json_t *ssh_json(const struct credential_request *q)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:i}", "organisation", q->organisation, "project",
                     q->project, "sandbox", q->sandbox, "host", q->host, "port", (int)q->port);
}

int credential_client_ssh_open(struct credential_client *c, const struct credential_request *q,
                               json_t **ret, struct err *e)
{
    cleanup_json json_t *body = ssh_json(q);

    return credential_client_call(c, "POST", "/v1/ssh/open", body, ret, e);
}

int credential_client_ssh_sign(struct credential_client *c, const struct credential_request *q,
                               const void *data, size_t len, struct buf *ret, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(2 * SSH_AGENT_MAX);
    cleanup_json json_t *body = ssh_json(q);
    cleanup_json json_t *answer = NULL;
    const char *signature;
    int r = base64_encode(data, len, &text);

    if (r < 0) {
        return err_wrap(e, r, "asking for a signature");
    }
    json_object_set_new(body, "data", json_string(buf_str(&text)));
    r = credential_client_call(c, "POST", "/v1/ssh/sign", body, &answer, e);
    if (r < 0) {
        return r;
    }
    signature = json_get_string(answer, "signature", "");
    return base64_decode(signature, strlen(signature), ret) < 0
               ? err_set(e, -EPROTO, NULL, "the credential manager gave no signature")
               : 0;
}

static int take_certificate(json_t *answer, char **ret, struct err *e)
{
    const char *pem = json_get_string(answer, "certificate", NULL);

    if (!pem) {
        return err_set(e, -EPROTO, NULL, "the credential manager gave no certificate");
    }
    *ret = xstrdup(pem);
    return 0;
}

int credential_client_leaf(struct credential_client *c, const char *organisation, const char *name,
                           const void *spki, size_t len, char **ret, struct err *e)
{
    cleanup_buf struct buf key = BUF_INIT(1024);
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *answer = NULL;
    int r = base64_encode(spki, len, &key);

    if (r < 0) {
        return err_wrap(e, r, "asking for a certificate");
    }
    body = json_pack("{s:s, s:s, s:s}", "organisation", organisation, "name", name, "key",
                     buf_str(&key));
    ASSERT(body);
    r = credential_client_call(c, "POST", "/v1/leaf", body, &answer, e);
    return r < 0 ? r : take_certificate(answer, ret, e);
}

int credential_client_authority(struct credential_client *c, const char *organisation, uint64_t ms,
                                char **ret, char **ret_ssh, struct err *e)
{
    cleanup_buf struct buf target = BUF_INIT(1024);
    cleanup_json json_t *answer = NULL;
    int r = buf_add_str(&target, "/v1/authority");

    r = r < 0 ? r : url_add_query(&target, "organisation", organisation);
    if (r < 0) {
        return err_wrap(e, r, "asking for an authority");
    }
    r = http_client_json(c->http,
                         &(struct http_json_opts){.method = "GET",
                                                  .target = buf_str(&target),
                                                  .deadline_ns = deadline_in_ms(ms)},
                         &answer, e);
    r = r < 0 ? r : take_certificate(answer, ret, e);
    if (r == 0) {
        const char *line = json_get_string(answer, "ssh_host_key", NULL);

        *ret_ssh = line ? xstrdup(line) : NULL;
    }
    return r;
}

int credential_client_targets(struct credential_client *c, uint64_t known,
                              const struct pollfd *watch, json_t **ret, struct err *e)
{
    cleanup_free char *target = xasprintf("/v1/targets?known=%llu", (unsigned long long)known);

    return http_client_json(c->http,
                            &(struct http_json_opts){.method = "GET",
                                                     .target = target,
                                                     .deadline_ns = deadline_in_ms(TARGETS_MS),
                                                     .watch = watch},
                            ret, e);
}

int credential_client_metrics(struct credential_client *c, uint64_t ms, json_t **ret, struct err *e)
{
    return http_client_json(c->http,
                            &(struct http_json_opts){.method = "GET",
                                                     .target = "/v1/metrics",
                                                     .deadline_ns = deadline_in_ms(ms)},
                            ret, e);
}

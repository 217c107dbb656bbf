/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is told that a sandbox waits for an answer: a credential of the type webhook. Its target is where the text is sent to; its
 * value signs it, as
 *
 *     Space-Signature: t=SECONDS,v1=HEX        HEX = HMAC-SHA256(value, "SECONDS.TEXT")
 *
 * so that the receiver knows who speaks and can refuse what is old. A redirect is a failure: what is in the text is for this
 * target alone.
 */
#include <stdio.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/clock.h"
#include "base/log.h"
#include "credential/manager.h"

static int sign(const struct secret *key, const char *text, struct http_headers *headers)
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned int len = 0;
    char hex[2 * EVP_MAX_MD_SIZE + 1];
    unsigned long long now_s = clock_wall_ms() / 1000;
    cleanup_free char *signed_text = xasprintf("%llu.%s", now_s, text);
    cleanup_free char *value = NULL;

    if (!HMAC(EVP_sha256(), key->p, (int)key->len, (const unsigned char *)signed_text,
              strlen(signed_text), mac, &len)) {
        return -EIO;
    }
    hex_encode(mac, len, hex);
    value = xasprintf("t=%llu,v1=%s", now_s, hex);
    http_headers_set(headers, "Space-Signature", value);
    return 0;
}

static int send_signed(struct manager *m, const struct credential *c, const char *text,
                       struct err *e)
{
    cleanup_secret struct secret key = {0};
    cleanup_secret_headers struct http_headers headers = HTTP_HEADERS_INIT;
    cleanup_buf struct buf body = BUF_INIT(MANAGER_NOTICE_MAX);
    cleanup_free char *answer = NULL;
    cleanup_free char *url =
        xasprintf("https://%s:%u%s", c->target.host, (unsigned)c->target.port, c->target.path);
    const struct post post = {
        .url = url, .content_type = "application/json", .body = &body, .headers = &headers};
    struct err why = {0};
    size_t len = 0;
    int status = 0;
    int r = manager_value_of(m, c, &key, e);

    if (r < 0) {
        return r;
    }
    http_headers_set(&headers, "User-Agent", "space");
    r = buf_add_str(&body, text);
    r = r < 0 ? r : sign(&key, text, &headers);
    if (r < 0) {
        return err_wrap(e, r, "signing for the webhook '%s'", c->name);
    }
    r = post_to(&m->outside, &post, &status, &answer, &len, &why);
    if (r < 0 || status < 200 || status > 299) {
        return err_set(e, -EHOSTDOWN, "webhook_failed", "the webhook '%s' has not taken it: %s",
                       c->name, r < 0 ? why.msg : "its answer is no 2xx");
    }
    return 0;
}

int manager_notify(struct manager *m, const struct credential_request *q, const char *text,
                   struct err *e)
{
    struct credential c;
    struct err lost = {0};
    int r;

    if (store_webhook(m->store, q, &c) < 0) {
        return err_set(e, -ENOENT, "no_webhook", "the sandbox has no webhook");
    }
    struct audit_row row = {
        .event = "notify",
        .organisation = q->organisation,
        .project = q->project,
        .sandbox = q->sandbox,
        .credential = c.name,
        .credential_id = c.id,
        .host = c.target.host,
        .port = c.target.port,
        .method = "POST",
        .path = c.target.path,
    };

    if (c.expires_at_ms && c.expires_at_ms <= (int64_t)clock_wall_ms()) {
        r = err_set(e, -EACCES, "credential_expired", "the webhook '%s' has expired", c.name);
    } else {
        r = store_take_use(m->store, &c, e);
    }
    r = r < 0 ? r : send_signed(m, &c, text, e);
    if (r < 0) {
        row.event = "refuse";
        row.reason = e ? err_reason(e) : "webhook_failed";
    }
    if (audit_add(m->audit, &row, /* durable */ false, &lost) < 0) {
        log_error(NULL, "a notice is not recorded: %s", lost.msg);
    }
    return r;
}

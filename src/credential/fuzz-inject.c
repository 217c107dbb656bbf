/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request head and a plan that uses every way of injection. Whatever the head is: what is printed is read back by our own
 * parser as one request, has each injected field exactly once and with our value, and no field that describes the hop.
 */
#include <stdint.h>
#include <string.h>

#include "credential/inject.h"
#include "credential/secret.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define VALUE "secret-4711-value"

static void add(struct plan *plan, enum injection_kind kind, const char *name, const char *value)
{
    char name_copy[64];
    char value_copy[64];
    struct injection in = {.kind = kind, .surfaces = CREDENTIAL_IN_HEADER | CREDENTIAL_IN_QUERY};

    ASSERT(str_copy(name_copy, sizeof(name_copy), name) == 0 &&
           str_copy(value_copy, sizeof(value_copy), value) == 0);
    in.name = name_copy;
    in.value = value_copy;
    ASSERT(plan_add(plan, &in) == 0);
}

static void check_head(const struct buf *out)
{
    struct http1_head back;
    struct http1_scan scan = {0};
    const struct http1_field *f;
    size_t len = 0;

    ASSERT(http1_scan(&scan, out->data, out->len, &len) == 0 && len == out->len);
    ASSERT(http1_parse_request(out->data, out->len, &back) == HTTP1_OK);
    ASSERT(back.form == HTTP1_FORM_ORIGIN || back.form == HTTP1_FORM_ASTERISK);
    f = http1_field_get(&back, "authorization");
    ASSERT(f && http1_view_is(f->value, "Bearer " VALUE));
    f = http1_field_get(&back, "host");
    ASSERT(f && http1_view_is(f->value, "api.example.com"));
    f = http1_field_get(&back, "cookie");
    ASSERT(f && memmem(f->value.p, f->value.len, "session=" VALUE, strlen("session=" VALUE)));
    ASSERT(back.query.p &&
           memmem(back.query.p, back.query.len, "key=" VALUE, strlen("key=" VALUE)));
    ASSERT(!http1_field_get(&back, "keep-alive") && !http1_field_get(&back, "proxy-authorization"));
    f = http1_field_get(&back, "te");
    ASSERT(!f || http1_view_is(f->value, "trailers"));
    ASSERT(!http1_field_get(&back, "trailer") || back.framing == HTTP1_BODY_CHUNKED);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_plan struct plan plan = {0};
    cleanup_secret_buf struct buf out = BUF_INIT(INJECT_HEAD_MAX);
    cleanup_secret_buf struct buf body = BUF_INIT(INJECT_BODY_MAX);
    char found[INJECT_NAMES_MAX][CREDENTIAL_NAME_SIZE];
    struct http1_head head;
    struct http1_scan scan = {0};
    struct inject_request req = {.head = &head, .host = "api.example.com", .plan = &plan};
    const char *text = (const char *)data;
    size_t len = 0;

    if (http1_scan(&scan, text, size, &len) < 0 ||
        http1_parse_request(text, len, &head) != HTTP1_OK) {
        return 0;
    }
    add(&plan, INJECTION_HEADER, "Authorization", "Bearer " VALUE);
    add(&plan, INJECTION_QUERY, "key", VALUE);
    add(&plan, INJECTION_COOKIE, "session", VALUE);
    add(&plan, INJECTION_PLACEHOLDER, "token", VALUE);
    ASSERT(plan_hide(&plan, VALUE) == 0);
    ASSERT(inject_placeholders(&head, found) <= INJECT_NAMES_MAX);
    if (inject_head(&req, &out, NULL) == 0) {
        check_head(&out);
    } else {
        ASSERT(out.len == 0);
    }
    add(&plan, INJECTION_BODY, "token", VALUE);
    IGNORE_RESULT(
        inject_body(&head, &plan, text + len, size - len, &body, NULL)); /* most are no bodies */
    return 0;
}

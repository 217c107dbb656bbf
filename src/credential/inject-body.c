/* SPDX-License-Identifier: Apache-2.0 */
/* Injection into bodies that were gathered whole. */
#include "credential/inject-internal.h"

#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "credential/secret.h"

enum body_form {
    BODY_OTHER,
    BODY_JSON,
    BODY_FORM,
};

static enum body_form form_of(const struct http1_head *head)
{
    const struct http1_field *f = http1_field_get(head, "content-type");
    size_t len;

    if (!f) {
        return BODY_OTHER;
    }
    len = f->value.len;
    for (size_t i = 0; i < f->value.len; i++) {
        if (f->value.p[i] == ';' || f->value.p[i] == ' ') {
            len = i;
            break;
        }
    }
    if (len == 33 && strncasecmp(f->value.p, "application/x-www-form-urlencoded", len) == 0) {
        return BODY_FORM;
    }
    if ((len == 16 && strncasecmp(f->value.p, "application/json", len) == 0) ||
        (len > 5 && strncasecmp(f->value.p + len - 5, "+json", 5) == 0)) {
        return BODY_JSON;
    }
    return BODY_OTHER;
}

static bool placeholder_in_body(const struct plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        if (plan->v[i].kind == INJECTION_PLACEHOLDER &&
            (plan->v[i].surfaces & CREDENTIAL_IN_BODY)) {
            return true;
        }
    }
    return false;
}

/* A signature covers the body unless the guest gave its hash, or the service does without. */
static bool signature_needs_body(const struct http1_head *head, const struct plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        if (plan->v[i].kind == INJECTION_SIGV4 && !str_eq(plan->v[i].scope.service, "s3") &&
            !http1_field_get(head, "x-amz-content-sha256")) {
            return true;
        }
    }
    return false;
}

bool inject_needs_body(const struct http1_head *head, const struct plan *plan)
{
    if (plan_has(plan, INJECTION_BODY)) {
        return true;
    }
    return head->framing != HTTP1_BODY_NONE &&
           (placeholder_in_body(plan) || signature_needs_body(head, plan));
}

static int not_injectable(struct err *e)
{
    return err_set(e, -EINVAL, "body_not_injectable",
                   "the credential goes into a field of the body, which must be a JSON object or a "
                   "form");
}

static int body_json(const struct plan *plan, const void *body, size_t len, struct buf *ret,
                     struct err *e)
{
    cleanup_json json_t *json = NULL;
    int r = json_parse_untrusted(body, len, &json, /* e */ NULL);

    if (r < 0) {
        return not_injectable(e);
    }
    for (size_t i = 0; i < plan->n; i++) {
        const struct injection *in = &plan->v[i];
        json_t *text = in->kind == INJECTION_BODY ? json_string(in->value) : NULL;

        if (in->kind == INJECTION_BODY &&
            (!text || json_object_set_new(json, in->name, text) < 0)) {
            return not_injectable(e);
        }
    }
    return json_write(json, ret);
}

static bool is_injected(const struct plan *plan, const char *name, size_t len)
{
    for (size_t i = 0; i < plan->n; i++) {
        if (plan->v[i].kind == INJECTION_BODY && strlen(plan->v[i].name) == len &&
            memcmp(plan->v[i].name, name, len) == 0) {
            return true;
        }
    }
    return false;
}

static int body_form(const struct plan *plan, const void *body, size_t len, struct buf *ret,
                     struct err *e)
{
    struct url_query q = {.rest = body, .len = len};
    struct url_pair p;
    int r = 0;

    while (r == 0 && q.rest && url_query_next(&q, &p)) {
        const char *end = p.value ? p.value + p.value_len : p.name + p.name_len;
        cleanup_free char *name = xmalloc(p.name_len + 1);
        size_t n = 0;

        if (url_decode(p.name, p.name_len, URL_PLUS_IS_SPACE, name, &n) < 0) {
            return not_injectable(e);
        }
        if (!is_injected(plan, name, n)) {
            r = ret->len ? buf_add(ret, "&", 1) : 0;
            r = r < 0 ? r : buf_add(ret, p.name, (size_t)(end - p.name));
        }
    }
    for (size_t i = 0; i < plan->n && r == 0; i++) {
        if (plan->v[i].kind == INJECTION_BODY) {
            r = inject_add_pair(ret, plan->v[i].name, plan->v[i].value, ret->len ? '&' : '\0');
        }
    }
    return r;
}

static int escape_url(struct buf *b, const char *value)
{
    return url_encode(b, value, strlen(value), 0);
}

static int escape_json(struct buf *b, const char *value)
{
    cleanup_json json_t *text = json_string(value);
    char *printed = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
    size_t len = printed ? strlen(printed) : 0;
    int r = printed ? buf_add(b, printed + 1, len - 2) : -EINVAL;

    secret_free(printed);
    return r;
}

/* In a form the braces of "{{name}}" may be escaped: both ways are looked for. */
static int fill_form(const struct plan *plan, const char *s, size_t len, struct buf *ret)
{
    cleanup_secret_buf struct buf plain = BUF_INIT(INJECT_BODY_MAX);
    int r = 0;

    for (size_t i = 0; i < len && r == 0; i++) {
        if (len - i >= 3 && strncasecmp(s + i, "%7b", 3) == 0) {
            r = buf_add(&plain, "{", 1);
            i += 2;
        } else if (len - i >= 3 && strncasecmp(s + i, "%7d", 3) == 0) {
            r = buf_add(&plain, "}", 1);
            i += 2;
        } else {
            r = buf_add(&plain, s + i, 1);
        }
    }
    return r < 0 ? r
                 : inject_replace(plan, CREDENTIAL_IN_BODY, plain.data, plain.len, escape_url, ret);
}

int inject_body(const struct http1_head *head, const struct plan *plan, const void *body,
                size_t len, struct buf *ret, struct err *e)
{
    cleanup_secret_buf struct buf filled = BUF_INIT(INJECT_BODY_MAX + 4u * PLAN_VALUE_MAX);
    enum body_form form = form_of(head);
    int r = 0;

    if (placeholder_in_body(plan)) {
        r = form == BODY_FORM ? fill_form(plan, body, len, &filled)
                              : inject_replace(plan, CREDENTIAL_IN_BODY, body, len,
                                               form == BODY_JSON ? escape_json : NULL, &filled);
        body = filled.data;
        len = filled.len;
    }
    if (r == 0 && plan_has(plan, INJECTION_BODY)) {
        r = form == BODY_JSON   ? body_json(plan, body, len, ret, e)
            : form == BODY_FORM ? body_form(plan, body, len, ret, e)
                                : not_injectable(e);
    } else if (r == 0) {
        r = buf_add(ret, body, len);
    }
    return r == -E2BIG ? err_set(e, r, "body_too_large",
                                 "the body is too large to put a "
                                 "credential into it")
                       : r;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/inject.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "credential/inject-internal.h"
#include "credential/secret.h"

static const char *const hop_fields[] = {"connection",
                                         "keep-alive",
                                         "proxy-connection",
                                         "proxy-authenticate",
                                         "proxy-authorization",
                                         "te",
                                         "trailer",
                                         "transfer-encoding",
                                         "upgrade",
                                         "http2-settings"};
/* Printed by us, from what we know and not from what the guest says. */
static const char *const own_fields[] = {"host", "content-length", "expect"};

static bool is_one_of(struct http1_view name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (http1_view_is(name, list[i])) {
            return true;
        }
    }
    return false;
}

bool inject_is_hop(const struct http1_head *head, const struct http1_field *field)
{
    cleanup_free char *name = xstrndup(field->name.p, field->name.len);

    if (is_one_of(field->name, hop_fields, ARRAY_SIZE(hop_fields))) {
        return true;
    }
    for (size_t i = 0; i < head->n_fields; i++) {
        if (http1_view_is(head->fields[i].name, "connection") &&
            http1_list_has(head->fields[i].value, name)) {
            return true;
        }
    }
    return false;
}

/* ---- placeholders ---- */

/* "{{name}}" at s: its length, and the name. 0: there is none. */
static size_t placeholder_at(const char *s, size_t left, char ret[static CREDENTIAL_NAME_SIZE])
{
    size_t n = 0;

    if (left < 5 || s[0] != '{' || s[1] != '{') {
        return 0;
    }
    while (n + 2 < left && n < CREDENTIAL_NAME_SIZE && s[2 + n] != '}') {
        n++;
    }
    if (n == 0 || n >= CREDENTIAL_NAME_SIZE || n + 4 > left || s[2 + n] != '}' || s[3 + n] != '}') {
        return 0;
    }
    memcpy(ret, s + 2, n);
    ret[n] = '\0';
    return credential_name_valid(ret) ? n + 4 : 0;
}

const struct injection *inject_find_placeholder(const struct plan *plan, const char *name,
                                                unsigned surface)
{
    for (size_t i = 0; i < plan->n; i++) {
        if (plan->v[i].kind == INJECTION_PLACEHOLDER && (plan->v[i].surfaces & surface) &&
            str_eq(plan->v[i].name, name)) {
            return &plan->v[i];
        }
    }
    return NULL;
}

int inject_replace(const struct plan *plan, unsigned surface, const char *s, size_t len,
                   inject_escape_fn *escape, struct buf *ret)
{
    char name[CREDENTIAL_NAME_SIZE];
    size_t i = 0;
    int r = 0;

    while (i < len && r == 0) {
        size_t n = placeholder_at(s + i, len - i, name);
        const struct injection *in = n ? inject_find_placeholder(plan, name, surface) : NULL;

        if (in) {
            r = escape ? escape(ret, in->value) : buf_add_str(ret, in->value);
            i += n;
        } else {
            r = buf_add(ret, s + i, 1);
            i++;
        }
    }
    return r;
}

static void note_names(const char *s, size_t len,
                       char ret[static INJECT_NAMES_MAX][CREDENTIAL_NAME_SIZE], size_t *n)
{
    char name[CREDENTIAL_NAME_SIZE];

    for (size_t i = 0; i < len && *n < INJECT_NAMES_MAX; i++) {
        bool known = false;

        if (placeholder_at(s + i, len - i, name) == 0) {
            continue;
        }
        for (size_t j = 0; j < *n; j++) {
            known = known || str_eq(ret[j], name);
        }
        if (!known) {
            snprintf(ret[(*n)++], CREDENTIAL_NAME_SIZE, "%s", name);
        }
    }
}

size_t inject_placeholders(const struct http1_head *head,
                           char ret[static INJECT_NAMES_MAX][CREDENTIAL_NAME_SIZE])
{
    size_t n = 0;

    for (size_t i = 0; i < head->n_fields; i++) {
        cleanup_buf struct buf plain = BUF_INIT(HTTP1_MAX_HEAD);
        struct http1_view v = head->fields[i].value;

        note_names(v.p, v.len, ret, &n);
        if (http1_view_is(head->fields[i].name, "authorization") &&
            inject_basic_plain(v, &plain) == 0) {
            note_names(plain.data, plain.len, ret, &n);
        }
    }
    if (head->query.p) {
        cleanup_free char *plain = xmalloc(head->query.len + 1);
        size_t len = 0;

        if (url_decode(head->query.p, head->query.len, URL_PLUS_IS_SPACE, plain, &len) == 0) {
            note_names(plain, len, ret, &n);
        }
    }
    return n;
}

/* ---- the start line ---- */

static bool injects(const struct plan *plan, enum injection_kind kind, const char *name, size_t len)
{
    for (size_t i = 0; i < plan->n; i++) {
        if (plan->v[i].kind == kind && strlen(plan->v[i].name) == len &&
            memcmp(plan->v[i].name, name, len) == 0) {
            return true;
        }
    }
    return false;
}

/* Parameters of a presigned URL: another signature beside ours would make the request invalid. */
static bool is_presigned(const char *name, size_t len)
{
    return len > 6 && strncasecmp(name, "x-amz-", 6) == 0;
}

int inject_add_pair(struct buf *b, const char *name, const char *value, char before)
{
    int r = before ? buf_add(b, &before, 1) : 0;

    r = r < 0 ? r : url_encode(b, name, strlen(name), 0);
    r = r < 0 ? r : buf_add(b, "=", 1);
    return r < 0 ? r : url_encode(b, value, strlen(value), 0);
}

/* One pair of the guest's query, as it was or with its placeholders filled in. */
static int copy_pair(const struct plan *plan, const struct url_pair *p, struct buf *b)
{
    const char *end = p->value ? p->value + p->value_len : p->name + p->name_len;
    size_t len = (size_t)(end - p->name);
    cleanup_secret_free char *plain = xmalloc(len + 1);
    size_t n = 0;
    int r;

    if (!plan_has(plan, INJECTION_PLACEHOLDER) || !p->value ||
        url_decode(p->value, p->value_len, URL_PLUS_IS_SPACE, plain, &n) < 0 ||
        !memmem(plain, n, "{{", 2)) {
        return buf_add(b, p->name, len);
    }
    {
        cleanup_secret_buf struct buf filled = BUF_INIT(INJECT_HEAD_MAX);

        r = inject_replace(plan, CREDENTIAL_IN_QUERY, plain, n, NULL, &filled);
        r = r < 0 ? r : buf_add(b, p->name, (size_t)(p->value - p->name));
        return r < 0 ? r : url_encode(b, filled.data, filled.len, 0);
    }
}

static int add_query(const struct inject_request *req, struct buf *b)
{
    const struct http1_head *head = req->head;
    struct url_query q = {.rest = head->query.p, .len = head->query.p ? head->query.len : 0};
    bool sign = plan_has(req->plan, INJECTION_SIGV4);
    struct url_pair p;
    char mark = '?';
    int r = 0;

    while (r == 0 && q.rest && url_query_next(&q, &p)) {
        cleanup_free char *name = xmalloc(p.name_len + 1);
        size_t len = 0;

        if (url_decode(p.name, p.name_len, URL_PLUS_IS_SPACE, name, &len) < 0) {
            return -EINVAL;
        }
        if (injects(req->plan, INJECTION_QUERY, name, len) || (sign && is_presigned(name, len))) {
            continue;
        }
        r = buf_add(b, &mark, 1);
        r = r < 0 ? r : copy_pair(req->plan, &p, b);
        mark = '&';
    }
    for (size_t i = 0; i < req->plan->n && r == 0; i++) {
        if (req->plan->v[i].kind == INJECTION_QUERY) {
            r = inject_add_pair(b, req->plan->v[i].name, req->plan->v[i].value, mark);
            mark = '&';
        }
    }
    return r;
}

static int add_start(const struct inject_request *req, struct buf *target, struct buf *ret)
{
    cleanup_free char *method = xstrndup(req->head->method.p, req->head->method.len);
    int r;

    /* A tunnel inside of the tunnel, or a target that takes no parameter. */
    if (req->head->form == HTTP1_FORM_AUTHORITY ||
        (req->head->form == HTTP1_FORM_ASTERISK && plan_has(req->plan, INJECTION_QUERY))) {
        return -EINVAL;
    }
    /* Without a query to change, it stays byte for byte what the guest wrote. */
    r = buf_add(target, req->head->path.p, req->head->path.len);
    if (r == 0 && plan_has(req->plan, INJECTION_QUERY) == false &&
        plan_has(req->plan, INJECTION_PLACEHOLDER) == false &&
        plan_has(req->plan, INJECTION_SIGV4) == false) {
        r = req->head->query.p ? buf_add(target, "?", 1) : 0;
        r = r < 0 || !req->head->query.p
                ? r
                : buf_add(target, req->head->query.p, req->head->query.len);
    } else if (r == 0) {
        r = add_query(req, target);
    }
    return r < 0 ? r : http1_print_request(ret, method, buf_str(target));
}

/* ---- fields ---- */

bool inject_replaces(const struct plan *plan, struct http1_view name)
{
    for (size_t i = 0; i < plan->n; i++) {
        if ((plan->v[i].kind == INJECTION_HEADER && http1_view_is(name, plan->v[i].name)) ||
            (plan->v[i].kind == INJECTION_SIGV4 && inject_is_signed_by_us(name))) {
            return true;
        }
    }
    return false;
}

static int copy_field(const struct inject_request *req, const struct http1_field *f,
                      struct buf *ret)
{
    cleanup_secret_buf struct buf value = BUF_INIT(INJECT_HEAD_MAX);
    cleanup_free char *name = xstrndup(f->name.p, f->name.len);
    int r = -ENOENT;

    if (plan_has(req->plan, INJECTION_PLACEHOLDER)) {
        if (http1_view_is(f->name, "authorization")) {
            r = inject_basic(req->plan, f->value, &value);
        }
        if (r == -ENOENT) {
            r = inject_replace(req->plan, CREDENTIAL_IN_HEADER, f->value.p, f->value.len, NULL,
                               &value);
        }
    } else {
        r = buf_add(&value, f->value.p, f->value.len);
    }
    if (r == 0 && value.len != strlen(buf_str(&value))) {
        return -EINVAL;
    }
    return r < 0 ? r : http1_print_field(ret, name, buf_str(&value));
}

/* All of the guest's cookies but those that are ours, and ours, in one field. */
static int add_cookies(const struct inject_request *req, struct buf *ret)
{
    cleanup_secret_buf struct buf line = BUF_INIT(INJECT_HEAD_MAX);
    int r = 0;

    for (size_t i = 0; i < req->head->n_fields && r == 0; i++) {
        if (http1_view_is(req->head->fields[i].name, "cookie") &&
            !inject_is_hop(req->head, &req->head->fields[i])) {
            r = inject_copy_cookies(req->plan, req->head->fields[i].value, &line);
        }
    }
    for (size_t i = 0; i < req->plan->n && r == 0; i++) {
        const struct injection *in = &req->plan->v[i];

        if (in->kind == INJECTION_COOKIE) {
            r = buf_printf(&line, "%s%s=%s", line.len ? "; " : "", in->name, in->value);
        }
    }
    return r < 0 || line.len == 0 ? r : http1_print_field(ret, "Cookie", buf_str(&line));
}

static int add_guests_fields(const struct inject_request *req, struct buf *ret)
{
    bool cookies = plan_has(req->plan, INJECTION_COOKIE);
    int r = 0;

    for (size_t i = 0; i < req->head->n_fields && r == 0; i++) {
        const struct http1_field *f = &req->head->fields[i];

        if (is_one_of(f->name, own_fields, ARRAY_SIZE(own_fields)) || inject_is_hop(req->head, f) ||
            inject_replaces(req->plan, f->name) || (cookies && http1_view_is(f->name, "cookie")) ||
            (req->plan->n_secrets > 0 && http1_view_is(f->name, "accept-encoding"))) {
            continue;
        }
        r = copy_field(req, f, ret);
    }
    return r;
}

static int add_injected(const struct inject_request *req, struct buf *ret)
{
    int r = 0;

    for (size_t i = 0; i < req->plan->n && r == 0; i++) {
        if (req->plan->v[i].kind == INJECTION_HEADER) {
            r = http1_print_field(ret, req->plan->v[i].name, req->plan->v[i].value);
        }
    }
    /* An answer that is to be searched must be readable. */
    if (r == 0 && req->plan->n_secrets > 0) {
        r = http1_print_field(ret, "Accept-Encoding", "identity");
    }
    return r < 0 || !plan_has(req->plan, INJECTION_COOKIE) ? r : add_cookies(req, ret);
}

/* How the body is sent, and what the guest waits for. */
static int add_framing(const struct inject_request *req, struct buf *ret)
{
    const struct http1_head *head = req->head;
    char length[24];
    int r = 0;

    if (req->body_known) {
        snprintf(length, sizeof(length), "%zu", req->body_len);
        return head->framing == HTTP1_BODY_NONE && req->body_len == 0
                   ? 0
                   : http1_print_field(ret, "Content-Length", length);
    }
    if (head->framing == HTTP1_BODY_LENGTH || head->has_length) {
        snprintf(length, sizeof(length), "%llu", (unsigned long long)head->content_length);
        r = http1_print_field(ret, "Content-Length", length);
    } else if (head->framing == HTTP1_BODY_CHUNKED) {
        r = http1_print_field(ret, "Transfer-Encoding", "chunked");
    }
    if (r == 0 && head->expect_continue) {
        r = http1_print_field(ret, "Expect", "100-continue");
    }
    return r;
}

/* The guest reads trailers, and names those that it will send. */
static int add_trailer(const struct inject_request *req, bool reads, struct buf *ret)
{
    const struct http1_field *names = http1_field_get(req->head, "trailer");
    int r = reads ? http1_print_field(ret, "TE", "trailers") : 0;

    if (r == 0 && names && !req->body_known && req->head->framing == HTTP1_BODY_CHUNKED) {
        cleanup_free char *value = xstrndup(names->value.p, names->value.len);

        r = http1_print_field(ret, "Trailer", value);
    }
    return r;
}

static int add_hop(const struct inject_request *req, struct buf *ret)
{
    const struct http1_field *te = http1_field_get(req->head, "te");
    const struct http1_field *f = http1_field_get(req->head, "upgrade");
    bool reads = te && http1_list_has(te->value, "trailers");
    bool upgrade = req->head->upgrade && f && http1_view_is(f->value, "websocket");
    int r = 0;

    if (reads || upgrade) {
        r = http1_print_field(ret, "Connection",
                              reads && upgrade ? "TE, Upgrade"
                              : reads          ? "TE"
                                               : "Upgrade");
    }
    r = r < 0 || !upgrade ? r : http1_print_field(ret, "Upgrade", "websocket");
    return r < 0 ? r : add_trailer(req, reads, ret);
}

int inject_head(const struct inject_request *req, struct buf *ret, struct err *e)
{
    cleanup_secret_buf struct buf target = BUF_INIT(INJECT_HEAD_MAX);
    size_t before = ret->len;
    int r;

    ASSERT(req->head && req->plan && req->host);
    r = add_start(req, &target, ret);
    r = r < 0 ? r : http1_print_field(ret, "Host", req->host);
    r = r < 0 ? r : add_guests_fields(req, ret);
    r = r < 0 ? r : add_injected(req, ret);
    r = r < 0 ? r : add_framing(req, ret);
    r = r < 0 ? r : add_hop(req, ret);
    if (r == 0 && plan_has(req->plan, INJECTION_SIGV4)) {
        r = inject_sign(req, buf_str(&target), ret, e);
    }
    r = r < 0 ? r : http1_print_end(ret);
    if (r < 0) {
        if (ret->len > before) {
            explicit_bzero(ret->data + before, ret->len - before);
        }
        ret->len = before;
        return e && e->code == r
                   ? r
                   : err_set(e, r == -E2BIG ? -E2BIG : -EINVAL, "request_not_injectable",
                             "the request is such that its credential cannot be put in");
    }
    return 0;
}

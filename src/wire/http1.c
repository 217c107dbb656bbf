/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http1.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct {
    int status;
    const char *text;
} errors[HTTP1_ERROR_COUNT_] = {
    [HTTP1_OK] = {200, "no error"},
    [HTTP1_BAD_LINE] = {400, "the first line is not one of HTTP/1.1"},
    [HTTP1_BAD_METHOD] = {501, "the method is not one that any server knows"},
    [HTTP1_BAD_TARGET] =
        {400, "the request target has bytes that must be percent-encoded, or is no target"},
    [HTTP1_TARGET_TOO_LONG] = {414, "the request target is too long"},
    [HTTP1_BAD_VERSION] = {505, "only HTTP/1.1 and HTTP/1.0 are spoken here"},
    [HTTP1_BAD_NEWLINE] = {400, "lines must end in CR LF, and neither may stand alone"},
    [HTTP1_BAD_FIELD] = {400, "a header field is malformed"},
    [HTTP1_OBS_FOLD] = {400, "a header field may not continue on the next line"},
    [HTTP1_TOO_LARGE] = {431, "the header fields are too large or too many"},
    [HTTP1_BAD_HOST] = {400, "exactly one valid Host field is needed"},
    [HTTP1_BAD_LENGTH] = {400, "Content-Length must be one decimal number, given once"},
    [HTTP1_BAD_CODING] = {400,
                          "Transfer-Encoding may only be 'chunked', once, without Content-Length"},
    [HTTP1_UNKNOWN_CODING] = {501, "the only transfer coding known here is 'chunked'"},
    [HTTP1_BAD_EXPECT] = {417, "the only expectation known here is '100-continue'"},
    [HTTP1_BAD_STATUS] = {400, "the status is not one of HTTP"},
};

int http1_error_status(enum http1_error why)
{
    ASSERT(why < HTTP1_ERROR_COUNT_);
    return errors[why].status;
}

const char *http1_error_text(enum http1_error why)
{
    ASSERT(why < HTTP1_ERROR_COUNT_);
    return errors[why].text;
}

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_token_byte(char c)
{
    return is_alnum(c) || (c != '\0' && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_value_byte(char c)
{
    unsigned char u = (unsigned char)c;

    return u == '\t' || (u >= 0x20 && u != 0x7f);
}

bool http1_is_token(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (!is_token_byte(s[i])) {
            return false;
        }
    }
    return len > 0;
}

bool http1_is_value(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (!is_value_byte(s[i])) {
            return false;
        }
    }
    return true;
}

bool http1_view_is(struct http1_view v, const char *s)
{
    return v.len == strlen(s) && strncasecmp(v.p, s, v.len) == 0;
}

static struct http1_view trim(struct http1_view v)
{
    while (v.len > 0 && (v.p[0] == ' ' || v.p[0] == '\t')) {
        v.p++;
        v.len--;
    }
    while (v.len > 0 && (v.p[v.len - 1] == ' ' || v.p[v.len - 1] == '\t')) {
        v.len--;
    }
    return v;
}

bool http1_list_has(struct http1_view list, const char *token)
{
    while (list.len > 0) {
        const char *comma = memchr(list.p, ',', list.len);
        size_t n = comma ? (size_t)(comma - list.p) : list.len;

        if (http1_view_is(trim((struct http1_view){list.p, n}), token)) {
            return true;
        }
        n += comma ? 1 : 0;
        list.p += n;
        list.len -= n;
    }
    return false;
}

int http1_scan(struct http1_scan *scan, const char *data, size_t len, size_t *ret_len)
{
    ASSERT(scan->pos <= len);

    if (len > 0 && scan->pos == 0 && !is_token_byte(data[0])) {
        *ret_len = 1; /* a TLS hello, an empty line: not a head, whatever follows */
        return 0;
    }
    while (scan->pos < len) {
        const char *lf = memchr(data + scan->pos, '\n', len - scan->pos);
        size_t at;

        if (!lf) {
            scan->pos = len;
            break;
        }
        at = (size_t)(lf - data);
        scan->pos = at + 1;
        if (at == scan->line || data[at - 1] != '\r' || at - scan->line == 1) {
            *ret_len = at + 1;
            return scan->pos > HTTP1_MAX_HEAD ? -E2BIG : 0;
        }
        scan->line = at + 1;
    }
    return len >= HTTP1_MAX_HEAD ? -E2BIG : -EAGAIN;
}

/* ---- the parts of a head ---- */

/* Cuts the next line off, without its CR LF. */
static enum http1_error next_line(struct http1_view *rest, struct http1_view *ret)
{
    const char *lf = memchr(rest->p, '\n', rest->len);
    size_t n;

    if (!lf || lf == rest->p || lf[-1] != '\r') {
        return HTTP1_BAD_NEWLINE;
    }
    n = (size_t)(lf - rest->p);
    *ret = (struct http1_view){rest->p, n - 1};
    if (memchr(ret->p, '\r', ret->len)) {
        return HTTP1_BAD_NEWLINE;
    }
    rest->p += n + 1;
    rest->len -= n + 1;
    return HTTP1_OK;
}

static enum http1_error parse_field(struct http1_view line, struct http1_head *head)
{
    const char *colon = memchr(line.p, ':', line.len);
    struct http1_field *f;

    if (line.p[0] == ' ' || line.p[0] == '\t') {
        return HTTP1_OBS_FOLD;
    }
    if (!colon || !http1_is_token(line.p, (size_t)(colon - line.p))) {
        return HTTP1_BAD_FIELD;
    }
    if (head->n_fields == HTTP1_MAX_FIELDS) {
        return HTTP1_TOO_LARGE;
    }
    f = &head->fields[head->n_fields];
    f->name = (struct http1_view){line.p, (size_t)(colon - line.p)};
    f->value = trim((struct http1_view){colon + 1, line.len - f->name.len - 1});
    if (!http1_is_value(f->value.p, f->value.len)) {
        return HTTP1_BAD_FIELD;
    }
    head->n_fields++;
    return HTTP1_OK;
}

static enum http1_error parse_fields(struct http1_view rest, struct http1_head *head)
{
    for (;;) {
        struct http1_view line;
        enum http1_error why = next_line(&rest, &line);

        if (why != HTTP1_OK) {
            return why;
        }
        if (line.len == 0) {
            return rest.len == 0 ? HTTP1_OK : HTTP1_BAD_LINE;
        }
        why = parse_field(line, head);
        if (why != HTTP1_OK) {
            return why;
        }
    }
}

enum http1_error http1_parse_trailers(const char *data, size_t len, struct http1_head *ret)
{
    struct http1_view rest = {data, len};

    *ret = (struct http1_head){0};
    while (rest.len > 0) {
        struct http1_view line;
        enum http1_error why = next_line(&rest, &line);

        if (why == HTTP1_OK && line.len == 0) {
            return HTTP1_BAD_LINE;
        }
        why = why == HTTP1_OK ? parse_field(line, ret) : why;
        if (why != HTTP1_OK) {
            return why;
        }
        if (http1_is_head_only(ret->fields[ret->n_fields - 1].name)) {
            return HTTP1_BAD_FIELD;
        }
    }
    return HTTP1_OK;
}

bool http1_is_head_only(struct http1_view name)
{
    static const char *const names[] = {"host",
                                        "connection",
                                        "keep-alive",
                                        "proxy-connection",
                                        "te",
                                        "trailer",
                                        "transfer-encoding",
                                        "upgrade",
                                        "content-length",
                                        "content-type",
                                        "content-encoding",
                                        "content-range",
                                        "expect",
                                        "authorization",
                                        "proxy-authorization",
                                        "proxy-authenticate",
                                        "cookie",
                                        "set-cookie",
                                        "www-authenticate",
                                        "alt-svc"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (http1_view_is(name, names[i])) {
            return true;
        }
    }
    return false;
}

static size_t count_fields(const struct http1_head *head, const char *name,
                           const struct http1_field **ret)
{
    size_t n = 0;

    for (size_t i = 0; i < head->n_fields; i++) {
        if (http1_view_is(head->fields[i].name, name)) {
            *ret = &head->fields[i];
            n++;
        }
    }
    return n;
}

const struct http1_field *http1_field_get(const struct http1_head *head, const char *name)
{
    const struct http1_field *f = NULL;

    return count_fields(head, name, &f) == 1 ? f : NULL;
}

static bool any_field_has(const struct http1_head *head, const char *name, const char *token)
{
    for (size_t i = 0; i < head->n_fields; i++) {
        if (http1_view_is(head->fields[i].name, name) &&
            http1_list_has(head->fields[i].value, token)) {
            return true;
        }
    }
    return false;
}

static enum http1_error parse_length(struct http1_view v, uint64_t *ret)
{
    uint64_t n = 0;

    if (v.len == 0 || v.len > 18 || (v.len > 1 && v.p[0] == '0')) {
        return HTTP1_BAD_LENGTH; /* 18 digits stay below 2^63 */
    }
    for (size_t i = 0; i < v.len; i++) {
        if (v.p[i] < '0' || v.p[i] > '9') {
            return HTTP1_BAD_LENGTH;
        }
        n = n * 10 + (uint64_t)(v.p[i] - '0');
    }
    *ret = n;
    return HTTP1_OK;
}

/* What the fields say about the body and the connection; the same rules for both directions. */
static enum http1_error parse_framing(struct http1_head *head)
{
    const struct http1_field *length = NULL;
    const struct http1_field *coding = NULL;
    size_t n_length = count_fields(head, "content-length", &length);
    size_t n_coding = count_fields(head, "transfer-encoding", &coding);

    head->upgrade = any_field_has(head, "connection", "upgrade");
    head->keep_alive = !any_field_has(head, "connection", "close") &&
                       (head->minor == 1 || any_field_has(head, "connection", "keep-alive"));
    if (n_coding > 0) {
        if (n_coding > 1 || n_length > 0 || head->minor == 0 || coding->value.len == 0) {
            return HTTP1_BAD_CODING;
        }
        if (!http1_view_is(coding->value, "chunked")) {
            return HTTP1_UNKNOWN_CODING;
        }
        head->framing = HTTP1_BODY_CHUNKED;
        return HTTP1_OK;
    }
    if (n_length > 1) {
        return HTTP1_BAD_LENGTH;
    }
    if (n_length == 1) {
        enum http1_error why = parse_length(length->value, &head->content_length);

        if (why != HTTP1_OK) {
            return why;
        }
        head->has_length = true;
        head->framing = head->content_length > 0 ? HTTP1_BODY_LENGTH : HTTP1_BODY_NONE;
    }
    return HTTP1_OK;
}

static enum http1_error parse_version(struct http1_view v, unsigned *ret_minor)
{
    if (v.len != 8 || memcmp(v.p, "HTTP/", 5) != 0 || v.p[6] != '.') {
        return HTTP1_BAD_LINE;
    }
    if (v.p[5] != '1' || (v.p[7] != '0' && v.p[7] != '1')) {
        return HTTP1_BAD_VERSION;
    }
    *ret_minor = (unsigned)(v.p[7] - '0');
    return HTTP1_OK;
}

/* ---- requests ---- */

static bool is_authority(struct http1_view v)
{
    for (size_t i = 0; i < v.len; i++) {
        if (!is_alnum(v.p[i]) && (v.p[i] == '\0' || !strchr("-._~%:[]", v.p[i]))) {
            return false;
        }
    }
    return true;
}

/* Path and query of what begins with '/' or '?', or is empty. */
static enum http1_error split_path(struct http1_view v, struct http1_head *head)
{
    const char *mark = v.len ? memchr(v.p, '?', v.len) : NULL;

    head->path = (struct http1_view){v.p, mark ? (size_t)(mark - v.p) : v.len};
    if (mark) {
        head->query = (struct http1_view){mark + 1, v.len - head->path.len - 1};
    }
    if (head->path.len == 0) {
        head->path = (struct http1_view){"/", 1};
    }
    return memchr(head->path.p, '\\', head->path.len) ? HTTP1_BAD_TARGET : HTTP1_OK;
}

static enum http1_error parse_absolute(struct http1_view t, struct http1_head *head)
{
    size_t scheme = strncasecmp(t.p, "http://", MIN(t.len, (size_t)7)) == 0 && t.len > 7 ? 7 : 8;
    size_t n = scheme;

    if (scheme == 8 && (t.len <= 8 || strncasecmp(t.p, "https://", 8) != 0)) {
        return HTTP1_BAD_TARGET;
    }
    while (n < t.len && t.p[n] != '/' && t.p[n] != '?') {
        n++;
    }
    head->form = HTTP1_FORM_ABSOLUTE;
    head->authority = (struct http1_view){t.p + scheme, n - scheme};
    if (head->authority.len == 0 || !is_authority(head->authority)) {
        return HTTP1_BAD_TARGET;
    }
    return split_path((struct http1_view){t.p + n, t.len - n}, head);
}

static enum http1_error parse_target(struct http1_view t, struct http1_head *head)
{
    head->target = t;
    if (t.len == 0) {
        return HTTP1_BAD_LINE;
    }
    if (t.len > HTTP1_MAX_TARGET) {
        return HTTP1_TARGET_TOO_LONG;
    }
    for (size_t i = 0; i < t.len; i++) {
        if (t.p[i] <= 0x20 || t.p[i] >= 0x7f || t.p[i] == '#') {
            return HTTP1_BAD_TARGET;
        }
    }
    if (head->method.len == 7 && memcmp(head->method.p, "CONNECT", 7) == 0) {
        head->form = HTTP1_FORM_AUTHORITY;
        head->authority = t;
        return is_authority(t) ? HTTP1_OK : HTTP1_BAD_TARGET;
    }
    if (t.len == 1 && t.p[0] == '*') {
        head->form = HTTP1_FORM_ASTERISK;
        return head->method.len == 7 && memcmp(head->method.p, "OPTIONS", 7) == 0
                   ? HTTP1_OK
                   : HTTP1_BAD_TARGET;
    }
    if (t.p[0] == '/') {
        head->form = HTTP1_FORM_ORIGIN;
        return split_path(t, head);
    }
    return parse_absolute(t, head);
}

static enum http1_error parse_request_line(struct http1_view line, struct http1_head *head)
{
    const char *first = line.len ? memchr(line.p, ' ', line.len) : NULL;
    const char *last = line.len ? memrchr(line.p, ' ', line.len) : NULL;
    enum http1_error why;

    if (!first || first == last) {
        return HTTP1_BAD_LINE;
    }
    head->method = (struct http1_view){line.p, (size_t)(first - line.p)};
    if (!http1_is_token(head->method.p, head->method.len)) {
        return HTTP1_BAD_LINE;
    }
    if (head->method.len > HTTP1_MAX_METHOD) {
        return HTTP1_BAD_METHOD;
    }
    why = parse_version((struct http1_view){last + 1, line.len - (size_t)(last + 1 - line.p)},
                        &head->minor);
    if (why != HTTP1_OK) {
        return why;
    }
    return parse_target((struct http1_view){first + 1, (size_t)(last - first) - 1}, head);
}

static enum http1_error parse_host(struct http1_head *head)
{
    const struct http1_field *host = NULL;
    size_t n = count_fields(head, "host", &host);

    if (n > 1 || (n == 0 && head->minor == 1)) {
        return HTTP1_BAD_HOST;
    }
    if (n == 0) {
        return HTTP1_OK;
    }
    if (!is_authority(host->value)) {
        return HTTP1_BAD_HOST;
    }
    if (head->authority.p) {
        bool same = head->authority.len == host->value.len &&
                    strncasecmp(head->authority.p, host->value.p, host->value.len) == 0;

        return same ? HTTP1_OK : HTTP1_BAD_HOST;
    }
    head->authority = host->value;
    return HTTP1_OK;
}

static enum http1_error parse_expect(struct http1_head *head)
{
    const struct http1_field *expect = NULL;
    size_t n = count_fields(head, "expect", &expect);

    if (n == 0) {
        return HTTP1_OK;
    }
    if (n > 1 || !http1_view_is(expect->value, "100-continue")) {
        return HTTP1_BAD_EXPECT;
    }
    head->expect_continue = head->minor == 1 && head->framing != HTTP1_BODY_NONE;
    return HTTP1_OK;
}

static void head_init(struct http1_head *head)
{
    size_t fields = offsetof(struct http1_head, fields);
    size_t behind = offsetof(struct http1_head, n_fields);

    /* The array is large and only its first n_fields are ever read. */
    memset(head, 0, fields);
    memset((char *)head + behind, 0, sizeof(*head) - behind);
}

enum http1_error http1_parse_request(const char *data, size_t len, struct http1_head *ret)
{
    struct http1_view rest = {data, len};
    struct http1_view line;
    enum http1_error why;

    head_init(ret);
    if (len > HTTP1_MAX_HEAD) {
        return HTTP1_TOO_LARGE;
    }
    if (len == 0 || !is_token_byte(data[0])) {
        return HTTP1_BAD_LINE;
    }
    why = next_line(&rest, &line);
    if (why == HTTP1_OK) {
        why = parse_request_line(line, ret);
    }
    if (why == HTTP1_OK) {
        why = parse_fields(rest, ret);
    }
    if (why == HTTP1_OK) {
        why = parse_framing(ret);
    }
    if (why == HTTP1_OK) {
        why = parse_host(ret);
    }
    return why == HTTP1_OK ? parse_expect(ret) : why;
}

/* ---- answers ---- */

static enum http1_error parse_status_line(struct http1_view line, struct http1_head *head)
{
    enum http1_error why =
        parse_version((struct http1_view){line.p, MIN(line.len, (size_t)8)}, &head->minor);

    if (why != HTTP1_OK) {
        return why;
    }
    if (line.len < 12 || line.p[8] != ' ' || (line.len > 12 && line.p[12] != ' ')) {
        return HTTP1_BAD_LINE;
    }
    for (size_t i = 9; i < 12; i++) {
        if (line.p[i] < '0' || line.p[i] > '9') {
            return HTTP1_BAD_STATUS;
        }
        head->status = head->status * 10 + (unsigned)(line.p[i] - '0');
    }
    if (head->status < 100 || head->status > 599) {
        return HTTP1_BAD_STATUS;
    }
    return http1_is_value(line.p + 12, line.len - 12) ? HTTP1_OK : HTTP1_BAD_LINE;
}

static enum http1_error response_framing(struct http1_head *head, bool head_request)
{
    bool bodiless = head->status < 200 || head->status == 204;

    if (bodiless && head->framing != HTTP1_BODY_NONE) {
        return head->framing == HTTP1_BODY_CHUNKED ? HTTP1_BAD_CODING : HTTP1_BAD_LENGTH;
    }
    if (bodiless || head->status == 304 || head_request) {
        head->framing = HTTP1_BODY_NONE;
        return HTTP1_OK;
    }
    if (head->framing == HTTP1_BODY_NONE && !head->has_length) {
        head->framing = HTTP1_BODY_CLOSE;
        head->keep_alive = false;
    }
    return HTTP1_OK;
}

enum http1_error http1_parse_response(const char *data, size_t len, bool head_request,
                                      struct http1_head *ret)
{
    struct http1_view rest = {data, len};
    struct http1_view line;
    enum http1_error why;

    head_init(ret);
    if (len > HTTP1_MAX_HEAD) {
        return HTTP1_TOO_LARGE;
    }
    if (len == 0 || data[0] != 'H') {
        return HTTP1_BAD_LINE;
    }
    why = next_line(&rest, &line);
    if (why == HTTP1_OK) {
        why = parse_status_line(line, ret);
    }
    if (why == HTTP1_OK) {
        why = parse_fields(rest, ret);
    }
    if (why == HTTP1_OK) {
        why = parse_framing(ret);
    }
    return why == HTTP1_OK ? response_framing(ret, head_request) : why;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "wire/url.h"

#define CANONICAL_MAX (256u * 1024)
#define PAIRS_MAX 256u

static void hmac(const unsigned char key[static PLAN_KEY_SIZE], const void *data, size_t len,
                 unsigned char ret[static PLAN_KEY_SIZE])
{
    unsigned char out[EVP_MAX_MD_SIZE];

    ASSERT(HMAC(EVP_sha256(), key, PLAN_KEY_SIZE, data, len, out, NULL));
    memcpy(ret, out, PLAN_KEY_SIZE);
    explicit_bzero(out, sizeof(out));
}

void sigv4_key(const char *secret, const struct sigv4_scope *scope,
               unsigned char ret[static PLAN_KEY_SIZE])
{
    const char *const steps[] = {scope->region, scope->service, "aws4_request"};
    size_t len = strlen(secret) + 4;
    char *first = xasprintf("AWS4%s", secret);
    unsigned char out[EVP_MAX_MD_SIZE];

    ASSERT(HMAC(EVP_sha256(), first, (int)len, (const unsigned char *)scope->date,
                strlen(scope->date), out, NULL));
    memcpy(ret, out, PLAN_KEY_SIZE);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        hmac(ret, steps[i], strlen(steps[i]), ret);
    }
    explicit_bzero(out, sizeof(out));
    explicit_bzero(first, len);
    free(first);
}

/* Decodes what the sender encoded and encodes it the one way that AWS does. */
static int add_normal(struct buf *b, const char *s, size_t len, unsigned flags)
{
    cleanup_free char *plain = xmalloc(len + 1);
    size_t n = 0;
    int r = url_decode(s, len, 0, plain, &n);

    return r < 0 ? r : url_encode(b, plain, n, flags);
}

static int add_path(struct buf *b, const char *path, bool twice)
{
    cleanup_buf struct buf once = BUF_INIT(CANONICAL_MAX);
    const char *s = path;
    int r = 0;

    /* Each segment alone: an encoded slash stays one. */
    while (*s && r == 0) {
        size_t len = strcspn(s + 1, "/");

        r = buf_add(&once, "/", 1);
        r = r < 0 ? r : add_normal(&once, s + 1, len, 0);
        s += 1 + len;
    }
    if (r == 0) {
        r = twice ? url_encode(b, once.data, once.len, URL_KEEP_SLASH)
                  : buf_add(b, once.data, once.len);
    }
    return r;
}

struct pair {
    char *text; /* owned: "name=value", encoded */
    size_t name_len;
};

static int compare_pairs(const void *a, const void *b)
{
    const struct pair *x = a;
    const struct pair *y = b;
    int r = memcmp(x->text, y->text, MIN(x->name_len, y->name_len));

    if (r == 0 && x->name_len != y->name_len) {
        return x->name_len < y->name_len ? -1 : 1;
    }
    return r ? r : strcmp(x->text, y->text);
}

static int read_pairs(const char *query, struct pair *pairs, size_t *ret_n)
{
    struct url_query q = {.rest = query, .len = strlen(query)};
    struct url_pair p;
    int r = 0;

    while (r == 0 && url_query_next(&q, &p)) {
        cleanup_buf struct buf text = BUF_INIT(CANONICAL_MAX);

        if (*ret_n == PAIRS_MAX) {
            return -E2BIG;
        }
        r = add_normal(&text, p.name, p.name_len, 0);
        pairs[*ret_n].name_len = text.len;
        r = r < 0 ? r : buf_add(&text, "=", 1);
        r = r < 0 ? r : add_normal(&text, p.value ? p.value : "", p.value_len, 0);
        if (r == 0) {
            pairs[(*ret_n)++].text = buf_take(&text);
        }
    }
    return r;
}

static int add_query(struct buf *b, const char *query)
{
    struct pair pairs[PAIRS_MAX];
    size_t n = 0;
    int r = read_pairs(query, pairs, &n);

    if (r == 0) {
        qsort(pairs, n, sizeof(pairs[0]), compare_pairs);
    }
    for (size_t i = 0; i < n; i++) {
        r = r < 0 ? r : buf_printf(b, "%s%s", i ? "&" : "", pairs[i].text);
        free(pairs[i].text);
    }
    return r;
}

/* Runs of spaces become one; none at the ends. */
static int add_value(struct buf *b, const char *value)
{
    bool space = false;
    bool any = false;
    int r = 0;

    for (const char *s = value; *s && r == 0; s++) {
        if (*s == ' ' || *s == '\t') {
            space = any;
            continue;
        }
        r = space ? buf_add(b, " ", 1) : 0;
        r = r < 0 ? r : buf_add(b, s, 1);
        space = false;
        any = true;
    }
    return r;
}

static int add_headers(struct buf *b, const struct sigv4_request *req, struct buf *names)
{
    int r = 0;

    for (size_t i = 0; i < req->n_headers && r == 0; i++) {
        r = buf_printf(b, "%s:", req->headers[i].name);
        r = r < 0 ? r : add_value(b, req->headers[i].value);
        r = r < 0 ? r : buf_add(b, "\n", 1);
        r = r < 0 ? r : buf_printf(names, "%s%s", i ? ";" : "", req->headers[i].name);
    }
    return r;
}

static int canonical(const struct sigv4_request *req, struct buf *b, struct buf *names)
{
    int r = buf_printf(b, "%s\n", req->method);

    r = r < 0 ? r : add_path(b, req->path, req->encode_twice);
    r = r < 0 ? r : buf_add(b, "\n", 1);
    r = r < 0 ? r : add_query(b, req->query);
    r = r < 0 ? r : buf_add(b, "\n", 1);
    r = r < 0 ? r : add_headers(b, req, names);
    return r < 0 ? r : buf_printf(b, "\n%s\n%s", buf_str(names), req->payload);
}

int sigv4_sign(const struct sigv4_request *req, const struct sigv4_scope *scope,
               const unsigned char key[static PLAN_KEY_SIZE], char ret[static SIGV4_SIGNATURE_SIZE],
               struct buf *signed_headers)
{
    cleanup_buf struct buf text = BUF_INIT(CANONICAL_MAX);
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char hex[2 * SHA256_DIGEST_LENGTH + 1];
    char to_sign[512];
    int r = canonical(req, &text, signed_headers);
    int n;

    if (r < 0) {
        return r;
    }
    SHA256((const unsigned char *)text.data, text.len, digest);
    hex_encode(digest, sizeof(digest), hex);
    n = snprintf(to_sign, sizeof(to_sign), "AWS4-HMAC-SHA256\n%s\n%s/%s/%s/aws4_request\n%s",
                 req->time, scope->date, scope->region, scope->service, hex);
    if (n < 0 || (size_t)n >= sizeof(to_sign)) {
        return -E2BIG;
    }
    hmac(key, to_sign, (size_t)n, digest);
    hex_encode(digest, sizeof(digest), ret);
    return 0;
}

/* The next part up to a slash, of letters, digits and '-' only. */
static int take_part(const char **s, const char *end, char *ret, size_t size)
{
    const char *slash = memchr(*s, '/', (size_t)(end - *s));
    size_t len = slash ? (size_t)(slash - *s) : 0;

    if (!slash || len == 0 || len >= size) {
        return -EINVAL;
    }
    for (size_t i = 0; i < len; i++) {
        char c = (*s)[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_')) {
            return -EINVAL;
        }
    }
    memcpy(ret, *s, len);
    ret[len] = '\0';
    *s = slash + 1;
    return 0;
}

int sigv4_scope_of(const char *authorization, size_t len, struct sigv4_scope *ret)
{
    static const char scheme[] = "AWS4-HMAC-SHA256 ";
    static const char word[] = "Credential=";
    const char *end = authorization + len;
    const char *s;
    struct sigv4_scope scope = {0};
    char id[128];

    if (len < sizeof(scheme) || strncmp(authorization, scheme, sizeof(scheme) - 1) != 0) {
        return -EINVAL;
    }
    s = memmem(authorization, len, word, sizeof(word) - 1);
    if (!s) {
        return -EINVAL;
    }
    s += sizeof(word) - 1;
    if (take_part(&s, end, id, sizeof(id)) < 0 ||
        take_part(&s, end, scope.date, sizeof(scope.date)) < 0 ||
        take_part(&s, end, scope.region, sizeof(scope.region)) < 0 ||
        take_part(&s, end, scope.service, sizeof(scope.service)) < 0) {
        return -EINVAL;
    }
    *ret = scope;
    return 0;
}

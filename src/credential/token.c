/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/token.h"

#include <pthread.h>
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/json.h"
#include "credential/post.h"
#include "wire/url.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#define KEPT_MAX 4096u
#define ASSERTION_S 540
#define GITHUB_S 3600

struct kept {
    char id[ID_SIZE];
    int64_t rotated_at_ms;
    struct secret token; /* owned */
    uint64_t until_ns;
};

struct tokens {
    pthread_mutex_t lock; /* guards kept, busy */
    pthread_cond_t done;
    struct kept *kept; /* owned */
    size_t n;
    char busy[64][ID_SIZE]; /* being fetched just now */
    size_t n_busy;
    struct post_opts opts;
};

struct tokens *tokens_new(const struct post_opts *opts)
{
    struct tokens *t = xnew(struct tokens);

    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->done, NULL);
    t->opts = *opts;
    return t;
}

void tokens_free(struct tokens *t)
{
    if (t) {
        for (size_t i = 0; i < t->n; i++) {
            secret_done(&t->kept[i].token);
        }
        free(t->kept);
        pthread_cond_destroy(&t->done);
        pthread_mutex_destroy(&t->lock);
        free(t);
    }
}

/* ---- what is kept; with the lock held ---- */

static void drop(struct tokens *t, size_t at)
{
    secret_done(&t->kept[at].token);
    t->kept[at] = t->kept[--t->n];
}

static const struct kept *find(struct tokens *t, const struct credential *c)
{
    uint64_t now_ns = clock_now_ns();

    for (size_t i = t->n; i-- > 0;) {
        if (t->kept[i].until_ns <= now_ns) {
            drop(t, i);
        }
    }
    for (size_t i = 0; i < t->n; i++) {
        if (str_eq(t->kept[i].id, c->id) && t->kept[i].rotated_at_ms == c->rotated_at_ms) {
            return &t->kept[i];
        }
    }
    return NULL;
}

static void keep(struct tokens *t, const struct credential *c, const struct secret *token,
                 int64_t lasts_s)
{
    struct kept *k;

    if (lasts_s <= TOKEN_SPARE_S || t->n == KEPT_MAX) {
        return;
    }
    t->kept = xrealloc(t->kept, (t->n + 1) * sizeof(struct kept));
    k = &t->kept[t->n];
    *k = (struct kept){.rotated_at_ms = c->rotated_at_ms};
    snprintf(k->id, sizeof(k->id), "%s", c->id);
    k->until_ns = clock_now_ns() + (uint64_t)(lasts_s - TOKEN_SPARE_S) * NS_PER_S;
    if (secret_init(&k->token, token->p, token->len) == 0) {
        t->n++;
    }
}

void tokens_forget(struct tokens *t, const char *id)
{
    pthread_mutex_lock(&t->lock);
    for (size_t i = t->n; i-- > 0;) {
        if (str_eq(t->kept[i].id, id)) {
            drop(t, i);
        }
    }
    pthread_mutex_unlock(&t->lock);
}

static bool is_busy(const struct tokens *t, const char *id)
{
    for (size_t i = 0; i < t->n_busy; i++) {
        if (str_eq(t->busy[i], id)) {
            return true;
        }
    }
    return t->n_busy == ARRAY_SIZE(t->busy);
}

static void busy_end(struct tokens *t, const char *id)
{
    for (size_t i = 0; i < t->n_busy; i++) {
        if (str_eq(t->busy[i], id)) {
            memmove(t->busy[i], t->busy[--t->n_busy], ID_SIZE);
            break;
        }
    }
    pthread_cond_broadcast(&t->done);
}

/* ---- asking ---- */

/* What one exchange gave. */
struct grant {
    struct secret token;   /* owned */
    struct secret refresh; /* owned */
    int64_t lasts_s;
};

static void grant_done(struct grant *g)
{
    secret_done(&g->token);
    secret_done(&g->refresh);
}

static int take_text(json_t *json, const char *name, struct secret *ret)
{
    json_t *text = json_object_get(json, name);

    return json_is_string(text)
               ? secret_init(ret, json_string_value(text), json_string_length(text))
               : -ENOENT;
}

static int take_grant(int status, const char *body, size_t len, const char *field,
                      struct grant *ret, struct err *e)
{
    cleanup_json json_t *json = NULL;
    int r = json_parse_untrusted(body, len, &json, NULL);

    if (status >= 400 && status < 500) {
        return err_set(e, -EACCES, "token_refused", "the server refuses to give a token (%d)",
                       status);
    }
    if (r < 0 || status < 200 || status > 299 || take_text(json, field, &ret->token) < 0 ||
        ret->token.len < CREDENTIAL_VALUE_MIN) {
        return err_set(e, -EHOSTDOWN, "token_unavailable", "the server gave no token (%d)", status);
    }
    for (size_t i = 0; i < ret->token.len; i++) {
        if ((unsigned char)ret->token.p[i] <= 0x20 || (unsigned char)ret->token.p[i] >= 0x7f) {
            return err_set(e, -EHOSTDOWN, "token_unavailable",
                           "the server gave a token that cannot be sent");
        }
    }
    IGNORE_RESULT(take_text(json, "refresh_token", &ret->refresh)); /* there need not be one */
    ret->lasts_s = json_get_int(json, "expires_in", TOKEN_DEFAULT_S);
    return 0;
}

static int ask_server(struct tokens *t, const struct post *ask, int *ret_status, char **ret_text,
                      size_t *ret_len, struct err *e)
{
    struct err why = {0};

    if (post_to(&t->opts, ask, ret_status, ret_text, ret_len, &why) < 0) {
        return err_set(e, -EHOSTDOWN, "token_unavailable", "cannot fetch a token: %s", why.msg);
    }
    return 0;
}

static int form_add(struct buf *b, const char *name, const char *value)
{
    int r = buf_printf(b, "%s%s=", b->len ? "&" : "", name);

    return r < 0 ? r : url_encode(b, value, strlen(value), 0);
}

/* RFC 6749 2.3.1: the client's id and secret as Basic, each form-encoded first. */
static int add_basic(struct http_headers *headers, const char *id, const char *secret)
{
    cleanup_secret_buf struct buf plain = BUF_INIT(SECRET_MAX * 4);
    cleanup_secret_buf struct buf text = BUF_INIT(SECRET_MAX * 8);
    int r = url_encode(&plain, id, strlen(id), 0);

    r = r < 0 ? r : buf_add(&plain, ":", 1);
    r = r < 0 ? r : url_encode(&plain, secret, strlen(secret), 0);
    r = r < 0 ? r : buf_add_str(&text, "Basic ");
    r = r < 0 ? r : base64_encode(plain.data, plain.len, &text);
    if (r == 0) {
        http_headers_set(headers, "Authorization", buf_str(&text));
    }
    return r;
}

static int fetch_oauth2(struct tokens *t, const struct credential *c, const struct secret *secret,
                        struct grant *ret, struct err *e)
{
    const struct credential_inject *in = &c->inject;
    cleanup_secret_buf struct buf body = BUF_INIT(SECRET_MAX * 4);
    cleanup_secret_headers struct http_headers headers = HTTP_HEADERS_INIT;
    cleanup_secret_free char *text = NULL;
    struct post ask = {
        .url = in->token_url,
        .content_type = "application/x-www-form-urlencoded",
        .body = &body,
        .headers = &headers,
    };
    int status = 0;
    size_t len = 0;
    int r;

    http_headers_set(&headers, "Accept", "application/json");
    if (in->refresh) {
        r = form_add(&body, "grant_type", "refresh_token");
        r = r < 0 ? r : form_add(&body, "refresh_token", secret->p);
        r = r < 0 ? r : form_add(&body, "client_id", in->client_id);
    } else {
        r = form_add(&body, "grant_type", "client_credentials");
        r = r < 0 ? r : add_basic(&headers, in->client_id, secret->p);
    }
    if (r == 0 && in->oauth_scope[0]) {
        r = form_add(&body, "scope", in->oauth_scope);
    }
    r = r < 0 ? r : ask_server(t, &ask, &status, &text, &len, e);
    return r < 0 ? r : take_grant(status, text, len, "access_token", ret, e);
}

static int fetch_github(struct tokens *t, const struct credential *c, const struct secret *secret,
                        struct grant *ret, struct err *e)
{
    cleanup_secret_buf struct buf assertion = BUF_INIT(8192);
    cleanup_buf struct buf body = BUF_INIT(16);
    cleanup_secret_headers struct http_headers headers = HTTP_HEADERS_INIT;
    cleanup_free char *more =
        xasprintf("/app/installations/%s/access_tokens", c->inject.installation);
    cleanup_secret_free char *text = NULL;
    cleanup_secret_free char *bearer = NULL;
    struct post ask = {
        .url = c->inject.token_url, .more = more, .body = &body, .headers = &headers};
    int status = 0;
    size_t len = 0;
    int r =
        token_github_assertion(c->inject.client_id, secret, clock_wall_ms() / 1000, &assertion, e);

    if (r < 0) {
        return r;
    }
    bearer = xasprintf("Bearer %s", buf_str(&assertion));
    http_headers_set(&headers, "Authorization", bearer);
    http_headers_set(&headers, "Accept", "application/vnd.github+json");
    http_headers_set(&headers, "User-Agent", "space");
    r = ask_server(t, &ask, &status, &text, &len, e);
    r = r < 0 ? r : take_grant(status, text, len, "token", ret, e);
    if (r == 0) {
        ret->lasts_s = GITHUB_S; /* as documented; the answer says it as a date */
    }
    return r;
}

int tokens_get(struct tokens *t, const struct credential *c, const struct secret *secret,
               struct secret *ret, struct secret *ret_refresh, struct err *e)
{
    CLEANUP(grant_done) struct grant grant = {0};
    const struct kept *kept;
    int r;

    pthread_mutex_lock(&t->lock);
    while (!(kept = find(t, c)) && is_busy(t, c->id)) {
        pthread_cond_wait(&t->done, &t->lock);
    }
    if (kept) {
        r = secret_init(ret, kept->token.p, kept->token.len);
        pthread_mutex_unlock(&t->lock);
        return r;
    }
    snprintf(t->busy[t->n_busy++], ID_SIZE, "%s", c->id);
    pthread_mutex_unlock(&t->lock);

    r = c->inject.type == CREDENTIAL_OAUTH2 ? fetch_oauth2(t, c, secret, &grant, e)
                                            : fetch_github(t, c, secret, &grant, e);
    pthread_mutex_lock(&t->lock);
    if (r == 0) {
        keep(t, c, &grant.token, grant.lasts_s);
    }
    busy_end(t, c->id);
    pthread_mutex_unlock(&t->lock);
    if (r == 0) {
        *ret = grant.token;
        *ret_refresh = grant.refresh;
        grant = (struct grant){0};
    }
    return r;
}

/* ---- the assertion of a GitHub App: a JWT (RFC 7519), RS256 ---- */

static int add_part(struct buf *b, const void *data, size_t len)
{
    size_t from = b->len;
    int r = base64_encode(data, len, b);

    while (r == 0 && b->len > from && b->data[b->len - 1] == '=') {
        b->data[--b->len] = '\0';
    }
    for (size_t i = from; r == 0 && i < b->len; i++) {
        b->data[i] = (char)(b->data[i] == '+' ? '-' : b->data[i] == '/' ? '_' : b->data[i]);
    }
    return r;
}

static int sign_rs256(const struct secret *pem, struct buf *text, struct err *e)
{
    BIO *bio = BIO_new_mem_buf(pem->p, (int)pem->len);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    unsigned char signature[1024];
    size_t len = sizeof(signature);
    int r = -EINVAL;

    if (key && EVP_PKEY_get_base_id(key) == EVP_PKEY_RSA && ctx &&
        EVP_DigestSignInit(ctx, NULL, EVP_sha256(), NULL, key) == 1 &&
        EVP_DigestSign(ctx, signature, &len, (const unsigned char *)text->data, text->len) == 1) {
        r = buf_add(text, ".", 1);
        r = r < 0 ? r : add_part(text, signature, len);
    }
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    BIO_free(bio);
    ERR_clear_error();
    return r < 0 ? err_set(e, -EACCES, "token_refused", "the value is no RSA key in PEM") : 0;
}

int token_github_assertion(const char *app, const struct secret *key, uint64_t now_s,
                           struct buf *ret, struct err *e)
{
    static const char header[] = "{\"alg\":\"RS256\",\"typ\":\"JWT\"}";
    cleanup_json json_t *claims = json_pack("{s:I, s:I, s:s}", "iat", (json_int_t)now_s - 60, "exp",
                                            (json_int_t)now_s + ASSERTION_S, "iss", app);
    cleanup_free char *text = json_text(claims);
    int r = add_part(ret, header, sizeof(header) - 1);

    r = r < 0 ? r : buf_add(ret, ".", 1);
    r = r < 0 ? r : add_part(ret, text, strlen(text));
    return r < 0 ? r : sign_rs256(key, ret, e);
}

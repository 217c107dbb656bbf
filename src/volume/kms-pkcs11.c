/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/kms-pkcs11-token.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"

#define PREFIX "pkcs11:"
#define NONCE_SIZE 12u
#define TAG_SIZE 16u
#define PLAIN_MAX 256u /* a data key is 32 bytes */

/* ---- in the token ---- */

static CK_MECHANISM gcm(CK_GCM_PARAMS *params, unsigned char *nonce, char *about)
{
    /* In the standard's order: p11-kit has renamed the members, between Debian 12 and 13. */
    *params = (CK_GCM_PARAMS){nonce,         NONCE_SIZE,  NONCE_SIZE * 8, (unsigned char *)about,
                              strlen(about), TAG_SIZE * 8};
    return (CK_MECHANISM){CKM_AES_GCM, params, sizeof(*params)};
}

/* The newest version, made when there is none. */
static int newest(struct pkcs11 *p, CK_SESSION_HANDLE session, const char *organisation,
                  struct pkcs11_key *ret, struct err *e)
{
    struct pkcs11_key keys[PKCS11_VERSIONS_MAX];
    int n = pkcs11_find(p, session, organisation, keys, e);

    if (n < 0) {
        return n;
    }
    if (n == 0) {
        ret->version = 1;
        return pkcs11_generate(p, session, organisation, ret, e);
    }
    *ret = keys[0];
    for (int i = 1; i < n; i++) {
        *ret = keys[i].version > ret->version ? keys[i] : *ret;
    }
    return 0;
}

static int wrap_in(struct pkcs11 *p, CK_SESSION_HANDLE session, const struct kms_use *use,
                   const struct secret *key, struct buf *ret, struct err *e)
{
    cleanup_free char *about = xasprintf("%s/%s", use->organisation, use->key_id);
    unsigned char out[NONCE_SIZE + PLAIN_MAX + TAG_SIZE];
    CK_ULONG len = sizeof(out) - NONCE_SIZE;
    struct pkcs11_key kek = {0};
    CK_GCM_PARAMS params;
    CK_MECHANISM mechanism = gcm(&params, out, about);
    CK_RV rv;
    int r = key->len > PLAIN_MAX ? -E2BIG : newest(p, session, use->organisation, &kek, e);

    if (r < 0) {
        return r;
    }
    random_bytes(out, NONCE_SIZE);
    rv = p->f->C_EncryptInit(session, &mechanism, kek.handle);
    if (rv == CKR_OK) {
        rv = p->f->C_Encrypt(session, (unsigned char *)key->p, key->len, out + NONCE_SIZE, &len);
    }
    if (rv != CKR_OK) {
        return pkcs11_failed(rv, "wrapping", use->organisation, e);
    }
    r = buf_printf(ret, PREFIX "%u:", kek.version);
    return r < 0 ? r : base64_encode(out, NONCE_SIZE + len, ret);
}

struct wrapped {
    uint64_t version;
    struct buf bytes; /* nonce | cipher text | tag */
};

static int parse(const char *text, struct wrapped *ret)
{
    char number[8] = "";
    const char *colon;

    if (!str_starts(text, PREFIX)) {
        return -EBADMSG;
    }
    text += strlen(PREFIX);
    colon = strchr(text, ':');
    if (!colon || colon - text >= (ptrdiff_t)sizeof(number)) {
        return -EBADMSG;
    }
    memcpy(number, text, (size_t)(colon - text));
    if (str_to_u64(number, UINT32_MAX, &ret->version) < 0 ||
        base64_decode(colon + 1, strlen(colon + 1), &ret->bytes) < 0) {
        return -EBADMSG;
    }
    return ret->bytes.len > NONCE_SIZE + TAG_SIZE &&
                   ret->bytes.len <= NONCE_SIZE + PLAIN_MAX + TAG_SIZE
               ? 0
               : -EBADMSG;
}

static int find_version(struct pkcs11 *p, CK_SESSION_HANDLE session, const char *organisation,
                        uint64_t version, CK_OBJECT_HANDLE *ret, struct err *e)
{
    struct pkcs11_key keys[PKCS11_VERSIONS_MAX];
    int n = pkcs11_find(p, session, organisation, keys, e);

    for (int i = 0; i < n; i++) {
        if (keys[i].version == version) {
            *ret = keys[i].handle;
            return 0;
        }
    }
    return n < 0 ? n : kms_refused(organisation, "it is not in the token (any more)", e);
}

static int unwrap_in(struct pkcs11 *p, CK_SESSION_HANDLE session, const struct kms_use *use,
                     struct wrapped *w, struct secret *ret, struct err *e)
{
    cleanup_free char *about = xasprintf("%s/%s", use->organisation, use->key_id);
    unsigned char *in = (unsigned char *)w->bytes.data;
    unsigned char plain[PLAIN_MAX + TAG_SIZE];
    CK_ULONG len = sizeof(plain);
    CK_OBJECT_HANDLE kek = 0;
    CK_GCM_PARAMS params;
    CK_MECHANISM mechanism = gcm(&params, in, about);
    CK_RV rv;
    int r = find_version(p, session, use->organisation, w->version, &kek, e);

    if (r < 0) {
        return r;
    }
    rv = p->f->C_DecryptInit(session, &mechanism, kek);
    if (rv == CKR_OK) {
        rv = p->f->C_Decrypt(session, in + NONCE_SIZE, w->bytes.len - NONCE_SIZE, plain, &len);
    }
    r = rv == CKR_OK ? secret_init(ret, plain, len)
                     : pkcs11_failed(rv, "unwrapping", use->organisation, e);
    explicit_bzero(plain, sizeof(plain));
    return r;
}

static int rotate_in(struct pkcs11 *p, CK_SESSION_HANDLE session, const char *organisation,
                     struct err *e)
{
    struct pkcs11_key keys[PKCS11_VERSIONS_MAX];
    struct pkcs11_key next = {.version = 1};
    int n = pkcs11_find(p, session, organisation, keys, e);

    if (n == (int)PKCS11_VERSIONS_MAX) {
        return err_set(e, -EDQUOT, "too_many_keys", "the key has %u versions, as many as may be",
                       PKCS11_VERSIONS_MAX);
    }
    for (int i = 0; i < n; i++) {
        next.version = MAX(next.version, keys[i].version + 1);
    }
    return n < 0 ? n : pkcs11_generate(p, session, organisation, &next, e);
}

static int destroy_in(struct pkcs11 *p, CK_SESSION_HANDLE session, const char *organisation,
                      struct err *e)
{
    struct pkcs11_key keys[PKCS11_VERSIONS_MAX];
    int n = pkcs11_find(p, session, organisation, keys, e);

    for (int i = 0; i < n; i++) {
        CK_RV rv = p->f->C_DestroyObject(session, keys[i].handle);

        if (rv != CKR_OK) {
            return pkcs11_failed(rv, "destroying a key", organisation, e);
        }
    }
    return n < 0 ? n : 0;
}

/* ---- the interface: each in a session of its own ---- */

static int token_wrap(struct kms *kms, const struct kms_use *use, const struct secret *key,
                      struct buf *ret, struct err *e)
{
    struct pkcs11 *p = (struct pkcs11 *)kms;
    CK_SESSION_HANDLE session = 0;
    int r;

    pthread_mutex_lock(&p->lock);
    r = pkcs11_begin(p, &session, e);
    if (r == 0) {
        r = wrap_in(p, session, use, key, ret, e);
        p->f->C_CloseSession(session);
    }
    pthread_mutex_unlock(&p->lock);
    return r;
}

static int token_unwrap(struct kms *kms, const struct kms_use *use, const char *wrapped,
                        struct secret *ret, struct err *e)
{
    struct pkcs11 *p = (struct pkcs11 *)kms;
    struct wrapped w = {.bytes = BUF_INIT(KMS_WRAPPED_MAX)};
    CK_SESSION_HANDLE session = 0;
    int r = parse(wrapped, &w);

    if (r < 0) {
        buf_done(&w.bytes);
        return kms_damaged(e);
    }
    pthread_mutex_lock(&p->lock);
    r = pkcs11_begin(p, &session, e);
    if (r == 0) {
        r = unwrap_in(p, session, use, &w, ret, e);
        p->f->C_CloseSession(session);
    }
    pthread_mutex_unlock(&p->lock);
    buf_done(&w.bytes);
    return r;
}

static int in_session(struct kms *kms, const char *organisation,
                      int (*run)(struct pkcs11 *p, CK_SESSION_HANDLE session,
                                 const char *organisation, struct err *e),
                      struct err *e)
{
    struct pkcs11 *p = (struct pkcs11 *)kms;
    CK_SESSION_HANDLE session = 0;
    int r;

    pthread_mutex_lock(&p->lock);
    r = pkcs11_begin(p, &session, e);
    if (r == 0) {
        r = run(p, session, organisation, e);
        p->f->C_CloseSession(session);
    }
    pthread_mutex_unlock(&p->lock);
    return r;
}

static int token_rotate(struct kms *kms, const char *organisation, struct err *e)
{
    return in_session(kms, organisation, rotate_in, e);
}

static int token_destroy(struct kms *kms, const char *organisation, struct err *e)
{
    return in_session(kms, organisation, destroy_in, e);
}

static void token_free(struct kms *kms)
{
    struct pkcs11 *p = (struct pkcs11 *)kms;

    if (p->f) {
        p->f->C_Finalize(NULL);
    }
    if (p->library) {
        dlclose(p->library);
    }
    pthread_mutex_destroy(&p->lock);
    free(p->token);
    free(p->pin_file);
    free(p);
}

static const struct kms_ops ops = {
    .name = "pkcs11",
    .wrap = token_wrap,
    .unwrap = token_unwrap,
    .rotate = token_rotate,
    .destroy = token_destroy,
    .free = token_free,
};

static int load(struct pkcs11 *p, const char *module, struct err *e)
{
    CK_C_INITIALIZE_ARGS args = {.flags = CKF_OS_LOCKING_OK};
    CK_FUNCTION_LIST *functions = NULL;
    CK_C_GetFunctionList get;
    void *symbol;

    p->library = dlopen(module, RTLD_NOW | RTLD_LOCAL);
    symbol = p->library ? dlsym(p->library, "C_GetFunctionList") : NULL;
    if (!symbol) {
        return err_set(e, -ENOENT, NULL, "'%s' is no PKCS#11 module: %s", module, dlerror());
    }
    memcpy(&get, &symbol, sizeof(get));
    if (get(&functions) != CKR_OK || !functions || functions->C_Initialize(&args) != CKR_OK) {
        return err_set(e, -EINVAL, NULL, "the PKCS#11 module '%s' does not start", module);
    }
    p->f = functions;
    return 0;
}

int kms_pkcs11_open(const struct kms_pkcs11_opts *o, struct kms **ret, struct err *e)
{
    struct pkcs11 *p;
    int r;

    if (!o->module || !o->token || !o->pin_file) {
        return err_set(e, -EINVAL, NULL,
                       "keys in 'pkcs11' need pkcs11-module, pkcs11-token and pkcs11-pin-file");
    }
    p = xnew(struct pkcs11);
    p->base.ops = &ops;
    p->token = xstrdup(o->token);
    p->pin_file = xstrdup(o->pin_file);
    ASSERT(pthread_mutex_init(&p->lock, NULL) == 0);
    r = load(p, o->module, e);
    if (r < 0) {
        token_free(&p->base);
        return r;
    }
    *ret = &p->base;
    return 0;
}

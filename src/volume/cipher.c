/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/cipher.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"

static void keyed(const struct secret *tenant, const char *what,
                  const unsigned char digest[static SHA256_DIGEST_LENGTH],
                  unsigned char ret[static SHA256_DIGEST_LENGTH])
{
    unsigned char text[8 + SHA256_DIGEST_LENGTH] = {0};
    unsigned n = SHA256_DIGEST_LENGTH;

    ASSERT(strlen(what) < 8 && tenant->len == CIPHER_KEY_SIZE);
    memcpy(text, what, strlen(what));
    memcpy(text + 8, digest, SHA256_DIGEST_LENGTH);
    ASSERT(HMAC(EVP_sha256(), tenant->p, (int)tenant->len, text, sizeof(text), ret, &n));
}

void cipher_chunk_id(const struct secret *tenant, const void *packed, size_t len,
                     struct chunk_id *ret)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    unsigned char name[SHA256_DIGEST_LENGTH];

    ASSERT(SHA256(packed, len, digest));
    keyed(tenant, "name", digest, name);
    keyed(tenant, "key", digest, ret->key);
    hex_encode(name, sizeof(name), ret->name);
}

/* With what it is bound to already in it. */
static EVP_CIPHER_CTX *begin(const unsigned char *key, const unsigned char *nonce,
                             const char *about, int enc)
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int n = 0;

    ASSERT(ctx && EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, key, nonce, enc) == 1);
    ASSERT(EVP_CipherUpdate(ctx, NULL, &n, (const unsigned char *)about, (int)strlen(about)) == 1);
    return ctx;
}

static void encrypt(EVP_CIPHER_CTX *ctx, const void *data, size_t len, unsigned char *ret)
{
    int n = 0;

    ASSERT(EVP_CipherUpdate(ctx, ret, &n, data, (int)len) == 1 && (size_t)n == len);
    ASSERT(EVP_CipherFinal_ex(ctx, ret + len, &n) == 1);
    ASSERT(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, CIPHER_TAG_SIZE, ret + len) == 1);
    EVP_CIPHER_CTX_free(ctx);
}

/* data is followed by its tag. */
static int decrypt(EVP_CIPHER_CTX *ctx, const unsigned char *data, size_t len, unsigned char *ret)
{
    unsigned char tag[CIPHER_TAG_SIZE];
    int n = 0;
    bool good;

    memcpy(tag, data + len, sizeof(tag));
    good = EVP_CipherUpdate(ctx, ret, &n, data, (int)len) == 1 &&
           EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, CIPHER_TAG_SIZE, tag) == 1 &&
           EVP_CipherFinal_ex(ctx, ret + n, &n) == 1;
    EVP_CIPHER_CTX_free(ctx);
    return good ? 0 : -EBADMSG;
}

static const unsigned char no_nonce[CIPHER_NONCE_SIZE]; /* one text for each key: see the header */

static void describe_chunk(const struct chunk_id *id, size_t len, char ret[static 128])
{
    snprintf(ret, 128, "space-chunk-1|%s|%zu", id->name, len);
}

size_t cipher_seal_chunk(const struct chunk_id *id, const void *packed, size_t len, void *ret)
{
    char about[128];

    describe_chunk(id, len, about);
    encrypt(begin(id->key, no_nonce, about, /* enc */ 1), packed, len, ret);
    return len + CIPHER_TAG_SIZE;
}

int cipher_open_chunk(const struct chunk_id *id, const void *sealed, size_t len, void *ret)
{
    char about[128];

    if (len <= CIPHER_TAG_SIZE) {
        return -EBADMSG;
    }
    describe_chunk(id, len - CIPHER_TAG_SIZE, about);
    return decrypt(begin(id->key, no_nonce, about, /* enc */ 0), sealed, len - CIPHER_TAG_SIZE,
                   ret);
}

int cipher_seal(const struct secret *key, const char *about, const void *data, size_t len,
                struct buf *ret)
{
    void *room = NULL;
    unsigned char *out;
    int r = len > INT32_MAX ? -E2BIG
                            : buf_reserve(ret, len + CIPHER_NONCE_SIZE + CIPHER_TAG_SIZE, &room);

    if (r < 0) {
        return r;
    }
    ASSERT(key->len == CIPHER_KEY_SIZE);
    out = room;
    random_bytes(out, CIPHER_NONCE_SIZE);
    encrypt(begin((const unsigned char *)key->p, out, about, /* enc */ 1), data, len,
            out + CIPHER_NONCE_SIZE);
    buf_commit(ret, len + CIPHER_NONCE_SIZE + CIPHER_TAG_SIZE);
    return 0;
}

int cipher_open(const struct secret *key, const char *about, const void *sealed, size_t len,
                struct buf *ret)
{
    const unsigned char *in = sealed;
    void *room = NULL;
    size_t text;
    int r;

    if (len < CIPHER_NONCE_SIZE + CIPHER_TAG_SIZE || len > INT32_MAX ||
        key->len != CIPHER_KEY_SIZE) {
        return -EBADMSG;
    }
    text = len - CIPHER_NONCE_SIZE - CIPHER_TAG_SIZE;
    r = buf_reserve(ret, text, &room);
    if (r == 0) {
        r = decrypt(begin((const unsigned char *)key->p, in, about, /* enc */ 0),
                    in + CIPHER_NONCE_SIZE, text, room);
    }
    if (r == 0) {
        buf_commit(ret, text);
    }
    return r;
}

void cipher_new_key(struct secret *ret)
{
    unsigned char key[CIPHER_KEY_SIZE];

    random_bytes(key, sizeof(key));
    IGNORE_RESULT(secret_init(ret, key, sizeof(key))); /* it can only be too long */
    explicit_bzero(key, sizeof(key));
}

void cipher_sha256_hex(const void *data, size_t len, char ret[static CIPHER_NAME_SIZE])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];

    ASSERT(SHA256(data, len, digest));
    hex_encode(digest, sizeof(digest), ret);
}

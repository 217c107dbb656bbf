/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/seal.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/id.h"

#define MAGIC "SPACE1"
#define MAGIC_LEN 6u
#define NONCE_LEN 12u
#define TAG_LEN 16u

static int hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c) : NULL;

    return at ? (int)(at - digits) : -1;
}

static int key_from_bytes(const char *data, size_t len, struct seal_key *ret)
{
    unsigned char key[SEAL_KEY_SIZE];
    int r = 0;

    while (len > SEAL_KEY_SIZE && (data[len - 1] == '\n' || data[len - 1] == '\r')) {
        len--;
    }
    if (len == SEAL_KEY_SIZE) {
        return secret_init(&ret->bytes, data, len);
    }
    if (len != 2 * SEAL_KEY_SIZE) {
        return -EINVAL;
    }
    for (size_t i = 0; i < SEAL_KEY_SIZE; i++) {
        int high = hex_digit(data[2 * i]);
        int low = hex_digit(data[2 * i + 1]);

        if (high < 0 || low < 0) {
            r = -EINVAL;
        }
        key[i] = (unsigned char)((unsigned)high << 4 | ((unsigned)low & 15u));
    }
    r = r < 0 ? r : secret_init(&ret->bytes, key, sizeof(key));
    explicit_bzero(key, sizeof(key));
    return r;
}

static int key_create(const char *path, struct err *e)
{
    unsigned char key[SEAL_KEY_SIZE];
    char hex[2 * SEAL_KEY_SIZE + 2];
    cleanup_free char *dir = xstrdup(path);
    char *slash = strrchr(dir, '/');
    cleanup_close int dir_fd = FD_NONE;
    int r;

    if (!slash) {
        return err_set(e, -EINVAL, NULL, "the key's path '%s' is not absolute", path);
    }
    *slash = '\0';
    dir_fd = fs_open(slash == dir ? "/" : dir, O_RDONLY | O_DIRECTORY, 0);
    if (dir_fd < 0) {
        return err_wrap(e, dir_fd, "opening '%s'", dir);
    }
    random_bytes(key, sizeof(key));
    hex_encode(key, sizeof(key), hex);
    hex[2 * SEAL_KEY_SIZE] = '\n';
    hex[2 * SEAL_KEY_SIZE + 1] = '\0';
    r = fs_write_file_durable(dir_fd, slash + 1, hex, 2 * SEAL_KEY_SIZE + 1, 0600);
    explicit_bzero(key, sizeof(key));
    explicit_bzero(hex, sizeof(hex));
    return r < 0 ? err_wrap(e, r, "writing the key '%s'", path) : 0;
}

int seal_key_load(const char *path, bool create, struct seal_key *ret, struct err *e)
{
    cleanup_close int fd = fs_open(path, O_RDONLY | O_NOFOLLOW, 0);
    char text[256];
    struct stat st;
    ssize_t n;
    int r;

    if (fd == -ENOENT && create) {
        r = key_create(path, e);
        if (r < 0) {
            return r;
        }
        fd = fs_open(path, O_RDONLY | O_NOFOLLOW, 0);
    }
    if (fd < 0 || fstat(fd, &st) < 0) {
        return err_wrap(e, fd < 0 ? fd : -errno, "opening the key '%s'", path);
    }
    if (st.st_mode & 0077) {
        return err_set(e, -EACCES, NULL, "the key '%s' can be read by others: chmod 600", path);
    }
    n = fs_read_full(fd, text, sizeof(text));
    r = n < 0 ? (int)n : key_from_bytes(text, (size_t)n, ret);
    explicit_bzero(text, sizeof(text));
    return r < 0 ? err_set(e, r, NULL, "the key '%s' is not 32 bytes, nor 64 hex digits", path) : 0;
}

void seal_key_done(struct seal_key *key)
{
    secret_done(&key->bytes);
}

/* With the name as additional data. */
static EVP_CIPHER_CTX *gcm(const struct seal_key *key, const char *name, const void *nonce, int enc)
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    int n = 0;

    ASSERT(ctx && key->bytes.len == SEAL_KEY_SIZE);
    ASSERT(EVP_CipherInit_ex(ctx, EVP_aes_256_gcm(), NULL, (const unsigned char *)key->bytes.p,
                             nonce, enc) == 1);
    ASSERT(EVP_CipherUpdate(ctx, NULL, &n, (const unsigned char *)name, (int)strlen(name)) == 1);
    return ctx;
}

int seal(const struct seal_key *key, const char *name, const void *data, size_t len,
         struct buf *ret)
{
    unsigned char *out;
    EVP_CIPHER_CTX *ctx;
    void *room = NULL;
    int n = 0;
    int r;

    ASSERT(len <= SECRET_MAX);
    r = buf_reserve(ret, len + SEAL_OVERHEAD, &room);
    if (r < 0) {
        return r;
    }
    out = room;
    memcpy(out, MAGIC, MAGIC_LEN);
    random_bytes(out + MAGIC_LEN, NONCE_LEN);
    ctx = gcm(key, name, out + MAGIC_LEN, /* enc */ 1);
    out += MAGIC_LEN + NONCE_LEN;
    ASSERT(EVP_CipherUpdate(ctx, out, &n, data, (int)len) == 1 && n == (int)len);
    ASSERT(EVP_CipherFinal_ex(ctx, out + len, &n) == 1);
    ASSERT(EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, TAG_LEN, out + len) == 1);
    EVP_CIPHER_CTX_free(ctx);
    buf_commit(ret, len + SEAL_OVERHEAD);
    return 0;
}

int unseal(const struct seal_key *key, const char *name, const void *data, size_t len,
           struct secret *ret)
{
    const unsigned char *in = data;
    unsigned char tag[TAG_LEN];
    struct secret plain = {0};
    EVP_CIPHER_CTX *ctx;
    size_t n_text;
    int n = 0;
    int r;

    if (len < SEAL_OVERHEAD || len > SECRET_MAX + SEAL_OVERHEAD ||
        memcmp(in, MAGIC, MAGIC_LEN) != 0) {
        return -EBADMSG;
    }
    n_text = len - SEAL_OVERHEAD;
    r = secret_init(&plain, in + MAGIC_LEN + NONCE_LEN, n_text);
    if (r < 0) {
        return r;
    }
    memcpy(tag, in + len - TAG_LEN, TAG_LEN);
    ctx = gcm(key, name, in + MAGIC_LEN, /* enc */ 0);
    if (EVP_CipherUpdate(ctx, (unsigned char *)plain.p, &n, (const unsigned char *)plain.p,
                         (int)n_text) != 1 ||
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, TAG_LEN, tag) != 1 ||
        EVP_CipherFinal_ex(ctx, (unsigned char *)plain.p + n, &n) != 1) {
        r = -EBADMSG;
    }
    EVP_CIPHER_CTX_free(ctx);
    if (r < 0) {
        secret_done(&plain);
        return r;
    }
    *ret = plain;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/tokens.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"

#define SECRET_SIZE 32u
#define SECRET_FILE "token-secret"

struct tokens {
    unsigned char secret[SECRET_SIZE];
};

static const char *const words[TOKEN_KIND_COUNT_] = {
    [TOKEN_ENVD] = "envd",
    [TOKEN_TRAFFIC] = "traffic",
    [TOKEN_UPLOAD] = "upload",
};

/* Two gateways that start at once agree on one file: link(2) lets the first win. */
static int make_secret(int dir_fd)
{
    unsigned char secret[SECRET_SIZE];
    char name[40];
    int r;

    random_bytes(secret, sizeof(secret));
    snprintf(name, sizeof(name), SECRET_FILE ".%d", (int)getpid());
    r = fs_write_file_durable(dir_fd, name, secret, sizeof(secret), 0600);
    OPENSSL_cleanse(secret, sizeof(secret));
    if (r < 0) {
        return r;
    }
    r = linkat(dir_fd, name, dir_fd, SECRET_FILE, 0) < 0 && errno != EEXIST ? -errno : 0;
    if (unlinkat(dir_fd, name, 0) < 0 && r == 0) {
        r = -errno;
    }
    return r < 0 ? r : fs_sync_dir(dir_fd);
}

static int read_secret(int dir_fd, struct tokens *t)
{
    cleanup_buf struct buf b = BUF_INIT(SECRET_SIZE + 1);
    int r = fs_read_file(dir_fd, SECRET_FILE, &b);

    if (r < 0) {
        return r == -E2BIG ? -EBADMSG : r;
    }
    if (b.len != SECRET_SIZE) {
        return -EBADMSG;
    }
    memcpy(t->secret, b.data, SECRET_SIZE);
    OPENSSL_cleanse(b.data, b.len);
    return 0;
}

int tokens_open(const char *state_dir, struct tokens **ret, struct err *e)
{
    CLEANUP(tokens_freep) struct tokens *t = xnew(struct tokens);
    cleanup_close int dir_fd = fs_open(state_dir, O_RDONLY | O_DIRECTORY, 0);
    int r;

    if (dir_fd < 0) {
        return err_wrap(e, dir_fd, "opening the state folder '%s'", state_dir);
    }
    r = read_secret(dir_fd, t);
    if (r == -ENOENT) {
        r = make_secret(dir_fd);
        if (r == 0) {
            r = read_secret(dir_fd, t);
        }
    }
    if (r == -EBADMSG) {
        return err_set(e, r, "bad_token_secret",
                       "'%s/" SECRET_FILE "' is not %u bytes long: remove it, and every token that "
                       "was given out is void",
                       state_dir, SECRET_SIZE);
    }
    if (r < 0) {
        return err_wrap(e, r, "the secret '%s/" SECRET_FILE "'", state_dir);
    }
    *ret = TAKE_PTR(t);
    return 0;
}

int tokens_share(struct tokens *t, struct db *db, struct err *e)
{
    char text[2 * SECRET_SIZE + 1];
    bool fine = true;
    int r;

    ASSERT(t && db);
    hex_encode(t->secret, SECRET_SIZE, text);
    r = db_secret_agree(db, SECRET_FILE, text, sizeof(text), e);
    for (size_t i = 0; i < SECRET_SIZE && r == 0; i++) {
        fine = fine && sscanf(text + 2 * i, "%2hhx", &t->secret[i]) == 1;
    }
    if (r == 0 && !fine) {
        r = err_set(e, -EBADMSG, "bad_token_secret",
                    "the secret '" SECRET_FILE "' in the database is damaged: remove it, and every "
                    "token that was given out is void");
    }
    OPENSSL_cleanse(text, sizeof(text));
    return r;
}

void tokens_free(struct tokens *t)
{
    if (t) {
        OPENSSL_cleanse(t, sizeof(*t));
        free(t);
    }
}

void tokens_make(const struct tokens *t, enum token_kind kind, const char *sandbox,
                 char ret[static TOKEN_SIZE])
{
    unsigned char digest[32];
    char text[64];
    unsigned len = 0;
    int n;

    ASSERT(kind < TOKEN_KIND_COUNT_ && strlen(sandbox) < ID_SIZE);
    n = snprintf(text, sizeof(text), "space token 1 %s %s", words[kind], sandbox);
    ASSERT(HMAC(EVP_sha256(), t->secret, SECRET_SIZE, (const unsigned char *)text, (size_t)n,
                digest, &len) &&
           len == sizeof(digest));
    n = snprintf(ret, TOKEN_SIZE, "%s_", words[kind]);
    hex_encode(digest, sizeof(digest), ret + n);
}

bool tokens_check(const struct tokens *t, enum token_kind kind, const char *sandbox,
                  const char *token)
{
    char right[TOKEN_SIZE];
    bool same;

    tokens_make(t, kind, sandbox, right);
    same = token && strlen(token) == strlen(right) &&
           bytes_equal_constant_time(token, right, strlen(right));
    OPENSSL_cleanse(right, sizeof(right));
    return same;
}

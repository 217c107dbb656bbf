/* SPDX-License-Identifier: Apache-2.0 */
/* One sealed file for each value. A file's name is the hash of the reference, which is sealed into it. */
#include "credential/vault.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/id.h"

struct vault_sealed {
    struct vault base;
    int dir_fd;          /* owned */
    struct seal_key key; /* owned */
};

#define FILE_NAME_SIZE (2 * SHA256_DIGEST_LENGTH + 1)

static struct vault_sealed *sealed_of(struct vault *v)
{
    return (struct vault_sealed *)v;
}

static void file_name(const char *ref, char ret[static FILE_NAME_SIZE])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];

    SHA256((const unsigned char *)ref, strlen(ref), digest);
    hex_encode(digest, sizeof(digest), ret);
}

static int no_value(struct err *e)
{
    return err_set(e, -ENOENT, "no_value", "the vault has no such value");
}

static int sealed_get(struct vault *v, const char *ref, struct secret *ret, struct err *e)
{
    cleanup_buf struct buf bytes = BUF_INIT(SECRET_MAX + SEAL_OVERHEAD);
    char name[FILE_NAME_SIZE];
    int r;

    file_name(ref, name);
    r = fs_read_file(sealed_of(v)->dir_fd, name, &bytes);
    if (r == -ENOENT) {
        return no_value(e);
    }
    r = r < 0 ? r : unseal(&sealed_of(v)->key, ref, bytes.data, bytes.len, ret);
    if (r == -EBADMSG) {
        return err_set(e, r, "vault_damaged",
                       "a sealed value does not open: the key is another, or the file was changed");
    }
    return r < 0 ? err_wrap(e, r, "reading a sealed value") : 0;
}

static int sealed_put(struct vault *v, const char *ref, const struct secret *value, struct err *e)
{
    cleanup_buf struct buf bytes = BUF_INIT(SECRET_MAX + SEAL_OVERHEAD);
    char name[FILE_NAME_SIZE];
    int r;

    file_name(ref, name);
    r = seal(&sealed_of(v)->key, ref, value->p, value->len, &bytes);
    r = r < 0 ? r : fs_write_file_durable(sealed_of(v)->dir_fd, name, bytes.data, bytes.len, 0600);
    return r < 0 ? err_wrap(e, r, "writing a sealed value") : 0;
}

static int sealed_remove(struct vault *v, const char *ref, struct err *e)
{
    char name[FILE_NAME_SIZE];
    int r;

    file_name(ref, name);
    if (unlinkat(sealed_of(v)->dir_fd, name, 0) < 0 && errno != ENOENT) {
        return err_wrap(e, -errno, "removing a sealed value");
    }
    r = fs_sync_dir(sealed_of(v)->dir_fd);
    return r < 0 ? err_wrap(e, r, "removing a sealed value") : 0;
}

static void sealed_free(struct vault *v)
{
    fd_close(sealed_of(v)->dir_fd);
    seal_key_done(&sealed_of(v)->key);
    free(v);
}

static const struct vault_driver sealed_driver = {
    .name = "sealed",
    .get = sealed_get,
    .put = sealed_put,
    .remove = sealed_remove,
    .free = sealed_free,
};

int vault_sealed_new(const char *dir, struct seal_key *key_take, struct vault **ret, struct err *e)
{
    struct vault_sealed *v;
    int r = fs_mkdir_all(dir, 0700);
    int fd = r < 0 ? r : fs_open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);

    if (fd < 0) {
        return err_wrap(e, fd, "opening the vault '%s'", dir);
    }
    v = xnew(struct vault_sealed);
    v->base.driver = &sealed_driver;
    v->dir_fd = fd;
    v->key = *key_take;
    *key_take = (struct seal_key){0};
    *ret = &v->base;
    return 0;
}

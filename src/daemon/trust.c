/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trust.h"

#include "base/buf.h"
#include "base/fs.h"
#include "base/log.h"
#include "daemon/mount.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OWN_DIR "usr/local/share/ca-certificates"
#define OWN_NAME "space.crt"
#define BUNDLE_DIR "etc/ssl/certs"
#define BUNDLE_NAME "ca-certificates.crt"
#define SSH_DIR "etc/ssh/ssh_config.d"
#define SSH_CONFIG "space.conf"
#define SSH_SCRIPT_DIR "usr/local/libexec/space"
#define SSH_SCRIPT "known-host"
#define NEW_NAME ".space-new"
#define BUNDLE_MAX (4u * 1024 * 1024)

static const char *const variables[] = {
    "SSL_CERT_FILE=/" BUNDLE_DIR "/" BUNDLE_NAME,
    "REQUESTS_CA_BUNDLE=/" BUNDLE_DIR "/" BUNDLE_NAME,
    "CURL_CA_BUNDLE=/" BUNDLE_DIR "/" BUNDLE_NAME,
    "GIT_SSL_CAINFO=/" BUNDLE_DIR "/" BUNDLE_NAME,
    "NODE_EXTRA_CA_CERTS=/" OWN_DIR "/" OWN_NAME,
};

const char *trust_env(size_t i)
{
    return i < ARRAY_SIZE(variables) ? variables[i] : NULL;
}

/* Each folder of the path, made where it is missing. */
static int open_folder(int root_fd, const char *path)
{
    char part[64];
    size_t len = 0;

    for (;;) {
        size_t next = len + strcspn(path + len, "/");

        ASSERT(next < sizeof(part));
        memcpy(part, path, next);
        part[next] = '\0';
        if (path[next] == '\0') {
            IGNORE_RESULT(mkdirat(root_fd, part, 0755)); /* opening says whether it is there */
            return mount_open_plain(root_fd, path, O_RDONLY | O_DIRECTORY);
        }
        {
            cleanup_close int above = mount_open_plain(root_fd, part, O_RDONLY | O_DIRECTORY);

            if (above < 0 && mkdirat(root_fd, part, 0755) < 0) {
                return -errno;
            }
        }
        len = next + 1;
    }
}

/* Replaced as a whole, never written through what is there. */
static int replace_as(int dir_fd, const char *name, const char *data, size_t len, mode_t mode)
{
    cleanup_close int fd = FD_NONE;

    if (unlinkat(dir_fd, NEW_NAME, 0) < 0 && errno != ENOENT) {
        return -errno;
    }
    fd = openat(dir_fd, NEW_NAME, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0) {
        return -errno;
    }
    if (fchmod(fd, mode) < 0 || fs_write_all(fd, data, len) < 0 ||
        renameat(dir_fd, NEW_NAME, dir_fd, name) < 0) {
        unlinkat(dir_fd, NEW_NAME, 0);
        return -EIO;
    }
    return 0;
}

static int replace(int dir_fd, const char *name, const void *data, size_t len)
{
    return replace_as(dir_fd, name, data, len, 0644);
}

static int read_bundle(int dir_fd, struct buf *ret)
{
    cleanup_close int fd = mount_open_plain(dir_fd, BUNDLE_NAME, O_RDONLY);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        return fd < 0 ? fd : -errno;
    }
    return S_ISREG(st.st_mode) ? fs_read_fd(fd, ret) : -EINVAL;
}

/* What is in the bundle of pem goes; true when it was there. */
static bool take_out(struct buf *bundle, const char *pem)
{
    const char *at = pem && *pem ? strstr(buf_str(bundle), pem) : NULL;
    size_t len;

    if (!at) {
        return false;
    }
    len = strlen(pem);
    memmove(bundle->data + (at - buf_str(bundle)), at + len,
            bundle->len - (size_t)(at - buf_str(bundle)) - len + 1); /* its end too */
    bundle->len -= len;
    return true;
}

/* old is the authority of another organisation, which the image was made ready for; NULL: of none. */
static int change_bundle(int root_fd, const char *old, const char *pem)
{
    cleanup_close int dir_fd = mount_open_plain(root_fd, BUNDLE_DIR, O_RDONLY | O_DIRECTORY);
    cleanup_buf struct buf bundle = BUF_INIT(BUNDLE_MAX);
    int r = dir_fd < 0 ? dir_fd : read_bundle(dir_fd, &bundle);

    if (r < 0) {
        return r == -ENOENT ? 0 : r;
    }
    if (!take_out(&bundle, old) && strstr(buf_str(&bundle), pem)) {
        return 0;
    }
    if (bundle.len > 0 && bundle.data[bundle.len - 1] != '\n') {
        r = buf_add(&bundle, "\n", 1);
    }
    if (r == 0 && !strstr(buf_str(&bundle), pem)) {
        r = buf_add_str(&bundle, pem);
    }
    return r < 0 ? r : replace(dir_fd, BUNDLE_NAME, bundle.data, bundle.len);
}

/* Without reading it all. */
static bool bundle_ends_with(int root_fd, const char *pem)
{
    cleanup_close int fd = mount_open_plain(root_fd, BUNDLE_DIR "/" BUNDLE_NAME, O_RDONLY);
    off_t len = (off_t)strlen(pem);
    char end[TRUST_PEM_MAX];
    struct stat st;

    return fd >= 0 && len <= (off_t)sizeof(end) && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
           st.st_size >= len && pread(fd, end, (size_t)len, st.st_size - len) == len &&
           memcmp(end, pem, (size_t)len) == 0;
}

static int read_own(int own_fd, struct buf *ret)
{
    cleanup_close int fd = mount_open_plain(own_fd, OWN_NAME, O_RDONLY);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        return -ENOENT;
    }
    return fs_read_fd(fd, ret);
}

void trust_install(int root_fd, const char *pem)
{
    cleanup_close int own_fd = open_folder(root_fd, OWN_DIR);
    cleanup_buf struct buf old = BUF_INIT(TRUST_PEM_MAX);
    bool had = own_fd >= 0 && read_own(own_fd, &old) == 0;
    int r;

    if (had && str_eq(buf_str(&old), pem) && bundle_ends_with(root_fd, pem)) {
        return; /* the usual case: the machine was made ready for this organisation */
    }
    r = change_bundle(root_fd, had ? buf_str(&old) : NULL, pem);
    if (own_fd >= 0 &&
        replace(own_fd, OWN_NAME, pem, strlen(pem)) < 0) { /* last: says that all is done */
        r = -EIO;
    }
    if (r < 0) {
        log_warn(NULL, "cannot install the sandbox's authority, ignoring: %s", strerrordesc_np(-r));
    }
}

static bool holds(int dir_fd, const char *name, const char *text)
{
    cleanup_close int fd = mount_open_plain(dir_fd, name, O_RDONLY);
    cleanup_buf struct buf have = BUF_INIT(TRUST_PEM_MAX);
    struct stat st;

    return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && fs_read_fd(fd, &have) == 0 &&
           str_eq(buf_str(&have), text);
}

static int put_file(int root_fd, const char *dir, const char *name, const char *text, mode_t mode)
{
    cleanup_close int dir_fd = open_folder(root_fd, dir);

    if (dir_fd < 0) {
        return dir_fd;
    }
    return holds(dir_fd, name, text) ? 0 : replace_as(dir_fd, name, text, strlen(text), mode);
}

void trust_install_ssh(int root_fd, const char *line)
{
    /* An older OpenSSH does not know the second word, and must not stop at it. */
    static const char config[] = "IgnoreUnknown KnownHostsCommand\n"
                                 "KnownHostsCommand /" SSH_SCRIPT_DIR "/" SSH_SCRIPT " %t %K\n";
    cleanup_free char *script =
        xasprintf("#!/bin/sh\n"
                  "# Shown by SPACE where it logs in for you; see 'man space', CREDENTIALS.\n"
                  "[ \"$1 $2\" != \"%s\" ] || echo \"* $1 $2\"\n",
                  line);
    int r = put_file(root_fd, SSH_SCRIPT_DIR, SSH_SCRIPT, script, 0755);

    r = r < 0 ? r : put_file(root_fd, SSH_DIR, SSH_CONFIG, config, 0644);
    if (r < 0) {
        log_warn(NULL, "cannot install the host key of SSH, ignoring: %s", strerrordesc_np(-r));
    }
}

bool trust_present(int root_fd)
{
    cleanup_close int own_fd = mount_open_plain(root_fd, OWN_DIR "/" OWN_NAME, O_PATH);
    cleanup_close int bundle_fd = mount_open_plain(root_fd, BUNDLE_DIR "/" BUNDLE_NAME, O_PATH);

    return own_fd >= 0 && bundle_fd >= 0;
}

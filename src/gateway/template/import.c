/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/template/import.h"

#include "base/fs.h"
#include "gateway/template/image.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FETCH_MS (1800ll * 1000)
#define WORK "/.space-image"
#define ARCHIVE WORK "/archive"
#define AUTH "/run/space-registry.json"

/* --- commands as root --- */

static int run(const struct import *im, const char *const *argv, const char *what, struct err *e)
{
    const struct builder_command command = {.argv = argv,
                                            .user = "root",
                                            .cwd = "/",
                                            .timeout_ms = FETCH_MS,
                                            .output = build_log_output,
                                            .ctx = im->log};
    int status = 0;
    int r = builder_run(im->builder, &command, &status, e);

    build_log_flush(im->log);
    if (r < 0) {
        return err_wrap(e, r, "%s", what);
    }
    return status == 0 ? 0 : err_set(e, -ECHILD, "image_failed", "%s failed (%d)", what, status);
}

static int run_script(const struct import *im, const char *script, const char *arg,
                      const char *what, struct err *e)
{
    return run(im, (const char *const[]){"/bin/sh", "-c", script, "sh", arg, NULL}, what, e);
}

/* --- fetching --- */

/* Into the machine's memory, not its disk: nothing of it is left when it has started anew. */
static int send_credentials(const struct import *im, const struct template_image *image,
                            struct err *e)
{
    char *text =
        template_image_auth(image, im->recipe->registry_user, im->recipe->registry_password);
    cleanup_close int fd = memfd_create("registry", MFD_CLOEXEC);
    int r = fd < 0 ? -errno : fs_write_all(fd, text, strlen(text));

    explicit_bzero(text, strlen(text));
    free(text);
    if (r == 0 && lseek(fd, 0, SEEK_SET) < 0) {
        r = -errno;
    }
    return r < 0 ? err_wrap(e, r, "handing on the registry's credentials")
                 : builder_upload(im->builder, fd, AUTH, e);
}

static int forget_credentials(const struct import *im, struct err *e)
{
    return run(im, (const char *const[]){"/bin/rm", "-f", AUTH, NULL},
               "removing the registry's credentials", e);
}

static int copy(const struct import *im, const struct template_image *image, const char *from,
                struct err *e)
{
    const char *argv[12] = {"/usr/bin/skopeo", "--insecure-policy", "copy", "--src-no-creds"};
    size_t n = 4;

    if (im->recipe->registry_user) {
        argv[n - 1] = "--authfile=" AUTH;
    }
    if (image->plain) {
        argv[n++] = "--src-tls-verify=false";
    }
    argv[n++] = from;
    argv[n++] = "oci:" WORK "/layout:image";
    argv[n] = NULL;
    return run(im, argv, "fetching the image", e);
}

static int fetch(const struct import *im, const struct template_image *image, struct err *e)
{
    cleanup_free char *policy = template_image_policy(image);
    cleanup_free char *from = xasprintf("docker://%s", image->name);
    int r = builder_set_network(im->builder, policy, e);

    if (r == 0 && im->recipe->registry_user) {
        r = send_credentials(im, image, e);
    }
    r = r < 0 ? r : copy(im, image, from, e);
    if (r == 0 && im->recipe->registry_user) {
        r = forget_credentials(im, e);
    }
    return r < 0 ? r : builder_set_network(im->builder, BUILDER_NETWORK, e);
}

/* The layout that was uploaded. What tar makes of a hostile one stays in the machine. */
static int take_archive(const struct import *im, const struct template_image *image, struct err *e)
{
    static const char unpack[] = "set -e; z=; if gzip -t " ARCHIVE " 2>/dev/null; then z=z; fi\n"
                                 "mkdir " WORK "/in; tar -x${z}of " ARCHIVE " -C " WORK "/in\n"
                                 "rm " ARCHIVE;
    cleanup_free char *from =
        xasprintf("oci:" WORK "/in%s%s", image->name[0] ? ":" : "", image->name);
    cleanup_close int fd = FD_NONE;
    int r = files_get(im->files, im->builder->world->actor->project, image->archive, &fd, e);

    r = r < 0 ? r : builder_upload(im->builder, fd, ARCHIVE, e);
    r = r < 0 ? r : run_script(im, unpack, "", "unpacking the layout", e);
    return r < 0 ? r : copy(im, image, from, e);
}

/* --- what it says --- */

struct text {
    struct buf buf;
    bool full;
};

static void keep(void *ctx, const char *data, size_t len, bool is_error)
{
    struct text *t = ctx;

    if (!is_error && buf_add(&t->buf, data, len) < 0) {
        t->full = true;
    }
}

static int read_config(const struct import *im, struct template_config *ret, struct err *e)
{
    static const char *const argv[] = {"/usr/bin/skopeo", "inspect", "--config",
                                       "oci:" WORK "/layout:image", NULL};
    struct text text = {.buf = BUF_INIT(TEMPLATE_IMAGE_CONFIG_MAX)};
    const struct builder_command command = {.argv = argv,
                                            .user = "root",
                                            .cwd = "/",
                                            .timeout_ms = FETCH_MS,
                                            .output = keep,
                                            .ctx = &text};
    int status = 0;
    int r = builder_run(im->builder, &command, &status, e);

    if (r == 0 && (status != 0 || text.full)) {
        r = err_set(e, -EBADMSG, "bad_image", "the image's configuration cannot be read");
    }
    if (r == 0) {
        r = template_image_config(buf_str(&text.buf), text.buf.len, ret, e);
    }
    buf_done(&text.buf);
    return r;
}

/* --- in the place of the disk's content --- */

/* Run by busybox, which needs nothing of the disk that it moves away. What is mounted stays. */
static const char swap[] =
    "set -e; umask 022; b=" WORK "/busybox; new=" WORK "/rootfs\n"
    "cd /; \"$b\" mkdir /.space-old\n"
    "ours() { case $1 in proc|sys|dev|run|lost+found|.space-image|.space-old|.|..) return 0;; "
    "esac\n"
    "  if [ -e \"./$1\" ] || [ -L \"./$1\" ]; then return 1; fi; }\n"
    "for x in * .*; do if ! ours \"$x\"; then \"$b\" mv \"./$x\" /.space-old/; fi; done\n"
    "cd \"$new\"\n"
    "for x in * .*; do if ! ours \"$x\"; then \"$b\" mv \"./$x\" /; fi; done\n"
    "cd /; \"$b\" rm -rf /.space-old\n"
    "if [ -L /etc ] || [ -L /tmp ]; then echo 'its /etc or /tmp is no folder' >&2; exit 1; fi\n"
    "for x in etc tmp root home bin; do\n"
    "  if [ ! -d /$x ]; then \"$b\" mkdir /$x; fi\n"
    "done\n"
    "\"$b\" chmod 1777 /tmp\n"
    "if [ ! -x /bin/sh ]; then\n"
    "  \"$b\" cp \"$b\" /bin/busybox; \"$b\" rm -f /bin/sh; /bin/busybox ln -s busybox /bin/sh\n"
    "  /bin/busybox --install -s /bin 2>/dev/null || :\n"
    "fi\n"
    "if [ ! -x /bin/bash ]; then\n"
    "  \"$b\" rm -f /bin/bash\n"
    "  if [ -x /usr/bin/bash ]; then \"$b\" ln -s /usr/bin/bash /bin/bash\n"
    "  else \"$b\" printf '#!/bin/sh\\nexec /bin/sh \"$@\"\\n' >/bin/bash; \"$b\" chmod 755 "
    "/bin/bash; fi\n"
    "fi\n"
    "for f in passwd group; do\n"
    "  if [ -L /etc/$f ]; then \"$b\" rm -f /etc/$f; fi\n"
    "  if [ -s /etc/$f ] && [ -n \"$(\"$b\" tail -c 1 /etc/$f)\" ]; then echo >>/etc/$f; fi\n"
    "  : >>/etc/$f\n"
    "done\n"
    "has() { \"$b\" grep -q \"^$1:\" \"/etc/$2\"; }\n"
    "has root passwd || echo 'root:x:0:0:root:/root:/bin/sh' >>/etc/passwd\n"
    "has root group || echo 'root:x:0:' >>/etc/group\n"
    "if ! has user passwd; then\n"
    "  id=1000; while \"$b\" grep -q \"^[^:]*:[^:]*:$id:\" /etc/passwd /etc/group; do id=$((id + "
    "1)); done\n"
    "  has user group || echo \"user:x:$id:\" >>/etc/group\n"
    "  gid=$(\"$b\" sed -n 's/^user:[^:]*:\\([0-9]*\\):.*/\\1/p' /etc/group | \"$b\" head -n 1)\n"
    "  echo \"user:x:$id:$gid::/home/user:/bin/bash\" >>/etc/passwd\n"
    "  if [ -f /etc/shadow ]; then echo 'user:*:19675:0:99999:7:::' >>/etc/shadow; fi\n"
    "  \"$b\" mkdir -p /home/user; \"$b\" chown \"$id:$gid\" /home/user\n"
    "fi\n"
    "if [ -L /etc/resolv.conf ]; then \"$b\" rm -f /etc/resolv.conf; fi; : >>/etc/resolv.conf\n"
    "if [ ! -e /etc/hosts ]; then printf '127.0.0.1\\tlocalhost\\n::1\\tlocalhost\\n' >/etc/hosts; "
    "fi\n"
    "\"$b\" rm -rf " WORK "; \"$b\" sync 2>/dev/null || :\n";

static int become_disk(const struct import *im, struct err *e)
{
    static const char unpack[] =
        "set -e; /usr/bin/umoci raw unpack --image " WORK "/layout:image " WORK "/rootfs >&2\n"
        "rm -rf " WORK "/layout " WORK "/in; cp /bin/busybox " WORK "/busybox\n"
        "exec " WORK "/busybox sh -c \"$1\"";

    return run_script(im, unpack, swap, "unpacking the image", e);
}

int image_import(const struct import *import, struct template_config *ret, struct err *e)
{
    struct template_image image;
    int r = template_image_parse(import->recipe->image, &image, e);

    if (r < 0) {
        return r;
    }
    build_log_say(import->log, "info", "fetching the image %s",
                  image.archive[0] ? "that was uploaded" : image.name);
    r = run(import, (const char *const[]){"/bin/mkdir", "-m", "700", WORK, NULL}, "making a folder",
            e);
    if (r == 0) {
        r = image.archive[0] ? take_archive(import, &image, e) : fetch(import, &image, e);
    }
    if (r == 0) {
        r = read_config(import, ret, e);
    }
    if (r == 0) {
        build_log_say(import->log, "info", "unpacking the image");
        r = become_disk(import, e);
    }
    return r < 0 ? r : builder_restart(import->builder, e);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/archive-internal.h"

#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

struct fetching {
    struct archive *a;
    const struct archive_job *job;
    struct transfer transfer;
    struct manifest manifest; /* owned */
    struct archive_result result;
};

static void fetching_done(struct fetching *f)
{
    manifest_done(&f->manifest);
}

static int fetch_image(struct fetching *f, const char *name, int fd, struct err *e)
{
    cleanup_free char *subject = xasprintf("images/%s", name);
    cleanup_manifest struct manifest m = {0};
    int r = archive_get_manifest(f->a, f->job->organisation, subject, &m, e);

    if (r == -ENOENT) {
        return err_set(e, -EIO, "object_missing", "the object store has lost image %s", name);
    }
    if (r < 0) {
        return r;
    }
    if (m.n_files != 1 || m.files[0].image[0]) {
        return err_set(e, -EBADMSG, "manifest_damaged", "image %s is no image", name);
    }
    if (ftruncate(fd, (off_t)m.files[0].size) < 0) {
        return err_wrap(e, -errno, "making room for image %s", name);
    }
    f->result.images++;
    return transfer_download(&f->transfer, &m.files[0], fd, &f->result.stats, e);
}

/* What the file's chunks are laid over: the image that is here, or the one in the store. */
static int lay_ground(struct fetching *f, const struct archive_file *to, const char *image,
                      struct err *e)
{
    char name[CIPHER_NAME_SIZE] = "";
    int r;

    if (to->base_fd >= 0) {
        r = archive_image_name(f->a, to->base_fd, name, e);
        if (r < 0) {
            return r;
        }
    }
    if (str_eq(name, image) && ioctl(to->fd, FICLONE, to->base_fd) == 0) {
        return 0;
    }
    return fetch_image(f, image, to->fd, e);
}

static int fetch_file(struct fetching *f, const struct archive_file *to, struct err *e)
{
    const struct manifest_file *from = manifest_find(&f->manifest, to->name);
    struct stat st;
    int r = 0;

    if (!from) {
        return err_set(e, -EBADMSG, "manifest_damaged", "no '%s' is stored of sandbox %s", to->name,
                       f->job->sandbox);
    }
    if (fstat(to->fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size != 0) {
        return err_set(e, -EINVAL, "bad_descriptor", "'%s' is to go into an empty file", to->name);
    }
    if (from->image[0]) {
        r = lay_ground(f, to, from->image, e);
    }
    if (r == 0 && ftruncate(to->fd, (off_t)from->size) < 0) {
        r = err_wrap(e, -errno, "making room for '%s'", to->name);
    }
    if (r == 0) {
        r = transfer_download(&f->transfer, from, to->fd, &f->result.stats, e);
    }
    if (r == 0 && fsync(to->fd) < 0) {
        r = err_wrap(e, -errno, "syncing '%s'", to->name);
    }
    return r;
}

int archive_fetch(struct archive *a, const struct archive_job *job, struct archive_result *ret,
                  struct err *e)
{
    CLEANUP(fetching_done) struct fetching f = {.a = a, .job = job};
    cleanup_free char *subject = xasprintf("sandboxes/%s", job->sandbox);
    int r = archive_get_manifest(a, job->organisation, subject, &f.manifest, e);

    if (r == -ENOENT) {
        return err_set(e, r, "not_stored", "nothing of sandbox %s is in the object store",
                       job->sandbox);
    }
    f.transfer = (struct transfer){.store = a->store,
                                   .organisation = job->organisation,
                                   .threads = a->threads,
                                   .watch_fd = job->watch_fd};
    for (size_t i = 0; i < job->n_files && r == 0; i++) {
        r = fetch_file(&f, &job->files[i], e);
    }
    if (r < 0) {
        return err_wrap(e, r, "fetching sandbox %s", job->sandbox);
    }
    f.result.created_at_ms = f.manifest.created_at_ms;
    *ret = f.result;
    return 0;
}

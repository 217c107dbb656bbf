/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/archive-internal.h"

#include "base/clock.h"
#include "base/fault.h"
#include "volume/collect.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct storing {
    struct archive *a;
    const struct archive_job *job;
    struct transfer transfer;
    struct secret tenant;       /* owned */
    struct secret key;          /* owned */
    struct condemned condemned; /* owned */
    struct manifest manifest;   /* owned */
    struct archive_result result;
};

static void storing_done(struct storing *s)
{
    secret_done(&s->tenant);
    secret_done(&s->key);
    condemned_done(&s->condemned);
    manifest_done(&s->manifest);
}

static int upload(struct storing *s, const struct archive_file *from, struct manifest_file *to,
                  struct err *e)
{
    struct extent_pair pair = {from->fd, from->base_fd, 0};
    struct stat st;

    if (fstat(from->fd, &st) < 0) {
        return err_wrap(e, -errno, "looking at '%s'", from->name);
    }
    pair.size = (uint64_t)st.st_size;
    return transfer_upload(&s->transfer, &s->tenant, &pair, to, &s->result.stats, e);
}

/* ---- images ---- */

static int store_image(struct storing *s, const char *subject, int fd, struct err *e)
{
    const struct archive_file from = {.name = "image", .fd = fd, .base_fd = FD_NONE};
    cleanup_manifest struct manifest m = {.n_files = 1, .created_at_ms = clock_wall_ms()};
    cleanup_secret struct secret key = {0};
    int r;

    snprintf(m.organisation, sizeof(m.organisation), "%s", s->job->organisation);
    snprintf(m.subject, sizeof(m.subject), "%s", subject);
    snprintf(m.files[0].name, sizeof(m.files[0].name), "image");
    r = archive_new_key(s->a, m.organisation, &key, m.key_id, e);
    if (r == 0) {
        r = upload(s, &from, &m.files[0], e);
    }
    if (r == 0) {
        r = archive_put_manifest(s->a, &m, &key, e);
    }
    s->result.images += r == 0;
    return r;
}

static int need_image(struct storing *s, const char *name, int fd, struct err *e)
{
    cleanup_free char *subject = xasprintf("images/%s", name);
    char key[STORE_KEY_MAX + 1];
    struct store_object object;
    struct err why = {0};
    int r;

    archive_manifest_of(s->job->organisation, subject, key);
    pthread_mutex_lock(&s->a->images_lock);
    r = store_stat(s->a->store, key, &object, &why);
    if (r < 0 && r != -ENOENT) {
        err_copy(e, &why);
    }
    if (r == -ENOENT || (r == 0 && !condemned_may_reuse(&s->condemned, &object))) {
        r = store_image(s, subject, fd, e);
    }
    pthread_mutex_unlock(&s->a->images_lock);
    return r;
}

/* ---- the sandbox ---- */

static int store_file(struct storing *s, const struct archive_file *from, struct err *e)
{
    struct manifest_file *to = &s->manifest.files[s->manifest.n_files];
    int r = 0;

    snprintf(to->name, sizeof(to->name), "%s", from->name);
    s->manifest.n_files++;
    if (from->base_fd >= 0) {
        r = archive_image_name(s->a, from->base_fd, to->image, e);
        if (r == 0) {
            r = need_image(s, to->image, from->base_fd, e);
        }
    }
    return r < 0 ? r : upload(s, from, to, e);
}

/* Of what was stored before; "": there was nothing, or it cannot be told. */
static void old_key(struct storing *s, char ret[static MANIFEST_KEY_ID_SIZE])
{
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
    cleanup_manifest_outside struct manifest_outside outside = {0};
    char key[STORE_KEY_MAX + 1];

    ret[0] = '\0';
    archive_manifest_of(s->job->organisation, s->manifest.subject, key);
    if (store_get(s->a->store, key, &text, NULL) == 0 &&
        manifest_read_outside(text.data, text.len, &outside, NULL) == 0) {
        memcpy(ret, outside.key_id, MANIFEST_KEY_ID_SIZE);
    }
}

static int put_last(struct storing *s, struct err *e)
{
    char old[MANIFEST_KEY_ID_SIZE];
    char key[STORE_KEY_MAX + 1];
    int r;

    old_key(s, old);
    r = FAULT("volume.chunks") ? err_set(e, -EIO, NULL, "storing the chunks")
                               : archive_put_manifest(s->a, &s->manifest, &s->key, e);
    if (r == 0 && old[0]) {
        archive_key_of(s->job->organisation, old, key);
        IGNORE_RESULT(store_remove(s->a->store, key, NULL)); /* it is collected then */
    }
    return r;
}

static int store_all(struct storing *s, struct err *e)
{
    const struct archive_job *job = s->job;
    int r = archive_tenant(s->a, job->organisation, &s->tenant, e);

    if (r == 0) { /* before anything large: a key that is refused ends it here */
        r = archive_new_key(s->a, job->organisation, &s->key, s->manifest.key_id, e);
    }
    if (r == 0) {
        r = condemned_load(s->a, job->organisation, &s->condemned, e);
    }
    for (size_t i = 0; i < job->n_files && r == 0; i++) {
        r = store_file(s, &job->files[i], e);
    }
    if (r == 0) { /* nobody waits any more: then it goes on where it is */
        r = transfer_watch(&s->transfer, e);
    }
    return r < 0 ? r : put_last(s, e);
}

int archive_store(struct archive *a, const struct archive_job *job, struct archive_result *ret,
                  struct err *e)
{
    CLEANUP(storing_done) struct storing s = {.a = a, .job = job};
    int r;

    ASSERT(job->n_files <= MANIFEST_FILES_MAX);
    s.transfer = (struct transfer){.store = a->store,
                                   .organisation = job->organisation,
                                   .threads = a->threads,
                                   .watch_fd = job->watch_fd,
                                   .may_reuse = condemned_may_reuse,
                                   .ctx = &s.condemned};
    s.manifest.created_at_ms = clock_wall_ms();
    snprintf(s.manifest.organisation, sizeof(s.manifest.organisation), "%s", job->organisation);
    snprintf(s.manifest.subject, sizeof(s.manifest.subject), "sandboxes/%s", job->sandbox);
    r = store_all(&s, e);
    if (r < 0) { /* its data key is collected: a manifest that was put all the same may name it */
        return err_wrap(e, r, "storing sandbox %s", job->sandbox);
    }
    s.result.created_at_ms = s.manifest.created_at_ms;
    *ret = s.result;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/parts.h"

#include "base/clock.h"
#include "base/fs.h"
#include "sandbox/base.h"
#include "sandbox/checkpoint.h"
#include "sandbox/fresh.h"
#include "sandbox/history.h"
#include "sandbox/suspend.h"
#include "sandbox/template.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void parts_init(struct parts *p)
{
    static const char *const names[PART_COUNT_] = {"meta", "disk", "memory", "device"};

    for (size_t i = 0; i < PART_COUNT_; i++) {
        snprintf(p->files[i].name, sizeof(p->files[i].name), "%s", names[i]);
        p->files[i].fd = FD_NONE;
        p->files[i].base_fd = FD_NONE;
    }
}

void parts_done(struct parts *p)
{
    for (size_t i = 0; i < PART_COUNT_; i++) {
        fd_close(p->files[i].fd);
        fd_close(p->files[i].base_fd);
    }
}

/* Record, snapshot and history, as JSON in a file that is nowhere. */
static int make_meta(struct resident *res, const struct snapshot *snap, int *ret_fd, struct err *e)
{
    cleanup_json json_t *history = NULL;
    cleanup_json json_t *root = NULL;
    cleanup_free char *text = NULL;
    cleanup_close int fd = memfd_create("space-meta", MFD_CLOEXEC);
    int r = fd < 0 ? -errno : history_read(res, &history, e);

    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&res->lock);
    root = json_pack("{s:o, s:o, s:O}", "record", record_to_json(&res->record), "snapshot",
                     snapshot_to_json(snap), "history", history);
    pthread_mutex_unlock(&res->lock);
    text = json_text(root);
    r = fs_write_all(fd, text, strlen(text));
    if (r < 0) {
        return err_wrap(e, r, "writing down the sandbox");
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

void parts_open_images(struct resident *res, int *ret_disk_fd, int *ret_memory_fd)
{
    const struct record *rec = &res->record;
    cleanup_template struct template t = {.disk_fd = FD_NONE};
    struct base *base = NULL;

    if (template_open(res->node, rec->template_name, &t, NULL) == 0 &&
        template_fit_disk(res->node, &t, (uint64_t)rec->shape.disk_mib << 20, NULL) == 0) {
        *ret_disk_fd = TAKE_FD(t.disk_fd);
    }
    if (base_get(res->node, rec->shape.vcpus, rec->shape.memory_mib, &base, NULL) == 0) {
        int fd = fs_open_beneath(base->dir_fd, "memory", O_RDONLY, 0);

        *ret_memory_fd = fd < 0 ? FD_NONE : fd;
        base_put(res->node, base);
    }
}

int parts_open(struct resident *res, const struct snapshot *snap, struct parts *p, struct err *e)
{
    struct checkpoint_files files = {FD_NONE, FD_NONE};
    int r = fresh_open_image(res->node, res->record.id, snap->n, &p->files[PART_DISK].fd, e);

    if (r == 0) {
        r = checkpoint_open(res->node, res->record.id, snap->n,
                            (uint64_t)res->record.shape.memory_mib << 20, &files, e);
    }
    if (r < 0) {
        return r;
    }
    p->files[PART_MEMORY].fd = files.memory_fd;
    p->files[PART_DEVICE].fd = files.device_fd;
    /* Without them they are stored whole: that the template is gone is no reason to refuse. */
    parts_open_images(res, &p->files[PART_DISK].base_fd, &p->files[PART_MEMORY].base_fd);
    return make_meta(res, snap, &p->files[PART_META].fd, e);
}

int parts_store(struct resident *res, const struct parts *p, bool (*gone)(void *arg), void *arg,
                json_t **ret, struct err *e)
{
    const struct volume_call call = {.op = "store",
                                     .organisation = res->record.org,
                                     .sandbox = res->record.id,
                                     .files = p->files,
                                     .n_files = PART_COUNT_,
                                     .deadline_ns = deadline_in_ms(SUSPEND_DEADLINE_MS),
                                     .gone = gone,
                                     .arg = arg};

    return volume_call(res->node->volume_socket, &call, ret, e);
}

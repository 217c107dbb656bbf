/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/checkpoint.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/sock.h"
#include "machine/memory-copy.h"
#include "sandbox/delta.h"
#include "sandbox/disk.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPY_DEADLINE_MS 120000
#define PAUSE_DEADLINE_MS 30000
/* Rounds beside the running machine: a second one catches what the first one's length let change. */
#define ROUNDS_WHILE_RUNNING 2
#define FEW_PAGES 512

struct saving {
    const struct checkpoint_job *job;
    int dir_fd;     /* owned */
    int memory_fd;  /* owned */
    int device_fd;  /* owned */
    int pages_fd;   /* owned: the map of pages */
    int control_fd; /* owned: to the copying process */
    struct delta_head head;
    struct memory_copy_stats stats;
};

static void saving_done(struct saving *s)
{
    fd_close(s->control_fd);
    fd_close(s->pages_fd);
    fd_close(s->memory_fd);
    fd_close(s->device_fd);
    fd_close(s->dir_fd);
}

int memory_link(const struct node *node, int memory_fd, const char *machine_id)
{
    char name[40];

    /* linkat(AT_EMPTY_PATH) wants a capability; the way over /proc does not. */
    snprintf(name, sizeof(name), "/proc/self/fd/%d", memory_fd);
    return linkat(AT_FDCWD, name, node->memory_fd, machine_id, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

void memory_unlink(const struct node *node, const char *machine_id)
{
    if (unlinkat(node->memory_fd, machine_id, 0) < 0 && errno != ENOENT) {
        log_warn(NULL, "cannot remove memory/%s, ignoring: %m", machine_id);
    }
}

static int open_dir(const struct node *node, const char *sandbox_id, uint32_t n, bool make)
{
    cleanup_close int outer = FD_NONE;
    char name[16];

    snprintf(name, sizeof(name), "%u", n);
    outer = make ? fs_mkdir_open(node->checkpoints_fd, sandbox_id, 0700)
                 : fs_open_beneath(node->checkpoints_fd, sandbox_id, O_RDONLY | O_DIRECTORY, 0);
    if (outer < 0) {
        return outer;
    }
    return make ? fs_mkdir_open(outer, name, 0700)
                : fs_open_beneath(outer, name, O_RDONLY | O_DIRECTORY, 0);
}

static int make_files(struct saving *s, struct err *e)
{
    const struct checkpoint_job *job = s->job;
    cleanup_close int from =
        fs_open_beneath(job->node->memory_fd, machine_record(job->machine)->id, O_RDONLY, 0);
    int r;

    if (from < 0) {
        return err_wrap(e, from, "opening what the machine's memory began as");
    }
    s->dir_fd = open_dir(job->node, job->sandbox_id, job->n, /* make */ true);
    if (s->dir_fd < 0) {
        return err_wrap(e, s->dir_fd, "making a folder for the checkpoint");
    }
    s->memory_fd = fs_open_beneath(s->dir_fd, "memory", O_RDWR | O_CREAT | O_EXCL, 0600);
    s->device_fd = s->memory_fd < 0
                       ? s->memory_fd
                       : fs_open_beneath(s->dir_fd, "device", O_WRONLY | O_CREAT | O_EXCL, 0600);
    s->pages_fd = s->device_fd < 0
                      ? s->device_fd
                      : fs_open_beneath(s->dir_fd, "pages", O_RDWR | O_CREAT | O_EXCL, 0600);
    if (s->pages_fd < 0) {
        return err_wrap(e, s->pages_fd, "making the checkpoint's files");
    }
    delta_describe(job->node, from, &s->head);
    r = FAULT("checkpoint.clone") ? -EIO : disk_clone_into(from, s->memory_fd);
    return r < 0 ? err_wrap(e, r, "cloning the memory file") : 0;
}

static int start_copier(struct saving *s, struct err *e)
{
    int pair[2];
    int r;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return err_wrap(e, -errno, "making a socket pair");
    }
    s->control_fd = pair[0];
    r = priv_machine_copy(
        s->job->node->host.priv,
        &(struct priv_copy_request){.id = machine_record(s->job->machine)->id,
                                    .memory_mib = (uint32_t)(s->job->ram_bytes >> 20),
                                    .file_fd = s->memory_fd,
                                    .pages_fd = s->pages_fd,
                                    .control_fd = pair[1]},
        e);
    close(pair[1]);
    return r;
}

static int copy_round(struct saving *s, char how, struct err *e)
{
    int r = delta_ask(s->control_fd, how, deadline_in_ms(COPY_DEADLINE_MS), &s->stats);

    return r < 0 ? err_wrap(e, r, "copying the memory") : 0;
}

static int copy_while_running(struct saving *s, struct err *e)
{
    int r = 0;

    for (int i = 0; i < ROUNDS_WHILE_RUNNING && r == 0; i++) {
        r = copy_round(s, MEMORY_COPY_RUNNING, e);
        if (r == 0 && s->stats.written_pages < FEW_PAGES) {
            break;
        }
    }
    return r;
}

static int save_in_pause(struct saving *s, uint64_t deadline_ns, struct err *e)
{
    int r = FAULT("checkpoint.paused") ? err_wrap(e, -EIO, "saving in the pause")
                                       : copy_round(s, MEMORY_COPY_PAUSED, e);

    trace_mark(s->job->trace, "the rest copied in the pause");
    if (r == 0) {
        r = machine_save_state(s->job->machine, s->device_fd, deadline_ns, e);
    }
    trace_mark(s->job->trace, "devices saved in the pause");
    if (r == 0 && FAULT("checkpoint.device_saved")) {
        r = err_wrap(e, -EIO, "saving the devices");
    }
    if (r == 0 && s->job->in_pause) {
        r = s->job->in_pause(s->job->arg, e);
    }
    trace_mark(s->job->trace, "disk copied in the pause");
    return r;
}

static int pause_and_save(struct saving *s, uint64_t *ret_pause_ns, struct err *e)
{
    uint64_t deadline_ns = deadline_in_ms(PAUSE_DEADLINE_MS);
    uint64_t begun_ns = clock_now_ns();
    struct err resume_error = {0};
    int r = machine_pause(s->job->machine, deadline_ns, e);

    trace_mark(s->job->trace, "paused");
    if (r < 0) {
        return r;
    }
    r = save_in_pause(s, deadline_ns, e);
    if (r == 0 && s->job->stay_paused) {
        *ret_pause_ns = 0;
        return 0;
    }
    if (machine_resume(s->job->machine, deadline_in_ms(PAUSE_DEADLINE_MS), &resume_error) < 0 &&
        r == 0) {
        r = err_wrap(e, resume_error.code, "letting the machine go on: %s", resume_error.msg);
    }
    *ret_pause_ns = clock_now_ns() - begun_ns;
    return r;
}

/* Read by the VMM's user from now on, written by nobody. */
static int seal_files(struct saving *s, struct err *e)
{
    int r = delta_seal(s->pages_fd, &s->head, s->job->ram_bytes);

    if (r < 0) {
        return err_wrap(e, r, "storing the checkpoint's map of pages");
    }
    if (FAULT("checkpoint.seal") || fchmod(s->memory_fd, 0444) < 0 ||
        fchmod(s->device_fd, 0444) < 0) {
        return err_wrap(e, -errno, "storing the checkpoint");
    }
    if (!s->job->passing &&
        (fsync(s->memory_fd) < 0 || fsync(s->device_fd) < 0 || fsync(s->dir_fd) < 0)) {
        return err_wrap(e, -errno, "storing the checkpoint");
    }
    return 0;
}

int checkpoint_save(const struct checkpoint_job *job, struct checkpoint_stats *ret, struct err *e)
{
    CLEANUP(saving_done)
    struct saving s = {.job = job,
                       .dir_fd = FD_NONE,
                       .memory_fd = FD_NONE,
                       .device_fd = FD_NONE,
                       .pages_fd = FD_NONE,
                       .control_fd = FD_NONE};
    uint64_t pause_ns = 0;
    int r = make_files(&s, e);

    trace_mark(job->trace, "memory file cloned");
    if (r == 0) {
        r = start_copier(&s, e);
    }
    if (r == 0 && !job->stay_paused) { /* else nobody waits for the end of the pause */
        r = copy_while_running(&s, e);
    }
    trace_mark(job->trace, "copied while running");
    if (r == 0 && FAULT("checkpoint.copied")) {
        r = err_wrap(e, -EIO, "copying the memory");
    }
    if (r == 0) {
        r = pause_and_save(&s, &pause_ns, e);
    }
    trace_mark(job->trace, "goes on");
    if (r == 0) {
        r = seal_files(&s, e);
    }
    trace_mark(job->trace, "memory stored");
    if (r < 0) {
        IGNORE_RESULT(
            checkpoint_remove(job->node, job->sandbox_id, job->n)); /* swept later if it stays */
        return r;
    }
    *ret = (struct checkpoint_stats){.private_bytes = s.stats.private_pages * 4096,
                                     .pause_ns = pause_ns};
    return 0;
}

static int check_files(const struct checkpoint_files *files, uint32_t n, uint64_t ram_bytes,
                       struct err *e)
{
    struct stat memory;
    struct stat device;

    if (fstat(files->memory_fd, &memory) < 0 || fstat(files->device_fd, &device) < 0) {
        return err_wrap(e, -errno, "looking at checkpoint %u", n);
    }
    if ((uint64_t)memory.st_size != ram_bytes || device.st_size == 0) {
        return err_set(e, -EIO, "snapshot_damaged",
                       "the snapshot is damaged: it holds %lld bytes of memory, not %llu, and %lld "
                       "of devices; its disk and other snapshots may be whole",
                       (long long)memory.st_size, (unsigned long long)ram_bytes,
                       (long long)device.st_size);
    }
    return 0;
}

int checkpoint_open(const struct node *node, const char *sandbox_id, uint32_t n, uint64_t ram_bytes,
                    struct checkpoint_files *ret, struct err *e)
{
    cleanup_close int dir_fd = open_dir(node, sandbox_id, n, /* make */ false);
    cleanup_close int memory_fd =
        dir_fd < 0 ? dir_fd : fs_open_beneath(dir_fd, "memory", O_RDONLY, 0);
    cleanup_close int device_fd =
        memory_fd < 0 ? memory_fd : fs_open_beneath(dir_fd, "device", O_RDONLY, 0);
    struct checkpoint_files files = {memory_fd, device_fd};
    int r;

    if (device_fd == -ENOENT) {
        return err_set(e, -EIO, "snapshot_damaged",
                       "the snapshot is damaged: a file of its saved machine is missing");
    }
    r = device_fd < 0 ? err_wrap(e, device_fd, "opening checkpoint %u", n)
                      : check_files(&files, n, ram_bytes, e);
    if (r < 0) {
        return r;
    }
    *ret = (struct checkpoint_files){TAKE_FD(memory_fd), TAKE_FD(device_fd)};
    return 0;
}

int checkpoint_make(const struct node *node, const char *sandbox_id, uint32_t n,
                    struct checkpoint_files *ret, struct err *e)
{
    cleanup_close int dir_fd = open_dir(node, sandbox_id, n, /* make */ true);
    cleanup_close int memory_fd =
        dir_fd < 0 ? dir_fd : fs_open_beneath(dir_fd, "memory", O_RDWR | O_CREAT | O_EXCL, 0600);
    cleanup_close int device_fd =
        memory_fd < 0 ? memory_fd
                      : fs_open_beneath(dir_fd, "device", O_RDWR | O_CREAT | O_EXCL, 0600);

    if (device_fd < 0) {
        return err_wrap(e, device_fd, "making the checkpoint's files");
    }
    *ret = (struct checkpoint_files){TAKE_FD(memory_fd), TAKE_FD(device_fd)};
    return 0;
}

/* Read by the VMM's user from now on, written by nobody. */
int checkpoint_keep(const struct checkpoint_files *files, struct err *e)
{
    if (fchmod(files->memory_fd, 0444) < 0 || fchmod(files->device_fd, 0444) < 0) {
        return err_wrap(e, -errno, "storing the checkpoint");
    }
    return 0;
}

int checkpoint_remove(const struct node *node, const char *sandbox_id, uint32_t n)
{
    cleanup_close int outer =
        fs_open_beneath(node->checkpoints_fd, sandbox_id, O_RDONLY | O_DIRECTORY, 0);
    char name[16];
    int r;

    if (outer < 0) {
        return outer == -ENOENT ? 0 : outer;
    }
    snprintf(name, sizeof(name), "%u", n);
    r = fs_remove_tree(outer, name);
    if (r == 0 && unlinkat(node->checkpoints_fd, sandbox_id, AT_REMOVEDIR) < 0 &&
        errno != ENOTEMPTY && errno != ENOENT && errno != EEXIST) {
        r = -errno;
    }
    return r;
}

int checkpoint_exclusive_bytes(const struct node *node, const char *sandbox_id, uint32_t n,
                               uint64_t *ret)
{
    cleanup_close int dir_fd = open_dir(node, sandbox_id, n, /* make */ false);
    cleanup_close int memory_fd =
        dir_fd < 0 ? dir_fd : fs_open_beneath(dir_fd, "memory", O_RDONLY, 0);

    return memory_fd < 0 ? memory_fd : disk_exclusive_bytes(memory_fd, ret);
}

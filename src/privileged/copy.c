/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine_copy primitive. What needs root is opening four files of /proc that belong to the
 * VMM; the bytes behind them are a guest's, so they are read by a child that has become the
 * machine's user and keeps no more than those files, the output and its control socket. It has no
 * other power over the VMM than the VMM's user has.
 */
#include "base/fault.h"
#include "base/fs.h"
#include "base/sock.h"
#include "jail/filter.h"
#include "machine/memory-copy.h"
#include "privileged/fdcheck.h"
#include "privileged/ops.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void files_done(struct memory_copy_files *f)
{
    fd_close(f->mem_fd);
    fd_close(f->pagemap_fd);
    fd_close(f->maps_fd);
    fd_close(f->clear_refs_fd);
}

static int open_proc(pid_t pid, const char *name, int flags)
{
    char path[48];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
    return fs_open(path, flags, 0);
}

/* The descriptor of the memory file is the one that the jail gave the VMM. */
static int find_ram_inode(pid_t pid, uint64_t *ret)
{
    char name[24];
    cleanup_close int fd = FD_NONE;
    struct stat st;

    snprintf(name, sizeof(name), "fd/%d", PRIV_JAIL_FD(PRIV_FD_MEMORY));
    fd = open_proc(pid, name, O_PATH);
    if (fd < 0 || fstat(fd, &st) < 0) {
        return fd < 0 ? fd : -errno;
    }
    *ret = st.st_ino;
    return 0;
}

/* The pidfd still being silent afterwards proves that the number was the VMM's all the while. */
static int open_files(pid_t pid, int pidfd, bool into, struct memory_copy_files *f)
{
    int r = find_ram_inode(pid, &f->ram_inode);

    if (r < 0) {
        return r;
    }
    f->mem_fd = open_proc(pid, "mem", into ? O_RDWR : O_RDONLY);
    f->pagemap_fd = open_proc(pid, "pagemap", O_RDONLY);
    f->maps_fd = open_proc(pid, "maps", O_RDONLY);
    f->clear_refs_fd = open_proc(pid, "clear_refs", O_WRONLY);
    if (f->mem_fd < 0 || f->pagemap_fd < 0 || f->maps_fd < 0) {
        return f->mem_fd < 0 ? f->mem_fd : f->pagemap_fd < 0 ? f->pagemap_fd : f->maps_fd;
    }
    return sock_wait(pidfd, POLLIN, 0) == -ETIMEDOUT ? 0 : -ESRCH;
}

struct copier {
    const struct memory_copy_files *from; /* borrowed */
    const int *fds;                       /* borrowed: enum priv_copy_fd */
    const struct sock_fprog *filter;      /* borrowed */
    pid_t parent;
    uid_t uid;
    uint64_t ram_bytes;
};

/* In the child: nothing of root is left, or it ends. */
static void become_user(const struct copier *c)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {0};

    if (FAULT("copy.identity") || setgroups(0, NULL) < 0 || setresgid(c->uid, c->uid, c->uid) < 0 ||
        setresuid(c->uid, c->uid, c->uid) < 0 || syscall(SYS_capset, &header, none) < 0 ||
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) <
            0 || /* after the last change of identity, which clears it */
        getppid() != c->parent ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || jail_filter_install(c->filter) < 0) {
        _exit(1);
    }
}

/* In the child: numbers 0 to 6 for what is kept, and nothing above. */
static NORETURN void run_child(const struct copier *c)
{
    const struct memory_copy_files *from = c->from;
    const int keep[] = {from->mem_fd,
                        from->pagemap_fd,
                        from->maps_fd,
                        from->clear_refs_fd,
                        c->fds[PRIV_COPY_FD_FILE],
                        c->fds[PRIV_COPY_FD_PAGES],
                        c->fds[PRIV_COPY_FD_CONTROL]};
    int aside[ARRAY_SIZE(keep)];
    struct memory_copy_files files;

    for (size_t i = 0; i < ARRAY_SIZE(keep); i++) {
        aside[i] = keep[i] < 0 ? FD_NONE : fcntl(keep[i], F_DUPFD_CLOEXEC, 64);
        if (keep[i] >= 0 && aside[i] < 0) {
            _exit(1);
        }
    }
    for (int i = 0; i < (int)ARRAY_SIZE(keep); i++) {
        if (aside[i] < 0 ? close(i) < 0 && errno != EBADF : dup2(aside[i], i) < 0) {
            _exit(1);
        }
    }
    if (close_range(ARRAY_SIZE(keep), ~0u, 0) < 0) {
        _exit(1);
    }
    become_user(c);
    files = (struct memory_copy_files){.mem_fd = 0,
                                       .pagemap_fd = 1,
                                       .maps_fd = 2,
                                       .clear_refs_fd = aside[3] < 0 ? FD_NONE : 3,
                                       .out_fd = 4,
                                       .pages_fd = 5,
                                       .soft_dirty = from->soft_dirty,
                                       .ram_inode = from->ram_inode};
    memory_copy_serve(&files, c->ram_bytes, /* control */ 6);
}

int machine_copy_run(struct priv_ctx *ctx, const struct priv_request *req,
                     struct priv_answer *answer, struct err *e)
{
    const struct priv_machine_copy *m = req->body;
    CLEANUP(files_done)
    struct memory_copy_files files = {.mem_fd = FD_NONE,
                                      .pagemap_fd = FD_NONE,
                                      .maps_fd = FD_NONE,
                                      .clear_refs_fd = FD_NONE,
                                      .out_fd = FD_NONE,
                                      .soft_dirty = memory_copy_soft_dirty()};
    cleanup_close int pidfd = FD_NONE;
    uint32_t slot;
    pid_t vmm;
    pid_t pid;
    pid_t parent = getpid();
    int r = fdcheck_copy(m, req->fds, e);

    (void)answer;
    if (r == 0 && copies_full(&ctx->copies)) {
        r = err_set(e, -EAGAIN, "node_busy", "too many snapshots are being taken: try again");
    }
    if (r == 0) {
        r = machine_need(ctx, m->id, &slot, e);
    }
    if (r == 0) {
        r = machine_vmm(ctx, m->id, slot, &vmm, &pidfd, e);
    }
    if (r < 0) {
        return r;
    }
    r = open_files(vmm, pidfd, m->flags & PRIV_COPY_INTO, &files);
    if (r < 0) {
        return err_wrap(e, r, "opening the memory of machine '%s'", m->id);
    }
    pid = FAULT("copy.fork") ? -1 : fork();
    if (pid == 0) {
        run_child(&(struct copier){.from = &files,
                                   .fds = req->fds,
                                   .filter = &ctx->vmm_filter,
                                   .parent = parent,
                                   .uid = ctx->first_uid + slot,
                                   .ram_bytes = (uint64_t)m->memory_mib << 20});
    }
    if (pid < 0) {
        return err_wrap(e, -errno, "starting a copy of machine '%s'", m->id);
    }
    copies_add(&ctx->copies, pid, slot);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child's side of file operations: plain blocking code in a process that has entered the
 * sandbox's root and become the user. Whatever the workload has prepared (a FIFO, a
 * link to /dev/zero, a file system that never answers) holds up this process only; the daemon ends
 * it when its time is over.
 *
 * Each operation is a function in the table of file-worker.c. It sends HEAD and BODY itself; END or
 * ERROR is sent for it, from what it returns.
 */
#pragma once

#include "daemon/file-entry.h"
#include "daemon/file-proto.h"
#include "daemon/file-request.h"
#include "daemon/workload.h"

/* Unit of copying between pipe and file. */
#define FILE_CHUNK (256u * 1024)
/* Most bytes that are sent of a file whose size the kernel does not tell (procfs, sysfs, ...). */
#define FILE_PSEUDO_MAX (16u * 1024 * 1024)
/* Most bytes of a JSON answer. */
#define FILE_JSON_MAX (4u * 1024 * 1024)

struct file_worker {
    const struct file_request *req;   /* borrowed */
    const struct workload_user *user; /* borrowed */
    int control;                      /* borrowed: SOCK_SEQPACKET to the daemon */
    int data;    /* owned: pipe: written by READ, read by WRITE; else FD_NONE */
    int fds_dir; /* borrowed: O_PATH of /proc/self/fd in the daemon's own proc; or FD_NONE */
    char *path;  /* owned: req->path made absolute */
    struct file_names names;
};

/*
 * Takes requests from w->control, one after the other, and carries them out, until the daemon
 * closes its end.
 */
void file_worker_serve(struct file_worker *w);
/*
 * Carries out the request and reports to w->control; w->path and w->names are set by it. The
 * process must be in place already (root, user, umask). Returns for the test's sake; the child then
 * exits.
 */
void file_worker_run(struct file_worker *w);

/* Absolute form of a path of this request, without empty components, "." and trailing slashes. */
char *file_worker_absolute(const struct file_worker *w, const char *path);
/*
 * A second descriptor of what fd (O_PATH) is, opened for real. Does not look up any name. -errno.
 */
MUST_CHECK int file_worker_reopen(const struct file_worker *w, int fd, int flags);
/* HEAD and BODY with the entry at that place. */
MUST_CHECK int file_worker_reply_entry(struct file_worker *w, const struct file_place *place,
                                       bool created, struct err *e);
MUST_CHECK int file_worker_reply_json(struct file_worker *w, const struct buf *json, bool created,
                                      struct err *e);

/* The operations. */
MUST_CHECK int file_op_read(struct file_worker *w, struct err *e);   /* file-read.c */
MUST_CHECK int file_op_write(struct file_worker *w, struct err *e);  /* file-write.c */
MUST_CHECK int file_op_list(struct file_worker *w, struct err *e);   /* file-list.c */
MUST_CHECK int file_op_watch(struct file_worker *w, struct err *e);  /* watch.c */
MUST_CHECK int file_op_remove(struct file_worker *w, struct err *e); /* file-remove.c */
MUST_CHECK int file_op_stat(struct file_worker *w,
                            struct err *e); /* file-change.c, with all below */
MUST_CHECK int file_op_mkdir(struct file_worker *w, struct err *e);
MUST_CHECK int file_op_move(struct file_worker *w, struct err *e);
MUST_CHECK int file_op_chmod(struct file_worker *w, struct err *e);
MUST_CHECK int file_op_chown(struct file_worker *w, struct err *e);
MUST_CHECK int file_op_symlink(struct file_worker *w, struct err *e);

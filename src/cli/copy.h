/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying files and folders between here and a sandbox.
 *
 * One thread walks the source and makes folders and links; each regular file becomes a job for one of a few threads that move
 * bytes. The queue between them is short, so that neither memory nor open files grow with the tree.
 *
 *     walker --mkdir, symlink--> target          worker: job -> bytes -> temporary name -> rename
 *        \---- jobs (COPY_QUEUE) ---/
 *
 * What one entry does wrong (unreadable, a socket, a name too long) is told, counted and passed over. What makes going on
 * pointless (interrupted, connection lost, target full) stops everything: copy->fatal. Then whatever this copy has newly
 * made at the top is removed again.
 *
 * The sandbox is not trusted. Here everything is created through copy-local.h, which cannot leave the target; every
 * name, type and count from the sandbox is checked before use.
 */
#pragma once

#include <pthread.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/sigs.h"

#define COPY_QUEUE 64u
#define COPY_JOBS_DEFAULT 4u
#define COPY_JOBS_MAX 32u
#define COPY_CHUNK (256u * 1024)
/* Folders within folders, and entries altogether: a guest could go on for ever. */
#define COPY_DEPTH_MAX 256u
#define COPY_ENTRIES_MAX 20000000u
/* Tries for one file whose connection broke. */
#define COPY_TRIES 3u

struct copy;

struct copy_job {
    struct copy_job *next; /* owned by the queue */
    char *guest;           /* owned: path in the sandbox */
    char *local;           /* owned: path below the target, or for messages */
    int fd;                /* owned: the file to send; FD_NONE when receiving */
    unsigned mode;
    uint64_t size;
};

typedef int (*copy_job_fn)(struct copy *copy, const struct copy_job *job, struct err *e);

struct copy_later {
    char *path; /* owned */
    unsigned mode;
};

struct copy {
    struct cli *cli;           /* borrowed */
    const char *sandbox;       /* borrowed */
    const char *user;          /* borrowed; NULL: the template's */
    const struct sigs *sigs;   /* borrowed */
    struct progress *progress; /* borrowed; NULL: none */
    copy_job_fn job_fn;
    int root_fd; /* borrowed: the folder here that jobs write below; FD_NONE when sending */

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    struct copy_job *first; /* owned */
    struct copy_job **last;
    size_t n_queued;
    bool closed; /* nothing will be queued any more */
    pthread_t threads[COPY_JOBS_MAX];
    size_t n_threads;
    uint64_t bytes;
    uint64_t expected; /* bytes of the files found so far */
    uint64_t files;
    uint64_t entries;
    uint64_t n_errors;
    struct err fatal;

    /* The walker's own: modes that can only be set when everything is in place. */
    struct copy_later *later; /* owned */
    size_t n_later;
};

void copy_init(struct copy *copy, struct cli *cli, const char *sandbox, const struct sigs *sigs);
void copy_done(struct copy *copy);

/* Copies one source in or out. 0: all of it or all but what was told (copy->n_errors); else copy was stopped. */
MUST_CHECK int copy_in(struct copy *copy, const char *local, const char *guest, struct err *e);
MUST_CHECK int copy_out(struct copy *copy, const char *guest, const char *local, struct err *e);
/* Standard input to a file of the sandbox, and back. */
MUST_CHECK int copy_in_stdin(struct copy *copy, const char *guest, struct err *e);
MUST_CHECK int copy_out_stdout(struct copy *copy, const char *guest, struct err *e);

/* For copy-in.c and copy-out.c. */

/* Starts the threads; each job goes through fn. */
MUST_CHECK int copy_pool_start(struct copy *copy, copy_job_fn fn, struct err *e);
/* Waits for room. -ECANCELED: stopped (copy->fatal says why). */
MUST_CHECK int copy_pool_put_take(struct copy *copy, struct copy_job *job);
/* Waits until every job is done. Gives back copy->fatal. */
MUST_CHECK int copy_pool_finish(struct copy *copy, struct err *e);
void copy_job_free(struct copy_job *job);
DEFINE_CLEANUP(struct copy_job *, copy_job_free);

/* Tells what went wrong with one entry and counts it, or stops the copy when going on is pointless (gives e->code back). */
int copy_entry_failed(struct copy *copy, const char *path, const struct err *e);
/* Counts an entry; -E2BIG beyond COPY_ENTRIES_MAX. */
MUST_CHECK int copy_count_entry(struct copy *copy, struct err *e);
bool copy_stopped(struct copy *copy);
void copy_add_bytes(struct copy *copy, uint64_t n);
void copy_later_add(struct copy *copy, const char *path, unsigned mode);
/* True when a new try may succeed. */
bool copy_error_is_passing(const struct err *e);
/* For calls that a signal must end. */
struct pollfd copy_watch(const struct copy *copy);

/* "/v1/sandboxes/ID/files...": with path and user. */
MUST_CHECK int copy_target(const struct copy *copy, const char *what, const char *path, char **ret,
                           struct err *e);
/* The entry of a path in the sandbox. -ENOENT. */
MUST_CHECK int copy_guest_stat(struct copy *copy, const char *path, json_t **ret, struct err *e);
/* POST files/WHAT with {"path", "user"} and the members of `more` (taken over, may be NULL). */
MUST_CHECK int copy_guest_post(struct copy *copy, const char *what, const char *path,
                               json_t *more_take, struct err *e);
/* Text or base64 of a path as the API wants it: sets name or name_base64. */
void copy_json_path(json_t *object, const char *name, const char *path);
/* The bytes of a path in an entry, whichever of the two members it is in. NULL: neither, or not a path. */
char *copy_entry_path(json_t *entry, const char *name);
/* Permission bits of an entry, without setuid, setgid and sticky. */
unsigned copy_entry_mode(json_t *entry);

/* What follows the last '/', trailing slashes not counted. Owned by the caller. */
char *copy_base_name(const char *path);
/* "a/." and ".": what is in the folder, not the folder. */
bool copy_means_content(const char *path);
char *copy_join(const char *dir, const char *name);

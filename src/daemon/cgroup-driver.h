/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by cgroup.c and its two implementations only; see cgroup.h. */
#pragma once

#include "daemon/cgroup.h"

#include "base/id.h"

struct cgroup_driver {
    const char *name; /* static */
    MUST_CHECK int (*make)(struct cgroup *cg, struct err *e);
    void (*remove)(struct cgroup *cg);
    MUST_CHECK int (*signal)(struct cgroup *cg, int signo);
    void (*kill)(struct cgroup *cg);
    bool (*populated)(struct cgroup *cg);
    uint64_t (*oom_kills)(struct cgroup *cg);
    /* Arranges for cgroup_check_empty() to be called when the answer may have changed; false: stop. */
    void (*watch)(struct cgroup *cg, bool on);
    void (*kill_all)(struct cgroups *cs);
    void (*sweep)(struct cgroups *cs);
};

extern const struct cgroup_driver cgroup_driver_v2;
extern const struct cgroup_driver cgroup_driver_tree;

struct cgroups {
    struct loop *loop;                  /* borrowed: lives longer */
    const struct cgroup_driver *driver; /* static */
    int base_fd;                        /* borrowed: lives longer; FD_NONE for tree */
};

struct cgroup {
    struct cgroups *cs; /* borrowed: lives longer */
    char id[ID_SIZE];
    int dir_fd;               /* owned; v2 */
    int events_fd;            /* owned; v2: cgroup.events while watched */
    struct loop_io *events;   /* owned; v2 */
    struct loop_timer *timer; /* owned; made when first needed */
    pid_t leader;             /* 0 when gone */
    pid_t session; /* the leader's, when it is gone, too: others may have the number then */
    bool killing;  /* tree: go on killing until nothing is left */
    loop_fn fn;
    void *arg; /* borrowed: the caller's */
};

/* If the cgroup is watched and has no member, ends the watch and calls the watcher. */
void cgroup_check_empty(struct cgroup *cg);
/* cgroup_check_empty() from the loop, in ms milliseconds. */
void cgroup_check_later(struct cgroup *cg, uint64_t ms);

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/cgroup-driver.h"

#include "base/clock.h"

#include <string.h>

struct cgroups *cgroups_new(struct loop *loop, int base_fd)
{
    struct cgroups *cs = xnew(struct cgroups);

    ASSERT(loop);
    cs->loop = loop;
    cs->base_fd = base_fd;
    cs->driver = base_fd >= 0 ? &cgroup_driver_v2 : &cgroup_driver_tree;
    return cs;
}

void cgroups_free(struct cgroups *cs)
{
    free(cs);
}

const char *cgroups_kind(const struct cgroups *cs)
{
    return cs->driver->name;
}

bool cgroups_need_mark(const struct cgroups *cs)
{
    return cs->driver == &cgroup_driver_tree;
}

void cgroups_kill_all(struct cgroups *cs)
{
    cs->driver->kill_all(cs);
}

void cgroups_sweep(struct cgroups *cs)
{
    cs->driver->sweep(cs);
}

int cgroup_new(struct cgroups *cs, const char *id, struct cgroup **ret, struct err *e)
{
    struct cgroup *cg = xnew(struct cgroup);
    int r;

    ASSERT(cs && id && ret);

    cg->cs = cs;
    cg->dir_fd = FD_NONE;
    cg->events_fd = FD_NONE;
    r = str_copy(cg->id, sizeof(cg->id), id);
    ASSERT(r == 0);
    r = cs->driver->make(cg, e);
    if (r < 0) {
        free(cg);
        return r;
    }
    *ret = cg;
    return 0;
}

void cgroup_free(struct cgroup *cg)
{
    if (!cg) {
        return;
    }
    cgroup_on_empty(cg, /* not any more */ NULL, NULL);
    cg->cs->driver->remove(cg);
    loop_timer_free(cg->timer);
    cg->dir_fd = fd_close(cg->dir_fd);
    free(cg);
}

int cgroup_fd(const struct cgroup *cg)
{
    return cg->dir_fd;
}

void cgroup_leader(struct cgroup *cg, pid_t pid)
{
    cg->leader = pid;
    cg->session = pid;
}

void cgroup_leader_gone(struct cgroup *cg)
{
    cg->leader = 0;
}

int cgroup_signal(struct cgroup *cg, int signo)
{
    return cg->cs->driver->signal(cg, signo);
}

void cgroup_kill(struct cgroup *cg)
{
    cg->cs->driver->kill(cg);
}

bool cgroup_populated(struct cgroup *cg)
{
    return cg->cs->driver->populated(cg);
}

uint64_t cgroup_oom_kills(struct cgroup *cg)
{
    return cg->cs->driver->oom_kills(cg);
}

void cgroup_check_empty(struct cgroup *cg)
{
    loop_fn fn = cg->fn;
    void *arg = cg->arg;

    if (!fn || cgroup_populated(cg)) {
        return;
    }
    cgroup_on_empty(cg, /* once only */ NULL, NULL);
    fn(arg);
}

static void on_timer(void *arg)
{
    struct cgroup *cg = arg;

    if (cg->killing) {
        cgroup_kill(cg);
    }
    if (cg->fn) {
        cg->cs->driver->watch(cg, true);
        cgroup_check_empty(cg);
    }
}

void cgroup_check_later(struct cgroup *cg, uint64_t ms)
{
    if (!cg->timer) {
        cg->timer = loop_add_timer(cg->cs->loop, on_timer, cg);
    }
    loop_timer_set(cg->timer, deadline_in_ms(ms));
}

void cgroup_on_empty(struct cgroup *cg, loop_fn fn, void *arg)
{
    bool watched = cg->fn;

    cg->fn = fn;
    cg->arg = arg;
    if (fn && !watched) {
        cgroup_check_later(cg, 1); /* after the answers that wait for the end */
    } else if (!fn && watched) {
        cg->cs->driver->watch(cg, false);
        loop_timer_set(cg->timer, DEADLINE_NEVER);
    }
}

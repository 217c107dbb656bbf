/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lease, enforced by the one process that needs nobody else for it: when its time is over, every VMM is stopped by
 * SIGSTOP. A process that is stopped neither computes nor sends; it keeps its memory, and goes on if the lease is renewed
 * before the control plane has given the sandboxes away. What cannot be stopped is tried again at the next look.
 */
#include "base/clock.h"
#include "base/log.h"
#include "privileged/ops.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* While there is an end to watch. poll(2) counts only while the host is awake, the lease also when it sleeps. */
#define LOOK_MS 1000

static bool over(const struct priv_fence *f)
{
    return f->until_ns > 0 && clock_boot_ns() >= f->until_ns;
}

/* 0: all of them have got it, or are gone. */
static int signal_all(struct priv_ctx *ctx, int signo)
{
    char id[PRIV_ID_SIZE] = "";
    uint32_t slot;
    int worst = 0;
    int r;

    while ((r = cgroup_next(&ctx->cgroups, id, id, &slot)) == 1) {
        cleanup_close int pidfd = FD_NONE;
        pid_t pid;

        r = cgroup_vmm(&ctx->cgroups, id, slot, &pid, &pidfd);
        if (r == 0 && syscall(SYS_pidfd_send_signal, pidfd, signo, NULL, 0) < 0) {
            r = -errno;
        }
        worst = r < 0 && r != -ESRCH ? r : worst;
    }
    return r < 0 ? r : worst;
}

static void put_up(struct priv_ctx *ctx)
{
    int r = signal_all(ctx, SIGSTOP); /* at every look: the repetition costs nothing */

    if (r < 0) {
        log_error(NULL, "cannot make all machines stand still, trying again: %s", strerror(-r));
    } else if (!ctx->fence.up) {
        log_warn(NULL, "the lease is over: all machines stand still until it is renewed");
    }
    ctx->fence.up = true;
}

static void take_down(struct priv_ctx *ctx)
{
    int r = signal_all(ctx, SIGCONT);

    if (r < 0) {
        log_error(NULL, "cannot let all machines go on, trying again: %s", strerror(-r));
        return; /* the next renewal does */
    }
    log_info(NULL, "the lease was renewed: machines go on");
    ctx->fence.up = false;
}

int fence_look(struct priv_ctx *ctx)
{
    if (ctx->fence.until_ns == 0) {
        return -1;
    }
    if (over(&ctx->fence)) {
        put_up(ctx);
    }
    return LOOK_MS;
}

int lease_run(struct priv_ctx *ctx, const struct priv_request *req, struct priv_answer *answer,
              struct err *e)
{
    const struct priv_lease *l = req->body;
    struct priv_fence *f = &ctx->fence;

    (void)answer;
    (void)e;
    if (!(l->flags & PRIV_LEASE_IF_UNKNOWN)) {
        f->until_ns = l->until_ns;
    } else if (!f->known) {
        f->until_ns = 1; /* long ago */
    }
    f->known = true;
    if (over(f)) {
        put_up(ctx);
    } else if (f->up) {
        take_down(ctx);
    }
    return f->up ? 1 : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/tenure.h"

#include "base/clock.h"
#include "base/cond.h"
#include "base/fs.h"
#include "base/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK "leased"
#define LOOK_MS 1000

struct tenure {
    struct node *node; /* borrowed: lives longer */
    bool fenced;       /* atomic */
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows, and the order in which the node manager is told */
    pthread_cond_t news;
    struct lease lease;
    bool stop;
};

static int64_t now_ms(void)
{
    return (int64_t)(clock_boot_ns() / NS_PER_MS);
}

static void set_fenced(struct tenure *t, bool fenced)
{
    if (__atomic_exchange_n(&t->fenced, fenced, __ATOMIC_RELAXED) != fenced) {
        log_warn(NULL, fenced ? "fenced: no gateway has renewed the lease in time, all sandboxes "
                                "stand still"
                              : "the lease was renewed: sandboxes go on");
    }
}

/* With the lock. */
static int tell(struct tenure *t, const struct priv_lease *lease, struct err *e)
{
    int r = priv_lease(t->node->host.priv, lease, e);

    if (r >= 0) {
        set_fenced(t, r > 0);
    }
    return r < 0 ? r : 0;
}

/* With the lock. */
static int tell_end(struct tenure *t, struct err *e)
{
    const struct priv_lease lease = {
        .until_ns = t->lease.leased ? (uint64_t)MAX(t->lease.until_ms, (int64_t)1) * NS_PER_MS : 0};

    return tell(t, &lease, e);
}

/* The node manager does it by itself; one that was started since has to be told. */
static void look(struct tenure *t)
{
    struct err e = {0};

    if (lease_over(&t->lease, now_ms()) && tell_end(t, &e) < 0) {
        log_error(NULL, "the lease is over and the node manager does not hear it, retrying: %s",
                  e.msg);
    }
}

static void *tenure_main(void *arg)
{
    struct tenure *t = arg;

    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        look(t);
        cond_wait_until(&t->news, &t->lock, deadline_in_ms(LOOK_MS));
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/*
 * What is left of a lease from before our start only the node manager knows; what we take for its end is as late as it can
 * be, so that we never tell it a later one.
 */
static int begin(struct tenure *t, struct err *e)
{
    struct stat st;

    if (fstatat(t->node->pool_fd, MARK, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return errno == ENOENT ? 0 : err_wrap(e, -errno, "looking whether this node is leased");
    }
    t->lease.leased = true;
    t->lease.until_ms = 0;
    return tell(t, &(struct priv_lease){.flags = PRIV_LEASE_IF_UNKNOWN}, e);
}

int tenure_open(struct node *node, struct tenure **ret, struct err *e)
{
    struct tenure *t = xnew(struct tenure);
    unsigned char bytes[(LEASE_EPOCH_SIZE - 1) / 2];
    int r;

    t->node = node;
    random_bytes(bytes, sizeof(bytes));
    hex_encode(bytes, sizeof(bytes), t->lease.epoch);
    r = begin(t, e);
    if (r < 0) {
        free(t);
        return r;
    }
    if (t->lease.leased && !tenure_fenced(t)) {
        t->lease.until_ms = now_ms() + lease_node_ms();
    }
    pthread_mutex_init(&t->lock, NULL);
    cond_init(&t->news);
    ASSERT(pthread_create(&t->thread, NULL, tenure_main, t) == 0);
    *ret = t;
    return 0;
}

void tenure_close(struct tenure *t)
{
    if (!t) {
        return;
    }
    pthread_mutex_lock(&t->lock);
    t->stop = true;
    pthread_cond_broadcast(&t->news);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->news);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

bool tenure_fenced(const struct tenure *t)
{
    return t && __atomic_load_n(&t->fenced, __ATOMIC_RELAXED);
}

/* With the lock. The mark is on the disk before the first grant counts. */
static int grant(struct tenure *t, const struct lease_grant *what, struct err *e)
{
    struct lease next = t->lease;
    int r = lease_take(&next, what, now_ms());

    if (r < 0) {
        return r == -ESTALE
                   ? err_set(e, r, "lease_stale",
                             "that stamp is from before this node's last start")
                   : err_set(e, r, "invalid_lease", "no stamp and time that a lease can have");
    }
    if (!t->lease.leased) {
        r = fs_write_file_durable(t->node->pool_fd, MARK, "", 0, 0600);
        if (r < 0) {
            return err_wrap(e, r, "noting that this node is leased");
        }
        log_info(NULL, "this node is leased now: without its gateways its sandboxes stand still");
    }
    t->lease = next;
    return tell_end(t, e);
}

int tenure_grant(struct tenure *t, const struct lease_grant *what, struct err *e)
{
    int r;

    pthread_mutex_lock(&t->lock);
    r = grant(t, what, e);
    pthread_mutex_unlock(&t->lock);
    return r;
}

int tenure_end(struct tenure *t, struct err *e)
{
    int r;

    pthread_mutex_lock(&t->lock);
    r = unlinkat(t->node->pool_fd, MARK, 0) < 0 && errno != ENOENT ? -errno : 0;
    r = r == 0 ? fs_sync_dir(t->node->pool_fd) : r;
    if (r < 0) {
        err_wrap(e, r, "noting that this node is not leased any more");
    } else {
        t->lease.leased = false;
        r = tell_end(t, e);
    }
    pthread_mutex_unlock(&t->lock);
    return r;
}

json_t *tenure_json(struct tenure *t)
{
    json_t *out;
    int64_t now;

    pthread_mutex_lock(&t->lock);
    now = now_ms();
    out =
        json_pack("{s:s, s:I, s:b, s:b, s:I}", "epoch", t->lease.epoch, "stamp_ms", (json_int_t)now,
                  "leased", t->lease.leased, "fenced", tenure_fenced(t), "left_ms",
                  (json_int_t)(t->lease.leased ? MAX(t->lease.until_ms - now, (int64_t)0) : 0));
    pthread_mutex_unlock(&t->lock);
    return out;
}

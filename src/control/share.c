/* SPDX-License-Identifier: Apache-2.0 */
#include "control/share.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

/* A hold that could not be given back: the database was away. */
struct debt {
    char id[ID_SIZE];
    struct debt *next; /* owned */
};

struct share {
    struct share_opts opts;
    struct busy_remote remote;
    pthread_t thread;
    int stop_fd;           /* owned */
    bool lapsed;           /* of the thread: the log says that the lease is not renewed */
    unsigned alive;        /* atomic */
    pthread_mutex_t mutex; /* guards debts */
    struct debt *debts;    /* owned: list */
};

/* --- holds --- */

/* True: it was there. */
static bool drop_debt(struct share *s, const char *id)
{
    struct debt **link;
    struct debt *found;

    for (link = &s->debts; *link && !str_eq((*link)->id, id); link = &(*link)->next) {
    }
    found = *link;
    if (found) {
        *link = found->next;
        free(found);
    }
    return found;
}

static void add_debt(struct share *s, const char *id)
{
    struct debt *debt = xnew(struct debt);

    snprintf(debt->id, sizeof(debt->id), "%s", id);
    pthread_mutex_lock(&s->mutex);
    debt->next = s->debts;
    s->debts = debt;
    pthread_mutex_unlock(&s->mutex);
}

/* The debt first: what is in the list may be given back at any moment. */
static int share_take(void *ctx, const char *id, struct err *e)
{
    struct share *s = ctx;
    bool owed;
    int r;

    pthread_mutex_lock(&s->mutex);
    owed = drop_debt(s, id);
    pthread_mutex_unlock(&s->mutex);
    r = db_hold_take(s->opts.db, id, s->opts.owner, e);
    if (r < 0 && owed) {
        add_debt(s, id);
    }
    return r;
}

static void share_give(void *ctx, const char *id)
{
    struct share *s = ctx;

    if (db_hold_give(s->opts.db, id, s->opts.owner, /* e */ NULL) < 0) {
        add_debt(s, id);
    }
}

/* Under the lock, so that nobody takes one meanwhile; see share_take(). */
static void pay_debts(struct share *s)
{
    struct debt *debt;

    pthread_mutex_lock(&s->mutex);
    while ((debt = s->debts) &&
           db_hold_give(s->opts.db, debt->id, s->opts.owner, /* e */ NULL) == 0) {
        s->debts = debt->next;
        free(debt);
    }
    pthread_mutex_unlock(&s->mutex);
}

static void share_ask(void *ctx, const char *id)
{
    struct share *s = ctx;
    char text[DB_NOTICE_SIZE];

    snprintf(text, sizeof(text), "cancel %s", id);
    IGNORE_RESULT(db_say(s->opts.db, text, /* e */ NULL)); /* it is asked again and again */
}

/* --- the thread --- */

static void beat(struct share *s)
{
    struct err e = {0};
    int64_t alive = 1;
    int r = db_gateway_beat(s->opts.db, s->opts.owner, SHARE_LEASE_MS, &alive, &e);

    if (r == 0) {
        __atomic_store_n(&s->alive, (unsigned)MAX(alive, (int64_t)1), __ATOMIC_RELAXED);
        pay_debts(s);
    }
    if (r < 0 && !s->lapsed) {
        log_warn(NULL, "cannot tell the other gateways that this one lives, retrying: %s", e.msg);
    }
    s->lapsed = r < 0;
}

static void hear(struct share *s, const char *text)
{
    if (str_starts(text, "given ")) {
        busy_look_again(s->opts.busy);
    } else if (str_starts(text, "cancel ")) {
        busy_cancel(s->opts.busy, text + strlen("cancel "));
    } else if (str_eq(text, "turn")) {
        s->opts.due(s->opts.ctx);
    } else if (str_starts(text, "pass ")) {
        s->opts.passed(s->opts.ctx, str_eq(text, "pass ok"));
    }
}

/* Until the deadline, or a broken connection, which is given up. */
static void listen_until(struct share *s, struct db_listener **listener, uint64_t deadline_ns)
{
    char text[DB_NOTICE_SIZE];
    int r;

    while ((r = db_listener_wait(*listener, deadline_ns, s->stop_fd, text, /* e */ NULL)) == 1) {
        hear(s, text);
    }
    if (r < 0) {
        db_listener_free(TAKE_PTR(*listener));
    }
}

/* True: it is time to end. */
static bool wait_stop(struct share *s, uint64_t deadline_ns)
{
    struct pollfd p = {.fd = s->stop_fd, .events = POLLIN};

    return poll(&p, 1, deadline_poll_ms(deadline_ns)) > 0;
}

static void *share_thread(void *arg)
{
    struct share *s = arg;
    struct db_listener *listener = NULL;
    uint64_t next_ns;

    do {
        next_ns = deadline_in_ms(SHARE_BEAT_MS);
        if (!listener && db_listen(s->opts.db, &listener, /* e */ NULL) == 0) {
            busy_look_again(s->opts.busy); /* nobody knows what was said meanwhile */
            s->opts.due(s->opts.ctx);
        }
        if (listener) {
            listen_until(s, &listener, next_ns);
        }
        if (wait_stop(s, listener ? 0 : deadline_in_ms(500))) {
            break;
        }
        beat(s);
    } while (true);
    db_listener_free(listener);
    return NULL;
}

int share_start(const struct share_opts *opts, struct share **ret, struct err *e)
{
    struct share *s;
    int64_t alive = 1;
    int r;

    ASSERT(opts && db_shared(opts->db) && opts->busy && opts->owner && ret);

    r = db_gateway_beat(opts->db, opts->owner, SHARE_LEASE_MS, &alive, e);
    if (r < 0) {
        return err_wrap(e, r, "joining the other gateways");
    }
    s = xnew(struct share);
    s->opts = *opts;
    s->alive = (unsigned)alive;
    s->remote =
        (struct busy_remote){.ctx = s, .take = share_take, .give = share_give, .ask = share_ask};
    pthread_mutex_init(&s->mutex, NULL);
    s->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ASSERT(s->stop_fd >= 0); /* out of descriptors is treated like out of memory */
    busy_set_remote(opts->busy, &s->remote);
    r = pthread_create(&s->thread, NULL, share_thread, s);
    ASSERT(r == 0); /* the same */
    *ret = s;
    return 0;
}

void share_stop(struct share *s)
{
    struct debt *debt;

    if (!s) {
        return;
    }
    IGNORE_RESULT(eventfd_write(s->stop_fd, 1)); /* a counter of 0 takes 1 */
    pthread_join(s->thread, NULL);
    busy_set_remote(s->opts.busy, NULL);
    IGNORE_RESULT(
        db_gateway_end(s->opts.db, s->opts.owner, /* e */ NULL)); /* else the lease ends */
    while ((debt = s->debts)) {
        s->debts = debt->next;
        free(debt);
    }
    fd_close(s->stop_fd);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

unsigned share_alive(const struct share *s)
{
    return __atomic_load_n(&s->alive, __ATOMIC_RELAXED);
}

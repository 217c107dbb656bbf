/* SPDX-License-Identifier: Apache-2.0 */
#include "http/server-http2.h"

#include "base/log.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>

/* Threads live on their own stacks; what is not touched costs nothing. */
#define POOL_STACK (1024u * 1024)
/* So many stay, however long there is nothing to do; others leave after a while. */
#define POOL_KEEP 4u
#define POOL_IDLE_S 10
#define LINGER_MS 2000u

/* ---- connections ---- */

static unsigned list_timeout_ms(const struct http_server *s, const struct conn_list *list)
{
    if (list == &s->waiting) {
        return s->opts.idle_timeout_ms;
    }
    return list == &s->heads ? s->opts.head_timeout_ms : LINGER_MS;
}

void conn_move_locked(struct http_conn *c, struct conn_list *list)
{
    struct http_server *s = c->server;

    if (c->list) {
        TAILQ_REMOVE(c->list, c, entry);
        s->n_queued -= c->list == &s->queue;
    }
    c->list = list;
    if (list) {
        TAILQ_INSERT_TAIL(list, c, entry);
        s->n_queued += list == &s->queue;
        /* One timeout per list: each is in the order of its deadlines. */
        c->deadline_ns = deadline_in_ms(list_timeout_ms(s, list));
    }
}

void conn_arm_locked(struct http_conn *c, enum conn_state state)
{
    struct http_server *s = c->server;
    struct epoll_event ev = {.events = EPOLLONESHOT | (c->io.want_out ? EPOLLOUT : EPOLLIN),
                             .data.ptr = c};
    struct conn_list *list = state == CONN_LINGER ? &s->lingers
                             : c->io.in_len > 0   ? &s->heads
                                                  : &s->waiting;

    ASSERT(state == CONN_HEAD || state == CONN_LINGER);
    c->state = state;
    if (c->list != list) { /* a head's deadline counts from its first byte */
        conn_move_locked(c, list);
    }
    if (epoll_ctl(s->epoll_fd, c->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->io.fd, &ev) < 0) {
        log_error(NULL, "cannot watch a connection, leaving it to its timeout: %m");
    } else {
        c->watched = true;
    }
    if (state == CONN_LINGER || atomic_load(&s->stopping)) {
        /* It may be sleeping to a later deadline, or have dropped the idle ones before. */
        server_wake(s);
    }
}

void conn_free(struct http_conn *c)
{
    struct http_server *s = c->server;

    pthread_mutex_lock(&s->lock);
    conn_move_locked(c, NULL);
    s->n_conns--;
    if (atomic_load(&s->stopping)) {
        server_wake(s);
    }
    pthread_mutex_unlock(&s->lock);
    io_done(&c->io);
    free(c);
}

/* ---- threads ---- */

static void join_finished_locked(struct http_server *s)
{
    while (!SLIST_EMPTY(&s->finished)) {
        struct pool_thread *t = SLIST_FIRST(&s->finished);

        SLIST_REMOVE_HEAD(&s->finished, entry);
        pthread_mutex_unlock(&s->lock);
        pthread_join(t->thread, NULL);
        free(t);
        pthread_mutex_lock(&s->lock);
    }
}

/* Waits for a connection. NULL: the thread is not needed any more. Lock held. */
static struct http_conn *take_locked(struct http_server *s)
{
    struct http_conn *c;

    s->n_idle++;
    while (TAILQ_EMPTY(&s->queue) && !s->closing) {
        struct timespec until;
        int r;

        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += POOL_IDLE_S;
        r = pthread_cond_clockwait(&s->work, &s->lock, CLOCK_MONOTONIC, &until);
        if (r == ETIMEDOUT && TAILQ_EMPTY(&s->queue) && s->n_threads > POOL_KEEP) {
            break;
        }
    }
    s->n_idle--;
    c = TAILQ_FIRST(&s->queue);
    if (c) {
        conn_move_locked(c, &s->running);
        c->state = CONN_RUNNING;
    }
    return c;
}

void conn_linger(struct http_conn *c)
{
    struct http_server *s = c->server;

    io_shutdown_send(&c->io);
    io_consume(&c->io, c->io.in_len);
    pthread_mutex_lock(&s->lock);
    conn_arm_locked(c, CONN_LINGER);
    pthread_mutex_unlock(&s->lock);
}

static void reset(struct http_conn *c)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    if (setsockopt(c->io.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)) < 0) {
        log_debug(NULL, "cannot reset a connection, closing it: %m");
    }
    conn_free(c);
}

/* Epoll knows nothing of bytes that have been decrypted already. */
static void take_decrypted(struct http_conn *c)
{
    while (c->io.ssl && SSL_pending(c->io.ssl) > 0 && io_fill(&c->io, HTTP1_MAX_HEAD) > 0) {
    }
}

/* The next request may be here already. True: c is to be run again by this thread. */
static bool keep(struct http_conn *c)
{
    struct http_server *s = c->server;
    bool complete;
    bool again = false;

    c->scan = (struct http1_scan){0};
    io_trim(&c->io);
    take_decrypted(c);
    complete =
        http1_scan(&c->scan, c->io.in ? io_data(&c->io) : "", c->io.in_len, &c->head_len) == 0;
    pthread_mutex_lock(&s->lock);
    if (!complete) {
        conn_arm_locked(c, CONN_HEAD); /* also what is too large: the loop thread refuses it */
    } else if (TAILQ_EMPTY(&s->queue)) {
        again = true;
    } else {
        c->state = CONN_QUEUED; /* others have waited longer */
        conn_move_locked(c, &s->queue);
    }
    pthread_mutex_unlock(&s->lock);
    return again;
}

static void serve(struct http_conn *c)
{
    for (;;) {
        enum request_after after = c->http2 ? http2_run(c) : request_run(c);

        if (after == AFTER_KEEP && !atomic_load(&c->server->stopping)) {
            if (!keep(c)) {
                return;
            }
            continue;
        }
        if (after == AFTER_LINGER) {
            conn_linger(c);
        } else if (after == AFTER_RESET) {
            reset(c);
        } else {
            conn_free(c);
        }
        return;
    }
}

static void *thread_main(void *arg)
{
    struct pool_thread *t = arg;
    struct http_server *s = t->server;
    struct http_conn *c;

    pthread_mutex_lock(&s->lock);
    for (;;) {
        c = take_locked(s);
        if (!c) {
            break;
        }
        pthread_mutex_unlock(&s->lock);
        serve(c);
        pthread_mutex_lock(&s->lock);
    }
    s->n_threads--;
    SLIST_INSERT_HEAD(&s->finished, t, entry);
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Signals are for the thread that called http_server_run. */
static int start_thread(struct http_server *s)
{
    struct pool_thread *t = xnew(struct pool_thread);
    pthread_attr_t attr;
    sigset_t all;
    sigset_t old;
    int r;

    t->server = s;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, POOL_STACK);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(&t->thread, &attr, thread_main, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (r != 0) {
        free(t);
    }
    return -r;
}

bool pool_submit_locked(struct http_server *s, struct http_conn *c)
{
    join_finished_locked(s);
    if (s->n_queued >= s->opts.max_queue) {
        return false;
    }
    if (s->n_queued >= s->n_idle && s->n_threads < s->opts.max_threads) {
        int r = start_thread(s);

        if (r < 0 && s->n_threads == 0) {
            log_error(NULL, "cannot start a thread, refusing requests: %s", strerrordesc_np(-r));
            return false;
        }
        s->n_threads += r == 0;
    }
    c->state = CONN_QUEUED;
    conn_move_locked(c, &s->queue);
    pthread_cond_signal(&s->work);
    return true;
}

void pool_join(struct http_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->work);
    while (s->n_threads > 0) {
        pthread_cond_wait(&s->work, &s->lock);
    }
    join_finished_locked(s);
    pthread_mutex_unlock(&s->lock);
}

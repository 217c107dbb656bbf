/* SPDX-License-Identifier: Apache-2.0 */
#include "channel/host-internal.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cond.h"
#include "base/fs.h"

/* A session that ends before this is young: see channel_session_end. */
#define CHANNEL_YOUNG_NS NS_PER_S
/* After so many young sessions in a row READY is no longer believed. */
#define CHANNEL_YOUNG_MAX 3

void channel_wake(struct channel *ch)
{
    uint64_t one = 1;

    if (!ch->wake_pending) {
        ch->wake_pending = true;
        /* An eventfd that overflows is awake all the same. */
        IGNORE_RESULT(write(ch->wake_fd, &one, sizeof(one)));
    }
}

static void channel_set_state(struct channel *ch, enum channel_state state)
{
    if (ch->state != state && ch->state != CHANNEL_CLOSED) {
        ch->state = state;
        pthread_cond_broadcast(&ch->state_changed);
    }
}

void channel_session_end(struct channel *ch, const struct err *why)
{
    uint64_t now = clock_now_ns();

    ch->last = *why;
    if (!ch->session) {
        return;
    }
    log_debug(&ch->log, "the session with the guest has ended: %s", why->msg);
    nghttp2_session_del(ch->session);
    ch->session = NULL;
    ch->debt = 0;
    ch->ping_ns = 0;
    ch->broken = (struct err){0};
    ch->stale = true;
    for (struct channel_stream *s = ch->streams; s; s = s->next) {
        bool complete = s->head_done && s->rx_eof;

        s->live = false;
        if (!s->failed.code && !complete) {
            s->failed = *why;
        }
        channel_stream_notify(s);
    }
    if (now - ch->up_since_ns >= CHANNEL_YOUNG_NS) {
        ch->n_young = 0;
        ch->interval_ns = CHANNEL_HELLO_FIRST_MS * NS_PER_MS;
    } else {
        ch->n_young++;
    }
    ch->retry_ns = now + ch->interval_ns;
    channel_set_state(ch, CHANNEL_HELLO);
}

/* ---- the I/O thread; all io_ functions run in it with the lock held, unless they say otherwise ---- */

static void io_disconnect(struct channel *ch, const struct err *why)
{
    channel_session_end(ch, why);
    ch->fd = fd_close(ch->fd);
    ch->decoder = LINK_DECODER_INIT;
    ch->stale = true;
    ch->retry_ns = clock_now_ns() + ch->interval_ns;
    ch->interval_ns = MIN(ch->interval_ns * 2, CHANNEL_HELLO_LAST_MS * NS_PER_MS);
    channel_set_state(ch, CHANNEL_DOWN);
    if (!ch->path) { /* those who wait for a session wait in vain */
        pthread_cond_broadcast(&ch->state_changed);
    }
}

static void io_connect(struct channel *ch, uint64_t now)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd;

    if (!ch->path || now < ch->retry_ns) {
        return;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && str_copy(addr.sun_path, sizeof(addr.sun_path), ch->path) == 0 &&
        connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0) {
        ch->fd = fd;
        ch->retry_ns = now;
        ch->interval_ns = CHANNEL_HELLO_FIRST_MS * NS_PER_MS;
        channel_set_state(ch, CHANNEL_HELLO);
        return;
    }
    err_set(&ch->last, -errno, "guest_unreachable", "cannot connect to the machine's channel: %s",
            strerrordesc_np(errno));
    fd_close(fd);
    ch->retry_ns = now + ch->interval_ns;
    ch->interval_ns = MIN(ch->interval_ns * 2, CHANNEL_HELLO_LAST_MS * NS_PER_MS);
}

static void io_hello(struct channel *ch, uint64_t now)
{
    uint8_t record[LINK_CONTROL_LEN];

    if (ch->held || now < ch->retry_ns) {
        return;
    }
    link_nonce(ch->nonce);
    link_control(LINK_HELLO, ch->nonce, record);
    if (buf_add(&ch->out, record, sizeof(record)) < 0) {
        buf_reset(&ch->out); /* nobody reads; only HELLOs are in it */
    }
    ch->hello_sent_ns = now;
    ch->retry_ns = now + ch->interval_ns;
    ch->interval_ns = MIN(ch->interval_ns * 2, CHANNEL_HELLO_LAST_MS * NS_PER_MS);
}

static void io_keep_alive(struct channel *ch, uint64_t now)
{
    struct err why = {0};

    if (ch->held || ch->n_streams == 0) {
        ch->ping_ns = 0;
    } else if (ch->ping_ns && now >= ch->ping_ns + ch->ping_wait_ns) {
        err_set(&why, -ECONNRESET, "guest_gone", "the sandbox has not answered for %llu ms",
                (unsigned long long)((ch->ping_after_ns + ch->ping_wait_ns) / NS_PER_MS));
        channel_session_end(ch, &why);
    } else if (!ch->ping_ns && now >= ch->received_ns + ch->ping_after_ns) {
        ch->ping_ns = now;
        channel_session_ping(ch);
    }
}

static void io_advance(struct channel *ch)
{
    uint64_t now = clock_now_ns();

    if (ch->state == CHANNEL_DOWN) {
        io_connect(ch, now);
    }
    if (ch->state == CHANNEL_UP) {
        io_keep_alive(ch, now);
    }
    if (ch->stale) {
        buf_reset(&ch->out);
        ch->stale = false;
    }
    if (ch->state == CHANNEL_HELLO) {
        io_hello(ch, now);
    }
    if (ch->state == CHANNEL_UP && !channel_session_pull(ch)) {
        buf_reset(&ch->out);
        ch->stale = false;
    }
}

static uint64_t io_deadline(const struct channel *ch)
{
    switch (ch->state) {
    case CHANNEL_DOWN:
        return ch->path ? ch->retry_ns : DEADLINE_NEVER;
    case CHANNEL_HELLO:
        return ch->held ? DEADLINE_NEVER : ch->retry_ns;
    case CHANNEL_UP:
        if (ch->held || ch->n_streams == 0) {
            return DEADLINE_NEVER;
        }
        return ch->ping_ns ? ch->ping_ns + ch->ping_wait_ns : ch->received_ns + ch->ping_after_ns;
    case CHANNEL_CLOSED:
        break;
    }
    return 0;
}

static void io_event(struct channel *ch, enum link_event event)
{
    struct err why = {0};

    if (ch->state == CHANNEL_UP) {
        err_set(&why, -ECONNRESET, "guest_gone", "%s",
                event == LINK_BROKEN ? "bytes from the sandbox are missing"
                                     : "the sandbox has begun afresh");
        channel_session_end(ch, &why);
        if (event == LINK_READY && ch->n_young <= CHANNEL_YOUNG_MAX) {
            ch->retry_ns = clock_now_ns();
        }
    } else if (ch->state == CHANNEL_HELLO && event == LINK_READY &&
               ch->n_young <= CHANNEL_YOUNG_MAX) {
        /* It has just opened its port: what we said before was lost. */
        ch->retry_ns =
            MIN(ch->retry_ns, ch->hello_sent_ns + CHANNEL_HELLO_FIRST_MS / 2 * NS_PER_MS);
    } else if (ch->state == CHANNEL_HELLO && event == LINK_ACK && ch->hello_sent_ns &&
               str_eq(ch->decoder.nonce, ch->nonce)) {
        channel_session_start(ch);
        ch->hello_sent_ns = 0;
        ch->up_since_ns = clock_now_ns();
        channel_set_state(ch, CHANNEL_UP);
    }
}

static void io_feed(struct channel *ch, size_t len)
{
    uint8_t *data = ch->in;

    ch->received_ns = clock_now_ns();
    ch->ping_ns = 0;
    while (len > 0) {
        size_t used = 0;
        size_t payload = 0;
        enum link_event event = link_decode(&ch->decoder, data, len, &used, &payload);

        if (payload > 0 && ch->state == CHANNEL_UP) {
            IGNORE_RESULT(channel_session_feed(ch, data, payload)); /* the state tells */
        }
        if (event != LINK_NONE) {
            io_event(ch, event);
        }
        data += used;
        len -= used;
    }
}

/* Without the lock. 0, or negative errno when the connection is lost; *ret_read is what came. */
static int io_transfer(struct channel *ch, int fd, uint64_t deadline_ns, size_t *ret_read)
{
    struct pollfd fds[2] = {{.fd = ch->wake_fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    uint64_t count;
    ssize_t n;

    *ret_read = 0;
    if (fd >= 0 && ch->out.len > 0) {
        n = send(fd, ch->out.data, ch->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return -errno;
        }
        buf_consume(&ch->out, n > 0 ? (size_t)n : 0);
        if (ch->out.len > 0) {
            fds[1].events |= POLLOUT;
        } else {
            deadline_ns =
                n > (ssize_t)CHANNEL_PULL_MAX / 2 ? 0 : deadline_ns; /* there may be more */
        }
    }
    if (poll(fds, fd >= 0 ? 2 : 1, deadline_poll_ms(deadline_ns)) < 0) {
        return 0; /* EINTR */
    }
    if (fds[0].revents) {
        IGNORE_RESULT(read(ch->wake_fd, &count, sizeof(count))); /* non-blocking: may be empty */
    }
    if (fd < 0 || !(fds[1].revents & (POLLIN | POLLHUP | POLLERR))) {
        return 0;
    }
    n = recv(fd, ch->in, CHANNEL_READ_SIZE, MSG_DONTWAIT);
    if (n < 0) {
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    }
    *ret_read = (size_t)n;
    return n == 0 ? -ECONNRESET : 0;
}

static void *io_thread(void *arg)
{
    struct channel *ch = arg;

    pthread_mutex_lock(&ch->lock);
    while (ch->state != CHANNEL_CLOSED) {
        size_t got = 0;
        uint64_t deadline_ns;
        int fd;
        int r;

        io_advance(ch);
        deadline_ns = io_deadline(ch);
        fd = ch->fd;
        pthread_mutex_unlock(&ch->lock);
        r = io_transfer(ch, fd, deadline_ns, &got);
        pthread_mutex_lock(&ch->lock);
        ch->wake_pending = false;
        if (r < 0) {
            struct err why = {0};

            err_set(&why, -ECONNRESET, "guest_gone", "the machine has closed its channel: %s",
                    strerrordesc_np(-r));
            io_disconnect(ch, &why);
        } else if (got > 0) {
            io_feed(ch, got);
        }
    }
    ch->fd = fd_close(ch->fd);
    pthread_mutex_unlock(&ch->lock);
    return NULL;
}

/* ---- life ---- */

static int channel_thread_start(struct channel *ch)
{
    pthread_attr_t attr;
    sigset_t all;
    sigset_t before;
    int r;

    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 * 1024);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&ch->thread, &attr, io_thread, ch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return -r;
}

static void channel_destroy(struct channel *ch)
{
    ASSERT(!ch->session && !ch->streams);
    fd_close(ch->fd);
    fd_close(ch->wake_fd);
    pthread_mutex_destroy(&ch->lock);
    pthread_cond_destroy(&ch->state_changed);
    buf_done(&ch->out);
    free(ch->in);
    free(ch->path);
    free(ch->sandbox);
    free(ch);
}

int channel_new(const struct channel_options *options, struct channel **ret, struct err *e)
{
    struct channel *ch = xnew(struct channel);
    int r;

    ch->refs = 1;
    ch->path = options->path ? xstrdup(options->path) : NULL;
    ch->sandbox = options->sandbox ? xstrdup(options->sandbox) : NULL;
    ch->log.sandbox = ch->sandbox;
    ch->fd = options->path ? FD_NONE : options->fd;
    ch->state = options->path ? CHANNEL_DOWN : CHANNEL_HELLO;
    ch->interval_ns = CHANNEL_HELLO_FIRST_MS * NS_PER_MS;
    ch->ping_after_ns =
        (options->ping_after_ms ? options->ping_after_ms : CHANNEL_PING_AFTER_MS) * NS_PER_MS;
    ch->ping_wait_ns =
        (options->ping_wait_ms ? options->ping_wait_ms : CHANNEL_PING_WAIT_MS) * NS_PER_MS;
    ch->out = BUF_INIT(3 * CHANNEL_PULL_MAX);
    ch->in = xmalloc(CHANNEL_READ_SIZE);
    pthread_mutex_init(&ch->lock, NULL);
    cond_init(&ch->state_changed);
    err_set(&ch->last, -ETIMEDOUT, "guest_unreachable", "the sandbox has not answered yet");
    ch->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = ch->wake_fd < 0 ? -errno : channel_thread_start(ch);
    if (r < 0) {
        channel_destroy(ch);
        return err_wrap(e, r, "starting a channel");
    }
    *ret = ch;
    return 0;
}

void channel_unref_unlock(struct channel *ch)
{
    bool last = --ch->refs == 0;

    pthread_mutex_unlock(&ch->lock);
    if (last) {
        channel_destroy(ch);
    }
}

struct channel *channel_ref(struct channel *ch)
{
    pthread_mutex_lock(&ch->lock);
    ch->refs++;
    pthread_mutex_unlock(&ch->lock);
    return ch;
}

void channel_unref(struct channel *ch)
{
    pthread_mutex_lock(&ch->lock);
    channel_unref_unlock(ch);
}

void channel_close(struct channel *ch)
{
    struct err why = {0};

    err_set(&why, -ECONNRESET, "guest_gone", "the machine is being taken away");
    pthread_mutex_lock(&ch->lock);
    channel_session_end(ch, &why);
    channel_set_state(ch, CHANNEL_CLOSED);
    channel_wake(ch);
    pthread_mutex_unlock(&ch->lock);
}

void channel_free(struct channel *ch)
{
    if (!ch) {
        return;
    }
    channel_close(ch);
    pthread_join(ch->thread, NULL);
    pthread_mutex_lock(&ch->lock);
    channel_unref_unlock(ch);
}

/* ---- for everyone ---- */

int channel_wait_locked(struct channel *ch, uint64_t deadline_ns, struct err *e)
{
    while (ch->state != CHANNEL_UP) {
        if (ch->state == CHANNEL_CLOSED || (ch->state == CHANNEL_DOWN && !ch->path)) {
            return err_set(e, -ECONNRESET, "guest_gone", "%s", ch->last.msg);
        }
        if (deadline_passed(deadline_ns) ||
            cond_wait_until(&ch->state_changed, &ch->lock, deadline_ns) == -ETIMEDOUT) {
            if (ch->state != CHANNEL_UP) {
                return err_set(e, -ETIMEDOUT, "guest_unreachable", "%s", ch->last.msg);
            }
        }
    }
    return 0;
}

int channel_wait(struct channel *ch, uint64_t deadline_ns, struct err *e)
{
    int r;

    pthread_mutex_lock(&ch->lock);
    r = channel_wait_locked(ch, deadline_ns, e);
    pthread_mutex_unlock(&ch->lock);
    return r;
}

bool channel_is_up(struct channel *ch)
{
    bool up;

    pthread_mutex_lock(&ch->lock);
    up = ch->state == CHANNEL_UP;
    pthread_mutex_unlock(&ch->lock);
    return up;
}

void channel_reset(struct channel *ch)
{
    struct err why = {0};

    err_set(&why, -ECONNRESET, "guest_gone", "the sandbox begins afresh");
    pthread_mutex_lock(&ch->lock);
    channel_session_end(ch, &why);
    ch->n_young = 0;
    ch->interval_ns = CHANNEL_HELLO_FIRST_MS * NS_PER_MS;
    ch->retry_ns = 0;
    channel_wake(ch);
    pthread_mutex_unlock(&ch->lock);
}

void channel_hold(struct channel *ch, bool held)
{
    pthread_mutex_lock(&ch->lock);
    ch->held = held;
    ch->received_ns = clock_now_ns();
    ch->ping_ns = 0;
    channel_wake(ch);
    pthread_mutex_unlock(&ch->lock);
}

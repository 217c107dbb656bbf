/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/file-crew.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "daemon/file-spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define IDLE_MAX 4
#define IDLE_MS 5000
/* How long a process may take from its last word, or from SIGKILL, to its end. */
#define DYING_MS 10000
/* What a pipe holds: enough that a transfer is not bound by how often two processes take turns. */
#define PIPE_SIZE (1 << 20)

struct file_hand {
    struct file_crew *crew; /* borrowed: lives longer */
    struct file_hand *next; /* borrowed: in crew's list */
    enum {
        HAND_BUSY,
        HAND_IDLE,
        HAND_LEAVING
    } state;
    struct workload_user user;
    pid_t pid;                /* 0: reaped */
    int control_fd;           /* owned */
    struct loop_io *io;       /* owned */
    struct loop_timer *timer; /* owned: set when IDLE or LEAVING */
    loop_fn on_packet;
    void *arg; /* borrowed: BUSY only */
    uint64_t idle_since_ns;
    bool left_unread;
    bool killed;
    bool stuck;
};

struct file_crew {
    struct loop *loop;         /* borrowed */
    struct children *children; /* borrowed */
    struct workload *workload; /* borrowed */
    struct file_hand *hands;   /* owned */
    unsigned n_idle;
    unsigned n_stuck;
    uint64_t n_forked;
    uint64_t max_ms;
};

static void hand_deadline(struct file_hand *hand, uint64_t ms)
{
    uint64_t max_ms = hand->crew->max_ms;

    loop_timer_set(hand->timer, deadline_in_ms(max_ms > 0 ? MIN(max_ms, ms) : ms));
}

static void hand_free(struct file_hand *hand)
{
    struct file_crew *crew = hand->crew;

    for (struct file_hand **p = &crew->hands; *p; p = &(*p)->next) {
        if (*p == hand) {
            *p = hand->next;
            break;
        }
    }
    crew->n_stuck -= hand->stuck;
    crew->n_idle -= hand->state == HAND_IDLE;
    loop_io_free(hand->io);
    fd_close(hand->control_fd);
    loop_timer_free(hand->timer);
    free(hand);
}

/* A busy one stays until its job has read what it said last. */
static void hand_reaped(void *arg, const struct child_exit *x)
{
    struct file_hand *hand = arg;

    (void)x; /* how it ended does not count */
    hand->pid = 0;
    if (hand->state != HAND_BUSY) {
        hand_free(hand);
    }
}

static void hand_kill(struct file_hand *hand)
{
    if (hand->pid > 0) {
        kill(hand->pid, SIGKILL);
    }
    hand->killed = true;
    hand_deadline(hand, DYING_MS);
}

static void hand_timer(void *arg)
{
    struct file_hand *hand = arg;

    if (hand->state == HAND_IDLE) {
        hand->crew->n_idle--;
        hand->state = HAND_BUSY;
        file_hand_let_go(hand, DYING_MS);
    } else if (!hand->killed) {
        hand_kill(hand);
    } else {
        hand->stuck = true;
        hand->crew->n_stuck++;
    }
}

static void hand_readable(void *arg, uint32_t events)
{
    struct file_hand *hand = arg;

    (void)events;
    hand->on_packet(hand->arg);
}

static int hand_fork(struct file_crew *crew, const struct workload_user *user,
                     struct file_hand **ret)
{
    struct file_hand *hand;
    struct file_spawned s;
    int r = file_spawn(crew->workload, user, &s);

    if (r < 0) {
        return r;
    }
    hand = xnew(struct file_hand);
    hand->crew = crew;
    hand->user = *user;
    hand->pid = s.pid;
    hand->control_fd = s.control_fd;
    hand->io = loop_add_io(crew->loop, s.control_fd, 0, hand_readable, hand);
    hand->timer = loop_add_timer(crew->loop, hand_timer, hand);
    hand->next = crew->hands;
    crew->hands = hand;
    crew->n_forked++;
    children_watch(crew->children, s.pid, hand_reaped, hand);
    *ret = hand;
    return 0;
}

static bool same_user(const struct workload_user *a, const struct workload_user *b)
{
    return a->uid == b->uid && a->gid == b->gid && a->n_groups == b->n_groups &&
           memcmp(a->groups, b->groups, a->n_groups * sizeof(a->groups[0])) == 0 &&
           str_eq(a->home, b->home);
}

static struct file_hand *hand_idle(struct file_crew *crew, const struct workload_user *user)
{
    for (struct file_hand *hand = crew->hands; hand; hand = hand->next) {
        if (hand->state == HAND_IDLE && same_user(&hand->user, user)) {
            hand->state = HAND_BUSY;
            crew->n_idle--;
            loop_timer_set(hand->timer, DEADLINE_NEVER);
            return hand;
        }
    }
    return NULL;
}

/* The order itself, and the hand's end of the pipe with it. */
static int hand_order(struct file_hand *hand, const struct buf *packet, int data_fd)
{
    struct iovec iov = {.iov_base = packet->data, .iov_len = packet->len};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (data_fd >= 0) {
        struct cmsghdr *c = &control.align;

        msg.msg_control = control.bytes;
        msg.msg_controllen = sizeof(control.bytes);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &data_fd, sizeof(int));
    }
    return sendmsg(hand->control_fd, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Something that nobody asked for, or its end: not a hand to be trusted with a job. */
static bool hand_has_spoken(const struct file_hand *hand)
{
    char byte;
    ssize_t n = recv(hand->control_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return n >= 0 || errno != EAGAIN;
}

static int make_pipe(const struct file_request *req, int *ret_ours, int *ret_theirs)
{
    bool writes = req->op == FILE_OP_WRITE;
    int p[2];

    if (req->op != FILE_OP_READ && !writes) {
        return 0;
    }
    if (pipe2(p, O_CLOEXEC) < 0) {
        return -errno;
    }
    *ret_ours = p[writes ? 1 : 0];
    *ret_theirs = p[writes ? 0 : 1];
    if (fcntl(*ret_ours, F_SETPIPE_SZ, PIPE_SIZE) < 0) {
        log_debug(NULL, "a pipe stays small, ignoring: error %d", errno);
    }
    return fd_set_nonblock(*ret_ours, true);
}

int file_hand_start(struct file_crew *crew, const struct file_order *order, struct file_hand **ret,
                    int *ret_data_fd)
{
    cleanup_buf struct buf packet = BUF_INIT(FILE_PACKET_MAX);
    cleanup_close int ours = FD_NONE;
    cleanup_close int theirs = FD_NONE;
    struct file_hand *hand = NULL;
    int r = file_request_pack(order->req, &packet);

    if (r == 0) {
        r = make_pipe(order->req, &ours, &theirs);
    }
    if (r < 0) {
        return r;
    }
    while ((hand = hand_idle(crew, order->user))) {
        if (!hand_has_spoken(hand) && hand_order(hand, &packet, theirs) == 0) {
            break;
        }
        file_hand_let_go(hand, /* kill */ 0);
    }
    if (!hand) {
        r = hand_fork(crew, order->user, &hand);
        r = r == 0 ? hand_order(hand, &packet, theirs) : r;
    }
    if (r < 0) {
        if (hand) {
            file_hand_let_go(hand, /* kill */ 0);
        }
        return r;
    }
    hand->on_packet = order->on_packet;
    hand->arg = order->arg;
    file_hand_listen(hand, true);
    *ret = hand;
    *ret_data_fd = TAKE_FD(ours);
    return 0;
}

ssize_t file_hand_recv(struct file_hand *hand, void *ret, size_t len)
{
    for (;;) {
        ssize_t n = recv(hand->control_fd, ret, len, MSG_DONTWAIT);

        if (n >= 0 || (errno != EINTR && errno != ECONNRESET)) {
            return n < 0 ? -errno : n;
        }
        hand->left_unread = hand->left_unread || errno == ECONNRESET; /* what it said comes now */
    }
}

bool file_hand_left_unread(const struct file_hand *hand)
{
    return hand->left_unread;
}

void file_hand_listen(struct file_hand *hand, bool on)
{
    loop_io_set(hand->io, on ? EPOLLIN : 0);
}

void file_hand_say(struct file_hand *hand, char word)
{
    if (send(hand->control_fd, &word, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        log_debug(NULL, "a file worker went away before it was told to go on");
    }
}

/* The one that has waited longest, perhaps for a user who does not come back. */
static void send_oldest_away(struct file_crew *crew)
{
    struct file_hand *oldest = NULL;

    for (struct file_hand *hand = crew->hands; hand; hand = hand->next) {
        if (hand->state == HAND_IDLE && (!oldest || hand->idle_since_ns < oldest->idle_since_ns)) {
            oldest = hand;
        }
    }
    ASSERT(oldest);
    hand_timer(oldest);
}

void file_hand_keep(struct file_hand *hand)
{
    ASSERT(hand->state == HAND_BUSY);
    if (hand->pid == 0) {
        file_hand_let_go(hand, /* gone already */ 0);
        return;
    }
    if (hand->crew->n_idle >= IDLE_MAX) {
        send_oldest_away(hand->crew);
    }
    hand->state = HAND_IDLE;
    hand->idle_since_ns = clock_now_ns();
    hand->crew->n_idle++;
    hand->arg = NULL;
    file_hand_listen(hand, false);
    hand_deadline(hand, IDLE_MS);
}

void file_hand_let_go(struct file_hand *hand, uint64_t grace_ms)
{
    ASSERT(hand->state == HAND_BUSY);
    hand->state = HAND_LEAVING;
    hand->arg = NULL;
    loop_io_free(TAKE_PTR(hand->io));
    hand->control_fd = fd_close(hand->control_fd);
    if (hand->pid == 0) {
        hand_free(hand);
    } else if (grace_ms == 0) {
        hand_kill(hand);
    } else {
        hand_deadline(hand, grace_ms);
    }
}

struct file_crew *file_crew_new(struct loop *loop, struct children *children,
                                struct workload *workload)
{
    struct file_crew *crew = xnew(struct file_crew);

    crew->loop = loop;
    crew->children = children;
    crew->workload = workload;
    return crew;
}

void file_crew_dismiss(struct file_crew *crew)
{
    for (struct file_hand *hand = crew->hands; hand; hand = hand->next) {
        if (hand->state == HAND_IDLE) {
            crew->n_idle--;
            hand->state = HAND_LEAVING;
        }
        if (hand->state == HAND_LEAVING) {
            hand_kill(hand);
        }
    }
}

void file_crew_free(struct file_crew *crew)
{
    if (!crew) {
        return;
    }
    while (crew->hands) {
        ASSERT(crew->hands->state != HAND_BUSY && crew->hands->pid > 0);
        kill(crew->hands->pid, SIGKILL);
        children_forget(crew->children, crew->hands->pid);
        hand_free(crew->hands);
    }
    free(crew);
}

unsigned file_crew_stuck(const struct file_crew *crew)
{
    return crew->n_stuck;
}

uint64_t file_crew_forked(const struct file_crew *crew)
{
    return crew->n_forked;
}

void file_crew_hurry(struct file_crew *crew, uint64_t max_ms)
{
    crew->max_ms = max_ms;
}

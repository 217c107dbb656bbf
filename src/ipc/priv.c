/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/priv.h"

#include "base/clock.h"
#include "base/metric.h"
#include "base/sock.h"
#include "ipc/seqpacket.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct priv_client {
    char *path;           /* owned */
    pthread_mutex_t lock; /* one call at a time on the connection: the server answers in order */
    int fd;               /* owned; FD_NONE while not connected */
};

/* One call: what goes out and what comes back. */
struct call {
    enum priv_op op;
    bool repeatable;
    const void *body;
    size_t len;
    const int *fds; /* borrowed: the caller's */
    size_t n_fds;
    struct priv_reply reply;
    int ret_fd; /* owned; FD_NONE when none came */
};

struct priv_client *priv_client_new(const char *socket_path)
{
    struct priv_client *c = xnew(struct priv_client);

    ASSERT(socket_path);
    c->path = xstrdup(socket_path);
    c->fd = FD_NONE;
    ASSERT(pthread_mutex_init(&c->lock, NULL) == 0);
    return c;
}

void priv_client_free(struct priv_client *c)
{
    if (c) {
        fd_close(c->fd);
        pthread_mutex_destroy(&c->lock);
        free(c->path);
        free(c);
    }
}

/* One packet there and one back. Any failure closes the connection: it may be out of step. */
static int priv_exchange(struct priv_client *c, struct call *call, bool *ret_sent, struct err *e)
{
    char packet[sizeof(struct priv_header) + PRIV_BODY_MAX];
    struct priv_header header = {
        .magic = PRIV_MAGIC, .version = PRIV_VERSION, .op = (uint16_t)call->op};
    cleanup_fds struct seqpacket_fds in = {.max = 1};
    uint64_t deadline_ns = clock_now_ns() + PRIV_CALL_TIMEOUT_NS;
    ssize_t n;
    int r;

    ASSERT(sizeof(header) + call->len <= sizeof(packet));
    memcpy(packet, &header, sizeof(header));
    memcpy(packet + sizeof(header), call->body, call->len);
    *ret_sent = false;
    if (c->fd < 0) {
        r = sock_connect_unix(c->path, SOCK_SEQPACKET, e);
        if (r < 0) {
            return err_wrap(e, r, "reaching the node manager");
        }
        c->fd = r;
    }
    r = seqpacket_send(c->fd, packet, sizeof(header) + call->len, call->fds, call->n_fds,
                       deadline_ns);
    if (r < 0) {
        c->fd = fd_close(c->fd);
        return err_set(e, r, "node_manager_lost", "the node manager is not there: %s",
                       strerror(-r));
    }
    *ret_sent = true;
    n = seqpacket_recv(c->fd, &call->reply, sizeof(call->reply), &in, deadline_ns);
    if (n != (ssize_t)sizeof(call->reply) || call->reply.magic != PRIV_MAGIC) {
        c->fd = fd_close(c->fd);
        return err_set(
            e, n >= 0 ? -EPROTO : (int)n, "node_manager_lost",
            "the node manager closed the connection instead of answering operation %d: %s",
            (int)call->op, n >= 0 ? "wrong answer" : strerror((int)-n));
    }
    call->ret_fd = in.n == 1 ? TAKE_FD(in.fd[0]) : FD_NONE;
    return 0;
}

static const char *const op_labels[PRIV_OP_COUNT_] = {
    [PRIV_OP_MACHINE_START] = "machine_start",
    [PRIV_OP_MACHINE_SEAL] = "machine_seal",
    [PRIV_OP_MACHINE_KILL] = "machine_kill",
    [PRIV_OP_MACHINE_NEXT] = "machine_next",
    [PRIV_OP_MACHINE_STATS] = "machine_stats",
    [PRIV_OP_MACHINE_COPY] = "machine_copy",
    [PRIV_OP_SUBVOL_CREATE] = "subvol_create",
    [PRIV_OP_SUBVOL_SNAPSHOT] = "subvol_snapshot",
    [PRIV_OP_SUBVOL_DELETE] = "subvol_delete",
    [PRIV_OP_MACHINE_SOCKET] = "machine_socket",
    [PRIV_OP_LEASE] = "lease",
};
static struct metric requests = {
    .name = "space_node_privileged_seconds",
    .help = "What the sandbox manager asked of the node manager, by operation and outcome.",
    .type = METRIC_HISTOGRAM,
    .labels = {{"operation", op_labels, ARRAY_SIZE(op_labels)}, METRIC_OUTCOMES},
    .quiet = true,
};

void priv_metrics_register(void)
{
    metric_register(&requests);
}

/* Returns the reply's code. A failure's sentence comes from the node manager as it is. */
static int priv_call_uncounted(struct priv_client *c, struct call *call, struct err *e)
{
    bool sent;
    int r;

    call->ret_fd = FD_NONE;
    pthread_mutex_lock(&c->lock);
    r = priv_exchange(c, call, &sent, e);
    if (r < 0 && (!sent || call->repeatable) && r != -ETIMEDOUT) {
        /* A connection from before a restart of the node manager breaks on first use. */
        r = priv_exchange(c, call, &sent, e);
    }
    pthread_mutex_unlock(&c->lock);
    if (r < 0) {
        return r;
    }
    if (call->reply.code < 0) {
        call->ret_fd = fd_close(call->ret_fd);
        call->reply.reason[sizeof(call->reply.reason) - 1] = '\0';
        call->reply.msg[sizeof(call->reply.msg) - 1] = '\0';
        return err_set(e, call->reply.code, call->reply.reason, "%s", call->reply.msg);
    }
    return call->reply.code;
}

static int priv_call(struct priv_client *c, struct call *call, struct err *e)
{
    uint64_t begun_ns = clock_now_ns();
    int r = priv_call_uncounted(c, call, e);

    metric_observe(&requests, METRIC_AT(call->op, metric_outcome(MIN(r, 0))),
                   clock_now_ns() - begun_ns);
    return r;
}

static int priv_id_fill(struct priv_machine_id *ret, const char *id, struct err *e)
{
    memset(ret, 0, sizeof(*ret));
    if (str_copy(ret->id, sizeof(ret->id), id) < 0) {
        return err_set(e, -EINVAL, "invalid_request", "an id has at most %u characters",
                       PRIV_ID_SIZE - 1);
    }
    return 0;
}

/* Calls about one machine by id that bring back no descriptor. */
static int priv_call_id(struct priv_client *c, enum priv_op op, const char *id, struct call *call,
                        struct err *e)
{
    struct priv_machine_id body;
    int r = priv_id_fill(&body, id, e);

    if (r < 0) {
        return r;
    }
    *call = (struct call){.op = op, .repeatable = true, .body = &body, .len = sizeof(body)};
    r = priv_call(c, call, e);
    call->body = NULL;
    call->ret_fd = fd_close(call->ret_fd);
    return r;
}

int priv_machine_start(struct priv_client *c, const struct priv_machine_start *req,
                       const int fds[PRIV_FD_COUNT_], struct priv_machine *ret, int *ret_pidfd,
                       struct err *e)
{
    struct priv_machine_start body = *req;
    int sent[PRIV_FD_COUNT_];
    struct call call = {
        .op = PRIV_OP_MACHINE_START, .body = &body, .len = sizeof(body), .fds = sent};
    int r;

    ASSERT(c && ret && ret_pidfd);
    body.fd_mask = 0;
    for (unsigned i = 0; i < PRIV_FD_COUNT_; i++) {
        if (fds[i] >= 0) {
            body.fd_mask |= 1u << i;
            sent[call.n_fds++] = fds[i];
        }
    }
    r = priv_call(c, &call, e);
    if (r < 0) {
        return r;
    }
    if (call.ret_fd < 0) {
        return err_set(e, -EPROTO, NULL, "the node manager's answer lacks the machine's pidfd");
    }
    *ret = call.reply.u.machine;
    *ret_pidfd = call.ret_fd;
    return 0;
}

int priv_machine_seal(struct priv_client *c, const char *id, struct err *e)
{
    struct call call;

    return priv_call_id(c, PRIV_OP_MACHINE_SEAL, id, &call, e);
}

int priv_machine_kill(struct priv_client *c, const char *id, struct err *e)
{
    struct call call;

    return priv_call_id(c, PRIV_OP_MACHINE_KILL, id, &call, e);
}

int priv_lease(struct priv_client *c, const struct priv_lease *lease, struct err *e)
{
    struct priv_lease body = *lease;
    struct call call = {
        .op = PRIV_OP_LEASE, .repeatable = true, .body = &body, .len = sizeof(body)};
    int r = priv_call(c, &call, e);

    call.ret_fd = fd_close(call.ret_fd);
    return r;
}

int priv_machine_next(struct priv_client *c, const char *after, struct priv_machine *ret,
                      int *ret_pidfd, struct err *e)
{
    struct priv_machine_id body;
    struct call call = {
        .op = PRIV_OP_MACHINE_NEXT, .repeatable = true, .body = &body, .len = sizeof(body)};
    int r = priv_id_fill(&body, after, e);

    ASSERT(c && ret && ret_pidfd);
    if (r < 0) {
        return r;
    }
    r = priv_call(c, &call, e);
    if (r > 0) {
        call.reply.u.machine.id[PRIV_ID_SIZE - 1] = '\0';
        *ret = call.reply.u.machine;
        *ret_pidfd = call.ret_fd;
    }
    return r;
}

int priv_machine_stats(struct priv_client *c, const char *id, struct priv_machine_stats *ret,
                       struct err *e)
{
    struct call call;
    int r = priv_call_id(c, PRIV_OP_MACHINE_STATS, id, &call, e);

    if (r == 0) {
        *ret = call.reply.u.stats;
    }
    return r;
}

int priv_machine_copy(struct priv_client *c, const struct priv_copy_request *req, struct err *e)
{
    const int fds[PRIV_COPY_FD_COUNT_] = {req->file_fd, req->pages_fd, req->control_fd};
    struct priv_machine_copy body = {.memory_mib = req->memory_mib,
                                     .flags = req->into ? PRIV_COPY_INTO : 0};
    struct call call = {.op = PRIV_OP_MACHINE_COPY,
                        .body = &body,
                        .len = sizeof(body),
                        .fds = fds,
                        .n_fds = ARRAY_SIZE(fds)};
    int r;

    ASSERT(c && req->file_fd >= 0 && req->pages_fd >= 0 && req->control_fd >= 0);
    if (str_copy(body.id, sizeof(body.id), req->id) < 0) {
        return err_set(e, -EINVAL, "invalid_request", "an id has at most %u characters",
                       PRIV_ID_SIZE - 1);
    }
    r = priv_call(c, &call, e);
    fd_close(call.ret_fd);
    return r;
}

int priv_machine_socket(struct priv_client *c, const char *id, enum priv_socket_kind kind,
                        int *ret_fd, struct err *e)
{
    struct priv_machine_socket body = {.kind = kind};
    struct call call = {
        .op = PRIV_OP_MACHINE_SOCKET, .repeatable = true, .body = &body, .len = sizeof(body)};
    int r;

    ASSERT(c && ret_fd);
    if (str_copy(body.id, sizeof(body.id), id) < 0) {
        return err_set(e, -EINVAL, "invalid_request", "an id has at most %u characters",
                       PRIV_ID_SIZE - 1);
    }
    r = priv_call(c, &call, e);
    if (r < 0) {
        return r;
    }
    if (call.ret_fd < 0) {
        return err_set(e, -EPROTO, NULL, "the node manager's answer lacks the socket");
    }
    *ret_fd = call.ret_fd;
    return 0;
}

/* Subvolume calls carry a struct and bring back only a code. */
static int priv_call_plain(struct priv_client *c, struct call call, struct err *e)
{
    int r = priv_call(c, &call, e);

    fd_close(call.ret_fd);
    return r;
}

int priv_subvol_create(struct priv_client *c, const struct priv_subvol *what, struct err *e)
{
    return priv_call_plain(
        c, (struct call){.op = PRIV_OP_SUBVOL_CREATE, .body = what, .len = sizeof(*what)}, e);
}

int priv_subvol_snapshot(struct priv_client *c, const struct priv_subvol_snapshot *req,
                         struct err *e)
{
    return priv_call_plain(
        c, (struct call){.op = PRIV_OP_SUBVOL_SNAPSHOT, .body = req, .len = sizeof(*req)}, e);
}

int priv_subvol_delete(struct priv_client *c, const struct priv_subvol *what, struct err *e)
{
    return priv_call_plain(
        c,
        (struct call){
            .op = PRIV_OP_SUBVOL_DELETE, .repeatable = true, .body = what, .len = sizeof(*what)},
        e);
}

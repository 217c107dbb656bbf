/* SPDX-License-Identifier: Apache-2.0 */
#include "privileged/server.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sock.h"
#include "ipc/seqpacket.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* A client that does not take its answer is given up: it waits for answers by construction. */
#define REPLY_TIMEOUT_MS 1000
/* One byte more than any request, so that a longer one is seen to be longer. */
#define PACKET_MAX (sizeof(struct priv_header) + PRIV_BODY_MAX + 1u)

enum {
    POLL_LISTEN,
    POLL_SIGNAL,
    POLL_CLIENTS
};

static void server_accept(const struct server *server, struct pollfd *slots)
{
    cleanup_close int fd = FD_NONE;
    struct peer peer;
    int r;

    if (seqpacket_accept(server->listen_fd, &fd) < 0) {
        return;
    }
    r = sock_peer(fd, &peer);
    if (r < 0) {
        log_warn(NULL, "refusing a connection of nobody knows whom: %s", strerror(-r));
        return;
    }
    if (peer.uid == 0 && server->peer_uid != 0) {
        return; /* `space up` and `space status` look whether we accept; root has nothing to ask here */
    }
    if (peer.uid != server->peer_uid) {
        log_warn(NULL, "refusing a connection of user %u (process %d)", peer.uid, peer.pid);
        return;
    }
    for (size_t i = 0; i < SERVER_CLIENTS_MAX; i++) {
        if (slots[i].fd < 0) {
            slots[i] = (struct pollfd){.fd = TAKE_FD(fd), .events = POLLIN};
            return;
        }
    }
    log_warn(NULL, "refusing a connection: %u are open", SERVER_CLIENTS_MAX);
}

/* 0: go on with this connection; else it is to be closed. */
static int server_serve(const struct server *server, int fd)
{
    cleanup_fds struct seqpacket_fds in = {.max = PRIV_FD_COUNT_};
    cleanup_close int answer_fd = FD_NONE;
    const struct priv_op_def *op;
    struct priv_answer answer;
    char packet[PACKET_MAX];
    ssize_t n = seqpacket_recv(fd, packet, sizeof(packet), &in, /* deadline */ 0);
    int r;

    if (n == -EAGAIN || n == -ECONNRESET) {
        return (int)(n == -EAGAIN ? 0 : n);
    }
    op = n < 0 ? NULL : priv_check(packet, (size_t)n, in.n);
    if (!op) {
        log_error(NULL, "closing a connection: malformed request of %zd bytes with %zu descriptors",
                  n, in.n);
        return -EPROTO;
    }
    priv_dispatch(server->ctx, op, packet, in.fd, &answer);
    answer_fd = answer.fd;
    if (answer.reply.code < 0) {
        log_debug(NULL, "%s: %s", op->name, answer.reply.msg);
    }
    r = seqpacket_send(fd, &answer.reply, sizeof(answer.reply), &answer_fd, answer_fd >= 0 ? 1 : 0,
                       deadline_in_ms(REPLY_TIMEOUT_MS));
    return r;
}

/*
 * VMMs that we started are our children while we live: their end is only told, the rest is asked of
 * us.
 */
static void server_reap(struct priv_ctx *ctx)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (copies_reaped(&ctx->copies, pid)) {
            log_debug(NULL, "a copy has ended");
        } else if (WIFSIGNALED(status)) {
            log_info(NULL, "VMM process %d was ended by signal %d", (int)pid, WTERMSIG(status));
        } else {
            log_info(NULL, "VMM process %d ended with status %d", (int)pid, WEXITSTATUS(status));
        }
    }
}

/* True when it is time to stop. */
static bool server_signal(const struct server *server)
{
    struct signalfd_siginfo info;

    if (read(server->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info)) {
        return false;
    }
    if (info.ssi_signo != SIGCHLD) {
        return true;
    }
    server_reap(server->ctx);
    return false;
}

int server_run(const struct server *server, struct err *e)
{
    struct pollfd polls[POLL_CLIENTS + SERVER_CLIENTS_MAX];
    struct pollfd *clients = polls + POLL_CLIENTS;
    bool stop = false;
    int r = 0;

    ASSERT(server && server->ctx);
    polls[POLL_LISTEN] = (struct pollfd){.fd = server->listen_fd, .events = POLLIN};
    polls[POLL_SIGNAL] = (struct pollfd){.fd = server->signal_fd, .events = POLLIN};
    for (size_t i = 0; i < SERVER_CLIENTS_MAX; i++) {
        clients[i] = (struct pollfd){.fd = FD_NONE};
    }
    server_reap(server->ctx); /* children that ended before SIGCHLD was watched */
    while (!stop) {
        if (poll(polls, ARRAY_SIZE(polls), fence_look(server->ctx)) < 0 && errno != EINTR) {
            r = err_wrap(e, -errno, "waiting for requests");
            break;
        }
        for (size_t i = 0; i < SERVER_CLIENTS_MAX; i++) {
            if (clients[i].fd >= 0 && clients[i].revents &&
                server_serve(server, clients[i].fd) < 0) {
                clients[i].fd = fd_close(clients[i].fd);
            }
        }
        if (polls[POLL_LISTEN].revents) {
            server_accept(server, clients);
        }
        if (polls[POLL_SIGNAL].revents) {
            stop = server_signal(server);
        }
    }
    for (size_t i = 0; i < SERVER_CLIENTS_MAX; i++) {
        clients[i].fd = fd_close(clients[i].fd);
    }
    return r;
}

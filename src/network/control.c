/* SPDX-License-Identifier: Apache-2.0 */
#include "network/control.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/log.h"
#include "base/sock.h"
#include "ipc/netgate.h"
#include "ipc/seqpacket.h"
#include "network/figures.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPLY_TIMEOUT_MS 2000
#define LOG_LIMIT_MAX 500
#define FDS_ATTACH 2u

/* One request. Handlers set answer, or return a negative errno with its sentence. */
struct command {
    struct gate *gate;
    json_t *body;
    const char *sandbox; /* borrowed: from body; checked */
    struct seqpacket_fds *fds;
    json_t *answer; /* owned */
};

static int read_policy(const struct command *cmd, struct netpolicy **ret, struct err *e)
{
    return netpolicy_stack_from_json(json_object_get(cmd->body, "policy"), ret, e);
}

/* The two sockets must be what they are said to be: a loop that blocks on another kind would hold up all. */
static bool is_socket(int fd, int type, bool listens)
{
    int got_type = 0;
    int got_listens = 0;
    int domain = 0;
    socklen_t len = sizeof(int);

    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &got_type, &len) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &got_listens, &len) == 0 && got_type == type &&
           domain == AF_INET && (got_listens == 1) == listens;
}

static int read_ids(const struct command *cmd, struct gate_attach *ret)
{
    struct intercept_owner *owner = &ret->owner;

    if (str_copy(owner->sandbox, sizeof(owner->sandbox), cmd->sandbox) < 0 ||
        str_copy(owner->project, sizeof(owner->project),
                 json_get_string(cmd->body, "project", "")) < 0 ||
        str_copy(owner->organisation, sizeof(owner->organisation),
                 json_get_string(cmd->body, "organisation", "")) < 0) {
        return -EINVAL;
    }
    return str_copy(ret->machine, sizeof(ret->machine), json_get_string(cmd->body, "machine", ""));
}

static int attach(struct command *cmd, struct err *e)
{
    CLEANUP(netpolicy_unrefp) const struct netpolicy *policy = NULL;
    struct netpolicy *made = NULL;
    struct gate_attach attach = {0};
    int r;

    if (cmd->fds->n != FDS_ATTACH || !is_socket(cmd->fds->fd[0], SOCK_STREAM, true) ||
        !is_socket(cmd->fds->fd[1], SOCK_DGRAM, false)) {
        return err_set(e, -EINVAL, "bad_descriptor",
                       "attach takes a listener and a datagram socket");
    }
    if (read_ids(cmd, &attach) < 0) {
        return err_set(e, -EINVAL, "invalid_field", "an id is too long");
    }
    r = read_policy(cmd, &made, e);
    if (r < 0) {
        return r;
    }
    attach.policy = policy = made;
    attach.fds[0] = TAKE_FD(cmd->fds->fd[0]);
    attach.fds[1] = TAKE_FD(cmd->fds->fd[1]);
    cmd->fds->n = 0;
    return gate_attach_take(cmd->gate, &attach, e);
}

static int set_policy(struct command *cmd, struct err *e)
{
    CLEANUP(netpolicy_unrefp) const struct netpolicy *policy = NULL;
    struct netpolicy *made = NULL;
    int r = read_policy(cmd, &made, e);

    if (r < 0) {
        return r;
    }
    policy = made;
    return gate_set_policy(cmd->gate, cmd->sandbox, policy, e);
}

static int detach(struct command *cmd, struct err *e)
{
    (void)e;
    gate_detach(cmd->gate, cmd->sandbox, json_get_string(cmd->body, "machine", ""));
    return 0;
}

static int keep(struct command *cmd, struct err *e)
{
    json_t *ids = json_object_get(cmd->body, "sandboxes");

    if (!json_is_array(ids)) {
        return err_set(e, -EINVAL, "invalid_field", "'sandboxes' must be an array of ids");
    }
    gate_keep(cmd->gate, ids);
    return 0;
}

static int answer_with(struct command *cmd, json_t *answer_take, struct err *e)
{
    cmd->answer = answer_take;
    return answer_take ? 0
                       : err_set(e, -ENOENT, "not_attached",
                                 "the network gateway has no sandbox '%s'", cmd->sandbox);
}

static int status(struct command *cmd, struct err *e)
{
    return answer_with(cmd, gate_status(cmd->gate, cmd->sandbox), e);
}

static int read_log(struct command *cmd, struct err *e)
{
    int64_t after = json_get_int(cmd->body, "after", 0);
    int64_t limit = json_get_int(cmd->body, "limit", LOG_LIMIT_MAX);

    return answer_with(cmd,
                       gate_log(cmd->gate, cmd->sandbox, (uint64_t)MAX(after, (int64_t)0),
                                (size_t)MIN(MAX(limit, (int64_t)1), (int64_t)LOG_LIMIT_MAX)),
                       e);
}

static int propose(struct command *cmd, struct err *e)
{
    json_t *rules = gate_propose(cmd->gate, cmd->sandbox);

    return answer_with(cmd, rules ? json_pack("{s:o}", "rules", rules) : NULL, e);
}

static int answer_ask(struct command *cmd, struct err *e)
{
    int64_t remember_s = json_get_int(cmd->body, "remember_s", NETGATE_REMEMBER_DEFAULT_S);
    const struct island_answer answer = {
        .number = (uint64_t)json_get_int(cmd->body, "ask", 0),
        .allow = json_get_bool(cmd->body, "allow", false),
        .remember_s = (uint64_t)MIN(MAX(remember_s, (int64_t)0), (int64_t)NETGATE_REMEMBER_MAX_S),
        .token = json_get_string(cmd->body, "token", NULL),
    };

    return gate_answer(cmd->gate, cmd->sandbox, &answer, e);
}

static int totals(struct command *cmd, struct err *e)
{
    return answer_with(cmd, gate_totals(cmd->gate), e);
}

static int metrics(struct command *cmd, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(NETGATE_PACKET_MAX / 2);
    int r = figures_print(cmd->gate, &text);

    cmd->answer = r < 0 ? NULL : json_pack("{s:s}", "text", buf_str(&text));
    return r < 0 ? err_wrap(e, r, "printing the metrics") : 0;
}

static const struct {
    const char *op;
    bool needs_sandbox;
    int (*run)(struct command *cmd, struct err *e);
} commands[] = {
    {"attach", true, attach},    {"policy", true, set_policy}, {"detach", true, detach},
    {"keep", false, keep},       {"status", true, status},     {"log", true, read_log},
    {"propose", true, propose},  {"answer", true, answer_ask}, {"totals", false, totals},
    {"metrics", false, metrics},
};

static int run_command(struct command *cmd, struct err *e)
{
    const char *op = json_get_string(cmd->body, "op", "");

    cmd->sandbox = json_get_string(cmd->body, "sandbox", "");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        if (!str_eq(commands[i].op, op)) {
            continue;
        }
        if (commands[i].needs_sandbox && !id_valid(ID_SANDBOX, cmd->sandbox)) {
            return err_set(e, -EINVAL, "invalid_field", "'sandbox' is not a sandbox id");
        }
        return commands[i].run(cmd, e);
    }
    return err_set(e, -EINVAL, "invalid_request", "there is no operation '%.40s'", op);
}

static json_t *error_answer(const struct err *e)
{
    json_t *answer = json_error_object(e);

    json_object_set_new(json_object_get(answer, "error"), "errno", json_integer(-e->code));
    return answer;
}

/* 0: go on; else the connection is to be closed. */
static int serve(const struct control *control, int fd, char *packet)
{
    cleanup_fds struct seqpacket_fds in = {.max = FDS_ATTACH};
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *answer = NULL;
    cleanup_buf struct buf text = BUF_INIT(NETGATE_PACKET_MAX);
    struct command cmd = {.gate = control->gate, .fds = &in};
    struct log_request request = {0};
    struct err e = {0};
    ssize_t n = seqpacket_recv(fd, packet, NETGATE_PACKET_MAX, &in, /* deadline */ 0);

    if (n < 0) {
        return n == -EAGAIN ? 0 : (int)n;
    }
    if (json_parse_object(packet, (size_t)n, &body, &e) < 0) {
        log_error(NULL, "closing a control connection: %s", e.msg);
        return -EPROTO;
    }
    cmd.body = body;
    log_request_identify(&request, json_get_string(body, "request", NULL));
    log_request_set(&request); /* or none: one thread serves all */
    log_debug(&(struct log_ctx){.sandbox = json_get_string(body, "sandbox", NULL)}, "asked to %s",
              json_get_string(body, "op", "do nothing"));
    if (run_command(&cmd, &e) < 0) {
        log_debug(NULL, "%s: %s", json_get_string(body, "op", ""), e.msg);
        json_decref(cmd.answer);
        cmd.answer = error_answer(&e);
    }
    answer = cmd.answer ? cmd.answer : json_object();
    if (json_write(answer, &text) < 0) {
        return -E2BIG;
    }
    return seqpacket_send(fd, text.data, text.len, NULL, 0, deadline_in_ms(REPLY_TIMEOUT_MS));
}

static void accept_client(const struct control *control, struct pollfd *clients)
{
    cleanup_close int fd = FD_NONE;
    struct peer peer;

    if (seqpacket_accept(control->listen_fd, &fd) < 0) {
        return;
    }
    if (sock_peer(fd, &peer) < 0 || (peer.uid != control->peer_uid && peer.uid != 0)) {
        log_warn(NULL, "refusing a connection of user %u (process %d)", peer.uid, peer.pid);
        return;
    }
    for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        if (clients[i].fd < 0) {
            clients[i] = (struct pollfd){.fd = TAKE_FD(fd), .events = POLLIN};
            return;
        }
    }
    log_warn(NULL, "refusing a connection: %u are open", CONTROL_CLIENTS_MAX);
}

int control_run(const struct control *control, struct err *e)
{
    struct pollfd polls[2 + CONTROL_CLIENTS_MAX];
    struct pollfd *clients = polls + 2;
    char *packet = xmalloc(NETGATE_PACKET_MAX);
    int r = 0;

    polls[0] = (struct pollfd){.fd = control->listen_fd, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = control->signal_fd, .events = POLLIN};
    for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        clients[i] = (struct pollfd){.fd = FD_NONE};
    }
    while (!polls[1].revents) {
        if (poll(polls, ARRAY_SIZE(polls), -1) < 0 && errno != EINTR) {
            r = err_wrap(e, -errno, "waiting for requests");
            break;
        }
        for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
            if (clients[i].fd >= 0 && clients[i].revents &&
                serve(control, clients[i].fd, packet) < 0) {
                clients[i].fd = fd_close(clients[i].fd);
            }
        }
        if (polls[0].revents) {
            accept_client(control, clients);
        }
    }
    for (size_t i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        fd_close(clients[i].fd);
    }
    free(packet);
    return r;
}

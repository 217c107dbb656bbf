/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection with SSH that a credential wants (ssh-internal.h has the picture). Its thread opens the connection to the host, starts the
 * process that both ends of it are in, and from then on is that process's agent: it has logins signed, takes down what channels
 * came to, and ends the process when the connection is to end.
 */
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/proc.h"
#include "base/sock.h"
#include "ipc/seqpacket.h"
#include "network/intercept-internal.h"
#include "network/ssh-end.h"
#include "wire/ssh-agent.h"

#define PACKET_MS 10000u
/* One login needs two: which keys are there, and the signature. */
#define ASKS_MAX 8u

struct ssh_conn {
    struct intercept_conn *c; /* borrowed */
    json_t *open;             /* owned: what the credential manager has said */
    struct buf key;           /* owned: the public half */
    struct buf asked;         /* owned: of the agent protocol, not yet whole */
    int control_fd;           /* owned */
    int agent_fd;             /* owned; FD_NONE: there is nothing more to ask */
    struct proc proc;
    unsigned n_asks;
};

static struct credential_request request_of(const struct intercept_conn *c)
{
    return (struct credential_request){.organisation = c->target.owner.organisation,
                                       .project = c->target.owner.project,
                                       .sandbox = c->target.owner.sandbox,
                                       .host = c->target.name,
                                       .port = c->target.port,
                                       .method = "SSH",
                                       .path = "/"};
}

/* ---- begin ---- */

static void set_refused(struct ssh_conn *s, const struct err *why)
{
    json_object_set_new(s->open, "refused",
                        json_pack("{s:s, s:s}", "code", err_reason(why), "message", why->msg));
}

static bool is_refused(const struct ssh_conn *s)
{
    return json_object_get(s->open, "refused") != NULL;
}

/* What there is to know of the credential. */
static int ask_manager(struct ssh_conn *s, struct err *e)
{
    struct intercept_conn *c = s->c;
    const struct credential_request q = request_of(c);
    const char *public;
    json_t *credential;
    int r = credential_client_ssh_open(c->in->credentials, &q, &s->open, e);

    if (r < 0) {
        return r;
    }
    credential = json_object_get(s->open, "credential");
    public = json_get_string(s->open, "public", "");
    if (!is_refused(s) && (base64_decode(public, strlen(public), &s->key) < 0 || s->key.len == 0)) {
        return err_set(e, -EPROTO, NULL, "the credential manager gave no public key");
    }
    snprintf(c->credential, sizeof(c->credential), "%s", json_get_string(credential, "name", ""));
    intercept_ssh_bind(c, json_get_string(credential, "id", ""),
                       json_get_int(credential, "rotated_at_ms", 0));
    json_object_set_new(s->open, "host", json_string(c->target.name));
    json_object_set_new(s->open, "port", json_integer(c->target.port));
    return 0;
}

static int start_process(struct ssh_conn *s, int *ret_agent, struct err *e)
{
    const char *const argv[] = {s->c->in->ssh_end, NULL};
    cleanup_close int theirs = FD_NONE;
    int control[2];
    int agent[2];
    int r;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0) {
        return err_wrap(e, -errno, "making a socket");
    }
    s->control_fd = control[0];
    theirs = control[1];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, agent) < 0) {
        return err_wrap(e, -errno, "making a socket");
    }
    s->agent_fd = agent[0];
    *ret_agent = agent[1];
    r = proc_spawn(&(struct proc_spec){.argv = argv,
                                       .stdin_fd = theirs,
                                       .stdout_fd = FD_NONE,
                                       .stderr_fd = FD_NONE,
                                       .new_session = true},
                   &s->proc, e);
    return r;
}

static int hand_over(struct ssh_conn *s, int agent_fd, struct err *e)
{
    struct intercept_conn *c = s->c;
    const int fds[] = {c->guest.fd, agent_fd, c->connected ? c->server.fd : FD_NONE};
    char *text = json_dumps(s->open, JSON_COMPACT);
    int r = text && strlen(text) < SSH_END_PACKET_MAX
                ? seqpacket_send(s->control_fd, text, strlen(text), fds, c->connected ? 3 : 2,
                                 deadline_in_ms(PACKET_MS))
                : -E2BIG;

    if (text) {
        explicit_bzero(text, strlen(text));
    }
    free(text);
    return r < 0 ? err_wrap(e, r, "starting '%s'", c->in->ssh_end) : 0;
}

static int begin(struct ssh_conn *s, struct err *e)
{
    cleanup_close int agent_fd = FD_NONE;
    struct err why = {0};
    int r = ask_manager(s, e);

    if (r < 0) {
        return r;
    }
    if (!is_refused(s) && intercept_connect_server(s->c, IO_ALPN_HTTP1, &why) < 0) {
        if (why.code == -ECANCELED) {
            return err_set(e, -ECANCELED, NULL, "it was ended");
        }
        set_refused(s, &why);
    }
    r = start_process(s, &agent_fd, e);
    return r < 0 ? r : hand_over(s, agent_fd, e);
}

/* ---- the agent ---- */

/* The credential manager reads what it signs; here it is only passed on. */
static int answer(struct ssh_conn *s, const struct ssh_agent_request *ask, struct buf *ret)
{
    const struct credential_request q = request_of(s->c);
    const struct ssh_view key = {(const uint8_t *)s->key.data, s->key.len};
    cleanup_buf struct buf signature = BUF_INIT(SSH_AGENT_MAX);
    const struct log_ctx ctx = {.sandbox = s->c->target.owner.sandbox};
    struct err e = {0};

    if (ask->kind == SSH_AGENT_LIST && !is_refused(s)) {
        return ssh_agent_print_list(key, "space", ret);
    }
    if (ask->kind != SSH_AGENT_SIGN || is_refused(s) || ask->key.len != key.len ||
        memcmp(ask->key.p, key.p, key.len) != 0) {
        return ssh_agent_print_failure(ret);
    }
    if (credential_client_ssh_sign(s->c->in->credentials, &q, ask->data.p, ask->data.len,
                                   &signature, &e) < 0) {
        log_info(&ctx, "a login to %s is not signed: %s", s->c->target.name, e.msg);
        /* Before the agent's answer, which is what makes it look. */
        if (seqpacket_send(s->control_fd, e.msg, strlen(e.msg), NULL, 0,
                           deadline_in_ms(PACKET_MS)) < 0) {
            log_debug(&ctx, "the guest is not told why");
        }
        return ssh_agent_print_failure(ret);
    }
    return ssh_agent_print_signature(
        (struct ssh_view){(const uint8_t *)signature.data, signature.len}, ret);
}

/* -EBADMSG and others: there is no talking to it any more. */
static int on_agent(struct ssh_conn *s)
{
    cleanup_buf struct buf out = BUF_INIT(2 * SSH_AGENT_MAX);
    struct ssh_agent_request ask;
    char chunk[4096];
    size_t used = 0;
    ssize_t n = recv(s->agent_fd, chunk, sizeof(chunk), MSG_DONTWAIT);
    int r = n > 0 ? buf_add(&s->asked, chunk, (size_t)n) : -ECONNRESET;

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    r = r < 0 ? r : ssh_agent_parse(s->asked.data, s->asked.len, &ask, &used);
    if (r < 0) {
        return r == -EAGAIN ? 0 : r;
    }
    r = ++s->n_asks > ASKS_MAX ? -EBADMSG : answer(s, &ask, &out);
    buf_consume(&s->asked, used);
    return r < 0 ? r : sock_send_all(s->agent_fd, out.data, out.len, deadline_in_ms(PACKET_MS));
}

/* ---- what channels came to ---- */

static void note(struct intercept_conn *c, const char *kind, int status, const char *refused)
{
    const struct netpolicy_query query = {
        .name = c->target.name, .addr = c->target.addr, .port = c->target.port};
    struct intercept_note n = {.method = "SSH",
                               .path = kind,
                               .verdict = netpolicy_judge(c->policy, &query),
                               .status = MAX(status, 0),
                               .credential = c->credential[0] ? c->credential : NULL,
                               .refused = refused[0] ? refused : NULL};

    if (c->target.note) {
        c->target.note(c->target.done_arg, &n);
    }
}

static void take_report(struct ssh_conn *s, json_t *report)
{
    struct intercept_conn *c = s->c;
    const char *kind = json_get_string(report, "kind", "");
    const char *refused = json_get_string(report, "refused", "");
    int status = (int)json_get_int(report, "status", 0);

    c->result.bytes_up = (uint64_t)json_get_int(report, "up", 0);
    c->result.bytes_down = (uint64_t)json_get_int(report, "down", 0);
    if (refused[0]) {
        intercept_refuse(c, refused);
    }
    if (!kind[0]) {
        return; /* the last one */
    }
    c->result.status = MAX(status, 0);
    c->result.requests += refused[0] ? 0 : 1;
    note(c, kind, status, refused);
}

static int on_control(struct ssh_conn *s)
{
    char packet[SSH_END_REPORT_MAX];
    cleanup_json json_t *report = NULL;
    cleanup_fds struct seqpacket_fds fds = {.max = 0};
    ssize_t n = seqpacket_recv(s->control_fd, packet, sizeof(packet), &fds, 0);

    if (n == -EAGAIN) {
        return 0;
    }
    if (n < 0 || json_parse_untrusted(packet, (size_t)n, &report, NULL) < 0) {
        return -ECONNRESET;
    }
    take_report(s, report);
    return 0;
}

/* ---- life ---- */

/* When the credential ends, so does what it has logged in. */
static uint64_t deadline_of(const struct ssh_conn *s)
{
    int64_t at_ms = json_get_int(json_object_get(s->open, "credential"), "expires_at_ms", 0);
    int64_t now_ms = (int64_t)clock_wall_ms();

    return at_ms == 0 ? DEADLINE_NEVER : deadline_in_ms((uint64_t)MAX(at_ms - now_ms, (int64_t)0));
}

static void serve(struct ssh_conn *s)
{
    uint64_t deadline_ns = deadline_of(s);
    int r = 0;

    while (r == 0 && !deadline_passed(deadline_ns)) {
        struct pollfd p[] = {{s->control_fd, POLLIN, 0},
                             {s->c->stop_fd, POLLIN, 0},
                             {s->agent_fd, POLLIN, 0}}; /* a negative one is not looked at */

        if (poll(p, ARRAY_SIZE(p), deadline_ns == DEADLINE_NEVER ? -1 : 1000) < 0 &&
            errno != EINTR) {
            return;
        }
        if (p[1].revents) {
            intercept_refuse(s->c, "ended");
            return;
        }
        if (p[2].revents && on_agent(s) < 0) {
            s->agent_fd = fd_close(s->agent_fd);
        }
        r = p[0].revents ? on_control(s) : 0;
    }
    if (r == 0) {
        intercept_refuse(s->c, "credential_expired");
    }
}

static void end(struct ssh_conn *s)
{
    int status;

    if (s->proc.pid > 0) {
        proc_signal(&s->proc, SIGKILL);
        IGNORE_RESULT(proc_wait(&s->proc, DEADLINE_NEVER, &status)); /* it is dead */
        fd_close(s->proc.pidfd);
    }
    fd_close(s->control_fd);
    fd_close(s->agent_fd);
    buf_done(&s->key);
    buf_done(&s->asked);
    json_decref(s->open);
}

void intercept_ssh_run(struct intercept_conn *c)
{
    const struct log_ctx ctx = {.sandbox = c->target.owner.sandbox};
    struct ssh_conn s = {.c = c,
                         .key = BUF_INIT(SSH_AGENT_MAX),
                         .asked = BUF_INIT(2 * SSH_AGENT_MAX),
                         .control_fd = FD_NONE,
                         .agent_fd = FD_NONE,
                         .proc = {.pidfd = FD_NONE}};
    struct err e = {0};

    if (begin(&s, &e) < 0) {
        log_warn(&ctx, "a connection with SSH to %s cannot be looked into: %s", c->target.name,
                 e.msg);
        intercept_refuse(c, "ssh_failed");
    } else {
        serve(&s);
    }
    end(&s);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space-ssh-end, started by the network gateway only (ssh-internal.h says what it is). Its stages:
 *
 *     1. the packet on standard input: what it is for, three or four descriptors
 *     2. limits, system calls          not any more: files, sockets, processes, more memory than a connection needs
 *     3. serving                       bytes of the guest and of the host are read from here on
 */
#include <errno.h>
#include <poll.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "credential/secret.h"
#include "ipc/seqpacket.h"
#include "network/ssh-end.h"
#include "network/ssh-internal.h"

/* Windows of all channels both ways, and what the libraries want. */
#define MEMORY_MAX (512ull * 1024 * 1024)
#define FILES_MAX 16u
#define PACKET_WAIT_MS 10000u
/* Sanitizers map terabytes, and look at themselves at the end. */
#ifdef __has_feature
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

/* All that is needed from stage 3 on. */
static const int allowed[] = {
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev), /* bytes */
    SCMP_SYS(recvfrom),
    SCMP_SYS(sendto),
    SCMP_SYS(recvmsg),
    SCMP_SYS(sendmsg), /* bytes */
    SCMP_SYS(poll),
    SCMP_SYS(ppoll),
    SCMP_SYS(ioctl),
    SCMP_SYS(fcntl), /* waiting */
    SCMP_SYS(getsockopt),
    SCMP_SYS(setsockopt),
    SCMP_SYS(shutdown), /* sockets */
    SCMP_SYS(getsockname),
    SCMP_SYS(getpeername),
    SCMP_SYS(close),
    SCMP_SYS(dup), /* sockets */
    SCMP_SYS(brk),
    SCMP_SYS(mmap),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap), /* memory */
    SCMP_SYS(mprotect),
    SCMP_SYS(madvise),
    SCMP_SYS(futex),
    SCMP_SYS(getrandom), /* memory */
    SCMP_SYS(clock_gettime),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(time), /* time */
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(nanosleep),
    SCMP_SYS(alarm), /* time */
    SCMP_SYS(getpid),
    SCMP_SYS(gettid),
    SCMP_SYS(getuid),
    SCMP_SYS(geteuid), /* who */
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn), /* signals */
    SCMP_SYS(restart_syscall),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group), /* ends */
};

static int confine_calls(struct err *e)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    int r = filter ? 0 : -ENOMEM;

    for (size_t i = 0; i < ARRAY_SIZE(allowed) && r == 0; i++) {
        r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed[i], 0);
    }
    r = r < 0 ? r : seccomp_load(filter);
    seccomp_release(filter);
    return r < 0 ? err_wrap(e, r, "limiting system calls") : 0;
}

/* Nobody would end it any more when the credential or the policy goes. */
static int follow_gateway(struct err *e)
{
    struct pollfd control = {.fd = STDIN_FILENO, .events = POLLIN};

    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0) {
        return err_wrap(e, -errno, "binding to the network gateway");
    }
    return poll(&control, 1, 0) >= 0 && control.revents & POLLHUP
               ? err_set(e, -EPIPE, NULL, "the network gateway is gone")
               : 0;
}

static int confine(struct err *e)
{
    const struct rlimit files = {FILES_MAX, FILES_MAX};
    const struct rlimit memory = {MEMORY_MAX, MEMORY_MAX};
    const struct rlimit none = {0, 0};

    /* A unit may forbid to set limits; its own hold then. */
    IGNORE_RESULT(setrlimit(RLIMIT_NOFILE, &files));
    IGNORE_RESULT(setrlimit(RLIMIT_CORE, &none));
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) {
        return err_wrap(e, -errno, "giving up privileges");
    }
    if (SANITIZED) {
        return 0;
    }
    IGNORE_RESULT(setrlimit(RLIMIT_AS, &memory));
    return confine_calls(e);
}

/* ---- what it is for ---- */

static int take_list(json_t *list, int (*add)(struct ssh_rule *rule, const char *text),
                     struct ssh_rule *rule)
{
    int r = 0;

    for (size_t i = 0; i < json_array_size(list) && r == 0; i++) {
        const char *text = json_string_value(json_array_get(list, i));

        r = text ? add(rule, text) : -EINVAL;
    }
    return r;
}

static int take_words(struct relay *r, json_t *json)
{
    json_t *inject = json_object_get(json_object_get(json, "credential"), "inject");
    json_t *refused = json_object_get(json, "refused");
    int code = take_list(json_object_get(inject, "host_keys"), ssh_rule_add_key, &r->rule);

    code = code < 0
               ? code
               : take_list(json_object_get(inject, "commands"), ssh_rule_add_command, &r->rule);
    r->port = (uint16_t)json_get_int(json, "port", 0);
    r->host_key = xstrdup(json_get_string(json, "host_key", ""));
    if (code < 0 ||
        str_copy(r->host_name, sizeof(r->host_name), json_get_string(json, "host", "")) < 0 ||
        str_copy(r->user, sizeof(r->user), json_get_string(inject, "user", "")) < 0 ||
        str_copy(r->credential, sizeof(r->credential),
                 json_get_string(json_object_get(json, "credential"), "name", "")) < 0) {
        return -EPROTO;
    }
    if (refused) {
        relay_refuse(r, json_get_string(refused, "code", "refused"), "%.400s",
                     json_get_string(refused, "message", "refused"));
    } else if (r->host_fd < 0 || r->rule.n_keys == 0 || !r->user[0]) {
        return -EPROTO;
    }
    return 0;
}

static int take_packet(struct relay *r, struct err *e)
{
    cleanup_fds struct seqpacket_fds fds = {.max = SSH_END_FDS_MAX};
    cleanup_json json_t *json = NULL;
    char *packet = xmalloc(SSH_END_PACKET_MAX);
    ssize_t n = seqpacket_recv(STDIN_FILENO, packet, SSH_END_PACKET_MAX, &fds,
                               deadline_in_ms(PACKET_WAIT_MS));
    int code = n < 0 ? (int)n : json_parse_object(packet, (size_t)n, &json, e);

    explicit_bzero(packet, SSH_END_PACKET_MAX);
    free(packet);
    if (code == 0 && fds.n < 2) {
        code = -EPROTO;
    }
    if (code < 0) {
        return err_wrap(e, code, "reading what this is for");
    }
    r->guest_fd = TAKE_FD(fds.fd[0]);
    r->agent_fd = TAKE_FD(fds.fd[1]);
    r->host_fd = fds.n > 2 ? TAKE_FD(fds.fd[2]) : FD_NONE;
    code = take_words(r, json);
    return code < 0 ? err_wrap(e, code, "reading what this is for") : 0;
}

/* ---- serving ---- */

void relay_report(struct relay *r, const struct relay_pair *pair)
{
    cleanup_json json_t *json =
        json_pack("{s:s, s:i, s:s, s:I, s:I}", "kind", pair ? pair->kind : "", "status",
                  pair ? pair->status : -1, "refused", pair ? pair->refused : r->refusal_code, "up",
                  (json_int_t)r->bytes_up, "down", (json_int_t)r->bytes_down);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;

    if (text && seqpacket_send(STDIN_FILENO, text, strlen(text), NULL, 0,
                               deadline_in_ms(PACKET_WAIT_MS)) < 0) {
        log_debug(NULL, "nobody hears what a channel came to, ignoring");
    }
    free(text);
}

bool relay_not_signed(char *ret, size_t size)
{
    cleanup_fds struct seqpacket_fds fds = {.max = 0};
    ssize_t n = seqpacket_recv(STDIN_FILENO, ret, size - 1, &fds, 0);

    ret[MAX(n, (ssize_t)0)] = '\0';
    return n > 0;
}

static int serve(struct relay *r, struct err *e)
{
    int code;

    alarm(SSH_HANDSHAKE_S);
    r->guest = ssh_new();
    code = relay_guest_begin(r, e);
    if (code < 0) {
        relay_refuse(r, "guest_ssh_failed", "the guest does not speak SSH");
        return code;
    }
    r->event = ssh_event_new();
    if (!r->event || ssh_event_add_session(r->event, r->guest) != SSH_OK) {
        return err_set(e, -ENOMEM, NULL, "out of memory");
    }
    relay_run(r);
    return 0;
}

int main(void)
{
    struct relay *r = xnew(struct relay);
    struct err e = {0};
    int code;

    log_init("space-ssh-end");
    signal(SIGPIPE, SIG_IGN);
    r->guest_fd = r->agent_fd = r->host_fd = FD_NONE;
    code = follow_gateway(&e);
    code = code < 0 ? code : secret_process(&e);
    code = code < 0 ? code : take_packet(r, &e);
    code = code < 0 || ssh_init() != SSH_OK ? -EPROTO : confine(&e);
    code = code < 0 ? code : serve(r, &e);
    if (code < 0) {
        log_info(NULL, "a connection with SSH for %s: %s", r->host_name, e.msg);
    }
    relay_report(r, NULL);
    /* Whatever is left goes with the process. */
    return code < 0;
}

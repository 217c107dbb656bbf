/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: the interceptor between plain sockets, without sandboxes. Listens on a free port of 127.0.0.1 for each NAME=PORT
 * (+ before it: plain HTTP), takes every connection there as one of the sandbox to that name, and connects to PORT of
 * 127.0.0.1. Prints the ports, then a line for each connection that has ended, until its input is closed.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/sock.h"
#include "network/intercept.h"

#define PORTS_MAX 16

struct listener {
    int fd;     /* owned */
    char *name; /* owned */
    uint16_t port;
    bool is_tls;
};

struct serve {
    struct intercept *in; /* owned */
    struct intercept_owner owner;
    struct netpolicy *policy; /* owned */
    struct listener listeners[PORTS_MAX];
    size_t n;
};

static void on_done(void *arg, const struct intercept_result *r)
{
    (void)arg;
    printf("done up=%llu down=%llu requests=%u status=%d credential=%s refused=%s\n",
           (unsigned long long)r->bytes_up, (unsigned long long)r->bytes_down, r->requests,
           r->status, r->credential ? r->credential : "-", r->refused ? r->refused : "-");
    fflush(stdout);
}

static int listen_on(struct listener *l, const char *spec)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    const char *equals = strchr(spec, '=');
    uint64_t port;

    l->is_tls = spec[0] != '+';
    spec += !l->is_tls;
    if (!equals || str_to_u64(equals + 1, 65535, &port) < 0) {
        return -EINVAL;
    }
    l->name = xstrndup(spec, (size_t)(equals - spec));
    l->port = (uint16_t)port;
    l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l->fd < 0 || bind(l->fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(l->fd, 128) < 0 ||
        getsockname(l->fd, (struct sockaddr *)&a, &len) < 0) {
        return -errno;
    }
    printf("%u\n", ntohs(a.sin_port));
    return 0;
}

static void take(struct serve *s, const struct listener *l)
{
    struct intercept_target t = {.owner = s->owner,
                                 .port = l->port,
                                 .addr.s_addr = htonl(INADDR_LOOPBACK),
                                 .is_tls = l->is_tls,
                                 .policy = s->policy,
                                 .done = on_done};
    char peeked[4096];
    struct err e = {0};
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : sock_recv(fd, peeked, sizeof(peeked), deadline_in_ms(5000));

    if (n <= 0) {
        fd_close(fd);
        return;
    }
    snprintf(t.name, sizeof(t.name), "%s", l->name);
    t.peeked = peeked;
    t.n_peeked = (size_t)n;
    if (intercept_accept(s->in, fd, &t, &e) < 0) {
        log_warn(NULL, "%s", e.msg);
        fd_close(fd);
    }
}

static void serve_all(struct serve *s)
{
    struct pollfd p[PORTS_MAX + 1];
    char byte;

    for (;;) {
        for (size_t i = 0; i < s->n; i++) {
            p[i] = (struct pollfd){s->listeners[i].fd, POLLIN, 0};
        }
        p[s->n] = (struct pollfd){STDIN_FILENO, POLLIN, 0};
        if (poll(p, s->n + 1, -1) < 0) {
            continue;
        }
        if (p[s->n].revents && read(STDIN_FILENO, &byte, 1) <= 0) {
            return;
        }
        if (p[s->n].revents) {
            intercept_drop(s->in, s->owner.sandbox, /* keep */ NULL);
        }
        for (size_t i = 0; i < s->n; i++) {
            if (p[i].revents) {
                take(s, &s->listeners[i]);
            }
        }
    }
}

static int read_policy(const char *text, struct netpolicy **ret, struct err *e)
{
    cleanup_json json_t *json = NULL;
    int r = json_parse_object(text, strlen(text), &json, e);

    return r < 0 ? r : netpolicy_from_json(json, ret, e);
}

/* MANAGER-URL CA-FILE ORGANISATION PROJECT SANDBOX POLICY [+]NAME=PORT... */
int main(int argc, char **argv)
{
    struct serve s = {0};
    struct err e = {0};
    int r;

    log_init("intercept-serve");
    signal(SIGPIPE, SIG_IGN);
    if (argc < 8 || argc > 7 + PORTS_MAX) {
        fprintf(stderr, "wrong number of words\n");
        return 2;
    }
    snprintf(s.owner.organisation, sizeof(s.owner.organisation), "%s", argv[3]);
    snprintf(s.owner.project, sizeof(s.owner.project), "%s", argv[4]);
    snprintf(s.owner.sandbox, sizeof(s.owner.sandbox), "%s", argv[5]);
    r = read_policy(argv[6], &s.policy, &e);
    r = r < 0
            ? r
            : intercept_new(&(struct intercept_opts){.credential_url = argv[1], .ca_file = argv[2]},
                            &s.in, &e);
    for (int i = 7; i < argc && r == 0; i++) {
        r = listen_on(&s.listeners[s.n++], argv[i]);
    }
    if (r < 0) {
        fprintf(stderr, "intercept-serve: %s\n", e.msg[0] ? e.msg : strerror(-r));
        return 1;
    }
    fflush(stdout);
    serve_all(&s);
    intercept_free(s.in);
    netpolicy_unref(s.policy);
    for (size_t i = 0; i < s.n; i++) {
        fd_close(s.listeners[i].fd);
        free(s.listeners[i].name);
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space-network-gateway: what sandboxes may reach, and nothing else. Its stages:
 *
 *     1. options, users, resolvers read      now possible: everything that its user may do
 *     2. no capability, no new privileges,   not any more: becoming more than an ordinary user; reading
 *        not dumpable                        our memory from another process of the same user
 *     3. control socket, workers             the sandbox manager may hand sockets over
 *     4. serving                             bytes of guests and of servers are read from here on
 *
 * It may be killed at any time: connections through it break, and the sandbox manager hands the sockets to
 * the next one.
 */
#include "base/fs.h"
#include "base/log.h"
#include "base/privilege.h"
#include "base/proc.h"
#include "base/sock.h"
#include "credential/client.h"
#include "credential/secret.h"
#include "ipc/netgate.h"
#include "network/control.h"
#include "network/figures.h"

#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM "space-network-gateway"
#define RESOLV_CONF "/etc/resolv.conf"

struct options {
    const char *run_dir;
    const char *peer_user;
    const char *resolver;
    const char *workers;
    const char *upstream_ca;
    const char *state_dir;
};

static const char usage[] =
    "Usage: " PROGRAM " [OPTION]...\n"
    "Lets sandboxes reach what their policies allow; started by 'space up' or systemd, without "
    "privileges.\n\n"
    "  --run-dir DIR          where sockets are (/run/space)\n"
    "  --state-dir DIR        where egress logs are kept (in memory only)\n"
    "  --peer-user USER       the user besides root that may control it (space-sandbox)\n"
    "  --resolver ADDR[:PORT] the name server to ask (those of " RESOLV_CONF ")\n"
    "  --workers N            threads that move bytes (one for each processor, at most 4)\n"
    "  --upstream-ca FILE     authorities (PEM) that certificates of servers are verified against\n"
    "                         where TLS is looked into (the system's)\n"
    "  --help, --version\n";

static int read_options(int argc, char **argv, struct options *ret)
{
    static const struct option table[] = {
        {"run-dir", required_argument, NULL, 'r'},
        {"peer-user", required_argument, NULL, 'p'},
        {"resolver", required_argument, NULL, 'n'},
        {"workers", required_argument, NULL, 'w'},
        {"state-dir", required_argument, NULL, 's'},
        {"upstream-ca", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    int c;

    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        switch (c) {
        case 'r':
            ret->run_dir = optarg;
            break;
        case 'p':
            ret->peer_user = optarg;
            break;
        case 'n':
            ret->resolver = optarg;
            break;
        case 'w':
            ret->workers = optarg;
            break;
        case 's':
            ret->state_dir = optarg;
            break;
        case 'c':
            ret->upstream_ca = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            exit(0);
        case 'v':
            puts(PROGRAM " " SPACE_VERSION);
            exit(0);
        default:
            fputs("Try '" PROGRAM " --help'.\n", stderr);
            return -EINVAL;
        }
    }
    return optind == argc ? 0 : -EINVAL;
}

static int read_gate_options(const struct options *o, struct gate_options *ret, struct err *e)
{
    uint64_t workers = (uint64_t)MIN(MAX(sysconf(_SC_NPROCESSORS_ONLN), 1L), 4L);

    if (o->workers && (str_to_u64(o->workers, GATE_WORKERS_MAX, &workers) < 0 || workers == 0)) {
        return err_set(e, -EINVAL, NULL, "--workers takes a number from 1 to %u", GATE_WORKERS_MAX);
    }
    ret->workers = (unsigned)workers;
    if (!o->resolver) {
        struct err why = {0};

        if (resolver_read_servers(RESOLV_CONF, &ret->servers, &why) < 0) {
            log_warn(NULL, "names cannot be resolved for sandboxes, going on: %s", why.msg);
        }
        return 0;
    }
    ret->servers.n = 1;
    if (resolver_parse_server(o->resolver, &ret->servers.server[0]) < 0) {
        return err_set(e, -EINVAL, NULL,
                       "--resolver takes an IPv4 address, and maybe ':' and a port");
    }
    return 0;
}

static int give_up_privileges(struct err *e)
{
    int r = privilege_drop(&(struct privilege){.program = PROGRAM, .usual = "space-network"}, e);

    return r < 0 ? r : secret_process(e); /* plans for requests pass through here */
}

static void raise_descriptor_limit(void)
{
    int r = proc_raise_descriptor_limit();

    if (r < 0) {
        log_warn(NULL, "cannot raise the limit of open files, ignoring: %s", strerror(-r));
    }
}

/* Without it the gateway goes on: what sandboxes may reach does not depend on it. */
static int open_state(const struct options *o)
{
    int fd = o->state_dir ? fs_open(o->state_dir, O_RDONLY | O_DIRECTORY, 0) : FD_NONE;

    if (o->state_dir && fd < 0) {
        log_warn(NULL, "egress logs are kept in memory only: '%s': %s", o->state_dir,
                 strerror(-fd));
    }
    return fd < 0 ? FD_NONE : fd;
}

static int run(const struct options *o, struct err *e)
{
    CLEANUP(gate_freep) struct gate *gate = NULL;
    CLEANUP(intercept_freep) struct intercept *intercept = NULL;
    CLEANUP(notifier_freep) struct notifier *notifier = NULL;
    cleanup_free char *credential_url = xasprintf("unix:%s/" CREDENTIAL_SOCKET, o->run_dir);
    cleanup_free char *path = xasprintf("%s/" NETGATE_SOCKET, o->run_dir);
    cleanup_close int listen_fd = FD_NONE;
    cleanup_close int signal_fd = FD_NONE;
    cleanup_close int log_dir_fd = FD_NONE;
    const struct passwd *pw = getpwnam(o->peer_user);
    struct gate_options options = {0};
    int r;

    if (!pw) {
        return err_set(e, -ENOENT, NULL,
                       "there is no user '%s': run 'space up' or name another with --peer-user",
                       o->peer_user);
    }
    uid_t peer_uid = pw->pw_uid;

    r = read_gate_options(o, &options, e);
    if (r == 0) {
        r = give_up_privileges(e);
    }
    if (r < 0) {
        return r;
    }
    raise_descriptor_limit();
    signal_fd = proc_watch_signals((const int[]){SIGTERM, SIGINT, 0},
                                   e); /* before the workers, which inherit the mask */
    if (signal_fd < 0) {
        return signal_fd;
    }
    listen_fd = sock_listen_unix(path, SOCK_SEQPACKET, 0666, e);
    if (listen_fd < 0) {
        return listen_fd;
    }
    r = intercept_new(
        &(struct intercept_opts){.credential_url = credential_url, .ca_file = o->upstream_ca},
        &intercept, e);
    if (r < 0) {
        return r;
    }
    r = notifier_new(credential_url, &notifier, e);
    if (r < 0) {
        return r;
    }
    options.intercept = intercept;
    options.notifier = notifier;
    options.log_dir_fd = log_dir_fd = open_state(o);
    gate = gate_new(&options);
    log_info(NULL, "serving on %s with %u workers", path, options.workers);
    r = control_run(
        &(struct control){
            .gate = gate, .listen_fd = listen_fd, .signal_fd = signal_fd, .peer_uid = peer_uid},
        e);
    unlink(path);
    gate_detach_all(gate);
    intercept_free(TAKE_PTR(intercept)); /* while there are workers to hear of it */
    return r;
}

int main(int argc, char **argv)
{
    struct options options = {.run_dir = "/run/space", .peer_user = "space-sandbox"};
    struct err e = {0};

    /* Eight for each processor is the default: what is free in one of them is of no use to the others. */
    mallopt(M_ARENA_MAX, (int)sysconf(_SC_NPROCESSORS_ONLN));
    log_init(PROGRAM);
    figures_register();
    if (read_options(argc, argv, &options) < 0) {
        return 2;
    }
    if (run(&options, &e) < 0) {
        log_error(NULL, "%s", e.msg);
        return 1;
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space-sandbox-manager: decides and runs the lifecycles of a node's sandboxes. Its stages:
 *
 *     1. options read                       now possible: everything that its user may do
 *     2. no capability, no new privileges,  not any more: becoming more than an ordinary user; reading
 *        not dumpable                       our memory from another process of the same user
 *     3. pool opened, VMM probed            (the probe is the only program that it ever executes)
 *     4. recovered                          now true: records, machines, folders agree
 *     5. serving
 */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/privilege.h"
#include "base/proc.h"
#include "http/route.h"
#include "http/tls.h"
#include "sandbox/figures.h"
#include "sandbox/monitor.h"
#include "sandbox/network.h"
#include "sandbox/node.h"
#include "sandbox/reaper.h"
#include "sandbox/recover.h"
#include "sandbox/recovery.h"
#include "sandbox/routes.h"
#include "sandbox/scheduler.h"
#include "sandbox/tenure.h"
#include "sandbox/warm.h"

#include <getopt.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM "space-sandbox-manager"
/* A stream holds a thread for its life: commands that run for hours, terminals, watches. */
#define THREADS_MAX 4096
#define CONNECTIONS_MAX 8192
#define NODE_MANAGER_WAIT_MS 30000

static struct http_server *server; /* for the signal handler */

struct options {
    struct node_options node;
    const char *gateway_user;
    struct warm_options warm;
    const char *listen; /* NULL: the socket alone; else all four */
    const char *tls_cert;
    const char *tls_key;
    const char *tls_ca;
};

/* The name in the certificates of gateways. */
#define GATEWAY_NAME "space-gateway"

static const char usage[] =
    "Usage: " PROGRAM " [OPTION]...\n"
    "Runs the sandboxes of this node; started by 'space up' or systemd, without privileges.\n\n"
    "  --state-dir DIR     where pool and guest kernel are (/var/lib/space)\n"
    "  --run-dir DIR       where sockets are (/run/space)\n"
    "  --gateway-user USER the user besides root that may ask (space-gateway)\n"
    "  --warm N            machines kept ready for the next creates at most (12)\n"
    "  --warm-memory MIB   at most this much memory for them (4096)\n"
    "  --listen HOST:PORT  serve gateways on other machines, too, with mutual TLS\n"
    "  --tls-cert FILE     the node's certificate (PEM) for --listen; read again when it changes\n"
    "  --tls-key FILE      its key\n"
    "  --tls-ca FILE       the authority of the gateways' certificates, which must be "
    "for " GATEWAY_NAME "\n"
    "  --no-kvm            software emulation even where there is /dev/kvm\n"
    "  --help, --version\n";

static int read_number(const char *text, unsigned *ret)
{
    uint64_t value = 0;

    if (str_to_u64(text, 1u << 20, &value) < 0) {
        fprintf(stderr, PROGRAM ": '%s' is not a number that makes sense here\n", text);
        return -EINVAL;
    }
    *ret = (unsigned)value;
    return 0;
}

static int check_listen(const struct options *o)
{
    bool all = o->listen && o->tls_cert && o->tls_key && o->tls_ca;
    bool any = o->listen || o->tls_cert || o->tls_key || o->tls_ca;

    if (any && !all) {
        fputs(PROGRAM ": --listen, --tls-cert, --tls-key and --tls-ca go together\n", stderr);
        return -EINVAL;
    }
    return 0;
}

static int read_options(int argc, char **argv, struct options *ret)
{
    static const struct option table[] = {
        {"state-dir", required_argument, NULL, 's'},
        {"run-dir", required_argument, NULL, 'r'},
        {"gateway-user", required_argument, NULL, 'g'},
        {"listen", required_argument, NULL, 'l'},
        {"tls-cert", required_argument, NULL, 'C'},
        {"tls-key", required_argument, NULL, 'K'},
        {"tls-ca", required_argument, NULL, 'A'},
        {"no-kvm", no_argument, NULL, 'k'},
        {"warm", required_argument, NULL, 'w'},
        {"warm-memory", required_argument, NULL, 'm'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    int c;

    *ret = (struct options){.node = {"/var/lib/space", "/run/space", true, 0},
                            .gateway_user = "space-gateway",
                            .warm = {12, 4096}};
    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        switch (c) {
        case 's':
            ret->node.state_dir = optarg;
            break;
        case 'r':
            ret->node.run_dir = optarg;
            break;
        case 'g':
            ret->gateway_user = optarg;
            break;
        case 'l':
            ret->listen = optarg;
            break;
        case 'C':
            ret->tls_cert = optarg;
            break;
        case 'K':
            ret->tls_key = optarg;
            break;
        case 'A':
            ret->tls_ca = optarg;
            break;
        case 'k':
            ret->node.allow_kvm = false;
            break;
        case 'w':
        case 'm':
            if (read_number(optarg, c == 'w' ? &ret->warm.machines_max : &ret->warm.memory_mib) <
                0) {
                return -EINVAL;
            }
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
    return optind == argc ? check_listen(ret) : -EINVAL;
}

static int find_gateway_user(struct options *o, struct err *e)
{
    struct passwd *pw = getpwnam(o->gateway_user);

    if (!pw) {
        return err_set(e, -ENOENT, NULL,
                       "there is no user '%s': run 'space up' or name another with --gateway-user",
                       o->gateway_user);
    }
    o->node.client_uid = pw->pw_uid;
    return 0;
}

static int give_up_privileges(struct err *e)
{
    return privilege_drop(&(struct privilege){.program = PROGRAM, .usual = "space-sandbox"}, e);
}

static void raise_descriptor_limit(void)
{
    int r = proc_raise_descriptor_limit();

    if (r < 0) {
        log_warn(NULL, "cannot raise the limit of open files, ignoring: %s", strerror(-r));
    }
}

static bool peer_allowed(const struct ucred *peer, void *ctx)
{
    const struct node *node = ctx;

    return peer->uid == 0 || peer->uid == node->client_uid;
}

/* The services start in any order: the node manager may not listen yet. */
static int recover_when_possible(struct node *node, struct err *e)
{
    uint64_t deadline_ns = deadline_in_ms(NODE_MANAGER_WAIT_MS);
    const struct timespec pause = {.tv_nsec = 50000000};
    struct priv_machine first;
    int pidfd = FD_NONE;
    int r;

    while ((r = priv_machine_next(node->host.priv, "", &first, &pidfd, e)) < 0 &&
           !deadline_passed(deadline_ns)) {
        nanosleep(&pause, NULL); /* banned: nothing to wait on before it listens */
    }
    fd_close(pidfd);
    if (r < 0) {
        return err_wrap(e, r, "reaching the node manager");
    }
    r = tenure_open(node, &node->tenure, e);
    return r < 0 ? r : recover_node(node, e);
}

/* What stands still cannot be asked, and what the control plane may have given away is not changed but ended. */
static bool fence_lets_through(const struct http_request *req)
{
    const char *method = http_request_method(req);
    const char *path = http_request_path(req);

    return str_starts(path, "/v1/node") ||
           (!strstr(path, "/guest") && (str_eq(method, "GET") || str_eq(method, "DELETE")));
}

static int handle(struct http_request *req, struct err *e)
{
    const struct node *node = http_request_ctx(req);

    http_request_adopt(req);
    if (tenure_fenced(node->tenure) && !fence_lets_through(req)) {
        return err_set(e, -EHOSTDOWN, "node_fenced",
                       "the node was cut off from its control plane and stands still: try again");
    }
    return http_router_handle(&node_router, req, e);
}

/* What only looks is not worth a line. */
static void note_done(void *ctx, struct http_request *req, const struct http_done *done)
{
    const struct http_route *route = http_request_route(req);
    bool names_one = route && strstr(route->pattern, "{id}");
    const struct log_ctx log = {.sandbox = names_one ? http_request_param(req, "id") : NULL};

    (void)ctx;
    log_write(str_eq(done->method, "GET") && done->status < 500 ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO,
              &log, "access method=%s path=%.200s status=%d error=%d ms=%.1f", done->method,
              done->path, done->status, -done->error,
              (double)done->duration_ns / (double)NS_PER_MS);
}

static void on_signal(int signo)
{
    (void)signo;
    http_server_stop(server);
}

/* The socket for this machine, and the address for gateways on others. */
static int listen_all(const struct node *node, const struct options *o, struct http_tls **ret_tls,
                      struct err *e)
{
    cleanup_free char *socket = xasprintf("%s/sandbox-manager.sock", o->node.run_dir);
    const struct http_tls_opts tls = {
        .cert_file = o->tls_cert,
        .key_file = o->tls_key,
        .ca_file = o->tls_ca,
        .peer = GATEWAY_NAME,
    };
    int r = http_server_listen_unix(server, socket, 0666, peer_allowed, e);

    if (r == 0) {
        log_info(NULL, "serving on %s; VMM %s, %s", socket, node->vmm_version,
                 node_accel_name(node->accel));
    }
    if (r < 0 || !o->listen) {
        return r;
    }
    r = http_tls_open(&tls, ret_tls, e);
    if (r == 0) {
        r = http_server_listen_tls(server, o->listen, *ret_tls, e);
    }
    if (r == 0) {
        log_info(NULL, "serving gateways on %s, too", o->listen);
    }
    return r;
}

static int serve(struct node *node, const struct options *o, struct err *e)
{
    struct http_tls *tls = NULL;
    struct sigaction action = {.sa_handler = on_signal};
    struct scheduler *scheduler;
    struct recovery *recovery;
    struct monitor *monitor;
    struct network *network;
    int r;

    server = http_server_new(&(struct http_server_opts){.handler = handle,
                                                        .done = note_done,
                                                        .ctx = node,
                                                        .name = PROGRAM,
                                                        .max_threads = THREADS_MAX,
                                                        .max_connections = CONNECTIONS_MAX});
    r = listen_all(node, o, &tls, e);
    if (r == 0) {
        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGINT, &action, NULL);
        node->reaper = reaper_start();
        node->warm = warm_start(node, &o->warm);
        recovery = recovery_start(node);
        monitor = monitor_start(node, recovery);
        scheduler = scheduler_start(node);
        network = network_start(node);
        r = http_server_run(server, e);
        network_stop(network);
        scheduler_stop(scheduler);
        monitor_stop(monitor);
        recovery_stop(recovery);
        warm_stop(TAKE_PTR(node->warm));
        reaper_stop(TAKE_PTR(node->reaper));
    }
    http_server_free(server);
    http_tls_free(tls);
    return r;
}

int main(int argc, char **argv)
{
    CLEANUP(node_closep) struct node *node = NULL;
    struct options options;
    struct err e = {0};
    int r;

    log_init(PROGRAM);
    fault_init();
    if (read_options(argc, argv, &options) < 0) {
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    figures_register();
    r = find_gateway_user(&options, &e);
    if (r == 0) {
        r = give_up_privileges(&e);
    }
    if (r == 0) {
        raise_descriptor_limit();
        r = node_open(&options.node, &node, &e);
    }
    if (r == 0) {
        r = recover_when_possible(node, &e);
    }
    if (r == 0) {
        r = serve(node, &options, &e);
    }
    if (node) {
        tenure_close(TAKE_PTR(node->tenure));
    }
    if (r < 0) {
        log_error(NULL, "%s", e.msg);
    }
    return r < 0 ? 1 : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space-credential-manager: keeps the secrets that sandboxes use without seeing them. Its stages:
 *
 *     1. options read, once more from the start with an allocator that wipes what is freed
 *     2. another user, no group, no capability,   not any more: becoming more than an ordinary user; reading our
 *        no new privileges, not dumpable          memory from another process of the same user
 *     3. state opened: key, vault, audit log, list
 *     4. serving                                  now bytes of other services are read
 */
#include <getopt.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/privilege.h"
#include "credential/client.h"
#include "credential/routes.h"
#include "credential/secret.h"

#define PROGRAM "space-credential-manager"
#define THREADS_MAX 512
/* glibc overwrites what is freed, in every list it keeps: copies that a library made of a secret, too. */
#define TUNABLES "glibc.malloc.perturb=90:glibc.malloc.tcache_count=0"

static struct http_server *server; /* for the signal handler */

struct options {
    struct manager_opts manager;
    const char *run_dir;
    const char *user;
    const char *gateway_user;
    const char *network_user;
    const char *sandbox_user;
};

static const char usage[] =
    "Usage: " PROGRAM " [OPTION]...\n"
    "Keeps the secrets that sandboxes use without seeing them; started by 'space up' or "
    "systemd.\n\n"
    "  --state-dir DIR      where vault, list and audit log are (/var/lib/space/credential)\n"
    "  --run-dir DIR        where sockets are (/run/space)\n"
    "  --key-file FILE      the key that seals the vault (credential.key in the state folder, made "
    "if need be)\n"
    "  --user USER          become this user at once; needed when started as root\n"
    "  --gateway-user USER  who manages credentials (space-gateway)\n"
    "  --network-user USER  who uses them (space-network)\n"
    "  --sandbox-user USER  who installs the authorities' certificates (space-sandbox)\n"
    "  --env-prefix WORD    vault 'env': variables WORD_NAME of our environment, for development\n"
    "  --exec PROGRAM       vault 'exec': a program that keeps values\n"
    "  --kv-url URL         vault 'kv': HashiCorp Vault or OpenBao, KV version 2\n"
    "  --kv-token-file FILE, --kv-mount NAME (secret), --kv-prefix PATH (space),\n"
    "  --kv-namespace NAME, --kv-ca-file FILE\n"
    "  --token-ca-file FILE authorities for token servers and webhooks (the system's)\n"
    "  --token-private      token servers and webhooks may have private addresses\n"
    "  --help, --version\n";

/* Options with a value: name and where it goes. */
struct slot {
    const char *name;
    size_t offset;
};

static const struct slot slots[] = {
    {"state-dir", offsetof(struct options, manager.state_dir)},
    {"run-dir", offsetof(struct options, run_dir)},
    {"key-file", offsetof(struct options, manager.key_file)},
    {"user", offsetof(struct options, user)},
    {"gateway-user", offsetof(struct options, gateway_user)},
    {"network-user", offsetof(struct options, network_user)},
    {"sandbox-user", offsetof(struct options, sandbox_user)},
    {"env-prefix", offsetof(struct options, manager.env_prefix)},
    {"exec", offsetof(struct options, manager.exec)},
    {"kv-url", offsetof(struct options, manager.kv.url)},
    {"kv-token-file", offsetof(struct options, manager.kv.token_file)},
    {"kv-mount", offsetof(struct options, manager.kv.mount)},
    {"kv-prefix", offsetof(struct options, manager.kv.prefix)},
    {"kv-namespace", offsetof(struct options, manager.kv.name_space)},
    {"kv-ca-file", offsetof(struct options, manager.kv.ca_file)},
    {"token-ca-file", offsetof(struct options, manager.outside.ca_file)},
};

#define OPTION_PRIVATE 1000
#define OPTION_HELP 1001
#define OPTION_VERSION 1002

static int read_options(int argc, char **argv, struct options *ret)
{
    struct option table[ARRAY_SIZE(slots) + 4] = {0};
    size_t n = ARRAY_SIZE(slots);
    int c;

    for (size_t i = 0; i < n; i++) {
        table[i] = (struct option){slots[i].name, required_argument, NULL, (int)i};
    }
    table[n] = (struct option){"token-private", no_argument, NULL, OPTION_PRIVATE};
    table[n + 1] = (struct option){"help", no_argument, NULL, OPTION_HELP};
    table[n + 2] = (struct option){"version", no_argument, NULL, OPTION_VERSION};
    *ret = (struct options){.manager = {.state_dir = "/var/lib/space/credential"},
                            .run_dir = "/run/space",
                            .gateway_user = "space-gateway",
                            .network_user = "space-network",
                            .sandbox_user = "space-sandbox"};
    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        switch (c) {
        case OPTION_PRIVATE:
            ret->manager.outside.allow_private = true;
            break;
        case OPTION_HELP:
            fputs(usage, stdout);
            exit(0);
        case OPTION_VERSION:
            puts(PROGRAM " " SPACE_VERSION);
            exit(0);
        case '?':
            fputs("Try '" PROGRAM " --help'.\n", stderr);
            return -EINVAL;
        default:
            *(const char **)(void *)((char *)ret + slots[c].offset) = optarg;
        }
    }
    if (ret->manager.kv.url && !ret->manager.kv.token_file) {
        fputs(PROGRAM ": --kv-url needs --kv-token-file\n", stderr);
        return -EINVAL;
    }
    return optind == argc ? 0 : -EINVAL;
}

/* A user that there is not cannot connect. */
static uid_t uid_of(const char *name)
{
    const struct passwd *pw = getpwnam(name);

    return pw ? pw->pw_uid : (uid_t)-1;
}

static int give_up_privileges(const struct options *o, struct err *e)
{
    int r = privilege_drop(
        &(struct privilege){.program = PROGRAM, .user = o->user, .usual = "space-credential"}, e);

    return r < 0 ? r : secret_process(e);
}

static void on_signal(int signo)
{
    (void)signo;
    http_server_stop(server);
}

static int serve(struct service *service, const struct options *o, struct err *e)
{
    cleanup_free char *socket = xasprintf("%s/" CREDENTIAL_SOCKET, o->run_dir);
    struct sigaction action = {.sa_handler = on_signal};
    int r;

    server = http_server_new(&(struct http_server_opts){.handler = service_handle,
                                                        .done = service_done,
                                                        .ctx = service,
                                                        .name = PROGRAM,
                                                        .max_threads = THREADS_MAX});
    r = http_server_listen_unix(server, socket, 0666, service_peer_allowed, e);
    if (r == 0) {
        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGINT, &action, NULL);
        log_info(NULL, "serving on %s", socket);
        r = http_server_run(server, e);
    }
    http_server_free(server);
    return r;
}

/* Once more with an allocator that wipes. It reads its settings before main. */
static void start_again(char **argv)
{
    if (!getenv("GLIBC_TUNABLES") && setenv("GLIBC_TUNABLES", TUNABLES, 1) == 0) {
        execv("/proc/self/exe", argv);
        log_warn(NULL, "freed memory is not wiped everywhere, ignoring: %s", strerror(errno));
    }
}

int main(int argc, char **argv)
{
    CLEANUP(manager_freep) struct manager *manager = NULL;
    struct options o;
    struct service service;
    struct err e = {0};
    int r;

    log_init(PROGRAM);
    if (read_options(argc, argv, &o) < 0) {
        return 2;
    }
    start_again(argv);
    signal(SIGPIPE, SIG_IGN);
    manager_metrics_register();
    service = (struct service){.gateway_uid = uid_of(o.gateway_user),
                               .network_uid = uid_of(o.network_user),
                               .sandbox_uid = uid_of(o.sandbox_user)};
    r = give_up_privileges(&o, &e);
    r = r < 0 ? r : manager_open(&o.manager, &manager, &e);
    if (r == 0) {
        service.manager = manager;
        r = serve(&service, &o, &e);
    }
    if (r < 0) {
        log_error(NULL, "%s", e.msg);
    }
    return r < 0 ? 1 : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space-node-manager: the one process that keeps root. It isolates itself in stages, each named
 * with what is possible until then:
 *
 *   1. options, user, root    anything, but nothing foreign is read
 *   2. open                   paths can be opened: the pool's folders, the cgroups, the socket
 *   3. isolate                from here on: the capabilities and system calls of isolate.c,
 *   no_new_privs 4. serve                  foreign bytes are read from here on only: fixed-size
 *   requests of one user
 *
 * It exits and starts again at any time: machines go on, and nothing of them is remembered (cgroup.h); copies
 * of their memory end with it (copies.h).
 */
#include "base/fault.h"
#include "base/log.h"
#include "base/proc.h"
#include "base/sock.h"
#include "jail/filter.h"
#include "jail/net.h"
#include "machine/qemu-args.h"
#include "machine/tsc.h"
#include "privileged/isolate.h"
#include "privileged/own-root.h"
#include "privileged/server.h"

#include <fcntl.h>
#include <getopt.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct options {
    const char *state_dir;
    const char *run_dir;
    const char *user;
    const char *vmm;
    const char *cgroup;
    const char *first_uid;
};

static const struct {
    const char *name;
    const char *help;
    size_t offset; /* in struct options */
} option_table[] = {
    {"state-dir", "where pool/ is (/var/lib/space)", offsetof(struct options, state_dir)},
    {"run-dir", "where node-manager.sock goes (/run/space)", offsetof(struct options, run_dir)},
    {"user", "the one user that may connect, owner of the pool (space-sandbox)",
     offsetof(struct options, user)},
    {"vmm", "the program that runs machines (" QEMU_PATH ")", offsetof(struct options, vmm)},
    {"cgroup", "the group below which machines get theirs (space)",
     offsetof(struct options, cgroup)},
    {"first-uid", "the machine of slot N runs as user VALUE + N (1879048192)",
     offsetof(struct options, first_uid)},
};

static void print_help(void)
{
    printf("Usage: space-node-manager [OPTION]...\n"
           "Carries out the privileged steps of running sandboxes for the sandbox manager.\n\n");
    for (size_t i = 0; i < ARRAY_SIZE(option_table); i++) {
        printf("  --%-10s VALUE  %s\n", option_table[i].name, option_table[i].help);
    }
    printf("  --check-network     say whether this kernel can make a machine's network, and exit\n"
           "  --help              print this and exit\n  --version           print the version and "
           "exit\n");
}

/* For 'space doctor', which reads what is printed. */
static void check_network(void)
{
    struct err e = {0};

    printf("%s\n", jail_net_check(&e) == 0 ? "ok" : e.msg);
}

/* 0: go on; 1: all is said, exit well; negative: exit with a usage error (getopt has said why). */
static int parse_options(int argc, char **argv, struct options *ret)
{
    struct option longs[ARRAY_SIZE(option_table) + 4] = {0};
    int c;

    for (size_t i = 0; i < ARRAY_SIZE(option_table); i++) {
        longs[i] = (struct option){option_table[i].name, required_argument, NULL, (int)i};
    }
    longs[ARRAY_SIZE(option_table)] = (struct option){"help", no_argument, NULL, 'h'};
    longs[ARRAY_SIZE(option_table) + 1] = (struct option){"version", no_argument, NULL, 'V'};
    longs[ARRAY_SIZE(option_table) + 2] = (struct option){"check-network", no_argument, NULL, 'n'};
    while ((c = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
        if (c == 'h') {
            print_help();
            return 1;
        }
        if (c == 'n') {
            check_network();
            return 1;
        }
        if (c == 'V') {
            printf("space-node-manager " SPACE_VERSION "\n");
            return 1;
        }
        if (c >= (int)ARRAY_SIZE(option_table)) {
            return -EINVAL;
        }
        *(const char **)(void *)((char *)ret + option_table[c].offset) = optarg;
    }
    if (optind != argc) {
        fprintf(stderr, "space-node-manager: '%s' is not an option; see --help\n", argv[optind]);
        return -EINVAL;
    }
    return 0;
}

static int open_pool_folder(const struct options *options, const char *name, int *ret,
                            struct err *e)
{
    char path[4096];
    int fd;

    if ((size_t)snprintf(path, sizeof(path), "%s/pool/%s", options->state_dir, name) >=
        sizeof(path)) {
        return err_set(e, -ENAMETOOLONG, NULL, "the state directory's name is too long");
    }
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return err_wrap(e, -errno, "opening '%s' (is the pool set up? see space-setup)", path);
    }
    *ret = fd;
    return 0;
}

/* Stage 2. */
static int open_everything(const struct options *options, struct priv_ctx *ctx, int *ret_listen_fd,
                           struct err *e)
{
    char path[4096];
    int r;

    r = open_pool_folder(options, "sandboxes", &ctx->sandboxes_fd, e);
    if (r == 0) {
        r = open_pool_folder(options, "snapshots", &ctx->snapshots_fd, e);
    }
    if (r == 0) {
        r = cgroup_host_open(&ctx->cgroups, options->cgroup, e);
    }
    if (r == 0) {
        r = jail_filter_build(filter_vmm_rules, filter_vmm_n_rules, NULL, 0, &ctx->vmm_filter, e);
    }
    if (r < 0) {
        return r;
    }
    ctx->network_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (ctx->network_fd < 0) {
        return err_wrap(e, -errno, "opening the host's network namespace");
    }
    snprintf(path, sizeof(path), "%s/node-manager.sock", options->run_dir);
    r = sock_listen_unix(path, SOCK_SEQPACKET, 0660, e);
    if (r < 0) {
        return r;
    }
    *ret_listen_fd = r;
    /*
     * The run directory is sticky or root's own: nobody can have put another file under the name.
     */
    if (fchownat(AT_FDCWD, path, 0, ctx->owner_gid, AT_SYMLINK_NOFOLLOW) < 0) {
        return err_wrap(e, -errno, "handing '%s' to the group of '%s'", path, options->user);
    }
    return 0;
}

static int parse_first_uid(const char *text, uid_t *ret, struct err *e)
{
    uint64_t uid = PRIV_MACHINE_UID_BASE;

    if (text && (str_to_u64(text, PRIV_MACHINE_UID_LAST - PRIV_MACHINE_SLOT_MAX, &uid) < 0 ||
                 uid < PRIV_MACHINE_UID_BASE)) {
        return err_set(e, -EINVAL, "usage", "--first-uid %s: give a number from %u to %u", text,
                       PRIV_MACHINE_UID_BASE, PRIV_MACHINE_UID_LAST - PRIV_MACHINE_SLOT_MAX);
    }
    *ret = (uid_t)uid;
    return 0;
}

/* The socket's name goes with us; a crash leaves it to the next one. */
static void remove_socket(const struct options *options)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/node-manager.sock", options->run_dir);
    unlink(path);
}

static int run(const struct options *options, struct err *e)
{
    struct priv_ctx ctx = {.tsc_khz = tsc_measure_khz(),
                           .vmm_path = options->vmm,
                           .sandboxes_fd = FD_NONE,
                           .snapshots_fd = FD_NONE,
                           .network_fd = FD_NONE};
    struct server server = {.ctx = &ctx, .listen_fd = FD_NONE};
    const struct passwd *pw = getpwnam(options->user);
    int r;

    if (!pw) {
        return err_set(e, -ENOENT, NULL, "there is no user '%s' on this host (see space-setup)",
                       options->user);
    }
    ctx.owner_uid = pw->pw_uid;
    ctx.owner_gid = pw->pw_gid;
    server.peer_uid = pw->pw_uid;
    umask(077);

    r = parse_first_uid(options->first_uid, &ctx.first_uid, e);
    if (r < 0) {
        return r;
    }
    r = own_root(e);
    if (r < 0) {
        return r;
    }
    r = open_everything(options, &ctx, &server.listen_fd, e);
    if (r < 0) {
        return r;
    }
    server.signal_fd = proc_watch_signals((const int[]){SIGTERM, SIGINT, SIGCHLD, 0}, e);
    if (server.signal_fd < 0) {
        return server.signal_fd;
    }
    r = isolate_self(e);
    if (r < 0) {
        return r;
    }
    log_info(NULL, "ready: cgroup version %d, machines run %s", ctx.cgroups.v2 ? 2 : 1,
             ctx.vmm_path);
    r = server_run(&server, e);
    remove_socket(options);
    return r;
}

int main(int argc, char **argv)
{
    struct options options = {
        .state_dir = "/var/lib/space",
        .run_dir = "/run/space",
        .user = "space-sandbox",
        .vmm = QEMU_PATH,
        .cgroup = "space",
    };
    struct err e = {0};
    int r = parse_options(argc, argv, &options);

    if (r != 0) {
        return r < 0 ? 2 : 0;
    }
    log_init("space-node-manager");
    fault_init();
    if (run(&options, &e) < 0) {
        log_error(NULL, "%s", e.msg);
        return 1;
    }
    log_info(NULL, "stopped");
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/fs.h"
#include "base/proc.h"
#include "privileged/setup/setup.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM_TIMEOUT_MS 120000

static const struct {
    const char *name;
    const char *help;
    size_t offset; /* of a string in struct setup */
} option_table[] = {
    {"state-dir", "where data is kept (/var/lib/space)", offsetof(struct setup, state_dir)},
    {"run-dir", "where sockets are (/run/space)", offsetof(struct setup, run_dir)},
    {"gateway-user", "the gateway's user (space-gateway)", offsetof(struct setup, gateway_user)},
    {"sandbox-user", "the sandbox manager's user (space-sandbox)",
     offsetof(struct setup, sandbox_user)},
    {"credential-user", "the credential manager's user (space-credential)",
     offsetof(struct setup, credential_user)},
    {"volume-user", "the volume manager's user (space-volume)",
     offsetof(struct setup, volume_user)},
    {"network-user", "the network gateway's user (space-network)",
     offsetof(struct setup, network_user)},
};

int setup_folder(const char *path, uid_t uid, gid_t gid, mode_t mode, struct err *e)
{
    cleanup_close int fd = FD_NONE;
    struct stat st;

    if (mkdir(path, 0700) < 0 && errno != EEXIST) {
        return err_wrap(e, -errno, "making '%s'", path);
    }
    /* Held open: folders of the pool lie in one that is not root's, where a name may change its meaning. */
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        return err_set(e, -ENOTDIR, NULL, "'%s' is in the way: it is not a folder", path);
    }
    if ((st.st_uid != uid || st.st_gid != gid) && fchown(fd, uid, gid) < 0) {
        return err_wrap(e, -errno, "changing the owner of '%s'", path);
    }
    if ((st.st_mode & 07777) != mode && fchmod(fd, mode) < 0) {
        return err_wrap(e, -errno, "changing the mode of '%s'", path);
    }
    return 0;
}

int setup_run(const char *const *argv, struct err *e)
{
    cleanup_close int output_fd = memfd_create("output", MFD_CLOEXEC);
    const struct proc_spec spec = {
        .argv = argv, .stdin_fd = FD_NONE, .stdout_fd = output_fd, .stderr_fd = output_fd};
    struct proc proc;
    int status;
    int r = proc_spawn(&spec, &proc, e);

    if (r < 0) {
        return r == -ENOENT ? err_set(e, r, "program_missing", "'%s' is not installed", argv[0])
                            : r;
    }
    r = proc_wait(&proc, deadline_in_ms(PROGRAM_TIMEOUT_MS), &status);
    if (r < 0) {
        proc_signal(&proc, 9);
        return err_wrap(e, r, "waiting for '%s'", argv[0]);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        cleanup_buf struct buf output = BUF_INIT(4096);

        IGNORE_RESULT((int)lseek(output_fd, 0, SEEK_SET));
        IGNORE_RESULT(fs_read_fd(output_fd, &output)); /* cut or empty is better than nothing */
        return err_set(e, -EIO, NULL, "'%s' failed: %s", argv[0], buf_str(&output));
    }
    return 0;
}

static int setup_up(struct setup *s, struct err *e)
{
    const struct {
        const char *base;
        const char *name;
        const uid_t *uid; /* NULL: root */
        const gid_t *gid;
        mode_t mode;
    } folders[] = {
        {s->state_dir, "", NULL, NULL, 0755},
        {s->state_dir, "/gateway", &s->gateway_uid, &s->gateway_gid, 0700},
        {s->state_dir, "/credential", &s->credential_uid, &s->credential_gid, 0700},
        {s->state_dir, "/volume", &s->volume_uid, &s->volume_gid, 0700},
        {s->state_dir, "/network", &s->network_uid, &s->network_gid, 0700},
        {s->state_dir, "/guest", NULL, NULL, 0755},
        {s->run_dir, "", NULL, &s->sandbox_gid, 01775},
        {s->run_dir, "/credential", &s->credential_uid, &s->credential_gid, 0755},
        {s->run_dir, "/volume", &s->volume_uid, &s->volume_gid, 0755},
        {s->run_dir, "/network", &s->network_uid, &s->network_gid, 0755},
    };
    char path[4096];
    int r = fs_mkdir_all(s->state_dir, 0755);

    if (r < 0) {
        return err_wrap(e, r, "making '%s'", s->state_dir);
    }
    r = setup_kernel(s, e);
    if (r == 0) {
        r = setup_users(s, e);
    }
    if (r == 0) {
        r = fs_mkdir_all(s->run_dir, 0755);
        r = r < 0 ? err_wrap(e, r, "making '%s'", s->run_dir) : 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(folders) && r == 0; i++) {
        snprintf(path, sizeof(path), "%s%s", folders[i].base, folders[i].name);
        r = setup_folder(path, folders[i].uid ? *folders[i].uid : 0,
                         folders[i].gid ? *folders[i].gid : 0, folders[i].mode, e);
    }
    return r < 0 ? r : setup_pool(s, e);
}

static void print_help(void)
{
    printf(
        "Usage: space-setup up|down [OPTION]...\n"
        "up makes what the services need on this machine: users, folders, the pool. Repeatable.\n"
        "down unmounts the pool; nothing is deleted.\n\n");
    for (size_t i = 0; i < ARRAY_SIZE(option_table); i++) {
        printf("  --%-16s VALUE  %s\n", option_table[i].name, option_table[i].help);
    }
    printf("  --%-16s VALUE  size of a new pool in MiB (three quarters of what is free)\n"
           "  --help                    print this and exit\n"
           "  --version                 print the version and exit\n",
           "pool-mib");
}

/* 0: go on; 1: all is said, exit well; negative: usage error. */
static int parse_options(int argc, char **argv, struct setup *s)
{
    struct option longs[ARRAY_SIZE(option_table) + 4] = {0};
    size_t n = ARRAY_SIZE(option_table);
    int c;

    for (size_t i = 0; i < n; i++) {
        longs[i] = (struct option){option_table[i].name, required_argument, NULL, (int)i};
    }
    longs[n++] = (struct option){"pool-mib", required_argument, NULL, 'p'};
    longs[n++] = (struct option){"help", no_argument, NULL, 'h'};
    longs[n++] = (struct option){"version", no_argument, NULL, 'V'};
    while ((c = getopt_long(argc, argv, "", longs, NULL)) >= 0) {
        if (c < (int)ARRAY_SIZE(option_table)) {
            *(const char **)(void *)((char *)s + option_table[c].offset) = optarg;
        } else if (c == 'p') {
            if (str_to_u64(optarg, UINT32_MAX, &s->pool_mib) < 0) {
                fprintf(stderr, "space-setup: --pool-mib wants a number of MiB, not '%s'\n",
                        optarg);
                return -EINVAL;
            }
        } else if (c == 'h') {
            print_help();
            return 1;
        } else if (c == 'V') {
            printf("space-setup " SPACE_VERSION "\n");
            return 1;
        } else {
            return -EINVAL;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct setup s = {
        .state_dir = "/var/lib/space",
        .run_dir = "/run/space",
        .gateway_user = "space-gateway",
        .sandbox_user = "space-sandbox",
        .credential_user = "space-credential",
        .volume_user = "space-volume",
        .network_user = "space-network",
    };
    const char *verb;
    struct err e = {0};
    int r = parse_options(argc, argv, &s);

    if (r != 0) {
        return r < 0 ? 2 : 0;
    }
    verb = optind == argc - 1 ? argv[optind] : "";
    if (!str_eq(verb, "up") && !str_eq(verb, "down")) {
        fprintf(stderr, "space-setup: say 'up' or 'down'; see --help\n");
        return 2;
    }
    umask(022);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (geteuid() != 0) {
        r = err_set(&e, -EPERM, "not_root", "this must be run as root: use sudo");
    } else {
        r = str_eq(verb, "up") ? setup_up(&s, &e) : setup_pool_down(&s, &e);
    }
    if (r < 0) {
        fprintf(stderr, "space-setup: %s\n", e.msg);
        return 1;
    }
    return 0;
}

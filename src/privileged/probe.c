/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for the VMM in the tests of the jail: answers questions about what a process in there
 * can see and do. Static, because its root may be empty. One connection on the channel; one request
 * line, one answer line.
 *
 *   ids               uid, gid, number of groups
 *   caps              effective, permitted, inheritable, bounding, no_new_privs, securebits
 *   limit N           soft and hard limit of resource N
 *   ls PATH           the names in a folder, sorted; or "errno N"
 *   open PATH FLAGS   "ok" or "errno N"
 *   fds               the numbers of all open descriptors but the connection
 *   write FD TEXT     "ok" or "errno N"
 *   memory            the first byte of /memory through its name
 *   map MIB PAGE      maps /memory private, as a VMM does, and writes a P into that page
 *   eat MIB           touches that much memory, answers "ok"
 *   threads           makes threads until refused, answers how many
 *   call NR [A [B]]   a system call, "ok" or "errno N"; may never answer
 */
#include "ipc/priv.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int connection; /* and what is written to it */
static int connection_out;

static void say_result(FILE *out, long r)
{
    if (r < 0) {
        fprintf(out, "errno %d", errno);
    } else {
        fprintf(out, "ok");
    }
}

static void do_ids(FILE *out, const char *arg)
{
    uid_t u[3];
    gid_t g[3];

    (void)arg;
    if (getresuid(&u[0], &u[1], &u[2]) < 0 || getresgid(&g[0], &g[1], &g[2]) < 0) {
        say_result(out, -1);
        return;
    }
    /* getgroups() is on no list: the number of groups is read from outside. */
    fprintf(out, "%u %u %u %u %u %u %d", u[0], u[1], u[2], g[0], g[1], g[2], getpid());
}

static void do_caps(FILE *out, const char *arg)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
    int bounding = 0;

    (void)arg;
    if (syscall(SYS_capget, &header, data) < 0) {
        say_result(out, -1);
        return;
    }
    for (int cap = 0; cap < 64; cap++) {
        bounding += prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1;
    }
    fprintf(out, "%x %x %x %d", data[0].effective | data[1].effective,
            data[0].permitted | data[1].permitted, data[0].inheritable | data[1].inheritable,
            bounding);
}

static void do_limit(FILE *out, const char *arg)
{
    struct rlimit limit;

    if (getrlimit((__rlimit_resource_t)strtol(arg, NULL, 10), &limit) < 0) {
        say_result(out, -1);
        return;
    }
    fprintf(out, "%llu %llu", (unsigned long long)limit.rlim_cur,
            (unsigned long long)limit.rlim_max);
}

static void do_ls(FILE *out, const char *arg)
{
    struct dirent **names = NULL;
    int n = scandir(arg, &names, NULL, alphasort);

    if (n < 0) {
        say_result(out, -1);
    }
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.') {
            fprintf(out, "%s ", names[i]->d_name);
        }
        free(names[i]);
    }
    free(names);
}

static void do_open(FILE *out, const char *arg)
{
    char path[256];
    int flags = 0;
    int fd;

    if (sscanf(arg, "%255s %d", path, &flags) != 2) {
        fprintf(out, "usage");
        return;
    }
    fd = open(path, flags, 0600);
    say_result(out, fd);
    if (fd >= 0) {
        close(fd);
    }
}

static void do_fds(FILE *out, const char *arg)
{
    (void)arg;
    for (int fd = 0; fd < 1024; fd++) {
        if (fd != connection && fd != connection_out && fcntl(fd, F_GETFD) >= 0) {
            fprintf(out, "%d ", fd);
        }
    }
}

static void do_write(FILE *out, const char *arg)
{
    char text[200];
    int fd;

    if (sscanf(arg, "%d %199s", &fd, text) != 2) {
        fprintf(out, "usage");
        return;
    }
    say_result(out, write(fd, text, strlen(text)));
}

static void do_memory(FILE *out, const char *arg)
{
    int fd = open(PRIV_JAIL_PATH_MEMORY, O_RDONLY);
    char byte = 0;

    (void)arg;
    if (fd < 0 || read(fd, &byte, 1) != 1) {
        say_result(out, -1);
        return;
    }
    fprintf(out, "%c", byte);
    close(fd);
}

static void do_map(FILE *out, const char *arg)
{
    unsigned long mib = 0;
    unsigned long page = 0;
    int fd = open(PRIV_JAIL_PATH_MEMORY, O_RDONLY);
    char *p;

    if (fd < 0 || sscanf(arg, "%lu %lu", &mib, &page) != 2) {
        say_result(out, -1);
        return;
    }
    p = mmap(NULL, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    close(fd);
    if (p == MAP_FAILED) {
        say_result(out, -1);
        return;
    }
    p[page * 4096] = 'P';
    say_result(out, 0);
}

static void do_eat(FILE *out, const char *arg)
{
    size_t len = strtoul(arg, NULL, 10) << 20;
    char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED) {
        say_result(out, -1);
        return;
    }
    memset(p, 1, len);
    say_result(out, 0);
}

static void *idle(void *arg)
{
    select(0, NULL, NULL, NULL, NULL);
    return arg;
}

static void do_threads(FILE *out, const char *arg)
{
    pthread_attr_t attr;
    pthread_t thread;
    int n = 0;

    (void)arg;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 65536);
    while (n < 10000 && pthread_create(&thread, &attr, idle, NULL) == 0) {
        n++;
    }
    fprintf(out, "%d", n);
}

static void do_call(FILE *out, const char *arg)
{
    unsigned long nr = 0;
    unsigned long a = 0;
    unsigned long b = 0;

    sscanf(arg, "%lu %lu %lu", &nr, &a, &b);
    say_result(out, syscall((long)nr, a, b, 0UL, 0UL, 0UL));
}

static const struct {
    const char *name;
    void (*run)(FILE *out, const char *arg);
} commands[] = {
    {"ids", do_ids},   {"caps", do_caps}, {"limit", do_limit},     {"ls", do_ls},
    {"open", do_open}, {"fds", do_fds},   {"write", do_write},     {"memory", do_memory},
    {"map", do_map},   {"eat", do_eat},   {"threads", do_threads}, {"call", do_call},
};

static void answer(FILE *out, char *line)
{
    char *arg = strchr(line, ' ');

    line[strcspn(line, "\n")] = '\0';
    if (arg) {
        *arg++ = '\0';
    }
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        if (strcmp(commands[i].name, line) == 0) {
            commands[i].run(out, arg ? arg : "");
        }
    }
    fprintf(out, "\n");
    fflush(out);
}

int main(void)
{
    char line[512];
    FILE *in;
    FILE *out;

    connection = accept(PRIV_JAIL_FD(PRIV_FD_CHANNEL), NULL, NULL);
    connection_out = dup(connection);
    in = connection < 0 ? NULL : fdopen(connection, "r");
    out = connection_out < 0 ? NULL : fdopen(connection_out, "w");
    if (!in || !out) {
        return 3;
    }
    while (fgets(line, sizeof(line), in)) {
        answer(out, line);
    }
    return 0;
}

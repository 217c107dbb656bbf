/* SPDX-License-Identifier: Apache-2.0 */
#include "privileged/testbed.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/sock.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define PICTURE_MAX (1u << 20)
#define WAIT_MS 20000
#define MEMORY_MIB 32u
#define SLOTS 16u /* of one testbed */

bool testbed_cgroup_v2(void)
{
    cleanup_buf struct buf b = BUF_INIT(4096);

    return fs_read_file(AT_FDCWD, "/sys/fs/cgroup/cgroup.controllers", &b) == 0 &&
           strstr(buf_str(&b), "memory");
}

struct testbed *testbed_new(const char **why)
{
    static unsigned made;
    static const char *const folders[] = {
        "", "/state", "/state/pool", "/state/pool/sandboxes", "/state/pool/snapshots", "/run"};
    struct testbed *t;

    if (geteuid() != 0) {
        *why = "needs root";
        return NULL;
    }
    if (!testbed_cgroup_v2() && access("/sys/fs/cgroup/pids", W_OK) < 0) {
        *why = "needs cgroups";
        return NULL;
    }
    if (made == 0 &&
        (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)) {
        *why = "needs a mount namespace";
        return NULL;
    }
    t = xnew(struct testbed);
    t->dir = xasprintf("/tmp/space-test-%d-%u", (int)getpid(), made);
    t->cgroup = xasprintf("space-test-%d-%u", (int)getpid(), made);
    /*
     * Other tests run beside us; a dead machine of the last testbed may wait for init to take it.
     */
    t->slot = 1024u + (uint32_t)getpid() % 50u * 1024u + made * SLOTS;
    made++;
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        cleanup_free char *path = xasprintf("%s%s", t->dir, folders[i]);

        ASSERT(mkdir(path, 0755) == 0);
    }
    return t;
}

static char *run_path(const struct testbed *t, const char *name)
{
    return xasprintf("%s/run/%s", t->dir, name);
}

int testbed_start(struct testbed *t, const struct testbed_manager *how)
{
    cleanup_free char *state = xasprintf("%s/state", t->dir);
    cleanup_free char *run = xasprintf("%s/run", t->dir);
    cleanup_free char *socket = run_path(t, "node-manager.sock");
    cleanup_free char *first_uid = xasprintf("%u", TESTBED_FIRST_UID);
    cleanup_free char *at = xasprintf("SPACE_FAULT_AT=%s", how->fault_at ? how->fault_at : "");
    const char *program = getenv(how->faults ? "SPACE_NODE_MANAGER_FAULTS" : "SPACE_NODE_MANAGER");
    const char *const argv[] = {program,
                                "--state-dir",
                                state,
                                "--run-dir",
                                run,
                                "--cgroup",
                                t->cgroup,
                                "--first-uid",
                                how->first_uid ? how->first_uid : first_uid,
                                "--user",
                                how->user ? how->user : "root",
                                "--vmm",
                                how->vmm ? how->vmm : getenv("SPACE_PROBE"),
                                NULL};
    /* In a sanitizer build: the search for leaks at the end needs calls that the manager gave up. */
    const char *const envp[] = {at, "ASAN_OPTIONS=detect_leaks=0",
                                how->fault_kill ? "SPACE_FAULT_KILL=1" : NULL, NULL};
    const struct proc_spec spec = {.argv = argv,
                                   .envp = envp,
                                   .stdin_fd = FD_NONE,
                                   .stdout_fd = FD_NONE,
                                   .stderr_fd = FD_NONE};
    uint64_t deadline_ns = deadline_in_ms(WAIT_MS);
    int r;

    ASSERT(program && argv[12]);
    r = proc_spawn(&spec, &t->manager, NULL);
    while (r == 0) {
        cleanup_close int fd = sock_connect_unix(socket, SOCK_SEQPACKET, NULL);

        if (fd >= 0) {
            break;
        }
        r = deadline_passed(deadline_ns) ? -ETIMEDOUT : 0;
        if (r == 0 && sock_wait(t->manager.pidfd, POLLIN, deadline_in_ms(2)) == 0) {
            r = -ECHILD;
        }
    }
    if (r == 0 && !t->client) {
        t->client = priv_client_new(socket);
    }
    return r;
}

int testbed_stop(struct testbed *t, int signo)
{
    int status = 0;

    if (t->manager.pid > 0) {
        proc_signal(&t->manager, signo);
        ASSERT(proc_wait(&t->manager, deadline_in_ms(WAIT_MS), &status) == 0);
        t->manager.pid = 0;
    }
    return status;
}

/* Whatever a failed test left: by a fresh node manager, which is what it is for. */
static void kill_leftovers(struct testbed *t)
{
    char after[PRIV_ID_SIZE] = "";
    struct priv_machine m;
    int pidfd = FD_NONE;

    if (t->manager.pid == 0 && testbed_start(t, &(struct testbed_manager){0}) < 0) {
        return;
    }
    while (priv_machine_next(t->client, after, &m, &pidfd, NULL) == 1) {
        pidfd = fd_close(pidfd);
        IGNORE_RESULT(priv_machine_kill(t->client, m.id, NULL));
        memcpy(after, m.id, sizeof(after));
    }
}

static void remove_groups(const struct testbed *t)
{
    static const char *const mounts[] = {"", "/pids", "/cpu", "/cpuacct", "/memory"};

    for (size_t i = 0; i < ARRAY_SIZE(mounts); i++) {
        cleanup_free char *path = xasprintf("/sys/fs/cgroup%s/%s", mounts[i], t->cgroup);

        rmdir(path);
    }
}

void testbed_free(struct testbed *t)
{
    if (!t) {
        return;
    }
    kill_leftovers(t);
    testbed_stop(t, SIGTERM);
    remove_groups(t);
    priv_client_free(t->client);
    IGNORE_RESULT(fs_remove_tree(AT_FDCWD, t->dir));
    free(t->dir);
    free(t->cgroup);
    free(t);
}

static int make_file(const struct testbed *t, const char *name, int flags, mode_t mode, off_t size)
{
    cleanup_free char *path = xasprintf("%s/%s", t->dir, name);
    cleanup_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, mode);
    int r;

    ASSERT(fd >= 0 && fchmod(fd, mode) == 0 && ftruncate(fd, size) == 0);
    ASSERT(size == 0 || pwrite(fd, "M", 1, 0) == 1);
    r = open(path, flags | O_CLOEXEC);
    ASSERT(r >= 0);
    return r;
}

void testbed_machine_init(struct testbed *t, struct testbed_machine *m, const char *id,
                          uint32_t slot)
{
    *m = (struct testbed_machine){
        .request = {.uid_slot = t->slot + slot,
                    .vcpus = 1,
                    .memory_mib = MEMORY_MIB,
                    .flags = PRIV_MACHINE_INCOMING},
        .pidfd = FD_NONE,
        .connection = FD_NONE,
        .channel_path = xasprintf("%s/run/%s.channel", t->dir, id),
        .qmp_path = xasprintf("%s/run/%s.qmp", t->dir, id),
    };
    ASSERT(str_copy(m->request.id, sizeof(m->request.id), id) == 0);
    m->fds[PRIV_FD_MEMORY] = make_file(t, "memory", O_RDONLY, 0444, (off_t)MEMORY_MIB << 20);
    m->fds[PRIV_FD_DISK] = make_file(t, "disk", O_RDWR, 0600, 1 << 20);
    m->fds[PRIV_FD_QMP] = sock_listen_unix(m->qmp_path, SOCK_STREAM, 0600, NULL);
    m->fds[PRIV_FD_CHANNEL] = sock_listen_unix(m->channel_path, SOCK_STREAM, 0600, NULL);
    m->fds[PRIV_FD_CONSOLE] = make_file(t, "console", O_WRONLY | O_APPEND, 0600, 0);
    m->fds[PRIV_FD_KERNEL] = FD_NONE;
    m->fds[PRIV_FD_INITRD] = FD_NONE;
    m->fds[PRIV_FD_NET] = FD_NONE;
    m->fds[PRIV_FD_DEVICE_STATE] = make_file(t, "device", O_RDONLY, 0600, 100);
    ASSERT(m->fds[PRIV_FD_QMP] >= 0 && m->fds[PRIV_FD_CHANNEL] >= 0);
}

void testbed_machine_done(struct testbed_machine *m)
{
    if (!m->channel_path) {
        return; /* not initialised, or done */
    }
    for (size_t i = 0; i < PRIV_FD_COUNT_; i++) {
        m->fds[i] = fd_close(m->fds[i]);
    }
    m->pidfd = fd_close(m->pidfd);
    m->connection = fd_close(m->connection);
    unlink(m->channel_path);
    unlink(m->qmp_path);
    free(m->channel_path);
    free(m->qmp_path);
    m->channel_path = m->qmp_path = NULL;
}

int testbed_machine_start(struct testbed *t, struct testbed_machine *m, struct err *e)
{
    int r = priv_machine_start(t->client, &m->request, m->fds, &m->machine, &m->pidfd, e);

    if (r == 0) {
        m->connection = sock_connect_unix(m->channel_path, SOCK_STREAM, NULL);
        r = m->connection < 0 ? m->connection : 0;
    }
    return r;
}

const char *testbed_ask(struct testbed_machine *m, const char *fmt, ...)
{
    static char answer[4096];
    uint64_t deadline_ns = deadline_in_ms(WAIT_MS);
    cleanup_buf struct buf question = BUF_INIT(512);
    size_t len = 0;
    va_list ap;
    int r;

    va_start(ap, fmt);
    r = buf_vprintf(&question, fmt, ap);
    va_end(ap);
    ASSERT(r == 0 && buf_add_str(&question, "\n") == 0);
    answer[0] = '\0';
    if (sock_send_all(m->connection, question.data, question.len, deadline_ns) < 0) {
        return answer;
    }
    while (len < sizeof(answer) - 1) {
        ssize_t n = sock_recv(m->connection, answer + len, 1, deadline_ns);

        if (n <= 0 || answer[len] == '\n') {
            break;
        }
        len++;
    }
    answer[len] = '\0';
    return answer;
}

bool testbed_ended(const struct testbed_machine *m, uint64_t deadline_ns)
{
    return sock_wait(m->pidfd, POLLIN, deadline_ns) == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* The names beneath path, down to depth; files of cgroups are left out. */
static void picture_tree(struct buf *b, const char *path, int depth, bool folders_only)
{
    struct dirent **names = NULL;
    int n = scandir(path, &names, NULL, by_name);

    for (int i = 0; i < n; i++) {
        cleanup_free char *child = xasprintf("%s/%s", path, names[i]->d_name);
        bool folder = names[i]->d_type == DT_DIR;

        if (names[i]->d_name[0] != '.' && (folder || !folders_only)) {
            ASSERT(buf_printf(b, "file %s\n", child) == 0);
            if (folder && depth > 0) {
                picture_tree(b, child, depth - 1, folders_only);
            }
        }
        free(names[i]);
    }
    free(names);
}

static void picture_file(struct buf *b, const char *what, const char *path)
{
    cleanup_buf struct buf content = BUF_INIT(PICTURE_MAX);

    if (fs_read_file(AT_FDCWD, path, &content) == 0) {
        ASSERT(buf_printf(b, "%s\n%s\n", what, buf_str(&content)) == 0);
    }
}

/* Processes that run as one of the users of this testbed. */
static void picture_processes(const struct testbed *t, struct buf *b)
{
    uid_t first = TESTBED_FIRST_UID + t->slot;
    struct dirent *entry;
    DIR *dir = opendir("/proc");

    ASSERT(dir);
    while ((entry = readdir(dir))) {
        struct stat st;

        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9' &&
            fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && st.st_uid >= first &&
            st.st_uid < first + SLOTS) {
            ASSERT(buf_printf(b, "process %s\n", entry->d_name) == 0);
        }
    }
    closedir(dir);
}

char *testbed_picture(struct testbed *t)
{
    static const char *const mounts[] = {"", "/pids", "/cpu", "/cpuacct", "/memory"};
    struct buf b = BUF_INIT(PICTURE_MAX);

    for (size_t i = 0; i < ARRAY_SIZE(mounts); i++) {
        cleanup_free char *path = xasprintf("/sys/fs/cgroup%s/%s", mounts[i], t->cgroup);

        picture_tree(&b, path, 2, /* folders_only */ true);
    }
    picture_tree(&b, t->dir, 4, /* folders_only */ false);
    picture_file(&b, "mounts", "/proc/self/mountinfo");
    picture_processes(t, &b);
    if (t->manager.pid > 0) {
        cleanup_free char *fds = xasprintf("/proc/%d/fd", (int)t->manager.pid);
        cleanup_free char *children =
            xasprintf("/proc/%d/task/%d/children", (int)t->manager.pid, (int)t->manager.pid);

        picture_tree(&b, fds, 0, /* folders_only */ false);
        picture_file(&b, "children", children);
    }
    return buf_take(&b);
}

char *testbed_cgroup_file(struct testbed *t, const char *hierarchy, const char *machine,
                          const char *file)
{
    cleanup_free char *path =
        xasprintf("/sys/fs/cgroup%s%s/%s/%s/%s", testbed_cgroup_v2() ? "" : "/",
                  testbed_cgroup_v2() ? "" : hierarchy, t->cgroup, machine, file);
    struct buf b = BUF_INIT(PICTURE_MAX);

    if (fs_read_file(AT_FDCWD, path, &b) < 0) {
        buf_reset(&b);
        ASSERT(buf_add_str(&b, "") == 0);
    }
    return buf_take(&b);
}

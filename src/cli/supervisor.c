/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/supervisor.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"

#define PROBE_EVERY_MS 25u
#define LOG_ROTATE_BYTES (64u * 1024 * 1024)
#define LAST_WORDS 1200u
#define RUN_ONCE_MS 180000u
#define RUN_ONCE_OUTPUT_MAX 65536u

struct service {
    pid_t pid; /* 0: does not run */
    int pidfd; /* owned */
    bool wanted;
    unsigned quick_ends; /* in a row */
    unsigned restarts;
    uint64_t started_ns;
    uint64_t again_ns; /* when to start it again; DEADLINE_NEVER: no need */
    off_t log_start;   /* where its own words begin in its log */
};

struct supervisor {
    const struct host *host; /* borrowed */
    bool to_files;
    int signal_fd; /* owned */
    sigset_t before;
    int asked; /* the signal that asked us to stop */
    uint64_t since_ms;
    struct service services[HOST_SERVICE_COUNT_];
};

struct supervisor *supervisor_new(const struct host *host, bool to_files)
{
    struct supervisor *sup = xnew(struct supervisor);

    sup->host = host;
    sup->to_files = to_files;
    sup->signal_fd = FD_NONE;
    sup->since_ms = clock_wall_ms();
    sigprocmask(SIG_BLOCK, /* set */ NULL, &sup->before);
    for (size_t i = 0; i < HOST_SERVICE_COUNT_; i++) {
        sup->services[i].pidfd = FD_NONE;
        sup->services[i].again_ns = DEADLINE_NEVER;
    }
    return sup;
}

void supervisor_free(struct supervisor *sup)
{
    if (!sup) {
        return;
    }
    supervisor_stop(sup);
    fd_close(sup->signal_fd);
    free(sup);
}

int supervisor_take_signals(struct supervisor *sup, struct err *e)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    sup->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (sup->signal_fd < 0 || sigprocmask(SIG_BLOCK, &set, &sup->before) < 0) {
        return err_wrap(e, -errno, "taking signals");
    }
    return 0;
}

static bool supervisor_asked(struct supervisor *sup)
{
    struct signalfd_siginfo info;

    if (!sup->asked && read(sup->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        sup->asked = (int)info.ssi_signo;
    }
    return sup->asked != 0;
}

/* What `space status` shows. It is only a picture: losing it loses nothing. */
static void supervisor_write_status(struct supervisor *sup)
{
    cleanup_free char *url = host_url(sup->host);
    json_t *list = json_array();
    cleanup_json json_t *doc = json_pack(
        "{s:i, s:s, s:s, s:s, s:s, s:I, s:o}", "pid", (int)getpid(), "version", SPACE_VERSION,
        "url", url, "listen", sup->host->listen, "state_dir", sup->host->state_dir, "started_at_ms",
        (json_int_t)sup->since_ms, "services", list);
    struct err e = {0};

    ASSERT(doc);
    for (size_t i = 0; i < HOST_SERVICE_COUNT_; i++) {
        const struct service *s = &sup->services[i];

        json_array_append_new(list, json_pack("{s:s, s:i, s:i}", "name",
                                              host_service_name((enum host_service)i), "pid",
                                              (int)s->pid, "restarts", (int)s->restarts));
    }
    if (host_status_write(sup->host, doc, &e) < 0) {
        log_warn(NULL, "%s, ignoring", e.msg);
    }
}

/* ---- one child ---- */

struct child_spec {
    const char *const *argv;
    const struct passwd *user; /* NULL: ours */
    int out_fd;
    int err_fd;
    bool dies_with_us;
};

static int supervisor_user(const char *name, const struct passwd **ret, struct err *e)
{
    *ret = NULL;
    if (!name || geteuid() != 0) {
        return 0;
    }
    errno = 0;
    *ret = getpwnam(name);
    if (!*ret) {
        return err_set(e, -ENOENT, "no_such_user",
                       "there is no user '%s'; 'space up' without --no-setup makes it", name);
    }
    return 0;
}

/* In the child: nothing here may come back, and only what is safe after fork in one thread. */
static void child_run(const struct supervisor *sup, const struct child_spec *spec, pid_t parent,
                      int status_fd)
{
    static const char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    const char *level = getenv("SPACE_LOG");
    char log_level[64];
    const char *envp[] = {path, "LANG=C.UTF-8", NULL, NULL};
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct rlimit files;
    int r;

    if (level &&
        (size_t)snprintf(log_level, sizeof(log_level), "SPACE_LOG=%s", level) < sizeof(log_level)) {
        envp[2] = log_level;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (setpgid(0, 0) < 0 || chdir("/") < 0 || null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 ||
        dup2(spec->out_fd, STDOUT_FILENO) < 0 || dup2(spec->err_fd, STDERR_FILENO) < 0) {
        goto out;
    }
    if (spec->user && (initgroups(spec->user->pw_name, spec->user->pw_gid) < 0 ||
                       setresgid(spec->user->pw_gid, spec->user->pw_gid, spec->user->pw_gid) < 0 ||
                       setresuid(spec->user->pw_uid, spec->user->pw_uid, spec->user->pw_uid) < 0)) {
        goto out;
    }
    /* After the change of user, which would clear it. */
    if (spec->dies_with_us && (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent)) {
        goto out;
    }
    signal(SIGPIPE, SIG_DFL);
    umask(022);
    sigprocmask(SIG_SETMASK, &sup->before, /* old */ NULL);
    execve(spec->argv[0], (char *const *)(uintptr_t)spec->argv, (char *const *)(uintptr_t)envp);
out:
    r = errno;
    IGNORE_RESULT(write(status_fd, &r, sizeof(r))); /* nobody is left to tell */
    _exit(127);
}

static int child_start(const struct supervisor *sup, const struct child_spec *spec, pid_t *ret_pid,
                       int *ret_pidfd, struct err *e)
{
    cleanup_close int read_fd = FD_NONE;
    cleanup_close int write_fd = FD_NONE;
    int failed = 0;
    pid_t parent = getpid();
    pid_t pid;
    int fds[2];
    int pidfd;

    if (pipe2(fds, O_CLOEXEC) < 0) {
        return err_wrap(e, -errno, "starting '%s'", spec->argv[0]);
    }
    read_fd = fds[0];
    write_fd = fds[1];
    fflush(NULL);
    pid = fork();
    if (pid < 0) {
        return err_wrap(e, -errno, "starting '%s'", spec->argv[0]);
    }
    if (pid == 0) {
        child_run(sup, spec, parent, write_fd);
    }
    write_fd = fd_close(write_fd);
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    /* Closed by a successful exec. */
    if (pidfd < 0 || read(read_fd, &failed, sizeof(failed)) == (ssize_t)sizeof(failed)) {
        int r = pidfd < 0 ? -errno : -failed;

        kill(pid, SIGKILL);
        waitpid(pid, /* status */ NULL, 0);
        fd_close(pidfd);
        return r == -ENOENT
                   ? err_set(e, r, "not_installed", "there is no program '%s'; is SPACE installed?",
                             spec->argv[0])
                   : err_wrap(e, r, "starting '%s'", spec->argv[0]);
    }
    *ret_pid = pid;
    *ret_pidfd = pidfd;
    return 0;
}

/* How it ended, in words: "ended with code 1", "was killed by SIGKILL". */
static void status_words(int status, char *ret, size_t size)
{
    if (WIFSIGNALED(status)) {
        snprintf(ret, size, "was killed by SIG%s", sigabbrev_np(WTERMSIG(status)));
    } else {
        snprintf(ret, size, "ended with code %d", WEXITSTATUS(status));
    }
}

/* ---- services ---- */

static int service_log(const struct supervisor *sup, enum host_service which, off_t *ret_start)
{
    cleanup_free char *path =
        xasprintf("%s/%s.log", sup->host->log_dir, host_service_program(which));
    struct stat st;
    int fd;

    *ret_start = 0;
    if (!sup->to_files) {
        return fd_dup(STDERR_FILENO);
    }
    if (stat(path, &st) == 0 && st.st_size > LOG_ROTATE_BYTES) {
        cleanup_free char *old = xasprintf("%s.1", path);

        if (rename(path, old) < 0) {
            log_warn(NULL, "cannot put '%s' aside: %s, ignoring", path, strerror(errno));
        }
    }
    fd = fs_open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0640);
    if (fd == -ENOENT && fs_mkdir_all(sup->host->log_dir, 0755) == 0) {
        /* Somebody has removed the folder: no reason not to start a service again. */
        fd = fs_open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0640);
    }
    if (fd >= 0 && fstat(fd, &st) == 0) {
        *ret_start = st.st_size;
    }
    return fd;
}

#define SERVICE_ARGS_MAX 40

/* What only some have goes last: the list ends at the first NULL. A pair without a name is left out. */
static void add_pairs(const char *argv[static SERVICE_ARGS_MAX], const char *const (*pairs)[2],
                      size_t n_pairs)
{
    size_t n = 0;

    while (argv[n]) {
        n++;
    }
    for (size_t i = 0; i < n_pairs; i++) {
        if (pairs[i][0]) {
            ASSERT(n + 2 < SERVICE_ARGS_MAX);
            argv[n++] = pairs[i][0];
            argv[n++] = pairs[i][1];
        }
    }
}

static void sandbox_manager_args(const struct host *h, const char *argv[static SERVICE_ARGS_MAX])
{
    const char *const pairs[][2] = {
        {h->node_listen ? "--listen" : NULL, h->node_listen},
        {h->node_listen ? "--tls-cert" : NULL, h->node_cert},
        {h->node_listen ? "--tls-key" : NULL, h->node_key},
        {h->node_listen ? "--tls-ca" : NULL, h->node_ca},
    };

    add_pairs(argv, pairs, ARRAY_SIZE(pairs));
}

static void gateway_args(const struct host *h, const char *argv[static SERVICE_ARGS_MAX])
{
    bool others = h->gateway_cert && access(h->gateway_cert, F_OK) == 0;
    const char *const pairs[][2] = {
        {access(SPACE_SHARE_DIR "/console", R_OK) == 0 ? "--console" : NULL,
         SPACE_SHARE_DIR "/console"}, /* served where it is installed */
        {"--domain", h->domain},
        {h->node_name ? "--node-name" : NULL, h->node_name},
        {others ? "--node-cert" : NULL, h->gateway_cert},
        {others ? "--node-key" : NULL, h->gateway_key},
        {others ? "--node-ca" : NULL, h->node_ca},
        {h->node_authority ? "--node-authority" : NULL, h->node_authority},
        {h->database ? "--database" : NULL, h->database},
        {h->database_password_file ? "--database-password-file" : NULL, h->database_password_file},
        {h->tls_listen ? "--tls-listen" : NULL, h->tls_listen},
        {h->tls_listen ? "--tls-cert" : NULL, h->tls_cert},
        {h->tls_listen ? "--tls-key" : NULL, h->tls_key},
    };

    add_pairs(argv, pairs, ARRAY_SIZE(pairs));
}

static int service_spawn(struct supervisor *sup, enum host_service which, struct err *e)
{
    const struct host *h = sup->host;
    cleanup_free char *program = xasprintf("%s/%s", h->libexec_dir, host_service_program(which));
    cleanup_free char *cgroup = host_cgroup(h);
    cleanup_free char *first_uid = xasprintf("%u", host_first_uid(h));
    cleanup_free char *gateway_dir =
        xasprintf("%s/gateway", h->state_dir); /* all that it may see */
    cleanup_free char *credential_dir = xasprintf("%s/credential", h->state_dir);
    cleanup_free char *volume_dir = xasprintf("%s/volume", h->state_dir);
    cleanup_free char *network_dir = xasprintf("%s/network", h->state_dir);
    const char *argvs[HOST_SERVICE_COUNT_][SERVICE_ARGS_MAX] = {
        [HOST_NODE_MANAGER] = {program, "--state-dir", h->state_dir, "--run-dir", h->run_dir,
                               "--user", h->sandbox_user, "--cgroup", cgroup, "--first-uid",
                               first_uid},
        [HOST_SANDBOX_MANAGER] = {program, "--state-dir", h->state_dir, "--run-dir", h->run_dir,
                                  "--gateway-user", h->gateway_user, h->warm ? "--warm" : NULL,
                                  h->warm},
        [HOST_CREDENTIAL_MANAGER] = {program, "--state-dir", credential_dir, "--run-dir",
                                     h->run_dir, "--gateway-user", h->gateway_user,
                                     "--sandbox-user", h->sandbox_user, "--network-user",
                                     h->network_user},
        [HOST_VOLUME_MANAGER] = {program, "--state-dir", volume_dir, "--run-dir", h->run_dir,
                                 "--peer-user", h->sandbox_user},
        [HOST_NETWORK_GATEWAY] = {program, "--state-dir", network_dir, "--run-dir", h->run_dir,
                                  "--peer-user", h->sandbox_user, h->resolver ? "--resolver" : NULL,
                                  h->resolver},
        [HOST_GATEWAY] = {program, "--state-dir", gateway_dir, "--run-dir", h->run_dir, "--listen",
                          h->listen},
    };
    const char *const users[HOST_SERVICE_COUNT_] = {
        [HOST_SANDBOX_MANAGER] = h->sandbox_user, [HOST_CREDENTIAL_MANAGER] = h->credential_user,
        [HOST_VOLUME_MANAGER] = h->volume_user,   [HOST_NETWORK_GATEWAY] = h->network_user,
        [HOST_GATEWAY] = h->gateway_user,
    };
    struct service *s = &sup->services[which];
    cleanup_close int log_fd = service_log(sup, which, &s->log_start);
    struct child_spec spec = {
        .argv = argvs[which], .out_fd = log_fd, .err_fd = log_fd, .dies_with_us = true};
    int r;

    ASSERT(s->pid == 0);
    gateway_args(h, argvs[HOST_GATEWAY]);
    sandbox_manager_args(h, argvs[HOST_SANDBOX_MANAGER]);
    if (log_fd < 0) {
        return err_wrap(e, log_fd, "opening the log of the %s in '%s'", host_service_name(which),
                        h->log_dir);
    }
    r = supervisor_user(users[which], &spec.user, e);
    r = r < 0 ? r : child_start(sup, &spec, &s->pid, &s->pidfd, e);
    if (r < 0) {
        return r;
    }
    s->started_ns = clock_now_ns();
    s->again_ns = DEADLINE_NEVER;
    return 0;
}

/* The end of what it said since it was started, for an error. */
static char *service_last_words(const struct supervisor *sup, enum host_service which)
{
    cleanup_free char *path =
        xasprintf("%s/%s.log", sup->host->log_dir, host_service_program(which));
    cleanup_close int fd = sup->to_files ? fs_open(path, O_RDONLY, 0) : FD_NONE;
    char text[LAST_WORDS + 1];
    struct stat st;
    off_t from;
    ssize_t n;
    char *line;

    if (fd < 0 || fstat(fd, &st) < 0) {
        return xstrdup("");
    }
    from = MAX(sup->services[which].log_start, st.st_size - (off_t)LAST_WORDS);
    n = pread(fd, text, LAST_WORDS, from);
    if (n <= 0) {
        return xstrdup("");
    }
    while (n > 0 && text[n - 1] == '\n') {
        n--;
    }
    text[n] = '\0';
    line = strrchr(text, '\n');
    return xstrdup(line ? line + 1 : text);
}

/* Reaps it when it has ended: true, and how it ended. */
static bool service_reap(struct service *s, char *words, size_t size)
{
    int status;

    if (s->pid == 0 || waitpid(s->pid, &status, WNOHANG) != s->pid) {
        return false;
    }
    status_words(status, words, size);
    s->pid = 0;
    s->pidfd = fd_close(s->pidfd);
    return true;
}

/* Waits for its end or a signal to us. */
static void service_wait(const struct supervisor *sup, const struct service *s, uint64_t ms)
{
    struct pollfd p[] = {{.fd = s->pid ? s->pidfd : -1, .events = POLLIN},
                         {.fd = sup->signal_fd, .events = POLLIN}};

    IGNORE_RESULT(
        poll(p, ARRAY_SIZE(p), (int)ms)); /* whatever happened is looked at by the caller */
}

int supervisor_start(struct supervisor *sup, enum host_service which, struct err *e)
{
    struct service *s = &sup->services[which];
    uint64_t until_ns = deadline_in_ms(SUPERVISOR_START_MS);
    struct err health = {0};
    char words[64];
    int r;

    r = service_spawn(sup, which, e);
    if (r < 0) {
        return r;
    }
    s->wanted = true;
    while (host_health(sup->host, which, &health) < 0) {
        if (supervisor_asked(sup)) {
            return err_set(e, -ECANCELED, "interrupted", "interrupted");
        }
        if (service_reap(s, words, sizeof(words))) {
            cleanup_free char *last = service_last_words(sup, which);

            return err_set(e, -EIO, "service_failed", "the %s %s%s%.250s", host_service_name(which),
                           words, *last ? ": " : "", last);
        }
        if (deadline_passed(until_ns)) {
            return err_set(e, -ETIMEDOUT, "service_silent", "the %s does not answer: %s",
                           host_service_name(which), health.msg);
        }
        health = (struct err){0};
        service_wait(sup, s, PROBE_EVERY_MS);
    }
    supervisor_write_status(sup);
    return 0;
}

static void service_ended(struct service *s, const char *name, const char *words)
{
    uint64_t lived_ms = (clock_now_ns() - s->started_ns) / NS_PER_MS;
    uint64_t wait_ms;

    s->quick_ends = lived_ms < SUPERVISOR_STEADY_MS ? s->quick_ends + 1 : 1;
    wait_ms = (uint64_t)SUPERVISOR_BACKOFF_FIRST_MS << MIN(s->quick_ends - 1, 16u);
    wait_ms = MIN(wait_ms, (uint64_t)SUPERVISOR_BACKOFF_MAX_MS);
    s->again_ns = deadline_in_ms(wait_ms);
    log_error(NULL, "the %s %s; starting it again in %llu ms", name, words,
              (unsigned long long)wait_ms);
}

/* Looks after every service once. */
static void supervisor_tend(struct supervisor *sup)
{
    bool changed = false;

    for (size_t i = 0; i < HOST_SERVICE_COUNT_; i++) {
        struct service *s = &sup->services[i];
        const char *name = host_service_name((enum host_service)i);
        struct err e = {0};
        char words[64];

        if (service_reap(s, words, sizeof(words))) {
            service_ended(s, name, words);
            changed = true;
        }
        if (s->pid || !deadline_passed(s->again_ns)) {
            continue;
        }
        changed = true;
        s->restarts++;
        if (service_spawn(sup, (enum host_service)i, &e) < 0) {
            s->started_ns = clock_now_ns();
            service_ended(s, name, e.msg);
        } else {
            log_info(NULL, "the %s runs again", name);
        }
    }
    if (changed) {
        supervisor_write_status(sup);
    }
}

int supervisor_loop(struct supervisor *sup)
{
    while (!supervisor_asked(sup)) {
        struct pollfd p[HOST_SERVICE_COUNT_ + 1];
        uint64_t next_ns = DEADLINE_NEVER;

        for (size_t i = 0; i < HOST_SERVICE_COUNT_; i++) {
            p[i] = (struct pollfd){.fd = sup->services[i].pid ? sup->services[i].pidfd : -1,
                                   .events = POLLIN};
            next_ns = MIN(next_ns, sup->services[i].again_ns);
        }
        p[HOST_SERVICE_COUNT_] = (struct pollfd){.fd = sup->signal_fd, .events = POLLIN};
        if (poll(p, ARRAY_SIZE(p), deadline_poll_ms(next_ns)) < 0 && errno != EINTR) {
            log_error(NULL, "waiting for the services: %s", strerror(errno));
            break;
        }
        supervisor_tend(sup);
    }
    supervisor_stop(sup);
    return sup->asked;
}

static void service_stop(struct supervisor *sup, enum host_service which)
{
    struct service *s = &sup->services[which];
    struct pollfd p = {.fd = s->pidfd, .events = POLLIN};
    uint64_t until_ns = deadline_in_ms(SUPERVISOR_STOP_MS);
    char words[64];

    s->wanted = false;
    s->again_ns = DEADLINE_NEVER;
    if (s->pid == 0) {
        return;
    }
    kill(s->pid, SIGTERM);
    while (poll(&p, 1, deadline_poll_ms(until_ns)) <= 0) {
        if (deadline_passed(until_ns)) {
            log_error(NULL, "the %s did not end when asked; killing it", host_service_name(which));
            kill(s->pid, SIGKILL);
            until_ns = DEADLINE_NEVER;
        }
    }
    service_reap(s, words, sizeof(words));
}

void supervisor_stop(struct supervisor *sup)
{
    for (size_t i = HOST_SERVICE_COUNT_; i-- > 0;) {
        service_stop(sup, (enum host_service)i);
    }
    host_cgroup_remove(sup->host);
}

/* ---- programs that run to their end ---- */

static char *memfd_text(int fd)
{
    cleanup_buf struct buf text = BUF_INIT(RUN_ONCE_OUTPUT_MAX);

    if (lseek(fd, 0, SEEK_SET) < 0 || fs_read_fd(fd, &text) < 0) {
        return xstrdup("");
    }
    return buf_take(&text);
}

/* Programs of ours put their name before what they say; in an error of ours once is enough. */
static const char *last_line(char *text, const char *program)
{
    size_t len = strlen(text);
    const char *slash = strrchr(program, '/');
    const char *name = slash ? slash + 1 : program;
    char *line;

    while (len > 0 && text[len - 1] == '\n') {
        text[--len] = '\0';
    }
    line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    if (str_starts(line, name) && line[strlen(name)] == ':') {
        line += strlen(name) + 1;
        line += strspn(line, " ");
    }
    return line;
}

int supervisor_run_once(struct supervisor *sup, const char *const *argv, const char *user,
                        char **ret_output, struct err *e)
{
    cleanup_close int out_fd = memfd_create("out", MFD_CLOEXEC);
    cleanup_close int err_fd = memfd_create("err", MFD_CLOEXEC);
    struct child_spec spec = {
        .argv = argv, .out_fd = out_fd, .err_fd = err_fd, .dies_with_us = true};
    struct service child = {.pidfd = FD_NONE};
    uint64_t until_ns = deadline_in_ms(RUN_ONCE_MS);
    char words[64] = "";
    int r;

    if (out_fd < 0 || err_fd < 0) {
        return err_wrap(e, -errno, "starting '%s'", argv[0]);
    }
    r = supervisor_user(user, &spec.user, e);
    r = r < 0 ? r : child_start(sup, &spec, &child.pid, &child.pidfd, e);
    if (r < 0) {
        return r;
    }
    while (!service_reap(&child, words, sizeof(words))) {
        bool late = deadline_passed(until_ns);

        if (late || supervisor_asked(sup)) {
            kill(child.pid, SIGKILL);
            waitpid(child.pid, /* status */ NULL, 0);
            fd_close(child.pidfd);
            return late ? err_set(e, -ETIMEDOUT, NULL, "'%s' does not end", argv[0])
                        : err_set(e, -ECANCELED, "interrupted", "interrupted");
        }
        service_wait(sup, &child, RUN_ONCE_MS);
    }
    if (!str_eq(words, "ended with code 0")) {
        cleanup_free char *said = memfd_text(err_fd);
        const char *line = last_line(said, argv[0]);

        return *line ? err_set(e, -EIO, "setup_failed", "%.380s", line)
                     : err_set(e, -EIO, "setup_failed", "'%s' %s", argv[0], words);
    }
    *ret_output = memfd_text(out_fd);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/vault.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/proc.h"

#define EXEC_MS 10000u
#define ERRORS_MAX 400u
#define CODE_NO_VALUE 2
#define CODE_READ_ONLY 3

struct vault_exec {
    struct vault base;
    char *program; /* owned */
};

/* One run of the program. */
struct run {
    const struct secret *in; /* borrowed; NULL: no input */
    size_t n_in;             /* written so far */
    struct buf out;          /* owned */
    struct buf err;          /* owned */
    int fds[3];              /* our ends; owned */
    uint64_t deadline_ns;
};

static void run_done(struct run *run)
{
    secret_wipe_buf(&run->out);
    buf_done(&run->err);
    for (size_t i = 0; i < 3; i++) {
        run->fds[i] = fd_close(run->fds[i]);
    }
}

static int feed(struct run *run)
{
    ssize_t n = 0;

    if (run->in && run->n_in < run->in->len) {
        n = write(run->fds[0], run->in->p + run->n_in, run->in->len - run->n_in);
        if (n < 0 && errno != EAGAIN && errno != EPIPE) {
            return -errno;
        }
        run->n_in = n < 0 && errno == EPIPE ? run->in->len : run->n_in + (size_t)MAX(n, 0);
    }
    if (!run->in || run->n_in == run->in->len) {
        run->fds[0] = fd_close(run->fds[0]);
    }
    return 0;
}

static int drain(int *fd, struct buf *b)
{
    char data[4096];
    ssize_t n = read(*fd, data, sizeof(data));
    int r = 0;

    if (n > 0) {
        r = buf_add(b, data, (size_t)n);
        explicit_bzero(data, (size_t)n);
    } else if (n == 0) {
        *fd = fd_close(*fd);
    } else if (errno != EAGAIN && errno != EINTR) {
        r = -errno;
    }
    return r;
}

/* Until the program has closed its output and errors. */
static int talk(struct run *run)
{
    int r = 0;

    while (r == 0 && (run->fds[1] >= 0 || run->fds[2] >= 0)) {
        struct pollfd p[3] = {
            {run->fds[0], POLLOUT, 0}, {run->fds[1], POLLIN, 0}, {run->fds[2], POLLIN, 0}};
        int n = poll(p, 3, deadline_poll_ms(run->deadline_ns));

        if (n < 0 && errno != EINTR) {
            return -errno;
        }
        if (n == 0) {
            return -ETIMEDOUT;
        }
        if (p[0].revents) {
            r = feed(run);
        }
        if (r == 0 && p[1].revents) {
            r = drain(&run->fds[1], &run->out);
        }
        if (r == 0 && p[2].revents) {
            r = drain(&run->fds[2], &run->err);
            r = r == -E2BIG ? 0 : r; /* the first of it is enough */
        }
    }
    return r;
}

static int open_pipes(struct run *run, int theirs[static 3])
{
    for (size_t i = 0; i < 3; i++) {
        int fds[2];
        int r;

        if (pipe2(fds, O_CLOEXEC) < 0) {
            return -errno;
        }
        run->fds[i] = i == 0 ? fds[1] : fds[0];
        theirs[i] = i == 0 ? fds[0] : fds[1];
        r = fd_set_nonblock(run->fds[i], true);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static int run_start(const struct vault_exec *v, const char *verb, const char *ref, struct run *run,
                     struct proc *ret, struct err *e)
{
    const char *const argv[] = {v->program, verb, ref, NULL};
    const char *const envp[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                NULL};
    int theirs[3] = {FD_NONE, FD_NONE, FD_NONE};
    struct proc_spec spec = {.argv = argv, .envp = envp, .new_session = true};
    int r = open_pipes(run, theirs);

    if (r == 0) {
        spec.stdin_fd = theirs[0];
        spec.stdout_fd = theirs[1];
        spec.stderr_fd = theirs[2];
        r = proc_spawn(&spec, ret, e);
    }
    for (size_t i = 0; i < 3; i++) {
        fd_close(theirs[i]);
    }
    return r;
}

static int explain(const struct vault_exec *v, struct run *run, int status, struct err *e)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    const char *text = buf_str(&run->err);

    if (code == 0) {
        return 0;
    }
    if (code == CODE_NO_VALUE) {
        return err_set(e, -ENOENT, "no_value", "the vault has no such value");
    }
    if (code == CODE_READ_ONLY) {
        return err_set(e, -EROFS, "vault_read_only", "the vault cannot be written to");
    }
    log_warn(NULL, "the vault program '%s' failed (%d): %.*s", v->program, code,
             (int)strcspn(text, "\n"), text);
    return err_set(e, -EHOSTDOWN, "vault_unavailable", "the vault's program failed");
}

static int run_verb(struct vault *vault, const char *verb, const char *ref, struct run *run,
                    struct err *e)
{
    const struct vault_exec *v = (const struct vault_exec *)vault;
    struct proc proc = {0};
    int status = 0;
    int r;

    run->deadline_ns = deadline_in_ms(EXEC_MS);
    r = run_start(v, verb, ref, run, &proc, e);
    if (r < 0) {
        return err_set(e, -EHOSTDOWN, "vault_unavailable", "the vault's program does not start");
    }
    r = talk(run);
    if (r == 0) {
        r = proc_wait(&proc, run->deadline_ns, &status);
    }
    if (r < 0) {
        kill(-proc.pid, SIGKILL);
        proc_signal(&proc, SIGKILL);
        IGNORE_RESULT(proc_wait(&proc, DEADLINE_NEVER, &status)); /* it was killed */
    }
    fd_close(proc.pidfd);
    if (r == -ETIMEDOUT) {
        return err_set(e, r, "vault_unavailable", "the vault's program does not come to an end");
    }
    return r < 0 ? err_wrap(e, r, "talking to the vault's program") : explain(v, run, status, e);
}

#define RUN_INIT \
    { \
        .out = BUF_INIT(SECRET_MAX), .err = BUF_INIT(ERRORS_MAX), .fds = { \
            FD_NONE, \
            FD_NONE, \
            FD_NONE \
        } \
    }

static int exec_get(struct vault *v, const char *ref, struct secret *ret, struct err *e)
{
    CLEANUP(run_done) struct run run = RUN_INIT;
    int r = run_verb(v, "get", ref, &run, e);

    return r < 0 ? r : secret_init(ret, run.out.data, run.out.len);
}

static int exec_put(struct vault *v, const char *ref, const struct secret *value, struct err *e)
{
    CLEANUP(run_done) struct run run = RUN_INIT;

    run.in = value;
    return run_verb(v, "put", ref, &run, e);
}

static int exec_remove(struct vault *v, const char *ref, struct err *e)
{
    CLEANUP(run_done) struct run run = RUN_INIT;
    int r = run_verb(v, "remove", ref, &run, e);

    return r == -ENOENT ? 0 : r;
}

static void exec_free(struct vault *v)
{
    free(((struct vault_exec *)v)->program);
    free(v);
}

static const struct vault_driver exec_driver = {
    .name = "exec",
    .get = exec_get,
    .put = exec_put,
    .remove = exec_remove,
    .free = exec_free,
};

struct vault *vault_exec_new(const char *program)
{
    struct vault_exec *v = xnew(struct vault_exec);

    v->base.driver = &exec_driver;
    v->program = xstrdup(program);
    return &v->base;
}

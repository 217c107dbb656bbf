/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/command-private.h"

#include "base/clock.h"
#include "base/log.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

static void report_close(struct command *c)
{
    loop_io_free(c->report_io);
    c->report_io = NULL;
    c->report_fd = fd_close(c->report_fd);
}

/* What the child has to tell about itself. True when it ran or never will. */
static bool take_reports(struct command *c)
{
    struct spawn_report report;

    while (c->report_fd >= 0) {
        command_spawn_report(c->report_fd, &report);
        switch (report.event) {
        case SPAWN_NOTHING:
            return false;
        case SPAWN_PTY:
            if (report.fd >= 0) {
                command_streams_open_pty(c, report.fd);
            }
            continue;
        case SPAWN_FAILED: {
            /* Only as much of the request as the texts need. */
            struct command_spec spec = {.argv = c->argv, .cwd = c->cwd, .user = c->user};

            c->never_ran = report.stage != SPAWN_STAGE_EXEC;
            command_spawn_error(&spec, &report, &c->start_error);
            break;
        }
        case SPAWN_RUNNING:
            break;
        }
        report_close(c);
    }
    return true;
}

static void on_report(void *arg, uint32_t events)
{
    struct command *c = arg;

    (void)events;
    if (!take_reports(c) || c->start_error.code) {
        return; /* what failed is told with the exit, which follows at once */
    }
    if (c->state == COMMAND_STARTING) {
        command_set_state(c, COMMAND_RUNNING);
    }
    command_notify(c);
}

static void timer_set(struct command *c, enum command_timer_phase phase, uint64_t ms);

static void on_timer(void *arg)
{
    struct command *c = arg;

    if (c->phase == TIMER_TIMEOUT) {
        c->timed_out |= !c->reaped;
        timer_set(c, TIMER_GRACE, c->t->config.limits.grace_ms);
        if (c->cgroup && cgroup_signal(c->cgroup, SIGTERM) == 0) {
            IGNORE_RESULT(
                cgroup_signal(c->cgroup, SIGCONT)); /* a stopped process must wake to see it */
        }
        return;
    }
    timer_set(c, TIMER_OFF, 0);
    if (c->cgroup) {
        cgroup_kill(c->cgroup);
    }
}

static void timer_set(struct command *c, enum command_timer_phase phase, uint64_t ms)
{
    c->phase = phase;
    if (phase == TIMER_OFF && !c->timer) {
        return;
    }
    if (!c->timer) {
        c->timer = loop_add_timer(c->t->config.loop, on_timer, c);
    }
    loop_timer_set(c->timer, phase == TIMER_OFF ? DEADLINE_NEVER : deadline_in_ms(ms));
}

void command_release_tree(struct command *c)
{
    loop_timer_free(c->timer);
    c->timer = NULL;
    c->phase = TIMER_OFF;
    cgroup_free(c->cgroup);
    c->cgroup = NULL;
}

/* Deleted, or never a command for the client: leaves the table once nothing of it lives. */
static void check_gone(struct command *c)
{
    if (c->state == COMMAND_ENDED && !c->cgroup && (c->deleting || c->never_ran)) {
        command_set_state(c, COMMAND_GONE);
    }
}

static void on_tree_empty(void *arg)
{
    struct command *c = arg;
    struct commands *t = c->t;

    command_release_tree(c);
    check_gone(c);
    command_notify(c);
    command_table_trim(t, t->config.limits.ended_max);
}

void command_check_drained(struct command *c)
{
    if (c->state != COMMAND_DRAINING || !command_streams_drained(c)) {
        return;
    }
    command_set_state(c, COMMAND_ENDED);
    c->end_offset = output_end(c->output);
    output_settle(c->output);
    check_gone(c);
}

static void on_exit_of_process(void *arg, const struct child_exit *x)
{
    struct command *c = arg;

    take_reports(c);
    report_close(c);
    c->reaped = true;
    c->ended_at_ms = clock_wall_ms();
    c->signo = x->code == CLD_EXITED ? 0 : x->status;
    c->exit_code = x->code == CLD_EXITED ? x->status : 128 + x->status;
    c->oom_killed = cgroup_oom_kills(c->cgroup) > 0;
    cgroup_leader_gone(c->cgroup);
    command_stdin_shut(c);
    command_set_state(c, COMMAND_DRAINING);
    command_streams_drain(c);
    if (c->deleting) {
        command_streams_close(c); /* a reader that stands still may not hold up the end */
    }
    /* The usual case is told to listeners at once; the cgroup is taken away after they have answered. */
    command_check_drained(c);
    cgroup_on_empty(c->cgroup, on_tree_empty, c);
    command_notify(c);
}

/* Shortens what will be shown for hours; the child has its own copy. */
static void keep_argv(struct command *c, char **argv_take)
{
    size_t total = 0;

    c->argv = argv_take;
    for (char **arg = c->argv; *arg; arg++) {
        size_t len = strlen(*arg);
        size_t room = COMMAND_SHOWN_MAX - total;
        char *shortened;

        if (len < room) {
            total += len + 1;
            continue;
        }
        while (room > 0 && ((*arg)[room] & 0xc0) == 0x80) {
            room--; /* never within a character */
        }
        shortened = xasprintf("%.*s\xe2\x80\xa6", (int)room, *arg); /* and an ellipsis */
        free(*arg);
        *arg = shortened;
        for (char **rest = arg + 1; *rest; rest++) {
            free(*rest);
            *rest = NULL;
        }
        return;
    }
}

static void keep_description(struct command *c, struct command_spec *spec,
                             const struct workload_user *user)
{
    keep_argv(c, TAKE_PTR(spec->argv));
    c->cwd = spec->cwd ? TAKE_PTR(spec->cwd) : xstrdup(user ? user->home : ".");
    c->user = spec->user ? TAKE_PTR(spec->user) : xstrdup(user ? user->name : "");
    c->tag = TAKE_PTR(spec->tag);
    c->pty = spec->pty;
    c->started_at_ms = clock_wall_ms();
}

static char **make_env(const struct commands *t, const struct command *c,
                       const struct command_spec *spec, const struct workload_user *user)
{
    CLEANUP(strings_freep) char **env = NULL;
    CLEANUP(strings_freep) char **mark = NULL;
    CLEANUP(workload_env_freep) char **base = NULL;

    if (t->config.workload) {
        base = workload_env(t->config.workload, user);
    }
    env = command_env(base, spec->env, spec->pty);
    if (!cgroups_need_mark(t->cgroups)) {
        return TAKE_PTR(env);
    }
    mark = xnew_n(char *, 2);
    mark[0] = xasprintf("%s=%s", COMMAND_MARK, c->id);
    return command_env(env, mark, spec->pty);
}

static int spawn(struct command *c, const struct command_spec *spec,
                 const struct workload_user *user, struct err *e)
{
    struct commands *t = c->t;
    CLEANUP(strings_freep) char **env = make_env(t, c, spec, user);
    struct command_process process;
    struct command_spawn s = {
        .spec = spec,
        .env = env,
        .workload = t->config.workload,
        .user = user,
    };
    int r = cgroup_new(t->cgroups, c->id, &c->cgroup, e);

    if (r < 0) {
        return r;
    }
    s.cgroup_fd = cgroup_fd(c->cgroup);
    r = command_spawn(&s, &process, e);
    if (r < 0) {
        return r;
    }
    c->pid = process.pid;
    cgroup_leader(c->cgroup, c->pid);
    children_watch(t->config.children, c->pid, on_exit_of_process, c);
    c->report_fd = process.report_fd;
    c->report_io = loop_add_io(t->config.loop, c->report_fd, EPOLLIN, on_report, c);
    command_streams_open(c, &process);
    if (spec->timeout_ms > 0) {
        timer_set(c, TIMER_TIMEOUT, spec->timeout_ms);
    }
    return 0;
}

int command_start(struct commands *t, struct command_spec *spec_take, struct command **ret,
                  struct err *e)
{
    cleanup_command_spec struct command_spec spec = *spec_take;
    struct workload_user user;
    struct command *c;
    int r;

    ASSERT(t && spec.argv && spec.argv[0] && ret);

    memset(spec_take, 0, sizeof(*spec_take));
    r = command_table_make_room(t, e);
    if (r == 0 && spec.id[0] && command_find(t, spec.id)) {
        r = err_set(e, -EEXIST, "command_exists", "there is a command %s already", spec.id);
    }
    if (r == 0 && t->config.workload) {
        r = workload_user(t->config.workload, spec.user, &user, e);
        if (r == -ENOENT) { /* the request's mistake, not a missing page */
            r = -EINVAL;
            if (e) {
                e->code = r;
            }
        }
    }
    if (r < 0) {
        return r;
    }
    c = command_table_add(t, spec.id);
    r = spawn(c, &spec, t->config.workload ? &user : NULL, e);
    if (r < 0) {
        command_set_state(c, COMMAND_DRAINING);
        command_set_state(c, COMMAND_ENDED);
        command_set_state(c, COMMAND_GONE);
        command_release_tree(c);
        command_notify(c);
        return r;
    }
    keep_description(c, &spec, t->config.workload ? &user : NULL);
    *ret = c;
    return 0;
}

int command_signal(struct command *c, int signo, bool tree, struct err *e)
{
    bool sent;

    if (tree && signo == SIGKILL) {
        sent = c->cgroup && cgroup_populated(c->cgroup);
        if (sent) {
            cgroup_kill(c->cgroup);
        }
    } else if (tree) {
        sent = c->cgroup && cgroup_signal(c->cgroup, signo) == 0;
    } else {
        sent = !c->reaped && kill(c->pid, signo) == 0;
    }
    if (!sent) {
        return err_set(e, -ESTALE, "not_running", "no process of this command is running any more");
    }
    return 0;
}

static void hang_up(struct command *c)
{
    if (c->pty || c->reaped) {
        command_streams_close(c); /* for a terminal: the kernel sends SIGHUP to its session */
    }
    if (c->pty && !c->reaped) {
        timer_set(c, TIMER_GRACE, c->t->config.limits.grace_ms);
    } else if (c->cgroup) {
        cgroup_kill(c->cgroup);
    }
    command_check_drained(c);
}

void command_hang_up(struct command *c)
{
    hang_up(c);
    command_notify(c);
}

void command_delete(struct command *c)
{
    if (c->deleting) {
        return;
    }
    c->deleting = true;
    hang_up(c);
    check_gone(c);
    command_notify(c);
}

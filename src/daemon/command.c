/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/command-private.h"

#include <signal.h>
#include <string.h>

const struct command_limits command_limits_default = {
    .alive_max = 512,
    .ended_max = 256,
    .output_bytes = (size_t)1024 * 1024,
    .output_total_bytes = (size_t)12 * 1024 * 1024,
    .grace_ms = 1000,
};

#define TO(state_) (1u << COMMAND_##state_)
static const unsigned allowed[COMMAND_STATE_COUNT_] = {
    [COMMAND_STARTING] = TO(RUNNING) | TO(DRAINING),
    [COMMAND_RUNNING] = TO(DRAINING),
    [COMMAND_DRAINING] = TO(ENDED),
    [COMMAND_ENDED] = TO(GONE),
};

struct commands *commands_new(const struct commands_config *config)
{
    struct commands *t = xnew(struct commands);

    ASSERT(config && config->loop && config->children);

    /* A program that stops reading its input is no reason to die. */
    signal(SIGPIPE, SIG_IGN);
    t->config = *config;
    t->budget.max = config->limits.output_total_bytes;
    t->scratch = xmalloc(COMMAND_READ_SIZE);
    t->cgroups = cgroups_new(config->loop, config->cgroup_base_fd);
    return t;
}

static void table_remove(struct command *c)
{
    struct commands *t = c->t;

    *(c->prev ? &c->prev->next : &t->first) = c->next;
    *(c->next ? &c->next->prev : &t->last) = c->prev;
    c->next = NULL;
    c->prev = NULL;
    c->listed = false;
    t->n--;
}

static void command_free(struct command *c)
{
    ASSERT(!c->listeners && !c->notifying);

    if (c->listed) {
        table_remove(c);
    }
    if (c->pid > 0 && !c->reaped) {
        children_forget(c->t->config.children, c->pid);
    }
    command_streams_close(c);
    loop_io_free(c->report_io);
    fd_close(c->report_fd);
    loop_timer_free(c->wake);
    command_release_tree(c);
    output_free(c->output);
    strings_free(c->argv);
    free(c->cwd);
    free(c->user);
    free(c->tag);
    free(c);
}

void commands_free(struct commands *t)
{
    if (!t) {
        return;
    }
    while (t->first) {
        if (t->first->cgroup) {
            cgroup_kill(t->first->cgroup);
        }
        command_free(t->first);
    }
    cgroups_sweep(t->cgroups);
    cgroups_free(t->cgroups);
    free(t->scratch);
    free(t);
}

void commands_delete_all(struct commands *t)
{
    struct command *next;

    for (struct command *c = t->first; c; c = next) {
        next = c->next;
        if (c->cgroup) {
            cgroup_kill(c->cgroup);
        }
        command_delete(c);
    }
    cgroups_kill_all(t->cgroups);
}

/* Has processes, or may have. */
static bool is_alive(const struct command *c)
{
    return c->cgroup || c->state < COMMAND_ENDED;
}

void commands_figures(const struct commands *t, struct commands_figures *ret)
{
    *ret = (struct commands_figures){.n_remembered = t->n, .cgroups = cgroups_kind(t->cgroups)};
    for (const struct command *c = t->first; c; c = c->next) {
        ret->n_running += c->state < COMMAND_ENDED;
        ret->n_alive += is_alive(c);
        ret->output_bytes += output_memory(c->output);
    }
}

/* Ended commands give up what is old when all rings together have become large; running ones come first. */
static void reclaim_output(struct commands *t)
{
    if (t->budget.used <= t->budget.max / 4 * 3) {
        return;
    }
    for (struct command *c = t->first; c && t->budget.used > t->budget.max / 2; c = c->next) {
        uint64_t end = output_end(c->output);

        if (c->state == COMMAND_ENDED && !c->listeners && end > OUTPUT_START) {
            output_trim(c->output, end - OUTPUT_START);
        }
    }
}

void command_table_trim(struct commands *t, size_t keep)
{
    size_t n_ended = 0;
    struct command *next;

    for (const struct command *c = t->first; c; c = c->next) {
        n_ended += !is_alive(c);
    }
    for (struct command *c = t->first; c && n_ended > keep; c = next) {
        next = c->next;
        if (!is_alive(c) && !c->listeners) {
            command_free(c);
            n_ended--;
        }
    }
    reclaim_output(t);
}

int command_table_make_room(struct commands *t, struct err *e)
{
    size_t n_alive = 0;

    for (const struct command *c = t->first; c; c = c->next) {
        n_alive += is_alive(c);
    }
    if (n_alive >= t->config.limits.alive_max) {
        return err_set(e, -EUSERS, "too_many_commands",
                       "%zu commands have processes running, more are not allowed: wait, or "
                       "delete some",
                       n_alive);
    }
    return 0;
}

struct command *command_table_add(struct commands *t, const char *id)
{
    struct command *c = xnew(struct command);

    c->t = t;
    c->serial = ++t->serial;
    if (id[0]) {
        memcpy(c->id, id, sizeof(c->id));
    } else {
        id_new(ID_COMMAND, c->id);
    }
    c->report_fd = FD_NONE;
    c->in_fd = FD_NONE;
    c->streams[0].fd = FD_NONE;
    c->streams[1].fd = FD_NONE;
    c->output = output_new(&t->budget, t->config.limits.output_bytes);
    c->prev = t->last;
    *(t->last ? &t->last->next : &t->first) = c;
    t->last = c;
    t->n++;
    c->listed = true;
    return c;
}

void command_set_state(struct command *c, enum command_state state)
{
    ASSERT(allowed[c->state] & (1u << state));

    c->state = state;
    if (state == COMMAND_GONE && c->listed) {
        table_remove(c);
    }
}

struct command *command_find(const struct commands *t, const char *id)
{
    for (struct command *c = t->first; c; c = c->next) {
        if (str_eq(c->id, id)) {
            return c;
        }
    }
    return NULL;
}

struct command *command_after(const struct commands *t, uint64_t serial)
{
    struct command *c = t->first;

    while (c && c->serial <= serial) {
        c = c->next;
    }
    return c;
}

void command_view(const struct command *c, struct command_view *ret)
{
    *ret = (struct command_view){
        .id = c->id,
        .serial = c->serial,
        .pid = c->pid,
        .argv = c->argv,
        .user = c->user,
        .cwd = c->cwd,
        .tag = c->tag,
        .pty = c->pty,
        .state = c->state,
        .started_at_ms = c->started_at_ms,
        .ended_at_ms = c->ended_at_ms,
        .exit_code = c->exit_code,
        .signo = c->signo,
        .oom_killed = c->oom_killed,
        .timed_out = c->timed_out,
        .error = c->start_error.code ? c->start_error.msg : NULL,
        .output_bytes = output_end(c->output),
        .output_offset = output_first(c->output),
    };
}

int command_started(const struct command *c, struct err *e)
{
    if (c->state == COMMAND_STARTING) {
        return -EINPROGRESS;
    }
    if (c->never_ran) {
        if (e) {
            *e = c->start_error;
        }
        return c->start_error.code;
    }
    return 0;
}

bool command_ended(const struct command *c)
{
    return c->state >= COMMAND_ENDED;
}

bool command_gone(const struct command *c)
{
    return c->state == COMMAND_GONE;
}

/* Frees what is out of the table and unheard. */
static void release_if_gone(struct command *c)
{
    if (c->state == COMMAND_GONE && !c->listeners && !c->notifying) {
        command_free(c);
    }
}

void command_notify(struct command *c)
{
    struct command_listener *l;

    ASSERT(!c->notifying);

    c->notifying = true;
    c->event++;
    /* From the start after each call: it may have removed itself or others, or added some. */
    for (l = c->listeners; l;) {
        if (l->seen == c->event) {
            l = l->next;
            continue;
        }
        l->seen = c->event;
        l->fn(l);
        l = c->listeners;
    }
    c->notifying = false;
    release_if_gone(c);
}

void command_listen(struct command *c, struct command_listener *l)
{
    struct command_listener **at = &c->listeners;

    ASSERT(!l->command && l->fn);

    l->prev = NULL;
    while (*at) {
        l->prev = *at;
        at = &(*at)->next;
    }
    *at = l;
    l->next = NULL;
    l->command = c;
    l->seen = c->event;
    /* One that comes after the end gets what there is by then; late output counts. */
    l->until = c->state >= COMMAND_ENDED ? output_end(c->output) : UINT64_MAX;
}

static void on_wake(void *arg)
{
    command_notify(arg);
}

/* command_notify() from the loop. */
static void wake_later(struct command *c)
{
    if (!c->wake) {
        c->wake = loop_add_timer(c->t->config.loop, on_wake, c);
    }
    loop_timer_set(c->wake, /* at once */ 0);
}

void command_unlisten(struct command_listener *l)
{
    struct command *c = l->command;

    if (!c) {
        return;
    }
    *(l->prev ? &l->prev->next : &c->listeners) = l->next;
    if (l->next) {
        l->next->prev = l->prev;
    }
    l->command = NULL;
    command_streams_resume(c);
    if (l->writes) {
        wake_later(c); /* it is the next one's turn */
    }
    release_if_gone(c);
}

static uint64_t until_of(const struct command_listener *l)
{
    if (l->until != UINT64_MAX) {
        return l->until;
    }
    return l->command->state >= COMMAND_ENDED ? l->command->end_offset : UINT64_MAX;
}

void command_item(const struct command_listener *l, size_t max, struct command_item *ret)
{
    const struct command *c = l->command;
    uint64_t first = output_first(c->output);
    uint64_t until = until_of(l);

    *ret = (struct command_item){.kind = COMMAND_ITEM_NOTHING};
    if (l->offset >= until) {
        ret->kind = COMMAND_ITEM_END;
    } else if (l->offset < first) {
        ret->kind = COMMAND_ITEM_GAP;
        ret->from = l->offset;
        ret->to = MIN(first, until);
    } else if (output_peek(c->output, l->offset, &ret->run)) {
        ret->kind = COMMAND_ITEM_DATA;
        ret->run.len =
            MIN(MIN(ret->run.len, max), (size_t)MIN(until - l->offset, (uint64_t)SIZE_MAX));
    }
}

void command_advance(struct command_listener *l, const struct command_item *item)
{
    if (item->kind == COMMAND_ITEM_DATA) {
        l->offset += item->run.len;
    } else if (item->kind == COMMAND_ITEM_GAP) {
        l->offset = item->to;
    }
    if (l->holds) {
        command_streams_resume(l->command);
    }
}

bool command_write_turn(const struct command_listener *l)
{
    for (const struct command_listener *other = l->command->listeners; other != l;
         other = other->next) {
        if (other->writes) {
            return false;
        }
    }
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands: the engine behind /commands. Knows nothing of HTTP.
 *
 * A command is one process that a client asked for, its tree, its streams, and what is remembered of it.
 *
 *     STARTING   forked; whether the program can be executed is not known yet
 *        |  \
 *        |   RUNNING    the program runs
 *        |  /
 *     DRAINING   its process has ended and is reaped; what it had written is still in the pipes
 *        |
 *     ENDED      its output up to end_offset is in the ring; exit and output may be told to clients
 *        |
 *     GONE       deleted or evicted, no process left: out of the table, freed with its last listener
 *
 * The end is decided by the process, never by the end of its streams: what it started in the background may
 * hold the pipes for hours (F01). At the moment of the exit the pipes are asked how much they hold, and so much
 * is read before the command counts as ended (F05). What comes later is still recorded on the same command. The
 * rest of its tree lives on until DELETE, a kill, or the timeout.
 *
 * Timeout: SIGTERM (and SIGCONT) to the whole tree, grace_ms later SIGKILL. Deletion: SIGKILL to the whole tree
 * at once; a terminal is hung up first and its programs have grace_ms to see SIGHUP.
 *
 * Listeners are how others see all this. A listener hangs on one command and is called whenever something may
 * be new for it: started, output, room for input, ended, gone. It then asks. A listener with `holds` set
 * makes its offset sacred: the pipes are not read when there would be no room before it (backpressure), so that
 * it loses nothing; without one the ring keeps the newest bytes. A command with a listener is not freed.
 *
 * Everything is one thread; nothing blocks. Listener functions may call anything here.
 */
#pragma once

#include "base/id.h"
#include "base/loop.h"
#include "daemon/children.h"
#include "daemon/command-spec.h"
#include "daemon/output.h"
#include "daemon/workload.h"

/* What is remembered of the arguments, for showing: a megabyte of them is not kept for hours. */
#define COMMAND_SHOWN_MAX 4096

enum command_state {
    COMMAND_STARTING,
    COMMAND_RUNNING,
    COMMAND_DRAINING,
    COMMAND_ENDED,
    COMMAND_GONE,
    COMMAND_STATE_COUNT_,
};

struct command_limits {
    size_t alive_max;          /* commands with a process of theirs alive */
    size_t ended_max;          /* ended ones that are remembered */
    size_t output_bytes;       /* kept for each */
    size_t output_total_bytes; /* kept for all */
    uint64_t grace_ms;         /* between SIGTERM and SIGKILL, SIGHUP and SIGKILL */
};
extern const struct command_limits command_limits_default;

struct commands_config {
    struct loop *loop;         /* borrowed: lives longer */
    struct children *children; /* borrowed: lives longer */
    struct workload
        *workload; /* borrowed: lives longer; NULL in tests: commands run where we are, as we are */
    int cgroup_base_fd; /* borrowed: lives longer; FD_NONE: see cgroup.h */
    struct command_limits limits;
};

struct commands;
struct command;

struct command_listener {
    void (*fn)(struct command_listener *l);
    void *arg;       /* borrowed: the listener's owner's */
    bool holds;      /* nothing at or after offset may be dropped */
    bool writes;     /* stands in the line for standard input */
    uint64_t offset; /* where it reads; command_advance() moves it */
    /* private */
    struct command *command;
    struct command_listener *next;
    struct command_listener *prev;
    uint64_t seen;
    uint64_t until;
};

enum command_item_kind {
    COMMAND_ITEM_NOTHING, /* not yet */
    COMMAND_ITEM_DATA,
    COMMAND_ITEM_GAP, /* bytes from..to are no longer there */
    COMMAND_ITEM_END,
};

struct command_item {
    enum command_item_kind kind;
    struct output_run run;
    uint64_t from;
    uint64_t to;
};

/* What can be told about a command; all borrowed: lives as long as the command, until it changes. */
struct command_view {
    const char *id;
    uint64_t serial; /* counts up from 1 */
    pid_t pid;
    char *const *argv;
    const char *user;
    const char *cwd;
    const char *tag; /* NULL: none */
    bool pty;
    enum command_state state;
    uint64_t started_at_ms;
    uint64_t ended_at_ms; /* these four from DRAINING on */
    int exit_code;
    int signo; /* 0: not by a signal */
    bool oom_killed;
    bool timed_out;
    const char *error; /* NULL: none; why the program was never executed */
    uint64_t output_bytes;
    uint64_t output_offset;
};

struct commands_figures {
    size_t n_running; /* have not ended */
    size_t n_alive;   /* or have left processes behind */
    size_t n_remembered;
    size_t output_bytes;
    const char *cgroups; /* static */
};

struct commands *commands_new(const struct commands_config *config);
/* Kills everything, forgets everything, does not wait. No listener may be left. */
void commands_free(struct commands *t);
DEFINE_CLEANUP(struct commands *, commands_free);
/* Deletes all commands; they go as the loop runs. */
void commands_delete_all(struct commands *t);
void commands_figures(const struct commands *t, struct commands_figures *ret);

/*
 * Forks; the command is STARTING. spec is taken over in any case. -EUSERS "too_many_commands", -EAGAIN
 * "process_limit", -EINVAL "user_not_found" are meant for the client. -EEXIST: spec's id is taken.
 */
MUST_CHECK int command_start(struct commands *t, struct command_spec *spec_take,
                             struct command **ret, struct err *e);
/* NULL: there is none. Borrowed: until the next return to the loop, unless listened to. */
struct command *command_find(const struct commands *t, const char *id);
/* The oldest whose serial number is larger than this one, so that a walk can be taken up later; NULL: no more. */
struct command *command_after(const struct commands *t, uint64_t serial);
void command_view(const struct command *c, struct command_view *ret);
/* Once started, or the failure to start at all (cwd, user): then the command will be gone. -EINPROGRESS: not yet. */
MUST_CHECK int command_started(const struct command *c, struct err *e);
bool command_ended(const struct command *c);
bool command_gone(const struct command *c);

void command_listen(struct command *c, struct command_listener *l);
/* Safe for one that does not listen. */
void command_unlisten(struct command_listener *l);
/* What a reader has next. Data is at most max bytes; nothing moves until command_advance(). */
void command_item(const struct command_listener *l, size_t max, struct command_item *ret);
void command_advance(struct command_listener *l, const struct command_item *item);

/*
 * Input, for the listener that stands first in the line (command_write_turn). Returns how much was taken: 0 means
 * the program is slow, the listener is called when there is room. -EPIPE: nobody reads any more, or never did.
 */
bool command_write_turn(const struct command_listener *l);
ssize_t command_write(struct command *c, const void *data, size_t len);
bool command_stdin_open(const struct command *c);
/* End of file; on a terminal, its end-of-file character. */
void command_close_stdin(struct command *c);

/* -ESTALE "not_running": nothing is there to be signalled. tree: every process of it, else its own process. */
MUST_CHECK int command_signal(struct command *c, int signo, bool tree, struct err *e);
/* Sets -ESTALE "no_terminal" and returns it. */
int command_no_terminal(struct err *e);
/* -ESTALE "no_terminal", "not_running". */
MUST_CHECK int command_resize(struct command *c, struct pty_size size, struct err *e);
/* The client has gone: kills the tree, at once or, if it has a terminal, grace_ms after SIGHUP. */
void command_hang_up(struct command *c);
/* Hangs up and forgets the command; listeners are called when it is gone. */
void command_delete(struct command *c);

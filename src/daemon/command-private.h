/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by command.c, command-life.c and command-stream.c only; see command.h. */
#pragma once

#include "daemon/cgroup.h"
#include "daemon/command-spawn.h"
#include "daemon/command.h"

#define COMMAND_READ_SIZE (64u * 1024)

enum command_timer_phase {
    TIMER_OFF,
    TIMER_TIMEOUT,
    TIMER_GRACE
};

/* Output: one pipe, or the master of a terminal. */
struct command_stream {
    struct command *c;  /* borrowed: contains it */
    int fd;             /* owned */
    struct loop_io *io; /* owned */
    enum output_kind kind;
    size_t drain_left; /* in DRAINING: bytes that were in it when the process ended */
};

struct commands {
    struct commands_config config;
    struct cgroups *cgroups; /* owned */
    struct output_budget budget;
    char *
        scratch; /* owned; COMMAND_READ_SIZE: what is read from a pipe, before it goes into the ring */
    struct command *first; /* owned: oldest */
    struct command *last;
    size_t n;
    uint64_t serial; /* of the newest */
};

struct command {
    struct commands *t; /* borrowed: lives longer */
    struct command *next;
    struct command *prev;
    char id[ID_SIZE];
    uint64_t serial;
    enum command_state state;
    bool listed;   /* in the table */
    bool deleting; /* will be GONE when the last process has ended */
    bool notifying;

    char **argv; /* owned; shortened for showing */
    char *cwd;   /* owned */
    char *user;  /* owned */
    char *tag;   /* owned; NULL: none */
    bool pty;

    pid_t pid; /* stays for showing */
    bool reaped;
    struct cgroup *cgroup;     /* owned; NULL: every process has ended */
    int report_fd;             /* owned */
    struct loop_io *report_io; /* owned */
    struct loop_timer *timer;  /* owned; made when needed */
    enum command_timer_phase phase;

    struct output *output;            /* owned */
    struct command_stream streams[2]; /* stdout (or the terminal) and stderr */
    int in_fd;                        /* owned */
    struct loop_io *in_io;            /* owned */
    bool eof_due;                     /* a terminal's end-of-file character waits for room */

    struct command_listener *listeners; /* borrowed: unlisten themselves */
    uint64_t event;                     /* counts what listeners are told */
    struct loop_timer *wake;            /* owned; made when needed */

    uint64_t started_at_ms;
    uint64_t ended_at_ms;
    uint64_t
        end_offset; /* from ENDED on: output that belongs to the life of the process ends here */
    int exit_code;
    int signo;
    bool oom_killed;
    bool timed_out;
    bool never_ran; /* could not start for a reason that is the request's error, in start_error */
    struct err start_error; /* code 0: none */
};

/* ---- command.c: objects, table, listeners ---- */
/* Forgets the oldest ended ones that nobody listens to, and old output where there is too much. */
void command_table_trim(struct commands *t, size_t keep);
/* -EUSERS when there are too many with living processes. */
MUST_CHECK int command_table_make_room(struct commands *t, struct err *e);
/* A new command in the table, STARTING. */
/* id "": a new one. */
struct command *command_table_add(struct commands *t, const char *id);
void command_set_state(struct command *c, enum command_state state);
/* Calls every listener, then frees the command if nothing holds it any more: c may be gone afterwards. */
void command_notify(struct command *c);

/* ---- command-life.c: start, end, kill ---- */
/* Ends DRAINING when everything has been read. */
void command_check_drained(struct command *c);
/* Stops the timer and the tree watch and frees what only a living command needs. */
void command_release_tree(struct command *c);

/* ---- command-stream.c: bytes in and out ---- */
void command_streams_open(struct command *c, struct command_process *p);
/* A terminal's master has arrived; taken over. */
void command_streams_open_pty(struct command *c, int master_take);
/* The process has ended: note what is in the pipes, and read it as far as there is room. */
void command_streams_drain(struct command *c);
/* A reader has moved on, or there is no reader: read again what was held back. */
void command_streams_resume(struct command *c);
/* Hangs up: closes all. */
void command_streams_close(struct command *c);
bool command_streams_drained(const struct command *c);
void command_stdin_shut(struct command *c);

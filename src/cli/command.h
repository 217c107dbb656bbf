/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command in a sandbox, as requests: what the stream and the terminal have in common.
 */
#pragma once

#include "cli/cli.h"
#include "cli/sigs.h"

/* A command that SIGTERM or SIGHUP was passed to gets this long before it and all it started are killed. */
#define COMMAND_GRACE_MS 10000u
/* How long we try to find a command again after the connection broke. */
#define COMMAND_REATTACH_MS 90000u
#define COMMAND_TAG_SIZE 33

struct command_spec {
    const char *sandbox; /* borrowed */
    json_t *body;        /* borrowed: what to start; NULL: attach */
    const char *attach;  /* borrowed: the command to attach to */
    bool with_stdin;
    bool capture;            /* keep the output for --json instead of writing it */
    const struct sigs *sigs; /* borrowed */
};

struct command_end {
    int code;         /* to exit with */
    json_t *command;  /* owned: its last state; NULL when we gave it up */
    bool gave_up;     /* killed by a second Ctrl-C or at the end of the grace */
    bool detached;    /* left running on purpose */
    char id[ID_SIZE]; /* empty: it was never started */
};
void command_end_done(struct command_end *end);

/* The body of POST commands from the options, argv, and a fresh tag to find the command by. */
MUST_CHECK int command_body(const struct args *a, const char *const *argv, size_t n, json_t **ret,
                            struct err *e);
const char *command_tag(json_t *body);
/* The id of the command with this tag. -ENOENT: it was never started. */
MUST_CHECK int command_by_tag(struct cli *cli, const char *sandbox, const char *tag,
                              char ret[static ID_SIZE], struct err *e);
/* tree: to all it started as well. */
MUST_CHECK int command_signal(struct cli *cli, const char *sandbox, const char *id, int signo,
                              struct err *e);
/* Kills the command and all it started, and forgets it. Never waits long. */
void command_kill(struct cli *cli, const char *sandbox, const char *id);
/* The exit code in a finished command, and what there is to say about its end. */
int command_exit_code(const struct cli *cli, json_t *command);
/* What may be cured by trying again: the connection or a restarting service, not the request. */
bool command_error_is_passing(const struct err *e);

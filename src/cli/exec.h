/* SPDX-License-Identifier: Apache-2.0 */
/* One command in a sandbox from its options to its exit code: what `exec`, `shell` and `run` share. */
#pragma once

#include "cli/command.h"

struct exec_plan {
    const char *sandbox;     /* borrowed */
    const char *attach;      /* borrowed; NULL: start argv */
    const char *const *argv; /* borrowed */
    size_t n_argv;
    bool with_stdin;
    bool tty;
    const struct sigs *sigs; /* borrowed; NULL: opened here */
};

/* Runs it to its end. On failure the error is the caller's to tell. */
MUST_CHECK int exec_run(struct cli *cli, const struct exec_plan *plan, struct command_end *ret,
                        struct err *e);
/* With --json prints the command object. */
void exec_print_end(const struct cli *cli, const struct command_end *end);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command with a terminal: its bytes over a WebSocket, our terminal in raw mode while it lasts.
 *
 * Our terminal gets its own settings back on every way out: end, error, SIGTERM, SIGHUP, a failed assertion. What is typed
 * goes to the guest as it is, Ctrl-C included; only Enter ~ . is ours: it leaves the command running. When
 * the connection breaks we connect again at the offset reached. Window changes are passed on.
 *
 * Without a terminal on our side it works too, 80 by 24: what a script does with -t.
 */
#pragma once

#include "cli/command.h"

/* Adds "pty" and TERM to the body of a command, from our terminal. */
void terminal_prepare(json_t *body);
/* with_stdin: type; else only watch. */
MUST_CHECK int terminal_run(struct cli *cli, const struct command_spec *spec,
                            struct command_end *ret, struct err *e);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standard input on its way to a command, in a thread of its own, so that a command that does not read cannot stop its
 * output from reaching us.
 *
 * While input keeps coming it goes out as one streamed request; after a short silence the request is ended and
 * the next input begins a new one, so that an idle terminal holds no request open. The end of input is sent as
 * eof=1. That the command is over, or reads no more, ends the thread quietly, as EPIPE would end a pipe's writer.
 */
#pragma once

#include "cli/cli.h"

struct stdin_pump;

/* fd is borrowed. cli is used only to make a client. */
MUST_CHECK int stdin_start(const struct cli *cli, const char *sandbox, const char *command, int fd,
                           struct stdin_pump **ret, struct err *e);
/* Ends the thread wherever it is. Gives back what went wrong on the way, 0 when nothing did. */
int stdin_stop_take(struct stdin_pump *pump, struct err *e);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command without a terminal: started with its output as one stream of frames, standard output and standard error apart.
 *
 *     START --S--> OUTPUT --E--> over
 *       |            |  ^
 *       | broken     |  | attached again at the offset reached
 *       v            v  |
 *     find by tag -> LOST   (until COMMAND_REATTACH_MS after the last byte)
 *
 * The offset counts the bytes of both streams, so whatever breaks, nothing is shown twice; what the guest could not
 * keep meanwhile is said with a warning. Silence of three keepalives counts as broken.
 *
 * One thread polls output and signals; standard input has its own (stdin.h). Writing to our own standard output never waits
 * longer than a signal does.
 */
#pragma once

#include "cli/command.h"

MUST_CHECK int stream_run(struct cli *cli, const struct command_spec *spec, struct command_end *ret,
                          struct err *e);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /commands over HTTP: command.h's engine behind route.h's requests. Requests come and go as they like; each
 * hangs on its command with a listener, and lets go in on_close.
 *
 *     command-routes.c   the table, and the answers that are one JSON object
 *     command-follow.c   output as frames, and standard input
 *     command-json.c     the command object
 */
#pragma once

#include "daemon/command.h"
#include "daemon/module.h"

extern const struct module command_module;

struct commands *commands_of(struct request *req);
/* The command of the path; NULL: a 404 has been sent. */
struct command *command_of(struct request *req);

struct follow_options {
    uint64_t offset;
    bool start;  /* begin with 'S', once started; a failure to start is an ordinary error answer */
    bool follow; /* until the end; else only what is there now */
    bool kill_on_disconnect;
};

/* Answers with frames (wire/frames.h). */
void command_follow(struct request *req, struct command *c, const struct follow_options *options);
/* POST /commands/{id}/stdin */
void command_post_stdin(struct request *req);

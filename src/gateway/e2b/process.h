/* SPDX-License-Identifier: Apache-2.0 */

/* A process as clients name it, found among the daemon's commands. */
#pragma once

#include "gateway/e2b/rpc.h"

struct process {
    char id[ID_SIZE]; /* the command's */
    int64_t pid;
    bool pty;
    int64_t output_bytes; /* so far */
    int64_t ended_at_ms;  /* 0: it runs */
};

enum process_want {
    PROCESS_RUNNING,
    PROCESS_ANY, /* also those that have ended and are remembered */
};

/* By message.process. -ENOENT "not_found". */
MUST_CHECK int process_find(struct inside *in, json_t *message, enum process_want want,
                            struct process *ret, struct err *e);
/* The daemon's {"rows","cols"} of a message's "pty"; what is not said is 24 by 80. */
json_t *process_pty(json_t *pty);

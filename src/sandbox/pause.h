/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pause and resume: the machine stands still, its memory stays where it is. Time stops inside; on resume the
 * guest is given the right clock and fresh randomness before anyone can talk to it.
 *
 *     pause    running -> pausing -> (a full snapshot, so that a host that goes down loses nothing) -> paused
 *     resume   paused -> resuming -> running
 *
 * Both take the op lock; resume_held() is for who has it and a sandbox that is paused.
 */
#pragma once

#include "sandbox/resident.h"

struct pause_wish {
    bool durable;         /* with a full snapshot */
    bool wake_on_request; /* the next guest request resumes it: paused for idleness */
    bool unless_visited;  /* -EBUSY while a request to its inside is at work */
};

MUST_CHECK int pause_sandbox(struct resident *res, const struct pause_wish *wish, struct err *e);
MUST_CHECK int resume_sandbox(struct resident *res, struct err *e);
MUST_CHECK int resume_held(struct resident *res, struct err *e);

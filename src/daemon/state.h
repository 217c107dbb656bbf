/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sandbox manager does with the guest as a whole: set-up, teardown, identity, sync, freeze, health,
 * figures. One such operation runs at a time (409 "busy"); it goes on to its end when the manager goes away.
 *
 *     state      | is                            | left by
 *     EMPTY      | no disk mounted               | /setup: mount (helper), then rehearse (helper) -> READY
 *     READY      | commands and files work       | /teardown: kill, unmount, wait for the disk -> EMPTY
 *     FROZEN     | READY, disk writes held       | /thaw, or by itself after max_ms -> READY
 *
 * A set-up that fails leaves EMPTY behind.
 */
#pragma once

#include "daemon/helper.h"
#include "daemon/setup-spec.h"

struct state {
    struct daemon *daemon;    /* borrowed: lives longer */
    const char *op;           /* static: what runs; NULL: nothing */
    struct request *req;      /* borrowed: who waits for it; NULL: has gone */
    struct helper *helper;    /* owned while it runs */
    struct setup_spec spec;   /* of the last set-up; env has been handed on */
    struct loop_timer *timer; /* owned: teardown looks again */
    uint64_t deadline_ns;     /* of the teardown */
    struct loop_timer *thaw;  /* owned: ends a freeze */
    bool frozen;
};

struct state *state_of(const struct request *req);
/* Takes the turn for req; otherwise has answered -EBUSY and returns false. */
bool state_begin(struct state *st, struct request *req, const char *op);
/* Ends the turn: answers the error, or json (taken over, NULL: 204). */
void state_finish(struct state *st, const struct err *e, json_t *json_take);
/* Starts a helper for the turn; on failure finishes it. */
void state_help(struct state *st, const char *what, helper_fn *fn, helper_done_fn *done);
/* The same with something that the helper does when the turn goes on without it. */
void state_help_then(struct state *st, const char *what, helper_fn *fn, helper_done_fn *done,
                     void (*after)(void *arg));

/* setup.c */
void setup_post(struct request *req);
void setup_teardown_post(struct request *req);
void setup_teardown_tick(void *arg);
void setup_identity_post(struct request *req);

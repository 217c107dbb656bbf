/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What moves a sandbox through time: pause, resume, snapshots, rollback, fork, history. Snapshots live on the node;
 * what it says about them passes through snapshot_print(), which knows every field by name.
 */
#pragma once

#include "base/buf.h"
#include "base/json.h"

/* The bodies: pure, strict. Errors name the field. */
struct pause_body {
    bool durable;
    bool wakes;
};
MUST_CHECK int pause_body_from_json(json_t *body, struct pause_body *ret, struct err *e);
/* The node's body: kind, name, keep. Takes nothing; *ret is the caller's. */
MUST_CHECK int snapshot_body_check(json_t *body, struct err *e);
MUST_CHECK int snapshot_patch_check(json_t *body, struct err *e);
/* *ret is borrowed from body. */
MUST_CHECK int rollback_body_from_json(json_t *body, const char **ret, struct err *e);

/* Adds the public object of a snapshot. -EPROTO when it is none. */
MUST_CHECK int snapshot_print(json_t *snapshot, struct buf *out);
/* Adds the public list of what happened. -EPROTO when it is none. */
MUST_CHECK int history_print(json_t *history, struct buf *out);

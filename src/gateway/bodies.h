/* SPDX-License-Identifier: Apache-2.0 */

/* The JSON bodies of the gateway's own routes: pure, strict, fuzzed. Errors name the field. */
#pragma once

#include "base/json.h"
#include "model/tenant.h"

struct key_body {
    char name[TENANT_NAME_SIZE];
    char project[TENANT_NAME_SIZE]; /* id or name; "": the caller's */
    enum key_scope scope;
};
MUST_CHECK int key_body_from_json(json_t *body, struct key_body *ret, struct err *e);

/* Fills name and max_sandboxes. */
MUST_CHECK int project_body_from_json(json_t *body, struct project *ret, struct err *e);
/* Fills max_sandboxes. */
MUST_CHECK int project_patch_from_json(json_t *body, struct project *ret, struct err *e);

#define RUN_OUTPUT_DEFAULT (1 << 20)
#define RUN_OUTPUT_MAX (16 << 20)

/* POST /v1/sandboxes/{id}/run: what goes to the daemon, what goes to stdin, how much comes back. */
struct run_body {
    json_t *command; /* owned: the body of the daemon's POST /commands */
    char *input;     /* owned; NULL: no stdin */
    size_t input_len;
    int64_t max_output_bytes; /* of each of stdout and stderr */
};
void run_body_done(struct run_body *run);
#define cleanup_run_body CLEANUP(run_body_done)
MUST_CHECK int run_body_from_json(json_t *body, struct run_body *ret, struct err *e);

/* A text message of a terminal: {"resize":{"rows":R,"cols":C}}; *ret is the daemon's resize body. */
MUST_CHECK int terminal_message_from_json(json_t *message, json_t **ret, struct err *e);

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Two small records of the control plane: operations (what makes a retried request harmless) and audit
 * events (who did what to which thing).
 *
 * An operation is named by project and Idempotency-Key. It is written in the same transaction as the
 * sandbox it makes, and finished in the same transaction as the state that its answer describes. So
 * after a crash there is either no trace, or a sandbox and the operation that knows its id. While
 * status is 0 the operation runs, in the gateway that OWNER names; a retry that finds a dead owner takes
 * the operation over and goes on with the same sandbox id.
 */
#pragma once

#include "base/id.h"

#include <stdint.h>

#define OPERATION_KEY_MAX 128
#define OPERATION_FINGERPRINT_SIZE 65 /* SHA-256 in hex */
#define AUDIT_ACTION_SIZE 40
#define AUDIT_DETAIL_SIZE 400

struct operation {
    char project[ID_SIZE];
    char key[OPERATION_KEY_MAX + 1];
    char fingerprint[OPERATION_FINGERPRINT_SIZE]; /* of method, path and canonical body */
    char sandbox[ID_SIZE];
    char owner[ID_SIZE]; /* the gateway process that runs it */
    int64_t status;      /* HTTP status of the answer; 0 while it runs */
    char *answer;        /* owned; JSON text, NULL while it runs */
    int64_t created_at_ms;
};

struct audit_event {
    char id[ID_SIZE];
    int64_t at_ms;
    char project[ID_SIZE];          /* "" when it concerns none */
    char key[ID_SIZE];              /* the key that asked; "" for the control plane itself */
    char action[AUDIT_ACTION_SIZE]; /* "sandbox.create", "key.revoke", ... */
    char target[ID_SIZE];           /* the thing; "" for none */
    char detail[AUDIT_DETAIL_SIZE]; /* for people; never a secret */
};

void operation_done(struct operation *op);

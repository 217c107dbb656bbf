/* SPDX-License-Identifier: Apache-2.0 */

/* Steps on operations and audit events that are part of a sandbox's transaction; see model/record.h. */
#pragma once

#include "database/private.h"

/* -EEXIST: the project has an operation with this key. */
MUST_CHECK int operation_insert(struct db_tx *tx, const struct operation *op, struct err *e);
/* Stores status and answer. */
MUST_CHECK int operation_finish(struct db_tx *tx, const struct operation *op, struct err *e);
MUST_CHECK int operation_forget(struct db_tx *tx, const struct operation *op, struct err *e);
MUST_CHECK int audit_insert(struct db_tx *tx, const struct audit_event *ev, struct err *e);

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Credentials whose scope is a sandbox end with it. However it ended (its time, a client, a failure, another gateway), they are
 * found here: a thread compares, each minute, the sandboxes that credentials name with the rows of the database. A row is
 * there before a credential names its sandbox, and an id is never given twice: what has no row has gone for good.
 *
 * Each gateway looks at the credential manager that it talks to; more than one of them may.
 */
#pragma once

#include "credential/client.h"
#include "database/database.h"

struct leftovers;

/* Both are borrowed and live longer. */
MUST_CHECK int leftovers_start(struct db *db, struct credential_client *credentials,
                               struct leftovers **ret, struct err *e);
/* Waits for a look that is under way; NULL is fine. */
void leftovers_stop(struct leftovers *l);

/* One look. *ret_removed: how many credentials went, also on failure. */
MUST_CHECK int leftovers_remove(struct db *db, struct credential_client *credentials,
                                size_t *ret_removed, struct err *e);

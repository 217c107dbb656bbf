/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What every database product must do, as cases: conformance.c is the test program, a product adds the
 * functions below (conformance-sqlite.c) and is done when all cases pass unchanged.
 */
#pragma once

#include "base/test.h"
#include "database/database.h"

/* Is the product there at all? Called first. */
bool conformance_available(void);
/* An empty, migrated database. */
struct db *conformance_open_new(void);
/* The same one again, after all its connections were closed. Takes db. */
struct db *conformance_reopen_take(struct db *db);
/* Closes it and removes what it left. Takes db. */
void conformance_close_take(struct db *db);

static inline void conformance_closep(struct db **db)
{
    if (*db) {
        conformance_close_take(*db);
    }
}

/* First in a case: 'struct db *db_', empty, closed and removed at its end; a product that is not there skips the case. */
#define CONFORMANCE_DB(db_) \
    CLEANUP(conformance_closep) struct db *db_ = NULL; \
    if (!conformance_available()) { \
        TEST_SKIP("this product is not installed"); \
    } \
    db_ = conformance_open_new()

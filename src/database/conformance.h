/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What every database product must do, as cases: conformance.c is the test program, a product adds the
 * functions below (conformance-sqlite.c) and is done when all cases pass unchanged.
 */
#pragma once

#include "database/database.h"

/* Is the product there at all? Called first. */
bool conformance_available(void);
/* An empty, migrated database. */
struct db *conformance_open_new(void);
/* The same one again, after all its connections were closed. Takes db. */
struct db *conformance_reopen_take(struct db *db);
/* Closes it and removes what it left. Takes db. */
void conformance_close_take(struct db *db);

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * For tests: a PostgreSQL server of their own in a folder in /tmp, started by tests/postgres as a user without
 * rights; it ends with the test. Not thread-safe.
 */
#pragma once

#include "base/err.h"

#define POSTGRES_TESTBED_URL_SIZE 160

struct postgres_testbed;

/* NULL: there is no PostgreSQL on this system, and the test is to be skipped. Any other failure ends the program. */
struct postgres_testbed *postgres_testbed_new(void);
void postgres_testbed_free(struct postgres_testbed *t);
DEFINE_CLEANUP(struct postgres_testbed *, postgres_testbed_free);

/* Makes an empty database. */
void postgres_testbed_database(struct postgres_testbed *t,
                               char ret_url[static POSTGRES_TESTBED_URL_SIZE]);
/* What a host's death looks like from outside: no goodbye, no clean end. start() recovers. */
void postgres_testbed_kill(struct postgres_testbed *t);
/* An orderly stop: sessions are told. */
void postgres_testbed_stop(struct postgres_testbed *t);
/* Returns when it answers. */
void postgres_testbed_start(struct postgres_testbed *t);
/* Statements of a superuser on the database of the URL; returns the first value, or "". The caller frees it. */
char *postgres_testbed_sql(const char *url, const char *sql);

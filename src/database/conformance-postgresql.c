/* SPDX-License-Identifier: Apache-2.0 */
#include "database/conformance.h"

#include <stdio.h>

#include "database/postgres-testbed.h"

static struct postgres_testbed *bed;
static char url[POSTGRES_TESTBED_URL_SIZE];

static void end_server(void)
{
    postgres_testbed_free(bed);
}

static struct db *open_url(void)
{
    struct db *db = NULL;
    struct err e = {0};
    int r = db_open(url, &db, &e);

    if (r < 0) {
        fprintf(stderr, "%s\n", e.msg);
    }
    ASSERT(r == 0);
    return db;
}

bool conformance_available(void)
{
    if (!bed) {
        bed = postgres_testbed_new();
        atexit(end_server);
    }
    return bed;
}

struct db *conformance_open_new(void)
{
    ASSERT(bed);
    postgres_testbed_database(bed, url);
    return open_url();
}

struct db *conformance_reopen_take(struct db *db)
{
    db_free(db);
    return open_url();
}

void conformance_close_take(struct db *db)
{
    db_free(db); /* the server goes at the end, with all its databases */
}

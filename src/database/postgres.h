/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the files of the PostgreSQL driver share: a connection, bounded waits on it, what its errors mean.
 *
 * Theory of operation. libpq's asynchronous half is used everywhere, with poll(2) and a deadline around it, so that
 * a server that stopped answering costs a bounded wait and not a thread. Rows arrive one by one (single-row mode):
 * a list of a million sandboxes takes the memory of one.
 *
 * Isolation is READ COMMITTED. Everything that decides on what it read is a compare-and-set or a counter that is
 * compared and moved by one statement; see database.h. A reading transaction is not begun at all: its one statement is
 * a snapshot by itself, and two round trips are saved.
 *
 * A connection that broke is never used again (usable()); the pool opens another one.
 */
#pragma once

#include "database/driver.h"

#include <libpq-fe.h>

#define POSTGRES_KEPT_MAX 64
/* To connect, name look-up not counted: a server that is there answers in milliseconds. */
#define POSTGRES_CONNECT_MS 5000
/* A statement of ours takes milliseconds; the server itself gives up at POSTGRES_STATEMENT_MS. */
#define POSTGRES_WAIT_MS 15000
#define POSTGRES_STATEMENT_MS "12000"
/* Waiting for another transaction's lock. */
#define POSTGRES_LOCK_MS "8000"
/* A migration may have to rewrite a table. */
#define POSTGRES_SCRIPT_MS 600000

struct postgres_kept {
    const char *sql; /* static: statements are told apart by address */
};

struct db_conn {
    PGconn *pg; /* owned */
    struct postgres_kept kept[POSTGRES_KEPT_MAX];
    size_t n_kept;
    struct db_rows *active; /* borrowed: whose rows are still coming; NULL: nobody's */
    int64_t changes;
    bool in_tx;
    bool broken; /* what it would say now cannot be trusted */
};

struct db_rows {
    struct db_conn *conn; /* borrowed: lives longer than its rows */
    PGresult *row;        /* owned; NULL: none yet */
    bool ended;
};

/* The rest of a URL after its scheme: "//user@host/name?...". */
MUST_CHECK int postgres_connect(const char *where, struct db_conn **ret, struct err *e);
void postgres_close(struct db_conn *conn);
DEFINE_CLEANUP(struct db_conn *, postgres_close);

/* The next result of the statement under way; *ret NULL: there is no more. To be cleared by the caller. */
MUST_CHECK int postgres_result(struct db_conn *conn, uint64_t deadline_ns, PGresult **ret,
                               struct err *e);
/* Sends what libpq holds back. */
MUST_CHECK int postgres_flush(struct db_conn *conn, uint64_t deadline_ns, struct err *e);
/* One statement without parameters or rows, or several. */
MUST_CHECK int postgres_command(struct db_conn *conn, const char *sql, uint64_t deadline_ns,
                                struct err *e);
/*
 * Reads away what is still coming, or gives the connection up when that is much. What failed is returned: a statement
 * outside of a transaction is committed only after its last result.
 */
MUST_CHECK int postgres_drain(struct db_conn *conn, struct err *e);

/* The connection broke: -EHOSTDOWN "database_unavailable". */
int postgres_lost(struct db_conn *conn, struct err *e);
/* What a failed result means; see driver.h. */
int postgres_failed(struct db_conn *conn, const PGresult *res, struct err *e);
/* Pure: the errno of an SQLSTATE; NULL or unknown: -EIO. */
int postgres_errno(const char *state);

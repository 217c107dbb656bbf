/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a database must be able to do for us: connect, run statements with parameters, give rows, and
 * commit all or nothing. One table of functions per product; the queries themselves are written once,
 * in the subset of SQL that SQLite and PostgreSQL share:
 *
 *   - parameters are $1, $2, ...; values are BIGINT and TEXT, nothing is NULL;
 *   - INSERT ... ON CONFLICT, RETURNING, row values in comparisons are fine; AUTOINCREMENT, JSON
 *     operators, PRAGMA and types of one product are not.
 *
 * Errors every driver must tell apart, because callers act on them: -EEXIST (a unique constraint),
 * -ENOENT is never a driver's answer, -EBUSY (locked for longer than the driver waits), -ENOSPC,
 * -EROFS, -EUCLEAN (the data is damaged), -EAGAIN (this transaction was ended in favour of another one and can be run
 * again from its beginning), -EHOSTDOWN DB_UNAVAILABLE (the database is away; a commit that says so may have happened
 * or not), -EIO (anything else, not our fault).
 * A statement that fails in the middle of its rows says so in next(); it never just ends.
 *
 * A connection belongs to one thread at a time; the pool in database.c sees to that.
 */
#pragma once

#include "base/err.h"

#include <stdint.h>

struct db_conn;
struct db_rows;

struct db_value {
    const char *text; /* borrowed: lives until the rows are finished; NULL: the value is number */
    int64_t number;
};

#define DB_TEXT(s_) ((struct db_value){.text = (s_)})
#define DB_INT(i_) ((struct db_value){.number = (int64_t)(i_)})

/* What one statement is, together. */
struct db_query {
    const char *sql;
    const struct db_value *params;
    size_t n_params;
    bool once; /* made at run time: do not keep it prepared */
};

enum db_mode {
    DB_READ,
    DB_WRITE,
    DB_WRITE_RELAXED, /* as DB_WRITE, but a loss of power may still undo what was committed a moment ago */
};

struct db_wait {
    uint64_t deadline_ns;
    int wake_fd; /* borrowed */
    char *text;  /* out: what was said, cut to size */
    size_t size;
};

struct db_driver {
    const char *scheme; /* "sqlite" of "sqlite:/path" */
    bool single_writer; /* writers queue in our process rather than in the database */
    /* Statements that let one program at a time migrate, within its transaction; NULL:
       begin() does that. */
    const char *schema_lock[2];
    const char *now_ms; /* an expression: the database's clock, which all of its users share */
    const char *
        skip_locked; /* at the end of a SELECT that takes rows: not those that somebody else takes now; may be "" */
    MUST_CHECK int (*open)(const char *where, struct db_conn **ret, struct err *e);
    void (*close)(struct db_conn *conn);
    /* May an idle connection be used again? NULL: always. */
    bool (*usable)(struct db_conn *conn);
    /* Several statements without parameters or rows: migrations. */
    MUST_CHECK int (*script)(struct db_conn *conn, const char *sql, struct err *e);
    MUST_CHECK int (*begin)(struct db_conn *conn, enum db_mode mode, struct err *e);
    MUST_CHECK int (*commit)(struct db_conn *conn, struct err *e);
    void (*rollback)(struct db_conn *conn); /* cannot fail; at worst the connection is lost */
    MUST_CHECK int (*query)(struct db_conn *conn, const struct db_query *q, struct db_rows **ret,
                            struct err *e);
    /* 1: a row is there; 0: the end, really; else an error. */
    MUST_CHECK int (*next)(struct db_rows *rows, struct err *e);
    int64_t (*get_int)(struct db_rows *rows, int column);
    const char *(*get_text)(struct db_rows *rows, int column); /* valid until next() */
    void (*finish)(struct db_rows *rows);
    int64_t (*changes)(struct db_conn *conn); /* rows that the last statement wrote */

    /* Words between the programs that share a database; all NULL where nobody shares it. */
    const char *notify; /* says $1 to all who listen, when the transaction commits */
    MUST_CHECK int (*listen)(struct db_conn *conn, struct err *e);
    /* 1: a word came; 0: none until the deadline, or wake_fd is readable. */
    MUST_CHECK int (*notice)(struct db_conn *conn, const struct db_wait *wait, struct err *e);
};

/* The reason of -EHOSTDOWN, also for API clients. */
#define DB_UNAVAILABLE "database_unavailable"

extern const struct db_driver db_driver_sqlite;
extern const struct db_driver db_driver_postgres;

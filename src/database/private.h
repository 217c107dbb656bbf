/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the query files of src/database share: one transaction on one connection of the pool.
 *
 *     cleanup_tx struct db_tx tx = {0};
 *     r = db_begin(db, DB_WRITE, &tx, e);
 *     ... db_run() / db_rows_open() ...
 *     return db_commit(&tx, e);
 *
 * A transaction that goes out of scope without db_commit() is rolled back.
 */
#pragma once

#include "database/database.h"
#include "database/driver.h"

struct db_tx {
    struct db *db; /* borrowed: the caller's */
    struct db_conn
        *conn; /* borrowed from the pool until the transaction is done; NULL: not begun */
    enum db_mode mode;
    bool alone;        /* one statement: it needs no BEGIN where there are no turns to wait for */
    uint64_t begun_ns; /* when it was asked for: waiting for a turn counts */
};

/*
 * A whole transaction, again when the database ended it in favour of another one (-EAGAIN):
 *
 *     return DB_RETRIED(update_all(db, sbs, n, beside, e));
 */
#define DB_TRIES_MAX 8
#define DB_RETRIED(call_) \
    ({ \
        int r_; \
        for (int try_ = 1; (r_ = (call_)) == -EAGAIN && try_ < DB_TRIES_MAX; try_++) { \
        } \
        r_ == -EAGAIN ? -EBUSY : r_; \
    })

MUST_CHECK int db_begin(struct db *db, enum db_mode mode, struct db_tx *ret, struct err *e);
MUST_CHECK int db_commit(struct db_tx *tx, struct err *e);
void db_tx_done(struct db_tx *tx);
#define cleanup_tx CLEANUP(db_tx_done)

const struct db_driver *db_driver_of(const struct db *db);

/* An open result; ends with the scope. */
struct db_result {
    const struct db_driver *driver; /* static */
    struct db *db;                  /* borrowed: the transaction's */
    struct db_rows *rows;           /* owned; NULL: none */
};
void db_result_done(struct db_result *res);
#define cleanup_result CLEANUP(db_result_done)

MUST_CHECK int db_select(struct db_tx *tx, const struct db_query *q, struct db_result *ret,
                         struct err *e);
/* 1, 0 or an error; see driver.h. */
MUST_CHECK int db_next(struct db_result *res, struct err *e);
/* The first row of a question: 1, 0 (there is none) or an error. */
MUST_CHECK int db_first(struct db_tx *tx, const struct db_query *q, struct db_result *ret,
                        struct err *e);
/* The same in a transaction of its own that only reads; tx and ret are the caller's to end. */
MUST_CHECK int db_read_first(struct db *db, const struct db_query *q, struct db_tx *tx,
                             struct db_result *ret, struct err *e);
int64_t db_get_int(struct db_result *res, int column);
/* Cut to the size of the array, which is never smaller than what we let in. */
void db_get_text(struct db_result *res, int column, char *ret, size_t size);
char *db_get_text_dup(struct db_result *res, int column);

/* A statement without rows; *ret_changes (may be NULL) is how many rows it wrote. */
MUST_CHECK int db_run(struct db_tx *tx, const struct db_query *q, int64_t *ret_changes,
                      struct err *e);

/* A transaction of one statement without rows, retried as above. */
MUST_CHECK int db_write_one(struct db *db, const struct db_query *q, int64_t *ret_changes,
                            struct err *e);

/* Says text to all who listen, when tx commits. */
MUST_CHECK int db_notify(struct db_tx *tx, const char *text, struct err *e);

#define DB_QUERY(sql_, ...) \
    (&(struct db_query){ \
        .sql = (sql_), \
        .params = (const struct db_value[]){__VA_ARGS__}, \
        .n_params = sizeof((const struct db_value[]){__VA_ARGS__}) / sizeof(struct db_value), \
    })

/* Brings the schema up to date; -ENOTSUP when the database is newer than the program. */
MUST_CHECK int db_schema_migrate(const struct db_driver *driver, struct db_conn *conn,
                                 struct err *e);
/* The number of the newest migration. */
int64_t db_schema_version(void);

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * SQLite behind the driver table: one file, write-ahead log, every commit durable before it is answered.
 */
#include "database/driver.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define BUSY_TIMEOUT_MS 5000
#define KEPT_STATEMENTS_MAX 64

struct kept {
    const char *sql;    /* static: statements are told apart by address */
    sqlite3_stmt *stmt; /* owned */
    bool busy;
};

struct db_conn {
    sqlite3 *db; /* owned */
    struct kept kept[KEPT_STATEMENTS_MAX];
    size_t n_kept;
    bool relaxed; /* commits do not wait for the disk now */
};

struct db_rows {
    struct db_conn *conn; /* borrowed: lives longer than its rows */
    sqlite3_stmt *stmt;   /* owned when kept is NULL, else borrowed from it */
    struct kept *kept;
};

static int errno_of(int code)
{
    switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return -EBUSY;
    case SQLITE_CONSTRAINT:
        return (code == SQLITE_CONSTRAINT_UNIQUE || code == SQLITE_CONSTRAINT_PRIMARYKEY) ? -EEXIST
                                                                                          : -EINVAL;
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_READONLY:
        return -EROFS;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return -EUCLEAN;
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
        return -EACCES;
    default:
        return -EIO;
    }
}

static int fail(struct db_conn *conn, int code, const char *doing, struct err *e)
{
    int r = errno_of(code);

    return err_set(e, r, r == -EEXIST ? NULL : "database_error", "%s: %s", doing,
                   conn->db ? sqlite3_errmsg(conn->db) : sqlite3_errstr(code));
}

static int exec(struct db_conn *conn, const char *sql, const char *doing, struct err *e)
{
    int code = sqlite3_exec(conn->db, sql, NULL, NULL, NULL);

    return code == SQLITE_OK ? 0 : fail(conn, code, doing, e);
}

static void sqlite_close(struct db_conn *conn)
{
    for (size_t i = 0; i < conn->n_kept; i++) {
        sqlite3_finalize(conn->kept[i].stmt);
    }
    sqlite3_close_v2(conn->db);
    free(conn);
}
DEFINE_CLEANUP(struct db_conn *, sqlite_close);

static int configure(struct db_conn *conn, struct err *e)
{
    sqlite3_extended_result_codes(conn->db, 1);
    sqlite3_busy_timeout(conn->db, BUSY_TIMEOUT_MS);
    sqlite3_db_config(conn->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(conn->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    return exec(conn,
                "PRAGMA journal_mode = WAL;"
                "PRAGMA synchronous = FULL;"
                "PRAGMA foreign_keys = ON;"
                "PRAGMA temp_store = MEMORY;"
                "PRAGMA cache_size = -8192;",
                "configuring the database", e);
}

static int sqlite_open(const char *where, struct db_conn **ret, struct err *e)
{
    CLEANUP(sqlite_closep) struct db_conn *conn = xnew(struct db_conn);
    int code;
    int r;

    ASSERT(where && ret);

    code = sqlite3_open_v2(where, &conn->db,
                           SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                               SQLITE_OPEN_NOFOLLOW,
                           NULL);
    if (code != SQLITE_OK) {
        return err_wrap(e, fail(conn, code, "opening", e), "database '%s'", where);
    }
    r = configure(conn, e);
    if (r < 0) {
        return err_wrap(e, r, "database '%s'", where);
    }
    if (chmod(where, 0600) < 0) { /* it holds the environment of sandboxes */
        return err_wrap(e, -errno, "restricting '%s'", where);
    }
    *ret = TAKE_PTR(conn);
    return 0;
}

static int sqlite_script(struct db_conn *conn, const char *sql, struct err *e)
{
    return exec(conn, sql, "running a migration", e);
}

/* In WAL mode a commit that waits brings those before it to the disk, too. */
static int relax(struct db_conn *conn, bool relaxed, struct err *e)
{
    int r = conn->relaxed == relaxed
                ? 0
                : exec(conn, relaxed ? "PRAGMA synchronous = NORMAL" : "PRAGMA synchronous = FULL",
                       "configuring the database", e);

    conn->relaxed = r == 0 ? relaxed : conn->relaxed;
    return r;
}

static int sqlite_begin(struct db_conn *conn, enum db_mode mode, struct err *e)
{
    int r = relax(conn, mode == DB_WRITE_RELAXED, e);

    return r < 0 ? r
                 : exec(conn, mode == DB_READ ? "BEGIN" : "BEGIN IMMEDIATE",
                        "beginning a transaction", e);
}

static int sqlite_commit(struct db_conn *conn, struct err *e)
{
    return exec(conn, "COMMIT", "committing", e);
}

static void sqlite_rollback(struct db_conn *conn)
{
    if (!sqlite3_get_autocommit(conn->db)) {
        sqlite3_exec(conn->db, "ROLLBACK", NULL, NULL, NULL);
    }
}

static struct kept *find_kept(struct db_conn *conn, const char *sql)
{
    for (size_t i = 0; i < conn->n_kept; i++) {
        if (conn->kept[i].sql == sql) {
            return &conn->kept[i];
        }
    }
    return NULL;
}

static int prepare(struct db_conn *conn, const struct db_query *q, struct db_rows *rows,
                   struct err *e)
{
    struct kept *kept = q->once ? NULL : find_kept(conn, q->sql);
    int code;

    if (kept) {
        ASSERT(!kept->busy);
        kept->busy = true;
        rows->kept = kept;
        rows->stmt = kept->stmt;
        return 0;
    }
    code = sqlite3_prepare_v3(conn->db, q->sql, -1, q->once ? 0 : SQLITE_PREPARE_PERSISTENT,
                              &rows->stmt, NULL);
    if (code != SQLITE_OK) {
        return fail(conn, code, "preparing a statement", e);
    }
    if (!q->once && conn->n_kept < KEPT_STATEMENTS_MAX) {
        kept = &conn->kept[conn->n_kept++];
        *kept = (struct kept){.sql = q->sql, .stmt = rows->stmt, .busy = true};
        rows->kept = kept;
    }
    return 0;
}

static int bind(struct db_conn *conn, const struct db_query *q, sqlite3_stmt *stmt, struct err *e)
{
    for (size_t i = 0; i < q->n_params; i++) {
        const struct db_value *v = &q->params[i];
        char name[24];
        int index;
        int code;

        snprintf(name, sizeof(name), "$%zu", i + 1);
        index = sqlite3_bind_parameter_index(stmt, name);
        ASSERT(index > 0);
        code = v->text ? sqlite3_bind_text(stmt, index, v->text, -1, SQLITE_STATIC)
                       : sqlite3_bind_int64(stmt, index, v->number);
        if (code != SQLITE_OK) {
            return fail(conn, code, "binding a value", e);
        }
    }
    ASSERT((size_t)sqlite3_bind_parameter_count(stmt) == q->n_params);
    return 0;
}

static void sqlite_finish(struct db_rows *rows)
{
    if (!rows) {
        return;
    }
    if (rows->kept) {
        sqlite3_reset(rows->stmt);
        sqlite3_clear_bindings(rows->stmt);
        rows->kept->busy = false;
    } else {
        sqlite3_finalize(rows->stmt);
    }
    free(rows);
}
DEFINE_CLEANUP(struct db_rows *, sqlite_finish);

static int sqlite_query(struct db_conn *conn, const struct db_query *q, struct db_rows **ret,
                        struct err *e)
{
    CLEANUP(sqlite_finishp) struct db_rows *rows = xnew(struct db_rows);
    int r;

    rows->conn = conn;
    r = prepare(conn, q, rows, e);
    if (r < 0) {
        return r;
    }
    r = bind(conn, q, rows->stmt, e);
    if (r < 0) {
        return r;
    }
    *ret = TAKE_PTR(rows);
    return 0;
}

static int sqlite_next(struct db_rows *rows, struct err *e)
{
    int code = sqlite3_step(rows->stmt);

    if (code == SQLITE_ROW) {
        return 1;
    }
    if (code == SQLITE_DONE) {
        return 0;
    }
    return fail(rows->conn, code, "running a statement", e);
}

static int64_t sqlite_get_int(struct db_rows *rows, int column)
{
    return sqlite3_column_int64(rows->stmt, column);
}

static const char *sqlite_get_text(struct db_rows *rows, int column)
{
    const char *text = (const char *)sqlite3_column_text(rows->stmt, column);

    return text ? text : "";
}

static int64_t sqlite_changes(struct db_conn *conn)
{
    return sqlite3_changes64(conn->db);
}

const struct db_driver db_driver_sqlite = {
    .scheme = "sqlite",
    .single_writer = true,
    .now_ms = "CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)",
    .skip_locked = "",
    .open = sqlite_open,
    .close = sqlite_close,
    .script = sqlite_script,
    .begin = sqlite_begin,
    .commit = sqlite_commit,
    .rollback = sqlite_rollback,
    .query = sqlite_query,
    .next = sqlite_next,
    .get_int = sqlite_get_int,
    .get_text = sqlite_get_text,
    .finish = sqlite_finish,
    .changes = sqlite_changes,
};

/* SPDX-License-Identifier: Apache-2.0 */

/* PostgreSQL behind the driver table; postgres.h says how. */
#include "database/postgres.h"
#include "base/clock.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define PARAMS_MAX 64
/* Object ids of types, the same in every PostgreSQL (pg_type.dat). */
#define OID_INT8 20
#define OID_TEXT 25

/* An idle server has nothing to say but goodbye. */
static bool postgres_usable(struct db_conn *conn)
{
    struct pollfd p = {.fd = PQsocket(conn->pg), .events = POLLIN};

    return !conn->broken && PQstatus(conn->pg) == CONNECTION_OK && poll(&p, 1, 0) == 0;
}

/* What an earlier statement still has to say is of no interest any more. */
static void settle(struct db_conn *conn)
{
    if (conn->active) {
        conn->active->ended = true;
        conn->active = NULL;
        IGNORE_RESULT(postgres_drain(conn, /* e */ NULL)); /* usable() tells */
    }
}

static int postgres_script(struct db_conn *conn, const char *sql, struct err *e)
{
    settle(conn);
    return postgres_command(conn, sql, deadline_in_ms(POSTGRES_SCRIPT_MS), e);
}

static int postgres_begin(struct db_conn *conn, enum db_mode mode, struct err *e)
{
    static const char *const begin[] = {
        [DB_WRITE] = "BEGIN", [DB_WRITE_RELAXED] = "BEGIN; SET LOCAL synchronous_commit = off"};
    int r = 0;

    if (mode != DB_READ) {
        r = postgres_command(conn, begin[mode], deadline_in_ms(POSTGRES_WAIT_MS), e);
        conn->in_tx = r == 0;
    }
    return r;
}

/* A transaction in which something failed answers COMMIT with ROLLBACK: that is not a success. */
static int postgres_commit(struct db_conn *conn, struct err *e)
{
    int r;

    settle(conn);
    if (!conn->in_tx) {
        return 0;
    }
    if (conn->broken) {
        return postgres_lost(conn, e);
    }
    if (PQtransactionStatus(conn->pg) != PQTRANS_INTRANS) {
        return err_set(e, -EIO, "database_error", "the transaction had failed before");
    }
    r = postgres_command(conn, "COMMIT", deadline_in_ms(POSTGRES_WAIT_MS), e);
    if (r == 0) {
        conn->in_tx = false;
    }
    return r;
}

static void postgres_rollback(struct db_conn *conn)
{
    settle(conn);
    if (conn->in_tx && !conn->broken &&
        postgres_command(conn, "ROLLBACK", deadline_in_ms(POSTGRES_WAIT_MS), /* e */ NULL) < 0) {
        conn->broken = true;
    }
    conn->in_tx = false;
}

/* The number under which the server has it prepared, or -1: it is not. */
static int find_kept(const struct db_conn *conn, const char *sql)
{
    for (size_t i = 0; i < conn->n_kept; i++) {
        if (conn->kept[i].sql == sql) {
            return (int)i;
        }
    }
    return -1;
}

static int prepare(struct db_conn *conn, const struct db_query *q, const Oid *types, struct err *e)
{
    uint64_t deadline_ns = deadline_in_ms(POSTGRES_WAIT_MS);
    PGresult *res = NULL;
    char name[16];
    int r;

    snprintf(name, sizeof(name), "s%zu", conn->n_kept);
    if (!PQsendPrepare(conn->pg, name, q->sql, (int)q->n_params, types)) {
        return postgres_lost(conn, e);
    }
    r = postgres_flush(conn, deadline_ns, e);
    if (r == 0) {
        r = postgres_result(conn, deadline_ns, &res, e);
    }
    if (r < 0) {
        return r;
    }
    if (PQresultStatus(res) != PGRES_COMMAND_OK) {
        r = postgres_failed(conn, res, e);
    } else {
        conn->kept[conn->n_kept++].sql = q->sql;
    }
    PQclear(res);
    if (r < 0) {
        IGNORE_RESULT(
            postgres_drain(conn, /* e */ NULL)); /* the first failure is the one to tell */
        return r;
    }
    return postgres_drain(conn, e);
}

static int send_query(struct db_conn *conn, const struct db_query *q, struct err *e)
{
    Oid types[PARAMS_MAX];
    const char *values[PARAMS_MAX];
    char numbers[PARAMS_MAX][24];
    char name[16];
    int kept = q->once ? -1 : find_kept(conn, q->sql);
    int r;

    ASSERT(q->n_params <= PARAMS_MAX);
    for (size_t i = 0; i < q->n_params; i++) {
        const struct db_value *v = &q->params[i];

        types[i] = v->text ? OID_TEXT : OID_INT8;
        values[i] = v->text ? v->text : numbers[i];
        snprintf(numbers[i], sizeof(numbers[i]), "%lld", (long long)v->number);
    }
    if (kept < 0 && !q->once && conn->n_kept < POSTGRES_KEPT_MAX) {
        r = prepare(conn, q, types, e);
        if (r < 0) {
            return r;
        }
        kept = (int)conn->n_kept - 1;
    }
    snprintf(name, sizeof(name), "s%d", kept);
    if (kept >= 0 ? !PQsendQueryPrepared(conn->pg, name, (int)q->n_params, values, NULL, NULL, 0)
                  : !PQsendQueryParams(conn->pg, q->sql, (int)q->n_params, types, values, NULL,
                                       NULL, 0)) {
        return postgres_lost(conn, e);
    }
    return 0;
}

static void postgres_finish(struct db_rows *rows)
{
    if (!rows) {
        return;
    }
    if (rows->conn->active == rows) {
        rows->conn->active = NULL;
        IGNORE_RESULT(postgres_drain(rows->conn, /* e */ NULL)); /* usable() tells */
    }
    PQclear(rows->row);
    free(rows);
}
DEFINE_CLEANUP(struct db_rows *, postgres_finish);

static int postgres_query(struct db_conn *conn, const struct db_query *q, struct db_rows **ret,
                          struct err *e)
{
    CLEANUP(postgres_finishp) struct db_rows *rows = xnew(struct db_rows);
    int r;

    rows->conn = conn;
    settle(conn);
    conn->changes = 0;
    if (conn->broken) {
        return err_set(e, -EHOSTDOWN, DB_UNAVAILABLE, "the connection to the database is broken");
    }
    r = send_query(conn, q, e);
    if (r == 0 && !PQsetSingleRowMode(conn->pg)) {
        r = postgres_lost(conn, e);
    }
    if (r == 0) {
        r = postgres_flush(conn, deadline_in_ms(POSTGRES_WAIT_MS), e);
    }
    if (r < 0) {
        return r;
    }
    conn->active = rows;
    *ret = TAKE_PTR(rows);
    return 0;
}

static int ended(struct db_rows *rows, struct err *e)
{
    rows->ended = true;
    rows->conn->active = NULL;
    return postgres_drain(rows->conn, e);
}

static int postgres_next(struct db_rows *rows, struct err *e)
{
    struct db_conn *conn = rows->conn;
    int r;

    PQclear(rows->row);
    rows->row = NULL;
    if (rows->ended) {
        return conn->broken ? postgres_lost(conn, e) : 0;
    }
    r = postgres_result(conn, deadline_in_ms(POSTGRES_WAIT_MS), &rows->row, e);
    if (r < 0) {
        return r;
    }
    switch (PQresultStatus(rows->row)) {
    case PGRES_SINGLE_TUPLE:
        return 1;
    case PGRES_TUPLES_OK: /* the end of the rows */
        return ended(rows, e);
    case PGRES_COMMAND_OK:
        conn->changes = strtoll(PQcmdTuples(rows->row), NULL, 10);
        return ended(rows, e);
    default:
        r = postgres_failed(conn, rows->row, e);
        IGNORE_RESULT(ended(rows, /* e */ NULL)); /* the failure is what counts */
        return r;
    }
}

static int64_t postgres_get_int(struct db_rows *rows, int column)
{
    return strtoll(PQgetvalue(rows->row, 0, column), NULL, 10);
}

static const char *postgres_get_text(struct db_rows *rows, int column)
{
    return PQgetvalue(rows->row, 0, column);
}

static int64_t postgres_changes(struct db_conn *conn)
{
    return conn->changes;
}

static int postgres_listen(struct db_conn *conn, struct err *e)
{
    return postgres_command(conn, "LISTEN space", deadline_in_ms(POSTGRES_WAIT_MS), e);
}

/* What libpq has read already comes before what is still in the socket. */
static int postgres_notice(struct db_conn *conn, const struct db_wait *wait, struct err *e)
{
    struct pollfd p[2] = {{.fd = PQsocket(conn->pg), .events = POLLIN},
                          {.fd = wait->wake_fd, .events = POLLIN}};
    PGnotify *notice;
    int n;

    for (;;) {
        if (!PQconsumeInput(conn->pg)) {
            return postgres_lost(conn, e);
        }
        notice = PQnotifies(conn->pg);
        if (notice) {
            snprintf(wait->text, wait->size, "%s", notice->extra);
            PQfreemem(notice);
            return 1;
        }
        n = poll(p, 2, deadline_poll_ms(wait->deadline_ns));
        if (n == 0 || (n > 0 && p[1].revents)) {
            return 0;
        }
        if (n < 0 && errno != EINTR) {
            return err_wrap(e, -errno, "waiting for the database's notices");
        }
    }
}

const struct db_driver db_driver_postgres = {
    .scheme = "postgresql",
    /* Any number will do, as long as nobody else of this database takes it: "space" in ASCII. */
    .schema_lock = {"SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 120000",
                    "SELECT pg_advisory_xact_lock(495555044197); SET LOCAL lock_timeout = 10000"},
    .now_ms = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
    .skip_locked = " FOR UPDATE SKIP LOCKED",
    .open = postgres_connect,
    .close = postgres_close,
    .usable = postgres_usable,
    .script = postgres_script,
    .begin = postgres_begin,
    .commit = postgres_commit,
    .rollback = postgres_rollback,
    .query = postgres_query,
    .next = postgres_next,
    .get_int = postgres_get_int,
    .get_text = postgres_get_text,
    .finish = postgres_finish,
    .changes = postgres_changes,
    .notify = "SELECT pg_notify('space', $1)",
    .listen = postgres_listen,
    .notice = postgres_notice,
};

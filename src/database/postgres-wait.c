/* SPDX-License-Identifier: Apache-2.0 */

/* Connections to PostgreSQL and bounded waits on them; see postgres.h. */
#include "base/clock.h"
#include "base/log.h"
#include "database/postgres.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* A connection is cheaper than reading away the rest of a longer list. */
#define DRAIN_MAX 2000

/* SQLSTATE, or its first two characters: a class. */
static const struct {
    const char *state;
    int code;
} states[] = {
    {"23505", -EEXIST},    /* unique_violation */
    {"40001", -EAGAIN},    /* serialization_failure */
    {"40P01", -EAGAIN},    /* deadlock_detected */
    {"55P03", -EBUSY},     /* lock_not_available */
    {"57014", -EBUSY},     /* query_canceled: by a timeout of ours */
    {"25006", -EHOSTDOWN}, /* read_only_sql_transaction: this one is a standby now */
    {"53100", -ENOSPC},    /* disk_full */
    {"08", -EHOSTDOWN},    /* connection_exception */
    {"53", -EHOSTDOWN},    /* insufficient_resources, too_many_connections */
    {"57", -EHOSTDOWN},    /* operator_intervention: it is being stopped or started */
    {"23", -EINVAL},       /* other integrity constraints: the parent is not there */
    {"22", -EINVAL},       /* data_exception: no text of its encoding */
    {"28", -EACCES},       /* invalid_authorization */
    {"3D", -EACCES},       /* invalid_catalog_name */
    {"42501", -EACCES},    /* insufficient_privilege */
    {"XX001", -EUCLEAN},   /* data_corrupted */
    {"XX002", -EUCLEAN},   /* index_corrupted */
};

int postgres_errno(const char *state)
{
    for (size_t i = 0; state && i < ARRAY_SIZE(states); i++) {
        if (str_starts(state, states[i].state)) {
            return states[i].code;
        }
    }
    return -EIO;
}

/* libpq's sentences end in a line break, and may be several. */
static void first_line(const char *text, char *ret, size_t size)
{
    size_t len = strcspn(text, "\n");

    snprintf(ret, size, "%.*s", (int)MIN(len, size - 1), text);
}

int postgres_lost(struct db_conn *conn, struct err *e)
{
    char why[200];

    first_line(PQerrorMessage(conn->pg), why, sizeof(why));
    conn->broken = true;
    return err_set(e, -EHOSTDOWN, DB_UNAVAILABLE, "the database cannot be reached%s%s",
                   why[0] ? ": " : "", why);
}

int postgres_failed(struct db_conn *conn, const PGresult *res, struct err *e)
{
    const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
    int code = postgres_errno(state);
    char why[200];

    if (!state || PQstatus(conn->pg) == CONNECTION_BAD) {
        return postgres_lost(conn, e);
    }
    first_line(PQresultErrorMessage(res), why, sizeof(why));
    if (code == -EHOSTDOWN) {
        conn->broken = true;
        return err_set(e, code, DB_UNAVAILABLE, "the database does not serve now: %s", why);
    }
    return err_set(e, code, code == -EEXIST ? NULL : "database_error", "the database refused: %s",
                   why);
}

static int wait_for(struct db_conn *conn, short events, uint64_t deadline_ns, struct err *e)
{
    struct pollfd p = {.fd = PQsocket(conn->pg), .events = events};
    int n;

    if (p.fd < 0) {
        return postgres_lost(conn, e);
    }
    do {
        n = poll(&p, 1, deadline_poll_ms(deadline_ns));
    } while (n < 0 && errno == EINTR);
    if (n == 0) {
        conn->broken = true;
        return err_set(e, -EHOSTDOWN, DB_UNAVAILABLE, "the database did not answer in time");
    }
    return n < 0 ? err_wrap(e, -errno, "waiting for the database") : 0;
}

int postgres_flush(struct db_conn *conn, uint64_t deadline_ns, struct err *e)
{
    int r;

    for (;;) {
        int left = PQflush(conn->pg);

        if (left <= 0) {
            return left == 0 ? 0 : postgres_lost(conn, e);
        }
        r = wait_for(conn, POLLIN | POLLOUT, deadline_ns, e);
        if (r < 0) {
            return r;
        }
        if (!PQconsumeInput(conn->pg)) { /* the server may have to get rid of something first */
            return postgres_lost(conn, e);
        }
    }
}

int postgres_result(struct db_conn *conn, uint64_t deadline_ns, PGresult **ret, struct err *e)
{
    int r;

    while (PQisBusy(conn->pg)) {
        r = wait_for(conn, POLLIN, deadline_ns, e);
        if (r < 0) {
            return r;
        }
        if (!PQconsumeInput(conn->pg)) {
            return postgres_lost(conn, e);
        }
    }
    *ret = PQgetResult(conn->pg);
    return 0;
}

int postgres_drain(struct db_conn *conn, struct err *e)
{
    uint64_t deadline_ns = deadline_in_ms(POSTGRES_WAIT_MS);
    PGresult *res = NULL;
    int failed = 0;
    int r;

    for (int i = 0; !conn->broken; i++) {
        if (i == DRAIN_MAX) {
            conn->broken = true;
            break;
        }
        r = postgres_result(conn, deadline_ns, &res, e);
        if (r < 0) {
            return r;
        }
        if (!res) {
            return failed;
        }
        if (failed == 0 && PQresultStatus(res) == PGRES_FATAL_ERROR) {
            failed = postgres_failed(conn, res, e);
        }
        PQclear(TAKE_PTR(res));
    }
    return failed < 0 ? failed : postgres_lost(conn, e);
}

int postgres_command(struct db_conn *conn, const char *sql, uint64_t deadline_ns, struct err *e)
{
    PGresult *res = NULL;
    int failed = 0;
    int r;

    if (!PQsendQuery(conn->pg, sql)) {
        return postgres_lost(conn, e);
    }
    r = postgres_flush(conn, deadline_ns, e);
    while (r == 0) {
        r = postgres_result(conn, deadline_ns, &res, e);
        if (r < 0 || !res) {
            break;
        }
        if (PQresultStatus(res) != PGRES_COMMAND_OK && PQresultStatus(res) != PGRES_TUPLES_OK &&
            failed == 0) {
            failed = postgres_failed(conn, res, e);
        }
        PQclear(res);
    }
    return r < 0 ? r : failed;
}

static int finish_connecting(struct db_conn *conn, uint64_t deadline_ns, struct err *e)
{
    PostgresPollingStatusType status = PGRES_POLLING_WRITING;
    int r;

    while (status != PGRES_POLLING_OK) {
        if (status == PGRES_POLLING_FAILED || PQstatus(conn->pg) == CONNECTION_BAD) {
            return postgres_lost(conn, e);
        }
        r = wait_for(conn, status == PGRES_POLLING_READING ? POLLIN : POLLOUT, deadline_ns, e);
        if (r < 0) {
            return r;
        }
        status = PQconnectPoll(conn->pg);
    }
    return 0;
}

static void no_notices(void *ctx, const PGresult *res)
{
    (void)ctx;
    (void)res;
}

/*
 * Durability and the reading of text are not left to the server's defaults. Sessions of a gateway whose host has died
 * end by themselves, and take their locks along.
 */
static const char session[] =
    "SET client_encoding = 'UTF8'; SET standard_conforming_strings = on;"
    "SET statement_timeout = " POSTGRES_STATEMENT_MS "; SET lock_timeout = " POSTGRES_LOCK_MS ";"
    "SET idle_in_transaction_session_timeout = 30000;"
    "SET default_transaction_isolation = 'read committed'";

/* libpq's own complaint would print it, password included. */
static bool can_read(const char *url)
{
    PQconninfoOption *parts = PQconninfoParse(url, /* errmsg */ NULL);

    PQconninfoFree(parts);
    return parts;
}

int postgres_connect(const char *where, struct db_conn **ret, struct err *e)
{
    cleanup_free char *url = xasprintf("postgresql:%s", where);
    CLEANUP(postgres_closep) struct db_conn *conn = xnew(struct db_conn);
    const char *const names[] = {
        "fallback_application_name",
        "keepalives_idle",
        "keepalives_interval",
        "keepalives_count",
        "tcp_user_timeout",
        "dbname", /* last: the URL wins */
        NULL,
    };
    const char *const values[] = {"space", "10", "5", "3", "15000", url, NULL};
    uint64_t deadline_ns = deadline_in_ms(POSTGRES_CONNECT_MS);
    int r;

    ASSERT(where && ret);

    if (!can_read(url)) {
        return err_set(e, -EINVAL, NULL,
                       "the address of the database cannot be read: write "
                       "postgresql://user@host/name");
    }
    conn->pg = PQconnectStartParams(names, values, /* expand_dbname */ 1);
    if (!conn->pg) {
        return err_set(e, -ENOMEM, DB_UNAVAILABLE, "there is no memory for a connection");
    }
    PQsetNoticeReceiver(conn->pg, no_notices, NULL);
    r = finish_connecting(conn, deadline_ns, e);
    if (r == 0 && PQsetnonblocking(conn->pg, 1) != 0) {
        r = postgres_lost(conn, e);
    }
    if (r == 0) {
        r = postgres_command(conn, session, deadline_ns, e);
    }
    if (r < 0) {
        return r;
    }
    *ret = TAKE_PTR(conn);
    return 0;
}

void postgres_close(struct db_conn *conn)
{
    if (conn) {
        PQfinish(conn->pg);
        free(conn);
    }
}

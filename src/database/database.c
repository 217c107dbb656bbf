/* SPDX-License-Identifier: Apache-2.0 */

/* The pool of connections, transactions on them, and which product a URL names. */
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "base/metric.h"
#include "database/private.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* More than this many requests in the database at once only queue elsewhere. */
#define POOL_MAX 16
/* A request that waits longer for a connection is told to come again. */
#define POOL_WAIT_MS 10000
/* A database that is away is tried this often, not once for each request that wants it. */
#define AWAY_MS 500

struct db {
    const struct db_driver *driver; /* static */
    char *where;                    /* owned */
    pthread_mutex_t mutex;          /* guards the fields below */
    pthread_cond_t freed;
    struct db_conn *idle[POOL_MAX]; /* owned */
    size_t n_idle;
    size_t n_open;
    uint64_t away_until_ns; /* no new connection before that: the last attempt failed */
    bool away;              /* what the log says */
    pthread_mutex_t
        writer; /* held during write transactions when the driver wants a single writer */
};

static const struct {
    const char *scheme;
    const struct db_driver *driver;
} schemes[] = {
    {"sqlite", &db_driver_sqlite},
    {"postgresql", &db_driver_postgres},
    {"postgres", &db_driver_postgres},
};

int db_open_driver(const struct db_driver *driver, const char *where, struct db **ret,
                   struct err *e)
{
    CLEANUP(db_freep) struct db *db = xnew(struct db);
    struct db_conn *conn = NULL;
    int r;

    ASSERT(driver && where && ret);

    db->driver = driver;
    db->where = xstrdup(where);
    pthread_mutex_init(&db->mutex, NULL);
    pthread_mutex_init(&db->writer, NULL);
    cond_init(&db->freed);

    r = driver->open(where, &conn, e);
    if (r < 0) {
        return r;
    }
    db->idle[db->n_idle++] = conn;
    db->n_open = 1;
    r = db_schema_migrate(driver, conn, e);
    if (r < 0) {
        return err_wrap(e, r, "preparing the schema");
    }
    *ret = TAKE_PTR(db);
    return 0;
}

int db_open(const char *url, struct db **ret, struct err *e)
{
    const char *colon;

    ASSERT(url && ret);

    colon = strchr(url, ':');
    for (size_t i = 0; colon && i < ARRAY_SIZE(schemes); i++) {
        size_t len = strlen(schemes[i].scheme);

        if (len == (size_t)(colon - url) && strncmp(schemes[i].scheme, url, len) == 0) {
            return db_open_driver(schemes[i].driver, colon + 1, ret, e);
        }
    }
    return err_set(e, -EINVAL, NULL,
                   "this names no database: write sqlite:/path/to/space.db or "
                   "postgresql://user@host/name");
}

void db_free(struct db *db)
{
    if (!db) {
        return;
    }
    ASSERT(db->n_idle == db->n_open); /* nobody is inside any more */
    for (size_t i = 0; i < db->n_idle; i++) {
        db->driver->close(db->idle[i]);
    }
    pthread_cond_destroy(&db->freed);
    pthread_mutex_destroy(&db->writer);
    pthread_mutex_destroy(&db->mutex);
    free(db->where);
    free(db);
}

/* Which of the two it is goes to the log when it changes; the addresses in why are no client's business. */
static int note_state(struct db *db, int r, struct err *e)
{
    bool away = r == -EHOSTDOWN;
    bool was;

    pthread_mutex_lock(&db->mutex);
    was = db->away;
    db->away = away;
    db->away_until_ns = away ? deadline_in_ms(AWAY_MS) : 0;
    pthread_mutex_unlock(&db->mutex);
    if (away && !was) {
        log_error(NULL, "%s: changes wait until it is back", e->msg);
    } else if (!away && was) {
        log_info(NULL, "the database is back");
    }
    return r;
}

static int unavailable(struct err *e)
{
    return err_set(e, -EHOSTDOWN, DB_UNAVAILABLE,
                   "the database cannot be reached: nothing was changed, try again");
}

/* *ret NULL: there is room for a connection, and the place is ours. */
static int take_place(struct db *db, struct db_conn **ret, struct err *e)
{
    uint64_t deadline_ns = deadline_in_ms(POOL_WAIT_MS);
    int r = 0;

    pthread_mutex_lock(&db->mutex);
    while (db->n_idle == 0 && db->n_open == POOL_MAX && r == 0) {
        r = cond_wait_until(&db->freed, &db->mutex, deadline_ns);
    }
    if (db->n_idle > 0) {
        *ret = db->idle[--db->n_idle];
        r = 0;
    } else if (r == 0 && !deadline_passed(db->away_until_ns)) {
        r = -EHOSTDOWN;
    } else if (r == 0) {
        db->n_open++;
        *ret = NULL;
    }
    pthread_mutex_unlock(&db->mutex);
    return r < 0 ? unavailable(e) : 0;
}

static void give_up_place(struct db *db)
{
    pthread_mutex_lock(&db->mutex);
    db->n_open--;
    pthread_cond_signal(&db->freed);
    pthread_mutex_unlock(&db->mutex);
}

static bool usable(const struct db *db, struct db_conn *conn)
{
    return !db->driver->usable || db->driver->usable(conn);
}

static int acquire(struct db *db, struct db_conn **ret, struct err *e)
{
    struct db_conn *conn = NULL;
    struct err mine = {0};
    int r;

    for (;;) {
        r = take_place(db, &conn, e);
        if (r < 0) {
            return r;
        }
        if (!conn) {
            break;
        }
        if (usable(db, conn)) {
            *ret = conn;
            return 0;
        }
        db->driver->close(conn); /* the database was restarted since */
        give_up_place(db);
    }
    r = note_state(db, db->driver->open(db->where, &conn, &mine), &mine);
    if (r == -EHOSTDOWN) {
        give_up_place(db);
        return unavailable(e);
    }
    if (r < 0) {
        give_up_place(db);
        return err_set(e, r, mine.reason, "%s", mine.msg);
    }
    *ret = conn;
    return 0;
}

static void release(struct db *db, struct db_conn *conn)
{
    if (!usable(db, conn)) {
        db->driver->close(conn);
        give_up_place(db);
        return;
    }
    pthread_mutex_lock(&db->mutex);
    ASSERT(db->n_idle < POOL_MAX);
    db->idle[db->n_idle++] = conn;
    pthread_cond_signal(&db->freed);
    pthread_mutex_unlock(&db->mutex);
}

static const char *const kinds[] = {"read", "write"};
static const char *const errors[] = {"unavailable", "busy", "conflict", "full", "other"};
static struct metric seconds = {
    .name = "space_database_seconds",
    .help = "Transactions, from being asked for to their end, waiting for a turn included.",
    .type = METRIC_HISTOGRAM,
    .labels = {{"kind", kinds, ARRAY_SIZE(kinds)}},
};
static struct metric failures = {
    .name = "space_database_errors_total",
    .help = "Statements and commits that failed; a conflict is tried again.",
    .type = METRIC_COUNTER,
    .labels = {{"error", errors, ARRAY_SIZE(errors)}},
};

void db_metrics_register(void)
{
    metric_register(&seconds);
    metric_register(&failures);
}

/* Gives r back. That something is there already is an answer, not a failure. */
static int count_failure(int r)
{
    const char *word = r == -EHOSTDOWN ? "unavailable"
                       : r == -EBUSY   ? "busy"
                       : r == -EAGAIN  ? "conflict"
                       : r == -ENOSPC  ? "full"
                                       : "other";

    if (r < 0 && r != -EEXIST) {
        metric_add(&failures, METRIC_AT(metric_index(&failures, 0, word)), 1);
    }
    return r;
}

static void end_tx(struct db_tx *tx)
{
    struct db *db = tx->db;

    metric_observe(&seconds, METRIC_AT(tx->mode != DB_READ), clock_now_ns() - tx->begun_ns);
    release(db, tx->conn);
    if (tx->mode != DB_READ && db->driver->single_writer) {
        pthread_mutex_unlock(&db->writer);
    }
    *tx = (struct db_tx){0};
}

/* What it said goes to the log, once. */
static int broke(struct db *db, int r, struct err *e)
{
    if (count_failure(r) != -EHOSTDOWN) {
        return r;
    }
    IGNORE_RESULT(note_state(db, r, e)); /* r again */
    return unavailable(e);
}

static int begin_once(struct db_tx *tx, struct err *e)
{
    struct db *db = tx->db;
    struct err mine = {0};
    int r = acquire(db, &tx->conn, e);

    if (r < 0) {
        return count_failure(r);
    }
    r = db->driver->begin(tx->conn, tx->alone ? DB_READ : tx->mode, &mine);
    if (r < 0) {
        release(db, tx->conn);
        tx->conn = NULL;
        r = broke(db, r, &mine);
        if (e) {
            *e = mine;
        }
    }
    return r;
}

int db_begin(struct db *db, enum db_mode mode, struct db_tx *ret, struct err *e)
{
    struct db_tx tx = {.db = db, .mode = mode, .alone = ret->alone, .begun_ns = clock_now_ns()};
    bool queues = mode != DB_READ && db->driver->single_writer;
    int r;

    ASSERT(db && ret && !ret->conn);

    /* The writer's turn comes before the connection, or waiting writers would starve the readers. */
    if (queues) {
        pthread_mutex_lock(&db->writer);
    }
    r = begin_once(&tx, e);
    if (r < 0) {
        if (queues) {
            pthread_mutex_unlock(&db->writer);
        }
        return r;
    }
    *ret = tx;
    return 0;
}

int db_commit(struct db_tx *tx, struct err *e)
{
    int r;

    ASSERT(tx && tx->conn);

    r = count_failure(tx->db->driver->commit(tx->conn, e));
    if (r < 0) {
        tx->db->driver->rollback(tx->conn);
    }
    end_tx(tx);
    return r == -EHOSTDOWN ? err_set(e, r, DB_UNAVAILABLE,
                                     "the database was lost in the middle: look what is there, "
                                     "then try again")
                           : r;
}

void db_tx_done(struct db_tx *tx)
{
    if (tx->conn) {
        tx->db->driver->rollback(tx->conn);
        end_tx(tx);
    }
}

void db_result_done(struct db_result *res)
{
    if (res->rows) {
        res->driver->finish(res->rows);
        res->rows = NULL;
    }
}

int db_select(struct db_tx *tx, const struct db_query *q, struct db_result *ret, struct err *e)
{
    struct err mine = {0};

    ASSERT(tx && tx->conn && !ret->rows);

    e = e ? e : &mine;
    ret->driver = tx->db->driver;
    ret->db = tx->db;
    return broke(tx->db, ret->driver->query(tx->conn, q, &ret->rows, e), e);
}

int db_next(struct db_result *res, struct err *e)
{
    struct err mine = {0};

    ASSERT(res->rows);
    e = e ? e : &mine;
    return broke(res->db, res->driver->next(res->rows, e), e);
}

int db_first(struct db_tx *tx, const struct db_query *q, struct db_result *ret, struct err *e)
{
    int r = db_select(tx, q, ret, e);

    return r < 0 ? r : db_next(ret, e);
}

int db_read_first(struct db *db, const struct db_query *q, struct db_tx *tx, struct db_result *ret,
                  struct err *e)
{
    int r = db_begin(db, DB_READ, tx, e);

    return r < 0 ? r : db_first(tx, q, ret, e);
}

int64_t db_get_int(struct db_result *res, int column)
{
    return res->driver->get_int(res->rows, column);
}

void db_get_text(struct db_result *res, int column, char *ret, size_t size)
{
    snprintf(ret, size, "%s", res->driver->get_text(res->rows, column));
}

char *db_get_text_dup(struct db_result *res, int column)
{
    return xstrdup(res->driver->get_text(res->rows, column));
}

int db_run(struct db_tx *tx, const struct db_query *q, int64_t *ret_changes, struct err *e)
{
    cleanup_result struct db_result res = {0};
    int r;

    r = db_select(tx, q, &res, e);
    if (r < 0) {
        return r;
    }
    r = db_next(&res, e);
    if (r < 0) {
        return r;
    }
    ASSERT(r == 0); /* statements that give rows go through db_select() */
    if (ret_changes) {
        *ret_changes = tx->db->driver->changes(tx->conn);
    }
    return 0;
}

/* A server needs no BEGIN around one statement; SQLite's writers take turns. */
static int write_one(struct db *db, const struct db_query *q, int64_t *ret_changes, struct err *e)
{
    cleanup_tx struct db_tx tx = {.alone = db_shared(db)};
    int r;

    r = db_begin(db, DB_WRITE, &tx, e);
    if (r < 0) {
        return r;
    }
    r = db_run(&tx, q, ret_changes, e);
    return r < 0 ? r : db_commit(&tx, e);
}

int db_write_one(struct db *db, const struct db_query *q, int64_t *ret_changes, struct err *e)
{
    return DB_RETRIED(write_one(db, q, ret_changes, e));
}

int db_ping(struct db *db, struct err *e)
{
    static const char sql[] = "SELECT COUNT(*) FROM schema_migrations";
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r;

    r = db_begin(db, DB_READ, &tx, e);
    if (r < 0) {
        return r;
    }
    r = db_select(&tx, &(struct db_query){.sql = sql}, &res, e);
    if (r < 0) {
        return r;
    }
    r = db_next(&res, e);
    /* A newer program may have moved it on: what it added does not concern us. */
    if (r == 1 && db_get_int(&res, 0) < db_schema_version()) {
        return err_set(e, -EIO, "database_error",
                       "the schema of the database has changed under us");
    }
    return r < 0 ? r : 0;
}

const struct db_driver *db_driver_of(const struct db *db)
{
    return db->driver;
}

bool db_shared(const struct db *db)
{
    return db->driver->notify;
}

int db_notify(struct db_tx *tx, const char *text, struct err *e)
{
    cleanup_result struct db_result res = {0};
    int r;

    ASSERT(db_shared(tx->db));
    r = db_select(tx, DB_QUERY(tx->db->driver->notify, DB_TEXT(text)), &res, e);
    if (r == 0) {
        r = db_next(&res, e);
    }
    return r < 0 ? r : 0;
}

int db_say(struct db *db, const char *text, struct err *e)
{
    cleanup_tx struct db_tx tx = {0};
    int r = db_begin(db, DB_WRITE, &tx, e);

    if (r == 0) {
        r = db_notify(&tx, text, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

/* --- listening --- */

struct db_listener {
    const struct db_driver *driver; /* static */
    struct db_conn *conn;           /* owned */
};

int db_listen(struct db *db, struct db_listener **ret, struct err *e)
{
    CLEANUP(db_listener_freep) struct db_listener *l = xnew(struct db_listener);
    int r;

    ASSERT(db_shared(db) && ret);
    l->driver = db->driver;
    r = l->driver->open(db->where, &l->conn, e);
    if (r == 0) {
        r = l->driver->listen(l->conn, e);
    }
    if (r == 0) {
        *ret = TAKE_PTR(l);
    }
    return r;
}

void db_listener_free(struct db_listener *l)
{
    if (l) {
        if (l->conn) {
            l->driver->close(l->conn);
        }
        free(l);
    }
}

int db_listener_wait(struct db_listener *l, uint64_t deadline_ns, int wake_fd,
                     char ret[static DB_NOTICE_SIZE], struct err *e)
{
    ASSERT(l);
    return l->driver->notice(
        l->conn,
        &(struct db_wait){
            .deadline_ns = deadline_ns, .wake_fd = wake_fd, .text = ret, .size = DB_NOTICE_SIZE},
        e);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* The pool of connections, transactions on them, and which product a URL names. */
#include "database/private.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* More than this many requests in the database at once only queue elsewhere. */
#define POOL_MAX 8

struct db {
    const struct db_driver *driver; /* static */
    char *where;                    /* owned */
    pthread_mutex_t mutex;          /* guards the fields below */
    pthread_cond_t freed;
    struct db_conn *idle[POOL_MAX]; /* owned */
    size_t n_idle;
    size_t n_open;
    pthread_mutex_t
        writer; /* held during write transactions when the driver wants a single writer */
};

static const struct db_driver *const drivers[] = {&db_driver_sqlite};

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
    pthread_cond_init(&db->freed, NULL);

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
    for (size_t i = 0; colon && i < ARRAY_SIZE(drivers); i++) {
        size_t len = strlen(drivers[i]->scheme);

        if (len == (size_t)(colon - url) && strncmp(drivers[i]->scheme, url, len) == 0) {
            return db_open_driver(drivers[i], colon + 1, ret, e);
        }
    }
    return err_set(e, -EINVAL, NULL, "'%s' names no database: write sqlite:/path/to/space.db", url);
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

static int acquire(struct db *db, struct db_conn **ret, struct err *e)
{
    struct db_conn *conn = NULL;
    int r;

    pthread_mutex_lock(&db->mutex);
    while (db->n_idle == 0 && db->n_open == POOL_MAX) {
        pthread_cond_wait(&db->freed, &db->mutex);
    }
    if (db->n_idle > 0) {
        *ret = db->idle[--db->n_idle];
        pthread_mutex_unlock(&db->mutex);
        return 0;
    }
    db->n_open++;
    pthread_mutex_unlock(&db->mutex);

    r = db->driver->open(db->where, &conn, e);
    if (r < 0) {
        pthread_mutex_lock(&db->mutex);
        db->n_open--;
        pthread_cond_signal(&db->freed);
        pthread_mutex_unlock(&db->mutex);
        return r;
    }
    *ret = conn;
    return 0;
}

static void release(struct db *db, struct db_conn *conn)
{
    pthread_mutex_lock(&db->mutex);
    ASSERT(db->n_idle < POOL_MAX);
    db->idle[db->n_idle++] = conn;
    pthread_cond_signal(&db->freed);
    pthread_mutex_unlock(&db->mutex);
}

static void end_tx(struct db_tx *tx)
{
    struct db *db = tx->db;

    release(db, tx->conn);
    if (tx->write && db->driver->single_writer) {
        pthread_mutex_unlock(&db->writer);
    }
    *tx = (struct db_tx){0};
}

int db_begin(struct db *db, bool write, struct db_tx *ret, struct err *e)
{
    struct db_tx tx = {.db = db, .write = write};
    int r;

    ASSERT(db && ret && !ret->conn);

    /* The writer's turn comes before the connection, or waiting writers would starve the readers. */
    if (write && db->driver->single_writer) {
        pthread_mutex_lock(&db->writer);
    }
    r = acquire(db, &tx.conn, e);
    if (r < 0) {
        if (write && db->driver->single_writer) {
            pthread_mutex_unlock(&db->writer);
        }
        return r;
    }
    r = db->driver->begin(tx.conn, write, e);
    if (r < 0) {
        end_tx(&tx);
        return r;
    }
    *ret = tx;
    return 0;
}

int db_commit(struct db_tx *tx, struct err *e)
{
    int r;

    ASSERT(tx && tx->conn);

    r = tx->db->driver->commit(tx->conn, e);
    if (r < 0) {
        tx->db->driver->rollback(tx->conn);
    }
    end_tx(tx);
    return r;
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
    ASSERT(tx && tx->conn && !ret->rows);

    ret->driver = tx->db->driver;
    return ret->driver->query(tx->conn, q, &ret->rows, e);
}

int db_next(struct db_result *res, struct err *e)
{
    ASSERT(res->rows);
    return res->driver->next(res->rows, e);
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
    if (r == 1 && db_get_int(&res, 0) != db_schema_version()) {
        return err_set(e, -EIO, "database_error",
                       "the schema of the database has changed under us");
    }
    return r < 0 ? r : 0;
}

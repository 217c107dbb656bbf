/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What gateways need that share a database: who lives, who holds what, whose turn it is. All times are the
 * database's, so that no two clocks are ever compared.
 */
#include "database/private.h"

#include <stdio.h>
#include <string.h>

/* Rows of gateways that died are kept this long, for people who look. */
#define GATEWAY_KEEP_MS "86400000"

/* A statement with the clock of the product in it; lives as long as the program, as prepared statements want. */
static char *with_clock(const struct db *db, const char *before, const char *after)
{
    return xasprintf("%s%s%s", before, db_driver_of(db)->now_ms, after);
}

/* 1: there was a row. Reads to the end: a statement by itself is committed only then. */
static int one_number(struct db_tx *tx, const struct db_query *q, int64_t *ret, struct err *e)
{
    cleanup_result struct db_result res = {0};
    int64_t number = 0;
    int there = 0;
    int r = db_select(tx, q, &res, e);

    while (r >= 0 && (r = db_next(&res, e)) == 1) {
        number = db_get_int(&res, 0);
        there = 1;
    }
    if (r < 0) {
        return r;
    }
    if (there) {
        *ret = number;
    }
    return there;
}

static int beat(struct db *db, const char *id, int64_t lease_ms, int64_t *ret_alive, struct err *e)
{
    cleanup_free char *put = with_clock(db, "INSERT INTO gateways (id, until_ms) VALUES ($1, ",
                                        " + $2) ON CONFLICT (id) DO UPDATE SET until_ms = "
                                        "excluded.until_ms");
    cleanup_free char *forget =
        with_clock(db, "DELETE FROM gateways WHERE until_ms < ", " - " GATEWAY_KEEP_MS);
    cleanup_free char *drop =
        xstrdup("DELETE FROM holds WHERE owner NOT IN (SELECT id FROM gateways)");
    cleanup_free char *count =
        with_clock(db, "SELECT COUNT(*) FROM gateways WHERE until_ms > ", "");
    const struct db_value params[] = {DB_TEXT(id), DB_INT(lease_ms)};
    cleanup_tx struct db_tx tx = {0};
    int r;

    r = db_begin(db, DB_WRITE, &tx, e);
    if (r == 0) {
        r = db_run(&tx,
                   &(struct db_query){
                       .sql = put, .params = params, .n_params = ARRAY_SIZE(params), .once = true},
                   NULL, e);
    }
    if (r == 0) {
        r = db_run(&tx, &(struct db_query){.sql = forget, .once = true}, NULL, e);
    }
    if (r == 0) {
        r = db_run(&tx, &(struct db_query){.sql = drop, .once = true}, NULL, e);
    }
    if (r == 0) {
        r = one_number(&tx, &(struct db_query){.sql = count, .once = true}, ret_alive, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

int db_gateway_beat(struct db *db, const char *id, int64_t lease_ms, int64_t *ret_alive,
                    struct err *e)
{
    ASSERT(id && lease_ms > 0 && ret_alive);
    return DB_RETRIED(beat(db, id, lease_ms, ret_alive, e));
}

static int end_gateway(struct db *db, const char *id, struct err *e)
{
    static const char holds[] = "DELETE FROM holds WHERE owner = $1";
    static const char turns[] = "UPDATE turns SET owner = '', until_ms = 0 WHERE owner = $1";
    static const char gateway[] = "DELETE FROM gateways WHERE id = $1";
    cleanup_tx struct db_tx tx = {0};
    int r;

    r = db_begin(db, DB_WRITE, &tx, e);
    if (r == 0) {
        r = db_run(&tx, DB_QUERY(holds, DB_TEXT(id)), NULL, e);
    }
    if (r == 0) {
        r = db_run(&tx, DB_QUERY(turns, DB_TEXT(id)), NULL, e);
    }
    if (r == 0) {
        r = db_run(&tx, DB_QUERY(gateway, DB_TEXT(id)), NULL, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

int db_gateway_end(struct db *db, const char *id, struct err *e)
{
    ASSERT(id);
    return DB_RETRIED(end_gateway(db, id, e));
}

/* --- holds --- */

int db_hold_take(struct db *db, const char *name, const char *owner, struct err *e)
{
    static const char want[] = "UPDATE holds SET wanted = 1 WHERE name = $1";
    cleanup_free char *take = with_clock(
        db,
        "INSERT INTO holds (name, owner, wanted) VALUES ($1, $2, 0) ON CONFLICT (name) "
        "DO UPDATE SET owner = excluded.owner WHERE holds.owner = excluded.owner OR "
        "NOT EXISTS (SELECT 1 FROM gateways g WHERE g.id = holds.owner AND g.until_ms > ",
        ")");
    const struct db_value params[] = {DB_TEXT(name), DB_TEXT(owner)};
    int64_t changes = 0;
    int r;

    ASSERT(name && owner);
    do {
        r = db_write_one(
            db,
            &(struct db_query){
                .sql = take, .params = params, .n_params = ARRAY_SIZE(params), .once = true},
            &changes, e);
        if (r < 0 || changes == 1) {
            return r < 0 ? r : 1;
        }
        r = db_write_one(db, DB_QUERY(want, DB_TEXT(name)), &changes, e);
    } while (r == 0 && changes == 0); /* it was given between our two statements */
    return r;
}

static int give(struct db *db, const char *name, const char *owner, int64_t *ret_wanted,
                struct err *e)
{
    static const char sql[] = "DELETE FROM holds WHERE name = $1 AND owner = $2 RETURNING wanted";
    cleanup_tx struct db_tx tx = {.alone = db_shared(db)};
    int r;

    r = db_begin(db, DB_WRITE, &tx, e);
    if (r == 0) {
        r = one_number(&tx, DB_QUERY(sql, DB_TEXT(name), DB_TEXT(owner)), ret_wanted, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

int db_hold_give(struct db *db, const char *name, const char *owner, struct err *e)
{
    char text[DB_NOTICE_SIZE];
    int64_t wanted = 0;
    int r;

    ASSERT(name && owner);
    r = DB_RETRIED(give(db, name, owner, &wanted, e));
    if (r == 0 && wanted && db_shared(db)) {
        snprintf(text, sizeof(text), "given %s", name);
        IGNORE_RESULT(db_say(db, text, /* e */ NULL)); /* who waits looks by himself, too */
    }
    return r;
}

/* --- turns --- */

int db_turn_add(struct db *db, const char *name, struct err *e)
{
    static const char sql[] = "INSERT INTO turns (name, owner, until_ms, next_ms) "
                              "VALUES ($1, '', 0, 0) ON CONFLICT (name) DO NOTHING";

    ASSERT(name && strlen(name) < DB_TURN_SIZE);
    return db_write_one(db, DB_QUERY(sql, DB_TEXT(name)), NULL, e);
}

int db_turn_remove(struct db *db, const char *name, struct err *e)
{
    static const char sql[] = "DELETE FROM turns WHERE name = $1";

    ASSERT(name);
    return db_write_one(db, DB_QUERY(sql, DB_TEXT(name)), NULL, e);
}

/* The statement picks, skips what others pick at this moment, and takes. */
static int take_due(struct db_tx *tx, const char *owner, int64_t lease_ms,
                    char ret[static DB_TURN_SIZE], struct err *e)
{
    const struct db_driver *driver = db_driver_of(tx->db);
    cleanup_free char *sql = xasprintf(
        "UPDATE turns SET owner = $1, until_ms = %s + $2, next_ms = %s + $2 + 1000 WHERE name IN "
        "(SELECT name FROM turns WHERE next_ms <= %s AND until_ms <= %s ORDER BY next_ms, name "
        "LIMIT 1%s) RETURNING name",
        driver->now_ms, driver->now_ms, driver->now_ms, driver->now_ms, driver->skip_locked);
    const struct db_value params[] = {DB_TEXT(owner), DB_INT(lease_ms)};
    cleanup_result struct db_result res = {0};
    int r;

    r = db_first(tx,
                 &(struct db_query){
                     .sql = sql, .params = params, .n_params = ARRAY_SIZE(params), .once = true},
                 &res, e);
    if (r == 1) {
        db_get_text(&res, 0, ret, DB_TURN_SIZE);
    }
    return r;
}

static int take_turn(struct db *db, const char *owner, int64_t lease_ms,
                     char ret[static DB_TURN_SIZE], int64_t *ret_next_ms, struct err *e)
{
    cleanup_free char *next = xasprintf(
        "SELECT COALESCE(MIN(CASE WHEN until_ms > next_ms THEN until_ms ELSE next_ms END) - %s, "
        "%lld) FROM turns",
        db_driver_of(db)->now_ms, 60000ll);
    cleanup_tx struct db_tx tx = {0};
    int taken;
    int r;

    r = db_begin(db, DB_WRITE, &tx, e);
    if (r < 0) {
        return r;
    }
    taken = take_due(&tx, owner, lease_ms, ret, e);
    r = taken;
    if (taken == 0) {
        r = one_number(&tx, &(struct db_query){.sql = next, .once = true}, ret_next_ms, e);
    }
    r = r < 0 ? r : db_commit(&tx, e);
    return r < 0 ? r : taken;
}

int db_turn_take(struct db *db, const char *owner, int64_t lease_ms, char ret[static DB_TURN_SIZE],
                 int64_t *ret_next_ms, struct err *e)
{
    ASSERT(owner && lease_ms > 0 && ret_next_ms);
    return DB_RETRIED(take_turn(db, owner, lease_ms, ret, ret_next_ms, e));
}

/* take_due() put next_ms behind until_ms: when it is before it, somebody has hurried the turn since. */
int db_turn_done(struct db *db, const char *name, const char *owner, int64_t next_ms, struct err *e)
{
    cleanup_free char *sql = with_clock(
        db, "UPDATE turns SET owner = '', next_ms = CASE WHEN next_ms < until_ms THEN 0 ELSE ",
        " + $3 END, until_ms = 0 WHERE name = $1 AND owner = $2");
    const struct db_value params[] = {DB_TEXT(name), DB_TEXT(owner), DB_INT(next_ms)};

    ASSERT(name && owner && next_ms >= 0);
    return db_write_one(
        db,
        &(struct db_query){
            .sql = sql, .params = params, .n_params = ARRAY_SIZE(params), .once = true},
        NULL, e);
}

static int hurry(struct db *db, const char *prefix, struct err *e)
{
    static const char sql[] = "UPDATE turns SET next_ms = 0 WHERE next_ms > 0 AND substr(name, 1, "
                              "CAST($2 AS INTEGER)) = $1";
    cleanup_tx struct db_tx tx = {0};
    int r;

    r = db_begin(db, DB_WRITE, &tx, e);
    if (r == 0) {
        r = db_run(&tx, DB_QUERY(sql, DB_TEXT(prefix), DB_INT(strlen(prefix))), NULL, e);
    }
    if (r == 0 && db_shared(db)) {
        r = db_notify(&tx, "turn", e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

int db_turn_hurry(struct db *db, const char *prefix, struct err *e)
{
    ASSERT(prefix);
    return DB_RETRIED(hurry(db, prefix, e));
}

/* --- secrets --- */

static int agree(struct db *db, const char *name, char *value, size_t size, struct err *e)
{
    static const char put[] =
        "INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
    static const char get[] = "SELECT value FROM secrets WHERE name = $1";
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r;

    r = db_begin(db, DB_WRITE, &tx, e);
    if (r == 0) {
        r = db_run(&tx, DB_QUERY(put, DB_TEXT(name), DB_TEXT(value)), NULL, e);
    }
    if (r == 0) {
        r = db_first(&tx, DB_QUERY(get, DB_TEXT(name)), &res, e);
    }
    if (r < 0) {
        return r;
    }
    if (r == 0) {
        return -EAGAIN; /* somebody has removed it */
    }
    db_get_text(&res, 0, value, size);
    db_result_done(&res);
    return db_commit(&tx, e);
}

int db_secret_agree(struct db *db, const char *name, char *value, size_t size, struct err *e)
{
    ASSERT(name && value);
    return DB_RETRIED(agree(db, name, value, size, e));
}

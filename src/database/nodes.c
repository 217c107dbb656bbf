/* SPDX-License-Identifier: Apache-2.0 */
#include "database/nodes.h"

#include "base/clock.h"
#include "database/private.h"

#include <stdio.h>

#define COLUMNS \
    "name, id, address, wanted, leased, lost, generation, renewals, joined_at_ms, vcpus, " \
    "memory_mib, memory_free_mib, pool_bytes, pool_free_bytes, n_sandboxes, warm, told, "

static const char *const wanted_names[NODE_WANTED_COUNT_] = {
    [NODE_READY] = "ready",
    [NODE_CORDONED] = "cordoned",
    [NODE_DRAINING] = "draining",
    [NODE_REMOVED] = "removed",
};

const char *node_wanted_name(enum node_wanted wanted)
{
    ASSERT(wanted >= 0 && wanted < NODE_WANTED_COUNT_);
    return wanted_names[wanted];
}

bool node_wanted_parse(const char *name, enum node_wanted *ret)
{
    for (int i = 0; i < NODE_WANTED_COUNT_; i++) {
        if (str_eq(name, wanted_names[i])) {
            *ret = (enum node_wanted)i;
            return true;
        }
    }
    return false;
}

void node_row_done(struct node_row *row)
{
    free(row->told);
    *row = (struct node_row){0};
}

enum node_health node_row_health(const struct node_row *row)
{
    bool silent = row->leased ? row->left_ms <= 0 : row->told_ago_ms >= NODE_SILENT_MS;

    if (row->lost) {
        return NODE_LOST;
    }
    return row->told_ago_ms < 0 ? NODE_NEW : silent ? NODE_SILENT : NODE_ALIVE;
}

const char *node_health_name(enum node_health health)
{
    static const char *const names[NODE_HEALTH_COUNT_] = {
        [NODE_NEW] = "new", [NODE_ALIVE] = "alive", [NODE_SILENT] = "silent", [NODE_LOST] = "lost"};

    ASSERT(health >= 0 && health < NODE_HEALTH_COUNT_);
    return names[health];
}

bool node_row_takes(const struct node_row *row)
{
    return row->wanted == NODE_READY && !row->lost && (!row->leased || row->left_ms > 0);
}

static int not_found(struct err *e, const char *name)
{
    return err_set(e, -ENOENT, "node_not_found", "there is no node '%s'", name);
}

static int over(struct err *e, const char *name)
{
    return err_set(e, -ESTALE, "generation_over", "this generation of node '%s' is over", name);
}

/* --- rows --- */

static int put(struct db *db, const struct node_row *row, int64_t *ret_changes, struct err *e)
{
    static const char sql[] = "INSERT INTO nodes (name, id, address, wanted, leased, joined_at_ms) "
                              "VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (name) DO UPDATE SET "
                              "id = CASE WHEN excluded.id = '' THEN nodes.id ELSE excluded.id END, "
                              "address = excluded.address, leased = excluded.leased "
                              "WHERE nodes.id = excluded.id OR nodes.id = '' OR excluded.id = ''";

    return db_write_one(db,
                        DB_QUERY(sql, DB_TEXT(row->name), DB_TEXT(row->id), DB_TEXT(row->address),
                                 DB_TEXT(node_wanted_name(row->wanted)), DB_INT(row->leased),
                                 DB_INT(row->joined_at_ms)),
                        ret_changes, e);
}

int db_node_put(struct db *db, const struct node_row *row, struct err *e)
{
    int64_t changes = 0;
    int r;

    ASSERT(row && row->name[0] && row->address[0]);
    r = put(db, row, &changes, e);
    return r == 0 && changes == 0
               ? err_set(e, -EEXIST, "node_exists", "another node is called '%s'", row->name)
               : r;
}

static void read_node(struct db_result *res, struct node_row *ret)
{
    char wanted[16];

    db_get_text(res, 0, ret->name, sizeof(ret->name));
    db_get_text(res, 1, ret->id, sizeof(ret->id));
    db_get_text(res, 2, ret->address, sizeof(ret->address));
    db_get_text(res, 3, wanted, sizeof(wanted));
    if (!node_wanted_parse(wanted, &ret->wanted)) {
        ret->wanted = NODE_CORDONED; /* a newer program's word: nothing new comes to it from us */
    }
    ret->leased = db_get_int(res, 4);
    ret->lost = db_get_int(res, 5);
    ret->generation = db_get_int(res, 6);
    ret->renewals = db_get_int(res, 7);
    ret->joined_at_ms = db_get_int(res, 8);
    ret->capacity = (struct node_capacity){
        .vcpus = db_get_int(res, 9),
        .memory_mib = db_get_int(res, 10),
        .memory_free_mib = db_get_int(res, 11),
        .pool_bytes = db_get_int(res, 12),
        .pool_free_bytes = db_get_int(res, 13),
        .sandboxes = db_get_int(res, 14),
        .warm = db_get_int(res, 15),
    };
    ret->told = db_get_text_dup(res, 16);
    ret->left_ms = db_get_int(res, 17);
    ret->told_ago_ms = db_get_int(res, 18);
}

/* after: WHERE and ORDER BY. Lives until the caller frees it. */
static char *select_nodes(const struct db *db, const char *after)
{
    const char *now_ms = db_driver_of(db)->now_ms;

    return xasprintf("SELECT " COLUMNS "CASE WHEN until_ms = 0 THEN 0 ELSE until_ms - %s END, "
                     "CASE WHEN told_at_ms = 0 THEN -1 ELSE %s - told_at_ms END FROM nodes %s",
                     now_ms, now_ms, after);
}

int db_node_get(struct db *db, const char *name, struct node_row *ret, struct err *e)
{
    cleanup_free char *sql = select_nodes(db, "WHERE name = $1");
    const struct db_value params[] = {DB_TEXT(name)};
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r = db_begin(db, DB_READ, &tx, e);

    if (r == 0) {
        r = db_select(
            &tx,
            &(struct db_query){
                .sql = sql, .params = params, .n_params = ARRAY_SIZE(params), .once = true},
            &res, e);
    }
    if (r == 0) {
        r = db_next(&res, e);
    }
    if (r == 0) {
        return not_found(e, name);
    }
    if (r == 1) {
        *ret = (struct node_row){0};
        read_node(&res, ret);
    }
    return r < 0 ? r : 0;
}

int db_node_list(struct db *db, db_node_fn *each, void *ctx, struct err *e)
{
    cleanup_free char *sql = select_nodes(db, "ORDER BY name");
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r = db_begin(db, DB_READ, &tx, e);

    ASSERT(each);
    if (r == 0) {
        r = db_select(&tx, &(struct db_query){.sql = sql, .once = true}, &res, e);
    }
    if (r < 0) {
        return r;
    }
    while ((r = db_next(&res, e)) == 1) {
        cleanup_node_row struct node_row row = {0};

        read_node(&res, &row);
        r = each(ctx, &row);
        if (r != 0) {
            return r;
        }
    }
    return r;
}

int db_node_want(struct db *db, const char *name, enum node_wanted wanted, struct err *e)
{
    static const char sql[] = "UPDATE nodes SET wanted = $2 WHERE name = $1";
    int64_t changes = 0;
    int r = db_write_one(db, DB_QUERY(sql, DB_TEXT(name), DB_TEXT(node_wanted_name(wanted))),
                         &changes, e);

    return r == 0 && changes == 0 ? not_found(e, name) : r;
}

int db_node_count_sandboxes(struct db *db, const char *name, int64_t *ret, struct err *e)
{
    static const char sql[] = "SELECT COUNT(*) FROM sandboxes WHERE node = $1";
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r = db_begin(db, DB_READ, &tx, e);

    if (r == 0) {
        r = db_select(&tx, DB_QUERY(sql, DB_TEXT(name)), &res, e);
    }
    if (r == 0) {
        r = db_next(&res, e);
    }
    if (r == 1) {
        *ret = db_get_int(&res, 0);
    }
    return r < 0 ? r : 0;
}

int db_node_delete(struct db *db, const char *name, struct err *e)
{
    static const char sql[] = "DELETE FROM nodes WHERE name = $1 AND NOT EXISTS "
                              "(SELECT 1 FROM sandboxes s WHERE s.node = nodes.name)";
    cleanup_node_row struct node_row row = {0};
    int64_t changes = 0;
    int r = db_write_one(db, DB_QUERY(sql, DB_TEXT(name)), &changes, e);

    if (r < 0 || changes > 0) {
        return r;
    }
    r = db_node_get(db, name, &row, e);
    return r < 0 ? r
                 : err_set(e, -EBUSY, "node_not_empty",
                           "node '%s' still has sandboxes: drain it first", name);
}

/* --- leases --- */

/* A statement with the database's clock in it, as :now. */
static int write_timed(struct db *db, const char *before, const char *after,
                       const struct db_value *params, size_t n_params, int64_t *ret_changes,
                       struct err *e)
{
    cleanup_free char *sql = xasprintf("%s%s%s", before, db_driver_of(db)->now_ms, after);

    return db_write_one(
        db, &(struct db_query){.sql = sql, .params = params, .n_params = n_params, .once = true},
        ret_changes, e);
}

static int write_told(struct db *db, const struct node_row *row, int64_t *ret_changes,
                      struct err *e)
{
    const struct node_capacity *cap = &row->capacity;
    const struct db_value params[] = {
        DB_TEXT(row->name),
        DB_TEXT(row->told ? row->told : ""),
        DB_INT(cap->vcpus),
        DB_INT(cap->memory_mib),
        DB_INT(cap->memory_free_mib),
        DB_INT(cap->pool_bytes),
        DB_INT(cap->pool_free_bytes),
        DB_INT(cap->sandboxes),
        DB_INT(cap->warm),
        DB_TEXT(row->id),
    };

    return write_timed(db,
                       "UPDATE nodes SET told = $2, vcpus = $3, memory_mib = $4, "
                       "memory_free_mib = $5, pool_bytes = $6, pool_free_bytes = $7, "
                       "n_sandboxes = $8, warm = $9, id = $10, told_at_ms = ",
                       " WHERE name = $1 AND (id = '' OR id = $10)", params, ARRAY_SIZE(params),
                       ret_changes, e);
}

int db_node_renew(struct db *db, const struct node_row *row, int64_t lease_ms, struct err *e)
{
    const struct db_value params[] = {DB_TEXT(row->name), DB_INT(row->generation), DB_INT(lease_ms),
                                      DB_TEXT(row->id)};
    int64_t changes = 0;
    int r;

    ASSERT(row->id[0] && lease_ms >= 0);
    r = write_told(db, row, &changes, e);
    if (r < 0 || lease_ms == 0) {
        return r == 0 && changes == 0 ? over(e, row->name) : r;
    }
    r = write_timed(db, "UPDATE nodes SET renewals = renewals + 1, until_ms = ",
                    " + $3 WHERE name = $1 AND generation = $2 AND id = $4 AND lost = 0 AND "
                    "leased = 1",
                    params, ARRAY_SIZE(params), &changes, e);
    return r == 0 && changes == 0 ? over(e, row->name) : r;
}

static int lose(struct db *db, const char *name, int64_t renewals, int64_t *ret_generation,
                struct err *e)
{
    cleanup_free char *sql =
        xasprintf("UPDATE nodes SET lost = 1, generation = generation + 1 WHERE name = $1 AND "
                  "renewals = $2 AND lost = 0 AND leased = 1 AND until_ms > 0 AND until_ms < %s "
                  "RETURNING generation",
                  db_driver_of(db)->now_ms);
    const struct db_value params[] = {DB_TEXT(name), DB_INT(renewals)};
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int64_t generation = 0;
    int taken = 0;
    int r = db_begin(db, DB_WRITE, &tx, e);

    if (r == 0) {
        r = db_select(
            &tx,
            &(struct db_query){
                .sql = sql, .params = params, .n_params = ARRAY_SIZE(params), .once = true},
            &res, e);
    }
    while (r >= 0 && (r = db_next(&res, e)) == 1) {
        generation = db_get_int(&res, 0);
        taken = 1;
    }
    db_result_done(&res);
    r = r < 0 ? r : db_commit(&tx, e);
    if (r == 0 && taken) {
        *ret_generation = generation;
    }
    return r < 0 ? r : taken;
}

int db_node_lose(struct db *db, const char *name, int64_t renewals, int64_t *ret_generation,
                 struct err *e)
{
    ASSERT(name && ret_generation);
    return DB_RETRIED(lose(db, name, renewals, ret_generation, e));
}

static int back(struct db *db, const char *name, int64_t generation, struct err *e)
{
    static const char node[] = "UPDATE nodes SET lost = 0, until_ms = 0 WHERE name = $1 AND "
                               "generation = $2 AND lost = 1";
    static const char sandboxes[] =
        "UPDATE sandboxes SET generation = generation + 1 WHERE node = $1";
    cleanup_tx struct db_tx tx = {0};
    int64_t changes = 0;
    int r = db_begin(db, DB_WRITE, &tx, e);

    if (r == 0) {
        r = db_run(&tx, DB_QUERY(node, DB_TEXT(name), DB_INT(generation)), &changes, e);
    }
    if (r == 0 && changes == 0) {
        return over(e, name);
    }
    if (r == 0) {
        r = db_run(&tx, DB_QUERY(sandboxes, DB_TEXT(name)), NULL, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

int db_node_back(struct db *db, const char *name, int64_t generation, struct err *e)
{
    ASSERT(name);
    return DB_RETRIED(back(db, name, generation, e));
}

/* --- tokens --- */

int db_node_token_add(struct db *db, const char *hash, int64_t lives_ms, struct err *e)
{
    const struct db_value params[] = {DB_TEXT(hash), DB_INT(lives_ms)};
    int r;

    ASSERT(hash && lives_ms > 0);
    r = write_timed(db, "DELETE FROM node_tokens WHERE until_ms < ", "", NULL, 0, NULL, e);
    return r < 0 ? r
                 : write_timed(db, "INSERT INTO node_tokens (hash, until_ms) VALUES ($1, ",
                               " + $2)", params, ARRAY_SIZE(params), NULL, e);
}

int db_node_token_use(struct db *db, const char *hash, struct err *e)
{
    const struct db_value params[] = {DB_TEXT(hash)};
    int64_t changes = 0;
    int r;

    ASSERT(hash);
    r = write_timed(db, "DELETE FROM node_tokens WHERE hash = $1 AND until_ms > ", "", params,
                    ARRAY_SIZE(params), &changes, e);
    return r == 0 && changes == 0
               ? err_set(e, -EACCES, "token_refused",
                         "this token is not good (any more): make another one with 'space node "
                         "token'")
               : r;
}

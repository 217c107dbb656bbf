/* SPDX-License-Identifier: Apache-2.0 */
#include "database/operations.h"

int operation_insert(struct db_tx *tx, const struct operation *op, struct err *e)
{
    static const char sql[] =
        "INSERT INTO operations (project_id, key, fingerprint, sandbox_id, owner, status, answer, "
        "created_at_ms) VALUES ($1, $2, $3, $4, $5, 0, '', $6) ON CONFLICT (project_id, key) DO "
        "NOTHING";
    int64_t changes = 0;
    int r;

    ASSERT(op->status == 0 && op->owner[0] && op->key[0]);
    r = db_run(tx,
               DB_QUERY(sql, DB_TEXT(op->project), DB_TEXT(op->key), DB_TEXT(op->fingerprint),
                        DB_TEXT(op->sandbox), DB_TEXT(op->owner), DB_INT(op->created_at_ms)),
               &changes, e);
    if (r < 0) {
        return r;
    }
    if (changes == 0) {
        return err_set(e, -EEXIST, NULL, "the operation is known already");
    }
    return 0;
}

int operation_finish(struct db_tx *tx, const struct operation *op, struct err *e)
{
    static const char sql[] =
        "UPDATE operations SET status = $3, answer = $4 WHERE project_id = $1 AND key = $2";

    ASSERT(op->status > 0 && op->answer);
    return db_run(tx,
                  DB_QUERY(sql, DB_TEXT(op->project), DB_TEXT(op->key), DB_INT(op->status),
                           DB_TEXT(op->answer)),
                  NULL, e);
}

#define COLUMNS "project_id, key, fingerprint, sandbox_id, owner, status, answer, created_at_ms"

static int one_operation(struct db *db, const struct db_query *q, struct operation *ret,
                         struct err *e)
{
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    struct operation op = {0};
    int r;

    r = db_read_first(db, q, &tx, &res, e);
    if (r <= 0) {
        return r < 0 ? r : err_set(e, -ENOENT, NULL, "there is no such operation");
    }
    db_get_text(&res, 0, op.project, sizeof(op.project));
    db_get_text(&res, 1, op.key, sizeof(op.key));
    db_get_text(&res, 2, op.fingerprint, sizeof(op.fingerprint));
    db_get_text(&res, 3, op.sandbox, sizeof(op.sandbox));
    db_get_text(&res, 4, op.owner, sizeof(op.owner));
    op.status = db_get_int(&res, 5);
    op.answer = op.status ? db_get_text_dup(&res, 6) : NULL;
    op.created_at_ms = db_get_int(&res, 7);
    *ret = op;
    return 0;
}

int db_operation_get(struct db *db, const char *project, const char *key, struct operation *ret,
                     struct err *e)
{
    static const char sql[] =
        "SELECT " COLUMNS " FROM operations WHERE project_id = $1 AND key = $2";

    ASSERT(project && key && ret);
    return one_operation(db, DB_QUERY(sql, DB_TEXT(project), DB_TEXT(key)), ret, e);
}

int db_operation_of_sandbox(struct db *db, const char *sandbox, struct operation *ret,
                            struct err *e)
{
    static const char sql[] =
        "SELECT " COLUMNS " FROM operations WHERE sandbox_id = $1 OR sandbox_id = "
        "(SELECT batch FROM sandboxes WHERE id = $1 AND batch <> '')";

    ASSERT(sandbox && ret);
    return one_operation(db, DB_QUERY(sql, DB_TEXT(sandbox)), ret, e);
}

int db_operation_take_over(struct db *db, const struct operation *op, const char *new_owner,
                           struct err *e)
{
    static const char sql[] = "UPDATE operations SET owner = $4 WHERE project_id = $1 AND key = $2 "
                              "AND owner = $3 AND status = 0";
    int64_t changes = 0;
    int r;

    ASSERT(op && new_owner);
    r = db_write_one(db,
                     DB_QUERY(sql, DB_TEXT(op->project), DB_TEXT(op->key), DB_TEXT(op->owner),
                              DB_TEXT(new_owner)),
                     &changes, e);
    if (r == 0 && changes == 0) {
        return err_set(e, -ESTALE, "conflict", "another gateway has taken the operation over");
    }
    return r;
}

static const char delete_sql[] = "DELETE FROM operations WHERE project_id = $1 AND key = $2";

int operation_forget(struct db_tx *tx, const struct operation *op, struct err *e)
{
    return db_run(tx, DB_QUERY(delete_sql, DB_TEXT(op->project), DB_TEXT(op->key)), NULL, e);
}

int db_operation_delete(struct db *db, const char *project, const char *key, struct err *e)
{
    ASSERT(project && key);
    return db_write_one(db, DB_QUERY(delete_sql, DB_TEXT(project), DB_TEXT(key)), NULL, e);
}

int db_operation_prune(struct db *db, int64_t before_ms, struct err *e)
{
    static const char sql[] = "DELETE FROM operations WHERE status > 0 AND created_at_ms < $1";

    return db_write_one(db, DB_QUERY(sql, DB_INT(before_ms)), NULL, e);
}

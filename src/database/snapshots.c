/* SPDX-License-Identifier: Apache-2.0 */

/* Which snapshot is of which sandbox, and what it is called. The snapshots themselves are the node's. */
#include "database/private.h"

#define COLUMNS "id, project_id, sandbox_id, name, created_at_ms"

static void read_row(struct db_result *res, struct snapshot_row *ret)
{
    db_get_text(res, 0, ret->id, sizeof(ret->id));
    db_get_text(res, 1, ret->project, sizeof(ret->project));
    db_get_text(res, 2, ret->sandbox, sizeof(ret->sandbox));
    db_get_text(res, 3, ret->name, sizeof(ret->name));
    ret->created_at_ms = db_get_int(res, 4);
}

static int take_name(struct db_tx *tx, const struct snapshot_row *row, char ret_was[static ID_SIZE],
                     struct err *e)
{
    static const char find[] = "SELECT id FROM snapshots WHERE project_id = $1 AND name = $2";
    static const char clear[] =
        "UPDATE snapshots SET name = '' WHERE project_id = $1 AND name = $2";
    cleanup_result struct db_result res = {0};
    int r;

    ret_was[0] = '\0';
    if (row->name[0] == '\0') {
        return 0;
    }
    r = db_first(tx, DB_QUERY(find, DB_TEXT(row->project), DB_TEXT(row->name)), &res, e);
    if (r <= 0) {
        return r;
    }
    db_get_text(&res, 0, ret_was, ID_SIZE);
    return db_run(tx, DB_QUERY(clear, DB_TEXT(row->project), DB_TEXT(row->name)), NULL, e);
}

static int put(struct db *db, const struct snapshot_row *row, char ret_was[static ID_SIZE],
               struct err *e)
{
    static const char sql[] = "INSERT INTO snapshots (" COLUMNS ") VALUES ($1, $2, $3, $4, $5)";
    cleanup_tx struct db_tx tx = {0};
    int r;

    r = db_begin(db, DB_WRITE, &tx, e);
    if (r == 0) {
        r = take_name(&tx, row, ret_was, e);
    }
    if (r == 0) {
        r = db_run(&tx,
                   DB_QUERY(sql, DB_TEXT(row->id), DB_TEXT(row->project), DB_TEXT(row->sandbox),
                            DB_TEXT(row->name), DB_INT(row->created_at_ms)),
                   NULL, e);
    }
    if (r == -EEXIST && row->name[0]) {
        return -EAGAIN; /* somebody gave the same name between our two statements */
    }
    return r < 0 ? r : db_commit(&tx, e);
}

int db_snapshot_put(struct db *db, const struct snapshot_row *row, char ret_was[static ID_SIZE],
                    struct err *e)
{
    ASSERT(row && row->id[0] && row->project[0] && row->sandbox[0]);
    return DB_RETRIED(put(db, row, ret_was, e));
}

int db_snapshot_find(struct db *db, const char *project, const char *id_or_name,
                     struct snapshot_row *ret, struct err *e)
{
    static const char sql[] = "SELECT " COLUMNS " FROM snapshots WHERE project_id = $1 AND "
                              "(id = $2 OR (name = $2 AND name <> ''))";
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r;

    ASSERT(project && id_or_name && ret);
    r = db_read_first(db, DB_QUERY(sql, DB_TEXT(project), DB_TEXT(id_or_name)), &tx, &res, e);
    if (r <= 0) {
        return r < 0 ? r : err_set(e, -ENOENT, "snapshot_not_found", "there is no such snapshot");
    }
    read_row(&res, ret);
    return 0;
}

int db_snapshot_forget(struct db *db, const char *project, const char *id, struct err *e)
{
    static const char sql[] = "DELETE FROM snapshots WHERE project_id = $1 AND id = $2";

    ASSERT(project && id);
    return db_write_one(db, DB_QUERY(sql, DB_TEXT(project), DB_TEXT(id)), NULL, e);
}

int db_snapshot_list(struct db *db, const struct snapshot_query *q, db_snapshot_fn *each, void *ctx,
                     struct err *e)
{
    static const char sql[] =
        "SELECT " COLUMNS " FROM snapshots WHERE project_id = $1 "
        "AND ($2 = '' OR sandbox_id = $2) AND ($3 = '' OR name = $3) "
        "AND ($4 = 0 OR created_at_ms < $4 OR (created_at_ms = $4 AND id < $5)) "
        "ORDER BY created_at_ms DESC, id DESC LIMIT $6";
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r;

    ASSERT(q && q->project && q->limit > 0 && each);
    r = db_begin(db, DB_READ, &tx, e);
    if (r == 0) {
        r = db_select(&tx,
                      DB_QUERY(sql, DB_TEXT(q->project), DB_TEXT(q->sandbox ? q->sandbox : ""),
                               DB_TEXT(q->name ? q->name : ""), DB_INT(q->after_ms),
                               DB_TEXT(q->after_id ? q->after_id : ""), DB_INT(q->limit)),
                      &res, e);
    }
    if (r < 0) {
        return r;
    }
    while ((r = db_next(&res, e)) == 1) {
        struct snapshot_row row = {0};

        read_row(&res, &row);
        r = each(ctx, &row);
        if (r != 0) {
            return r;
        }
    }
    return r;
}

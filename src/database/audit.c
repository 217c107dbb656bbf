/* SPDX-License-Identifier: Apache-2.0 */
#include "database/operations.h"

int audit_insert(struct db_tx *tx, const struct audit_event *ev, struct err *e)
{
    static const char sql[] =
        "INSERT INTO audit_events (id, at_ms, project_id, key_id, action, target, detail) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7)";

    ASSERT(ev->id[0] && ev->action[0]);
    return db_run(tx,
                  DB_QUERY(sql, DB_TEXT(ev->id), DB_INT(ev->at_ms), DB_TEXT(ev->project),
                           DB_TEXT(ev->key), DB_TEXT(ev->action), DB_TEXT(ev->target),
                           DB_TEXT(ev->detail)),
                  NULL, e);
}

static int add(struct db *db, const struct audit_event *ev, struct err *e)
{
    cleanup_tx struct db_tx tx = {0};
    int r;

    ASSERT(ev);
    r = db_begin(db, DB_WRITE, &tx, e);
    if (r == 0) {
        r = audit_insert(&tx, ev, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

int db_audit_add(struct db *db, const struct audit_event *ev, struct err *e)
{
    return DB_RETRIED(add(db, ev, e));
}

int db_audit_list(struct db *db, const char *project, int64_t limit, db_audit_fn *each, void *ctx,
                  struct err *e)
{
    static const char sql[] =
        "SELECT id, at_ms, project_id, key_id, action, target, detail FROM audit_events "
        "WHERE project_id = $1 ORDER BY at_ms DESC, id DESC LIMIT $2";
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r;

    ASSERT(project && each);
    r = db_begin(db, DB_READ, &tx, e);
    if (r < 0) {
        return r;
    }
    r = db_select(&tx, DB_QUERY(sql, DB_TEXT(project), DB_INT(limit)), &res, e);
    if (r < 0) {
        return r;
    }
    while ((r = db_next(&res, e)) == 1) {
        struct audit_event ev = {.at_ms = db_get_int(&res, 1)};

        db_get_text(&res, 0, ev.id, sizeof(ev.id));
        db_get_text(&res, 2, ev.project, sizeof(ev.project));
        db_get_text(&res, 3, ev.key, sizeof(ev.key));
        db_get_text(&res, 4, ev.action, sizeof(ev.action));
        db_get_text(&res, 5, ev.target, sizeof(ev.target));
        db_get_text(&res, 6, ev.detail, sizeof(ev.detail));
        r = each(ctx, &ev);
        if (r != 0) {
            return r;
        }
    }
    return r;
}

int db_audit_prune(struct db *db, int64_t before_ms, struct err *e)
{
    static const char sql[] = "DELETE FROM audit_events WHERE at_ms < $1";

    return db_write_one(db, DB_QUERY(sql, DB_INT(before_ms)), NULL, e);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* Builds of templates and the layers that they leave. */
#include "database/private.h"
#include "database/templates.h"

#define COLUMNS \
    "id, template_id, project_id, status, vcpus, memory_mib, disk_mib, sandbox_id, snapshot_id, " \
    "config, reason, created_at_ms, ended_at_ms"

void build_row_done(struct build_row *row)
{
    free(row->config);
    free(row->reason);
    free(row->log);
    row->config = row->reason = row->log = NULL;
}

/* Everything but the log. */
static void read_build(struct db_result *res, struct build_row *ret)
{
    int64_t status = db_get_int(res, 3);

    *ret = (struct build_row){
        .status =
            status >= 0 && status < BUILD_STATUS_COUNT_ ? (enum build_status)status : BUILD_FAILED,
        .shape = {(unsigned)db_get_int(res, 4), (unsigned)db_get_int(res, 5),
                  (unsigned)db_get_int(res, 6)},
        .config = db_get_text_dup(res, 9),
        .reason = db_get_text_dup(res, 10),
        .created_at_ms = db_get_int(res, 11),
        .ended_at_ms = db_get_int(res, 12),
    };
    db_get_text(res, 0, ret->id, sizeof(ret->id));
    db_get_text(res, 1, ret->template_id, sizeof(ret->template_id));
    db_get_text(res, 2, ret->project, sizeof(ret->project));
    db_get_text(res, 7, ret->sandbox, sizeof(ret->sandbox));
    db_get_text(res, 8, ret->snapshot, sizeof(ret->snapshot));
}

int db_build_get(struct db *db, const char *project, const char *id, struct build_row *ret,
                 struct err *e)
{
    static const char sql[] =
        "SELECT " COLUMNS ", log FROM template_builds WHERE id = $1 AND project_id = $2";
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r;

    ASSERT(project && id && ret);
    r = db_read_first(db, DB_QUERY(sql, DB_TEXT(id), DB_TEXT(project)), &tx, &res, e);
    if (r <= 0) {
        return r < 0 ? r : err_set(e, -ENOENT, "build_not_found", "build '%.64s' not found", id);
    }
    read_build(&res, ret);
    ret->log = db_get_text_dup(&res, 13);
    return 0;
}

int db_build_list(struct db *db, const char *project, const char *template_id, db_build_fn *each,
                  void *ctx, struct err *e)
{
    static const char sql[] =
        "SELECT " COLUMNS " FROM template_builds WHERE ($1 = '' OR project_id = $1) "
        "AND ($2 = '' OR template_id = $2) ORDER BY created_at_ms DESC, id DESC";
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r;

    ASSERT(each);
    r = db_begin(db, DB_READ, &tx, e);
    if (r == 0) {
        r = db_select(
            &tx,
            DB_QUERY(sql, DB_TEXT(project ? project : ""), DB_TEXT(template_id ? template_id : "")),
            &res, e);
    }
    if (r < 0) {
        return r;
    }
    while ((r = db_next(&res, e)) == 1) {
        cleanup_build_row struct build_row row = {0};

        read_build(&res, &row);
        r = each(ctx, &row);
        if (r != 0) {
            return r;
        }
    }
    return r;
}

static int update_in(struct db_tx *tx, const struct build_row *row, struct err *e)
{
    static const char sql[] =
        "UPDATE template_builds SET status = $2, vcpus = $3, memory_mib = $4, disk_mib = $5, "
        "sandbox_id = $6, snapshot_id = $7, config = $8, reason = $9, log = $10, ended_at_ms = $11 "
        "WHERE id = $1";
    int64_t changes = 0;
    int r = db_run(tx,
                   DB_QUERY(sql, DB_TEXT(row->id), DB_INT(row->status), DB_INT(row->shape.vcpus),
                            DB_INT(row->shape.memory_mib), DB_INT(row->shape.disk_mib),
                            DB_TEXT(row->sandbox), DB_TEXT(row->snapshot),
                            DB_TEXT(row->config ? row->config : ""),
                            DB_TEXT(row->reason ? row->reason : ""),
                            DB_TEXT(row->log ? row->log : ""), DB_INT(row->ended_at_ms)),
                   &changes, e);

    return r == 0 && changes == 0
               ? err_set(e, -ENOENT, "build_not_found", "build '%s' not found", row->id)
               : r;
}

int db_build_update(struct db *db, const struct build_row *row, struct err *e)
{
    cleanup_tx struct db_tx tx = {0};
    int r = db_begin(db, DB_WRITE, &tx, e);

    if (r == 0) {
        r = update_in(&tx, row, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

int db_build_finish(struct db *db, const struct build_row *row, const char *const *tags,
                    size_t n_tags, struct err *e)
{
    static const char tag[] =
        "INSERT INTO template_tags (template_id, tag, build_id, created_at_ms) "
        "VALUES ($1, $2, $3, $4) ON CONFLICT (template_id, tag) DO UPDATE SET "
        "build_id = excluded.build_id, created_at_ms = excluded.created_at_ms";
    static const char changed[] = "UPDATE templates SET updated_at_ms = $2 WHERE id = $1";
    cleanup_tx struct db_tx tx = {0};
    int r = db_begin(db, DB_WRITE, &tx, e);

    if (r == 0) {
        r = update_in(&tx, row, e);
    }
    for (size_t i = 0; r == 0 && i < n_tags; i++) {
        r = db_run(&tx,
                   DB_QUERY(tag, DB_TEXT(row->template_id), DB_TEXT(tags[i]), DB_TEXT(row->id),
                            DB_INT(row->ended_at_ms)),
                   NULL, e);
    }
    if (r == 0) {
        r = db_run(&tx, DB_QUERY(changed, DB_TEXT(row->template_id), DB_INT(row->ended_at_ms)),
                   NULL, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

int db_build_delete(struct db *db, const char *id, struct err *e)
{
    static const char *const sql[] = {
        "DELETE FROM template_tags WHERE build_id = $1",
        "DELETE FROM template_builds WHERE id = $1",
    };
    cleanup_tx struct db_tx tx = {0};
    int r = db_begin(db, DB_WRITE, &tx, e);

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(sql); i++) {
        r = db_run(&tx, DB_QUERY(sql[i], DB_TEXT(id)), NULL, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

/* --- layers --- */

void layer_row_done(struct layer_row *row)
{
    free(row->config);
    *row = (struct layer_row){0};
}

int db_layer_put(struct db *db, const struct layer_row *row, struct err *e)
{
    static const char sql[] =
        "INSERT INTO template_layers (project_id, hash, sandbox_id, snapshot_id, used_at_ms, "
        "config) "
        "VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (project_id, hash) DO UPDATE SET "
        "sandbox_id = excluded.sandbox_id, snapshot_id = excluded.snapshot_id, "
        "used_at_ms = excluded.used_at_ms, config = excluded.config";
    cleanup_tx struct db_tx tx = {0};
    int r = db_begin(db, DB_WRITE, &tx, e);

    if (r == 0) {
        r = db_run(&tx,
                   DB_QUERY(sql, DB_TEXT(row->project), DB_TEXT(row->hash), DB_TEXT(row->sandbox),
                            DB_TEXT(row->snapshot), DB_INT(row->used_at_ms),
                            DB_TEXT(row->config ? row->config : "")),
                   NULL, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

static int read_layer(struct db_tx *tx, const char *project, const char *hash,
                      struct layer_row *ret, struct err *e)
{
    static const char sql[] = "SELECT sandbox_id, snapshot_id, config FROM template_layers "
                              "WHERE project_id = $1 AND hash = $2";
    cleanup_result struct db_result res = {0};
    int r = db_first(tx, DB_QUERY(sql, DB_TEXT(project), DB_TEXT(hash)), &res, e);

    if (r <= 0) {
        return r < 0 ? r : err_set(e, -ENOENT, "layer_not_found", "there is no such layer");
    }
    db_get_text(&res, 0, ret->sandbox, sizeof(ret->sandbox));
    db_get_text(&res, 1, ret->snapshot, sizeof(ret->snapshot));
    ret->config = db_get_text_dup(&res, 2);
    return 0;
}

int db_layer_use(struct db *db, const char *project, const char *hash, int64_t at_ms,
                 struct layer_row *ret, struct err *e)
{
    static const char sql[] =
        "UPDATE template_layers SET used_at_ms = $3 WHERE project_id = $1 AND hash = $2";
    cleanup_tx struct db_tx tx = {0};
    struct layer_row row = {.used_at_ms = at_ms};
    int r;

    ASSERT(project && hash && ret);
    snprintf(row.project, sizeof(row.project), "%s", project);
    snprintf(row.hash, sizeof(row.hash), "%s", hash);
    r = db_begin(db, DB_WRITE, &tx, e);
    if (r == 0) {
        r = read_layer(&tx, project, hash, &row, e);
    }
    if (r == 0) {
        r = db_run(&tx, DB_QUERY(sql, DB_TEXT(project), DB_TEXT(hash), DB_INT(at_ms)), NULL, e);
    }
    r = r < 0 ? r : db_commit(&tx, e);
    if (r < 0) {
        layer_row_done(&row);
        return r;
    }
    *ret = row;
    return 0;
}

int db_layer_forget(struct db *db, const char *project, const char *hash, struct err *e)
{
    static const char sql[] = "DELETE FROM template_layers WHERE project_id = $1 AND hash = $2";
    cleanup_tx struct db_tx tx = {0};
    int r = db_begin(db, DB_WRITE, &tx, e);

    if (r == 0) {
        r = db_run(&tx, DB_QUERY(sql, DB_TEXT(project), DB_TEXT(hash)), NULL, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

int db_layer_stale(struct db *db, const char *project, int64_t before_ms, int64_t keep,
                   char ret_sandbox[static ID_SIZE], struct err *e)
{
    static const char sql[] =
        "SELECT l.sandbox_id, MAX(l.used_at_ms) AS used FROM template_layers l "
        "WHERE l.project_id = $1 AND l.sandbox_id NOT IN (SELECT b.sandbox_id FROM template_builds "
        "b WHERE b.project_id = $1 AND (b.status IN (0, 1) OR b.id IN (SELECT g.build_id FROM "
        "template_tags g))) GROUP BY l.sandbox_id ORDER BY used DESC, l.sandbox_id";
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int64_t n = 0;
    int r;

    ASSERT(project);
    r = db_begin(db, DB_READ, &tx, e);
    if (r == 0) {
        r = db_select(&tx, DB_QUERY(sql, DB_TEXT(project)), &res, e);
    }
    if (r < 0) {
        return r;
    }
    while ((r = db_next(&res, e)) == 1) {
        if (++n > keep || db_get_int(&res, 1) < before_ms) {
            db_get_text(&res, 0, ret_sandbox, ID_SIZE);
            return 0;
        }
    }
    return r < 0 ? r : -ENOENT;
}

int db_layer_forget_sandbox(struct db *db, const char *project, const char *sandbox, struct err *e)
{
    static const char *const sql[] = {
        "DELETE FROM template_layers WHERE project_id = $1 AND sandbox_id = $2",
        ("DELETE FROM template_tags WHERE build_id IN (SELECT id FROM template_builds "
         "WHERE project_id = $1 AND sandbox_id = $2)"),
        "DELETE FROM template_builds WHERE project_id = $1 AND sandbox_id = $2",
    };
    cleanup_tx struct db_tx tx = {0};
    int r = db_begin(db, DB_WRITE, &tx, e);

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(sql); i++) {
        r = db_run(&tx, DB_QUERY(sql[i], DB_TEXT(project), DB_TEXT(sandbox)), NULL, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

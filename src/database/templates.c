/* SPDX-License-Identifier: Apache-2.0 */

/* Templates and their tags. builds.c has the builds and layers. */
#include "database/templates.h"
#include "database/private.h"

#define COLUMNS \
    "t.id, t.project_id, t.name, t.created_at_ms, t.updated_at_ms, t.spawned_at_ms, t.spawned, " \
    "(SELECT COUNT(*) FROM template_builds b WHERE b.template_id = t.id)"

static void read_template(struct db_result *res, struct template_row *ret)
{
    db_get_text(res, 0, ret->id, sizeof(ret->id));
    db_get_text(res, 1, ret->project, sizeof(ret->project));
    db_get_text(res, 2, ret->name, sizeof(ret->name));
    ret->created_at_ms = db_get_int(res, 3);
    ret->updated_at_ms = db_get_int(res, 4);
    ret->spawned_at_ms = db_get_int(res, 5);
    ret->spawned = db_get_int(res, 6);
    ret->builds = db_get_int(res, 7);
}

static int find_in(struct db_tx *tx, const char *project, const char *id_or_name,
                   struct template_row *ret, struct err *e)
{
    static const char sql[] =
        "SELECT " COLUMNS " FROM templates t WHERE t.project_id = $1 AND (t.id = $2 OR t.name = $2)"
        " ORDER BY CASE WHEN t.id = $2 THEN 0 ELSE 1 END";
    cleanup_result struct db_result res = {0};
    int r = db_first(tx, DB_QUERY(sql, DB_TEXT(project), DB_TEXT(id_or_name)), &res, e);

    if (r <= 0) {
        return r < 0 ? r
                     : err_set(e, -ENOENT, "template_not_found", "template '%.100s' not found",
                               id_or_name);
    }
    read_template(&res, ret);
    return 0;
}

int db_template_find(struct db *db, const char *project, const char *id_or_name,
                     struct template_row *ret, struct err *e)
{
    cleanup_tx struct db_tx tx = {0};
    int r;

    ASSERT(project && id_or_name && ret);
    r = db_begin(db, DB_READ, &tx, e);
    return r < 0 ? r : find_in(&tx, project, id_or_name, ret, e);
}

static int count_templates(struct db_tx *tx, const char *project, int64_t *ret, struct err *e)
{
    static const char sql[] = "SELECT COUNT(*) FROM templates WHERE project_id = $1";
    cleanup_result struct db_result res = {0};
    int r = db_first(tx, DB_QUERY(sql, DB_TEXT(project)), &res, e);

    if (r == 1) {
        *ret = db_get_int(&res, 0);
    }
    return r < 0 ? r : 0;
}

static int insert_template(struct db_tx *tx, struct template_row *row, int64_t max, struct err *e)
{
    static const char sql[] =
        "INSERT INTO templates (id, project_id, name, created_at_ms, updated_at_ms, spawned_at_ms, "
        "spawned) VALUES ($1, $2, $3, $4, 0, 0, 0)";
    int64_t n = 0;
    int r = count_templates(tx, row->project, &n, e);

    if (r < 0) {
        return r;
    }
    if (n >= max) {
        return err_set(e, -EDQUOT, "quota_exceeded",
                       "the project has %lld templates, as many as it may have: delete one",
                       (long long)n);
    }
    return db_run(tx,
                  DB_QUERY(sql, DB_TEXT(row->id), DB_TEXT(row->project), DB_TEXT(row->name),
                           DB_INT(row->created_at_ms)),
                  NULL, e);
}

int db_build_begin(struct db *db, struct template_row *row, struct build_row *build, int64_t max,
                   struct err *e)
{
    static const char sql[] =
        "INSERT INTO template_builds (id, template_id, project_id, status, vcpus, memory_mib, "
        "disk_mib, sandbox_id, snapshot_id, config, reason, log, created_at_ms, ended_at_ms) "
        "VALUES ($1, $2, $3, $4, $5, $6, $7, '', '', $8, '', '', $9, 0)";
    cleanup_tx struct db_tx tx = {0};
    int r;

    ASSERT(row->id[0] && row->project[0] && row->name[0] && build->id[0]);
    r = db_begin(db, DB_WRITE, &tx, e);
    if (r == 0) {
        r = find_in(&tx, row->project, row->name, row, NULL);
    }
    if (r == -ENOENT) {
        r = insert_template(&tx, row, max, e);
    }
    if (r == 0) {
        r = db_run(&tx,
                   DB_QUERY(sql, DB_TEXT(build->id), DB_TEXT(row->id), DB_TEXT(row->project),
                            DB_INT(build->status), DB_INT(build->shape.vcpus),
                            DB_INT(build->shape.memory_mib), DB_INT(build->shape.disk_mib),
                            DB_TEXT(build->config ? build->config : ""),
                            DB_INT(build->created_at_ms)),
                   NULL, e);
    }
    r = r < 0 ? r : db_commit(&tx, e);
    if (r == 0) {
        snprintf(build->template_id, sizeof(build->template_id), "%s", row->id);
        snprintf(build->project, sizeof(build->project), "%s", row->project);
    }
    return r;
}

int db_template_list(struct db *db, const char *project, db_template_fn *each, void *ctx,
                     struct err *e)
{
    static const char sql[] =
        "SELECT " COLUMNS " FROM templates t WHERE t.project_id = $1 ORDER BY t.name";
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r;

    ASSERT(project && each);
    r = db_begin(db, DB_READ, &tx, e);
    if (r == 0) {
        r = db_select(&tx, DB_QUERY(sql, DB_TEXT(project)), &res, e);
    }
    if (r < 0) {
        return r;
    }
    while ((r = db_next(&res, e)) == 1) {
        struct template_row row = {0};

        read_template(&res, &row);
        r = each(ctx, &row);
        if (r != 0) {
            return r;
        }
    }
    return r;
}

int db_template_delete(struct db *db, const char *project, const char *id, struct err *e)
{
    static const char *const sql[] = {
        "DELETE FROM template_tags WHERE template_id = $1 AND $2 <> ''",
        ("DELETE FROM template_layers WHERE project_id = $2 AND sandbox_id IN "
         "(SELECT sandbox_id FROM template_builds WHERE template_id = $1)"),
        "DELETE FROM template_builds WHERE template_id = $1 AND project_id = $2",
        "DELETE FROM templates WHERE id = $1 AND project_id = $2",
    };
    cleanup_tx struct db_tx tx = {0};
    struct template_row row;
    int r;

    ASSERT(project && id);
    r = db_begin(db, DB_WRITE, &tx, e);
    if (r == 0) {
        r = find_in(&tx, project, id, &row, e);
    }
    if (r < 0) {
        return r == -ENOENT ? 0 : r;
    }
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(sql); i++) {
        r = db_run(&tx, DB_QUERY(sql[i], DB_TEXT(row.id), DB_TEXT(project)), NULL, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

/* One statement that writes, as a transaction. */
static int run_one(struct db *db, const struct db_query *q, struct err *e)
{
    cleanup_tx struct db_tx tx = {0};
    int r = db_begin(db, DB_WRITE, &tx, e);

    if (r == 0) {
        r = db_run(&tx, q, NULL, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

int db_template_spawned(struct db *db, const char *id, int64_t at_ms, struct err *e)
{
    static const char sql[] =
        "UPDATE templates SET spawned = spawned + 1, spawned_at_ms = $2 WHERE id = $1";

    return run_one(db, DB_QUERY(sql, DB_TEXT(id), DB_INT(at_ms)), e);
}

/* --- tags --- */

int db_tag_put(struct db *db, const char *template_id, const struct template_tag *tag,
               struct err *e)
{
    static const char sql[] =
        "INSERT INTO template_tags (template_id, tag, build_id, created_at_ms) "
        "VALUES ($1, $2, $3, $4) ON CONFLICT (template_id, tag) DO UPDATE SET "
        "build_id = excluded.build_id, created_at_ms = excluded.created_at_ms";

    return run_one(db,
                   DB_QUERY(sql, DB_TEXT(template_id), DB_TEXT(tag->tag), DB_TEXT(tag->build),
                            DB_INT(tag->created_at_ms)),
                   e);
}

int db_tag_delete(struct db *db, const char *template_id, const char *tag, struct err *e)
{
    static const char sql[] = "DELETE FROM template_tags WHERE template_id = $1 AND tag = $2";

    return run_one(db, DB_QUERY(sql, DB_TEXT(template_id), DB_TEXT(tag)), e);
}

static void read_tag(struct db_result *res, struct template_tag *ret)
{
    db_get_text(res, 0, ret->tag, sizeof(ret->tag));
    db_get_text(res, 1, ret->build, sizeof(ret->build));
    ret->created_at_ms = db_get_int(res, 2);
}

#define TAG_COLUMNS "tag, build_id, created_at_ms"

int db_tag_find(struct db *db, const char *template_id, const char *tag, struct template_tag *ret,
                struct err *e)
{
    static const char sql[] =
        "SELECT " TAG_COLUMNS " FROM template_tags WHERE template_id = $1 AND tag = $2";
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r = db_read_first(db, DB_QUERY(sql, DB_TEXT(template_id), DB_TEXT(tag)), &tx, &res, e);

    if (r <= 0) {
        return r < 0 ? r
                     : err_set(e, -ENOENT, "tag_not_found", "the template has no tag '%.64s'", tag);
    }
    read_tag(&res, ret);
    return 0;
}

int db_tag_list(struct db *db, const char *template_id, db_tag_fn *each, void *ctx, struct err *e)
{
    static const char sql[] =
        "SELECT " TAG_COLUMNS " FROM template_tags WHERE template_id = $1 ORDER BY tag";
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r = db_begin(db, DB_READ, &tx, e);

    if (r == 0) {
        r = db_select(&tx, DB_QUERY(sql, DB_TEXT(template_id)), &res, e);
    }
    if (r < 0) {
        return r;
    }
    while ((r = db_next(&res, e)) == 1) {
        struct template_tag tag = {0};

        read_tag(&res, &tag);
        r = each(ctx, &tag);
        if (r != 0) {
            return r;
        }
    }
    return r;
}

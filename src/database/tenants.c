/* SPDX-License-Identifier: Apache-2.0 */

/* Organisations, projects and keys. */
#include "database/private.h"

#include <string.h>

int db_organisation_insert(struct db *db, const struct organisation *o, struct err *e)
{
    static const char sql[] =
        "INSERT INTO organisations (id, name, created_at_ms) VALUES ($1, $2, $3)";
    int r;

    ASSERT(o);
    r = db_write_one(db, DB_QUERY(sql, DB_TEXT(o->id), DB_TEXT(o->name), DB_INT(o->created_at_ms)),
                     NULL, e);
    if (r == -EEXIST) {
        return err_field(e, r, "name_taken", "name", "there is an organisation '%s' already",
                         o->name);
    }
    return r;
}

int db_organisation_by_name(struct db *db, const char *name, struct organisation *ret,
                            struct err *e)
{
    static const char sql[] = "SELECT id, name, created_at_ms FROM organisations WHERE name = $1";
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r;

    ASSERT(name && ret);
    r = db_read_first(db, DB_QUERY(sql, DB_TEXT(name)), &tx, &res, e);
    if (r <= 0) {
        return r < 0 ? r
                     : err_set(e, -ENOENT, "organisation_not_found",
                               "there is no organisation '%s'", name);
    }
    db_get_text(&res, 0, ret->id, sizeof(ret->id));
    db_get_text(&res, 1, ret->name, sizeof(ret->name));
    ret->created_at_ms = db_get_int(&res, 2);
    return 0;
}

int db_project_insert(struct db *db, const struct project *p, struct err *e)
{
    static const char sql[] =
        "INSERT INTO projects (id, organisation_id, name, max_sandboxes, created_at_ms) "
        "VALUES ($1, $2, $3, $4, $5)";
    int r;

    ASSERT(p);
    r = db_write_one(db,
                     DB_QUERY(sql, DB_TEXT(p->id), DB_TEXT(p->organisation), DB_TEXT(p->name),
                              DB_INT(p->max_sandboxes), DB_INT(p->created_at_ms)),
                     NULL, e);
    if (r == -EEXIST) {
        return err_field(e, r, "name_taken", "name", "there is a project '%s' already", p->name);
    }
    return r;
}

#define PROJECT_COLUMNS "id, organisation_id, name, max_sandboxes, created_at_ms"

static void read_project(struct db_result *res, struct project *ret)
{
    db_get_text(res, 0, ret->id, sizeof(ret->id));
    db_get_text(res, 1, ret->organisation, sizeof(ret->organisation));
    db_get_text(res, 2, ret->name, sizeof(ret->name));
    ret->max_sandboxes = db_get_int(res, 3);
    ret->created_at_ms = db_get_int(res, 4);
}

static int one_project(struct db *db, const struct db_query *q, struct project *ret, struct err *e)
{
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r;

    r = db_read_first(db, q, &tx, &res, e);
    if (r <= 0) {
        return r < 0 ? r : err_set(e, -ENOENT, "project_not_found", "there is no such project");
    }
    read_project(&res, ret);
    return 0;
}

int db_project_get(struct db *db, const char *id, struct project *ret, struct err *e)
{
    static const char sql[] = "SELECT " PROJECT_COLUMNS " FROM projects WHERE id = $1";

    ASSERT(id && ret);
    return one_project(db, DB_QUERY(sql, DB_TEXT(id)), ret, e);
}

int db_project_by_name(struct db *db, const char *organisation, const char *name,
                       struct project *ret, struct err *e)
{
    static const char sql[] =
        "SELECT " PROJECT_COLUMNS " FROM projects WHERE organisation_id = $1 AND name = $2";

    ASSERT(organisation && name && ret);
    return one_project(db, DB_QUERY(sql, DB_TEXT(organisation), DB_TEXT(name)), ret, e);
}

int db_project_set_quota(struct db *db, const char *id, int64_t max_sandboxes, struct err *e)
{
    static const char sql[] = "UPDATE projects SET max_sandboxes = $2 WHERE id = $1";
    int64_t changes = 0;
    int r;

    r = db_write_one(db, DB_QUERY(sql, DB_TEXT(id), DB_INT(max_sandboxes)), &changes, e);
    if (r < 0) {
        return r;
    }
    if (changes == 0) {
        return err_set(e, -ENOENT, "project_not_found", "there is no such project");
    }
    return 0;
}

int db_project_list(struct db *db, const char *organisation, db_project_fn *each, void *ctx,
                    struct err *e)
{
    static const char sql[] =
        "SELECT " PROJECT_COLUMNS
        " FROM projects WHERE organisation_id = $1 ORDER BY created_at_ms, id";
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    struct project p;
    int r;

    r = db_begin(db, DB_READ, &tx, e);
    if (r < 0) {
        return r;
    }
    r = db_select(&tx, DB_QUERY(sql, DB_TEXT(organisation)), &res, e);
    if (r < 0) {
        return r;
    }
    while ((r = db_next(&res, e)) == 1) {
        read_project(&res, &p);
        r = each(ctx, &p);
        if (r != 0) {
            return r;
        }
    }
    return r;
}

int db_key_insert(struct db *db, const struct api_key *k, struct err *e)
{
    static const char sql[] =
        "INSERT INTO api_keys (id, project_id, scope, name, hash, prefix, created_at_ms, "
        "last_used_at_ms, revoked_at_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0)";
    int r;

    ASSERT(k && strlen(k->hash) == KEY_HASH_SIZE - 1);
    r = db_write_one(db,
                     DB_QUERY(sql, DB_TEXT(k->id), DB_TEXT(k->project),
                              DB_TEXT(key_scope_name(k->scope)), DB_TEXT(k->name), DB_TEXT(k->hash),
                              DB_TEXT(k->prefix), DB_INT(k->created_at_ms)),
                     NULL, e);
    return r;
}

#define KEY_COLUMNS \
    "k.id, k.project_id, p.organisation_id, k.scope, k.name, k.hash, k.prefix, k.created_at_ms, " \
    "k.last_used_at_ms, k.revoked_at_ms FROM api_keys k JOIN projects p ON p.id = k.project_id "

static int read_key(struct db_result *res, struct api_key *ret, struct err *e)
{
    char scope[32];

    db_get_text(res, 0, ret->id, sizeof(ret->id));
    db_get_text(res, 1, ret->project, sizeof(ret->project));
    db_get_text(res, 2, ret->organisation, sizeof(ret->organisation));
    db_get_text(res, 3, scope, sizeof(scope));
    db_get_text(res, 4, ret->name, sizeof(ret->name));
    db_get_text(res, 5, ret->hash, sizeof(ret->hash));
    db_get_text(res, 6, ret->prefix, sizeof(ret->prefix));
    ret->created_at_ms = db_get_int(res, 7);
    ret->last_used_at_ms = db_get_int(res, 8);
    ret->revoked_at_ms = db_get_int(res, 9);
    if (!key_scope_parse(scope, &ret->scope)) {
        return err_set(e, -EUCLEAN, "database_error", "the key '%s' has the unknown scope '%s'",
                       ret->id, scope);
    }
    return 0;
}

static int one_key(struct db *db, const struct db_query *q, struct api_key *ret, struct err *e)
{
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r;

    r = db_read_first(db, q, &tx, &res, e);
    if (r <= 0) {
        return r < 0 ? r : err_set(e, -ENOENT, "key_not_found", "there is no such key");
    }
    return read_key(&res, ret, e);
}

int db_key_by_hash(struct db *db, const char *hash, struct api_key *ret, struct err *e)
{
    static const char sql[] = "SELECT " KEY_COLUMNS "WHERE k.hash = $1 AND k.revoked_at_ms = 0";

    ASSERT(hash && ret);
    return one_key(db, DB_QUERY(sql, DB_TEXT(hash)), ret, e);
}

int db_key_get(struct db *db, const char *id, struct api_key *ret, struct err *e)
{
    static const char sql[] = "SELECT " KEY_COLUMNS "WHERE k.id = $1";

    ASSERT(id && ret);
    return one_key(db, DB_QUERY(sql, DB_TEXT(id)), ret, e);
}

int db_key_list(struct db *db, const char *organisation, const char *project, db_key_fn *each,
                void *ctx, struct err *e)
{
    static const char of_all[] =
        "SELECT " KEY_COLUMNS "WHERE p.organisation_id = $1 ORDER BY k.created_at_ms, k.id";
    static const char of_one[] =
        "SELECT " KEY_COLUMNS "WHERE p.organisation_id = $1 AND k.project_id = $2 "
        "ORDER BY k.created_at_ms, k.id";
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    struct api_key k;
    int r;

    r = db_begin(db, DB_READ, &tx, e);
    if (r < 0) {
        return r;
    }
    r = str_empty(project)
            ? db_select(&tx, DB_QUERY(of_all, DB_TEXT(organisation)), &res, e)
            : db_select(&tx, DB_QUERY(of_one, DB_TEXT(organisation), DB_TEXT(project)), &res, e);
    if (r < 0) {
        return r;
    }
    while ((r = db_next(&res, e)) == 1) {
        r = read_key(&res, &k, e);
        if (r == 0) {
            r = each(ctx, &k);
        }
        if (r != 0) {
            return r;
        }
    }
    return r;
}

static int update_key(struct db *db, const struct db_query *q, struct err *e)
{
    return db_write_one(db, q, NULL, e);
}

int db_key_revoke(struct db *db, const char *id, int64_t at_ms, struct err *e)
{
    static const char sql[] =
        "UPDATE api_keys SET revoked_at_ms = $2 WHERE id = $1 AND revoked_at_ms = 0";

    ASSERT(id && at_ms > 0);
    return update_key(db, DB_QUERY(sql, DB_TEXT(id), DB_INT(at_ms)), e);
}

int db_key_touch(struct db *db, const char *id, int64_t at_ms, struct err *e)
{
    static const char sql[] =
        "UPDATE api_keys SET last_used_at_ms = $2 WHERE id = $1 AND last_used_at_ms < $2";

    ASSERT(id);
    return update_key(db, DB_QUERY(sql, DB_TEXT(id), DB_INT(at_ms)), e);
}

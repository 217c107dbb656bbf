/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/bootstrap.h"

#include <stdio.h>

#include "base/clock.h"
#include "gateway/auth.h"

static int ensure_organisation(struct db *db, const char *name, struct organisation *ret,
                               struct err *e)
{
    struct organisation org = {.created_at_ms = (int64_t)clock_wall_ms()};
    int r;

    r = tenant_name_check("organisation", name, e);
    if (r < 0) {
        return r;
    }
    id_new(ID_ORGANISATION, org.id);
    snprintf(org.name, sizeof(org.name), "%s", name);
    r = db_organisation_insert(db, &org, e);
    if (r < 0 && r != -EEXIST) {
        return r;
    }
    return db_organisation_by_name(db, name, ret, e);
}

static int ensure_project(struct db *db, const char *organisation, const char *name,
                          struct project *ret, struct err *e)
{
    struct project p = {
        .max_sandboxes = PROJECT_MAX_SANDBOXES_DEFAULT,
        .created_at_ms = (int64_t)clock_wall_ms(),
    };
    int r;

    r = tenant_name_check("project", name, e);
    if (r < 0) {
        return r;
    }
    id_new(ID_PROJECT, p.id);
    snprintf(p.organisation, sizeof(p.organisation), "%s", organisation);
    snprintf(p.name, sizeof(p.name), "%s", name);
    r = db_project_insert(db, &p, e);
    if (r < 0 && r != -EEXIST) {
        return r;
    }
    return db_project_by_name(db, organisation, name, ret, e);
}

int bootstrap_run(struct db *db, const struct bootstrap *what, json_t **ret, struct err *e)
{
    struct organisation org = {0};
    struct project project = {0};
    struct api_key k = {.created_at_ms = (int64_t)clock_wall_ms()};
    char text[KEY_TEXT_SIZE];
    int r;

    ASSERT(db && what && ret);

    r = ensure_organisation(db, what->organisation, &org, e);
    if (r == 0) {
        r = ensure_project(db, org.id, what->project, &project, e);
    }
    if (r < 0) {
        return r;
    }
    *ret = NULL;
    if (!what->key_name) {
        return 0;
    }
    r = tenant_name_check("create-key", what->key_name, e);
    if (r < 0) {
        return r;
    }
    if (!key_scope_parse(what->scope, &k.scope)) {
        return err_set(e, -EINVAL, "usage", "'--scope' must be operator, organisation or project");
    }
    snprintf(k.name, sizeof(k.name), "%s", what->key_name);
    snprintf(k.project, sizeof(k.project), "%s", project.id);
    auth_make_key(&k, text);
    r = db_key_insert(db, &k, e);
    if (r < 0) {
        return r;
    }
    *ret = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "id", k.id, "key", text, "name", k.name,
                     "prefix", k.prefix, "project", k.project, "scope", key_scope_name(k.scope));
    ASSERT(*ret);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */

/* Keys, projects and the audit log of the caller's organisation. */
#include <stdio.h>
#include <string.h>

#include "gateway/bodies.h"
#include "gateway/gateway.h"

#define AUDIT_LIMIT_DEFAULT 100
#define AUDIT_LIMIT_MAX 1000

static json_t *time_or_null(int64_t ms)
{
    return ms ? json_integer(ms) : json_null();
}

static json_t *key_json(const struct api_key *k)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:o, s:o}", "id", k->id, "name", k->name,
                     "project", k->project, "scope", key_scope_name(k->scope), "prefix", k->prefix,
                     "created_at_ms", (json_int_t)k->created_at_ms, "last_used_at_ms",
                     time_or_null(k->last_used_at_ms), "revoked_at_ms",
                     time_or_null(k->revoked_at_ms));
}

static json_t *project_json(const struct project *p)
{
    return json_pack("{s:s, s:s, s:I, s:I}", "id", p->id, "name", p->name, "max_sandboxes",
                     (json_int_t)p->max_sandboxes, "created_at_ms", (json_int_t)p->created_at_ms);
}

static int project_not_found(struct err *e)
{
    return err_set(e, -ENOENT, "project_not_found",
                   "there is no such project in your organisation; GET /v1/projects lists them");
}

/* By id or by name, of the caller's organisation only; an operator finds everybody's by id. */
static int find_project(struct http_request *req, const char *word, struct project *ret,
                        struct err *e)
{
    struct gateway *g = gateway_of(req);
    const struct control_actor *actor = actor_of(req);
    int r;

    r = id_valid(ID_PROJECT, word) ? db_project_get(g->db, word, ret, e)
                                   : db_project_by_name(g->db, actor->organisation, word, ret, e);
    if (r == 0 && request_of(req)->caller.scope == KEY_SCOPE_OPERATOR) {
        return 0;
    }
    if (r == -ENOENT || (r == 0 && !str_eq(ret->organisation, actor->organisation))) {
        return project_not_found(e);
    }
    return r;
}

static int may_less(enum key_scope scope, const char *what, struct err *e)
{
    return err_set(e, -EPERM, "operator_key_needed",
                   "only a key with the scope 'operator' %s; this key's scope is '%s'", what,
                   key_scope_name(scope));
}

int key_create_handler(struct http_request *req, struct err *e)
{
    struct gateway *g = gateway_of(req);
    cleanup_json json_t *body = NULL;
    struct key_body want = {0};
    struct api_key k = {.created_at_ms = control_now_ms(g->control)};
    struct project p = {0};
    char text[KEY_TEXT_SIZE];
    json_t *answer;
    int r;

    r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    if (r == 0) {
        r = key_body_from_json(body, &want, e);
    }
    if (r == 0) {
        r = find_project(req, want.project[0] ? want.project : actor_of(req)->project, &p, e);
    }
    if (r < 0) {
        return r == -ENOENT
                   ? err_field(e, -EINVAL, "project_not_found", "project",
                               "there is no such project in your organisation; GET /v1/projects "
                               "lists them")
                   : r;
    }
    if (want.scope > request_of(req)->caller.scope) {
        return may_less(request_of(req)->caller.scope, "makes another one", e);
    }
    k.scope = want.scope;
    snprintf(k.name, sizeof(k.name), "%s", want.name);
    snprintf(k.project, sizeof(k.project), "%s", p.id);
    auth_make_key(&k, text);
    r = db_key_insert(g->db, &k, e);
    if (r < 0) {
        return r;
    }
    control_audit(g->control, actor_of(req), "key.create", k.id, k.name);
    answer = key_json(&k);
    json_object_set_new(answer, "key", json_string(text));
    return http_reply_json_take(req, 201, answer, e);
}

static int add_key(void *ctx, const struct api_key *k)
{
    return json_array_append_new(ctx, key_json(k)) < 0 ? -EIO : 0;
}

int key_list_handler(struct http_request *req, struct err *e)
{
    const struct caller *caller = &request_of(req)->caller;
    const char *project = caller->scope >= KEY_SCOPE_ORGANISATION ? NULL : caller->actor.project;
    cleanup_json json_t *list = json_array();
    int r = db_key_list(gateway_of(req)->db, caller->actor.organisation, project, add_key, list, e);

    return r < 0 ? r : http_reply_json_take(req, 200, json_pack("{s:O}", "keys", list), e);
}

int key_delete_handler(struct http_request *req, struct err *e)
{
    struct gateway *g = gateway_of(req);
    const char *id = http_request_param(req, "id");
    struct api_key k = {0};
    int r;

    r = id_valid(ID_KEY, id) ? db_key_get(g->db, id, &k, e) : -ENOENT;
    if (r == -ENOENT || (r == 0 && !str_eq(k.organisation, actor_of(req)->organisation))) {
        return err_set(e, -ENOENT, "key_not_found",
                       "there is no such key in your organisation; GET /v1/keys lists them");
    }
    if (r == 0 && k.scope > request_of(req)->caller.scope) {
        r = may_less(request_of(req)->caller.scope, "revokes an operator's", e);
    }
    if (r == 0) {
        r = db_key_revoke(g->db, id, control_now_ms(g->control), e);
    }
    if (r < 0) {
        return r;
    }
    auth_forget(g->auth);
    control_audit(g->control, actor_of(req), "key.revoke", id, k.name);
    return http_reply_empty(req, 204, e);
}

static int count_project(void *ctx, const struct project *p)
{
    (void)p;
    ++*(size_t *)ctx;
    return 0;
}

/* Room for more sandboxes is an operator's to give: neither by a number nor by many projects. */
static int check_new_project(struct http_request *req, const struct project *p, struct err *e)
{
    const struct caller *caller = &request_of(req)->caller;
    size_t n = 0;
    int r;

    if (caller->scope >= KEY_SCOPE_OPERATOR) {
        return 0;
    }
    if (p->max_sandboxes > PROJECT_MAX_SANDBOXES_DEFAULT) {
        return may_less(caller->scope, "gives a project more than 1000 sandboxes", e);
    }
    r = db_project_list(gateway_of(req)->db, caller->actor.organisation, count_project, &n, e);
    if (r == 0 && n >= ORGANISATION_MAX_PROJECTS) {
        r = err_set(e, -EUSERS, "too_many_projects",
                    "the organisation has %zu projects, of %d: ask the operator for more", n,
                    ORGANISATION_MAX_PROJECTS);
    }
    return r;
}

int project_create_handler(struct http_request *req, struct err *e)
{
    struct gateway *g = gateway_of(req);
    cleanup_json json_t *body = NULL;
    struct project p = {.created_at_ms = control_now_ms(g->control)};
    int r;

    r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    if (r == 0) {
        r = project_body_from_json(body, &p, e);
    }
    if (r == 0) {
        r = check_new_project(req, &p, e);
    }
    if (r < 0) {
        return r;
    }
    id_new(ID_PROJECT, p.id);
    snprintf(p.organisation, sizeof(p.organisation), "%s", actor_of(req)->organisation);
    r = db_project_insert(g->db, &p, e);
    if (r < 0) {
        return r;
    }
    control_audit(g->control, actor_of(req), "project.create", p.id, p.name);
    return http_reply_json_take(req, 201, project_json(&p), e);
}

struct project_list {
    json_t *array;       /* borrowed */
    const char *only_id; /* borrowed; NULL: all */
};

static int add_project(void *ctx, const struct project *p)
{
    struct project_list *list = ctx;

    if (list->only_id && !str_eq(list->only_id, p->id)) {
        return 0;
    }
    return json_array_append_new(list->array, project_json(p)) < 0 ? -EIO : 0;
}

int project_list_handler(struct http_request *req, struct err *e)
{
    const struct caller *caller = &request_of(req)->caller;
    cleanup_json json_t *array = json_array();
    struct project_list list = {
        .array = array,
        .only_id = caller->scope >= KEY_SCOPE_ORGANISATION ? NULL : caller->actor.project,
    };
    int r = db_project_list(gateway_of(req)->db, caller->actor.organisation, add_project, &list, e);

    return r < 0 ? r : http_reply_json_take(req, 200, json_pack("{s:O}", "projects", array), e);
}

int tenant_project_of_path(struct http_request *req, struct project *ret, struct err *e)
{
    const struct caller *caller = &request_of(req)->caller;
    int r = find_project(req, http_request_param(req, "id"), ret, e);

    if (r == 0 && caller->scope < KEY_SCOPE_ORGANISATION &&
        !str_eq(ret->id, caller->actor.project)) {
        return project_not_found(e);
    }
    return r;
}

int project_get_handler(struct http_request *req, struct err *e)
{
    struct project p = {0};
    int r = tenant_project_of_path(req, &p, e);

    return r < 0 ? r : http_reply_json_take(req, 200, project_json(&p), e);
}

int project_patch_handler(struct http_request *req, struct err *e)
{
    struct gateway *g = gateway_of(req);
    cleanup_json json_t *body = NULL;
    struct project p = {0};
    char detail[64];
    int r;

    r = tenant_project_of_path(req, &p, e);
    if (r == 0) {
        r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    }
    if (r == 0) {
        r = project_patch_from_json(body, &p, e);
    }
    if (r == 0) {
        r = db_project_set_quota(g->db, p.id, p.max_sandboxes, e);
    }
    if (r < 0) {
        return r;
    }
    auth_forget(g->auth);
    snprintf(detail, sizeof(detail), "max_sandboxes=%lld", (long long)p.max_sandboxes);
    control_audit(g->control, actor_of(req), "project.change", p.id, detail);
    return http_reply_json_take(req, 200, project_json(&p), e);
}

static int add_event(void *ctx, const struct audit_event *ev)
{
    json_t *json =
        json_pack("{s:s, s:I, s:s, s:s*, s:s*, s:s*}", "id", ev->id, "at_ms", (json_int_t)ev->at_ms,
                  "action", ev->action, "key", ev->key[0] ? ev->key : NULL, "target",
                  ev->target[0] ? ev->target : NULL, "detail", ev->detail[0] ? ev->detail : NULL);

    return json_array_append_new(ctx, json) < 0 ? -EIO : 0;
}

int audit_list_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *array = json_array();
    int64_t limit = 0;
    int r;

    r = http_query_int(req, "limit",
                       (struct http_query_bounds){
                           .min = 1, .max = AUDIT_LIMIT_MAX, .fallback = AUDIT_LIMIT_DEFAULT},
                       &limit, e);
    if (r == 0) {
        r = db_audit_list(gateway_of(req)->db, actor_of(req)->project, limit, add_event, array, e);
    }
    return r < 0 ? r : http_reply_json_take(req, 200, json_pack("{s:O}", "events", array), e);
}

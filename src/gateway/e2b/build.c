/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Builds of templates, as E2B's clients make them: begin (a name becomes a template and a build), upload what COPY steps need, start,
 * and ask how it is until it has ended.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "gateway/e2b/private.h"
#include "gateway/query.h"
#include "gateway/template/set.h"

#define RECIPE_MAX (4u << 20) /* as many steps as may be with arguments of the usual length */

const char *e2b_build_status_name(enum build_status status)
{
    static const char *const names[] = {[BUILD_WAITING] = "waiting",
                                        [BUILD_RUNNING] = "building",
                                        [BUILD_READY] = "ready",
                                        [BUILD_FAILED] = "error"};

    return names[status];
}

/* --- begin --- */

/* What was said of its size; 0: nothing. Memory is rounded up to what machines come in. */
static int read_shape(json_t *body, struct shape *ret, struct err *e)
{
    int64_t vcpus = 0;
    int64_t memory = 0;
    int64_t disk = 0;
    int r = e2b_int(body, "cpuCount", (struct json_bounds){SHAPE_VCPUS_MIN, SHAPE_VCPUS_MAX, 0},
                    &vcpus, e);

    if (r == 0) {
        r = e2b_int(body, "memoryMB",
                    (struct json_bounds){SHAPE_MEMORY_MIB_MIN, SHAPE_MEMORY_MIB_MAX, 0}, &memory,
                    e);
    }
    if (r == 0) {
        r = e2b_int(body, "minFreeDiskMb", (struct json_bounds){0, SHAPE_DISK_MIB_MAX / 2, 0},
                    &disk, e);
    }
    if (r < 0) {
        return r;
    }
    memory = (memory + SHAPE_MEMORY_MIB_STEP - 1) / SHAPE_MEMORY_MIB_STEP * SHAPE_MEMORY_MIB_STEP;
    *ret = (struct shape){(unsigned)vcpus, (unsigned)memory, 0};
    if (disk > 0) { /* what is free and what the base takes, at most as much again */
        ret->disk_mib = MAX((unsigned)disk * 2, (unsigned)SHAPE_DISK_MIB_DEFAULT);
    }
    return 0;
}

int e2b_build_begin_handler(struct http_request *req, struct err *e)
{
    cleanup_build_row struct build_row build = {0};
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *tags = json_array();
    struct template_row row = {0};
    struct template_ref ref = {0};
    char uuid[BUILD_UUID_SIZE];
    const char *name = NULL;
    json_t *list = NULL;
    int r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);

    if (r == 0) {
        r = e2b_string(body, "name", &name, e);
    }
    if (r == 0 && !name) {
        r = e2b_string(body, "alias", &name, e);
    }
    if (r == 0) {
        r = template_ref_parse(name ? name : "", &ref, e);
    }
    if (r == 0) {
        r = e2b_array(body, "tags", &list, e);
    }
    if (r == 0) {
        r = template_read_tags(list, &ref, tags, e);
    }
    if (r == 0) {
        r = read_shape(body, &build.shape, e);
    }
    if (r == 0) {
        r = template_begin(req, &ref, tags, &row, &build, e);
    }
    template_build_uuid(build.id, uuid);
    return r < 0 ? r
                 : e2b_reply_json_take(req, 202,
                                       json_pack("{s:s, s:s, s:b, s:[s], s:[s], s:O}", "templateID",
                                                 row.id, "buildID", uuid, "public", 0, "names",
                                                 row.name, "aliases", row.name, "tags", tags),
                                       e);
}

static int find(struct http_request *req, struct build_row *ret, struct err *e)
{
    return template_find_build(req, http_request_param(req, "id"), ret, e);
}

/* --- files --- */

/* Where this request came to, for addresses that lead back; who terminates TLS before us says so. */
static const char *scheme_of(const struct http_request *req)
{
    const char *proto = http_request_header(req, "X-Forwarded-Proto");

    return http_request_secure(req) || (proto && strcasecmp(proto, "https") == 0) ? "https"
                                                                                  : "http";
}

static int hash_of_path(struct http_request *req, const char **ret, struct err *e)
{
    *ret = http_request_param(req, "hash");
    return template_hash_valid(*ret) ? 0
                                     : err_field(e, -EINVAL, "invalid_field", "hash",
                                                 "the hash of files must be 64 hex digits");
}

int e2b_build_files_handler(struct http_request *req, struct err *e)
{
    struct gateway *g = gateway_of(req);
    cleanup_free char *url = NULL;
    char token[TOKEN_SIZE];
    struct template_row row;
    struct template_ref ref;
    const char *hash = NULL;
    int r = template_find_row(req, http_request_param(req, "id"), &row, &ref, e);

    if (r == 0) {
        r = hash_of_path(req, &hash, e);
    }
    if (r < 0) {
        return r;
    }
    if (files_have(g->files, row.project, hash)) {
        return e2b_reply_json_take(req, 201, json_pack("{s:b}", "present", 1), e);
    }
    tokens_make(g->tokens, TOKEN_UPLOAD, row.id, token);
    url = xasprintf("%s://%s/templates/%s/files/%s?project=%s&token=%s", scheme_of(req),
                    http_request_host(req), row.id, hash, row.project, token);
    return e2b_reply_json_take(req, 201, json_pack("{s:b, s:s}", "present", 0, "url", url), e);
}

/* Without a key: the address that the handler above gave is the right. */
int e2b_build_upload_handler(struct http_request *req, struct err *e)
{
    struct gateway *g = gateway_of(req);
    const char *id = http_request_param(req, "id");
    const char *project = http_query_get(req, "project");
    struct template_row row;
    int r;

    if (!id_valid(ID_TEMPLATE, id) || !project || !id_valid(ID_PROJECT, project) ||
        !tokens_check(g->tokens, TOKEN_UPLOAD, id, http_query_get(req, "token"))) {
        return err_set(e, -EKEYREJECTED, "unauthorized", "the address does not allow this upload");
    }
    r = db_template_find(g->db, project, id, &row, e);
    if (r == 0) {
        r = template_receive(req, project, http_request_param(req, "hash"), e);
    }
    return r < 0 ? r : http_reply_empty(req, 200, e);
}

/* --- start --- */

int e2b_build_start_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *body = NULL;
    struct build_wish wish = {.actor = *actor_of(req)};
    int r = http_body_json(req, RECIPE_MAX, &body, e);

    if (r == 0) {
        r = find(req, &wish.row, e);
    }
    if (r == 0 && wish.row.status != BUILD_WAITING) {
        r = err_set(e, -ESTALE, "conflict", "build '%s' was started before", wish.row.id);
    }
    if (r == 0) {
        r = template_recipe_from_json(body, &wish.recipe, e);
    }
    if (r == 0) {
        r = template_check_files(req, &wish.recipe, e);
    }
    if (r == 0) {
        r = template_base_find(req, &wish.recipe, &wish.row.shape, &wish.base, e);
    }
    if (r == 0) {
        r = builds_start(gateway_of(req)->builds, &wish, e);
    }
    build_wish_done(&wish);
    return r < 0 ? r : http_reply_empty(req, 202, e);
}

/* --- how it is --- */

static json_t *reason_of(const struct build_row *build)
{
    json_t *reason = NULL;

    if (str_empty(build->reason) ||
        json_parse_object(build->reason, strlen(build->reason), &reason, NULL) < 0) {
        return NULL;
    }
    return reason;
}

int e2b_build_status_handler(struct http_request *req, struct err *e)
{
    cleanup_build_row struct build_row build = {0};
    cleanup_json json_t *entries = NULL;
    cleanup_json json_t *lines = json_array();
    char uuid[BUILD_UUID_SIZE];
    int64_t offset = 0;
    json_t *entry;
    json_t *shown;
    size_t i;
    int r =
        http_query_int(req, "logsOffset", (struct http_query_bounds){0, INT32_MAX, 0}, &offset, e);

    if (r == 0) {
        r = find(req, &build, e);
    }
    if (r == 0) {
        r = template_read_log(req, &build, (size_t)offset, BUILDS_LOG_PAGE, &entries, e);
    }
    if (r < 0) {
        return r;
    }
    json_array_foreach(entries, i, entry)
    {
        json_array_append(lines, json_object_get(entry, "message"));
    }
    template_build_uuid(build.id, uuid);
    shown = json_pack("{s:s, s:s, s:s, s:O, s:O}", "templateID", build.template_id, "buildID", uuid,
                      "status", e2b_build_status_name(build.status), "logs", lines, "logEntries",
                      entries);
    ASSERT(shown);
    if (build.status == BUILD_FAILED) {
        json_t *reason = reason_of(&build);

        json_object_set_new(shown, "reason", reason ? reason : json_object());
    }
    return e2b_reply_json_take(req, 200, shown, e);
}

int e2b_build_logs_handler(struct http_request *req, struct err *e)
{
    cleanup_build_row struct build_row build = {0};
    json_t *entries = NULL;
    int r = find(req, &build, e);

    if (r == 0) {
        r = template_read_log(req, &build, 0, SIZE_MAX, &entries, e);
    }
    return r < 0 ? r : e2b_reply_json_take(req, 200, json_pack("{s:o}", "logs", entries), e);
}

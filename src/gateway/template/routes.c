/* SPDX-License-Identifier: Apache-2.0 */

/* /v1/templates: what sandboxes can start from, and building more of it. E2B's clients have their own words for it: e2b/build.c. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "gateway/query.h"
#include "gateway/template/find.h"
#include "gateway/template/image.h"
#include "gateway/template/set.h"

#define RECIPE_MAX (4u << 20)
#define PIECE (256u << 10)
#define TEMPLATES_MAX (BUILDS_TEMPLATES_MAX + 1)
#define BUILDS_SHOWN_MAX 100

static const char *template_build_status(enum build_status status)
{
    static const char *const names[] = {[BUILD_WAITING] = "waiting",
                                        [BUILD_RUNNING] = "building",
                                        [BUILD_READY] = "ready",
                                        [BUILD_FAILED] = "failed"};

    return names[status];
}

/* --- list --- */

struct rows {
    struct template_row *rows; /* owned */
    size_t n;
};

static int keep_row(void *ctx, const struct template_row *row)
{
    struct rows *all = ctx;

    if (all->n < TEMPLATES_MAX) {
        all->rows[all->n++] = *row;
    }
    return 0;
}

static json_t *show_row(const struct template_row *t)
{
    json_t *shown = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "name", t->name, "kind",
                              "built", "id", t->id, "created_at_ms", (json_int_t)t->created_at_ms,
                              "updated_at_ms", (json_int_t)t->updated_at_ms, "builds",
                              (json_int_t)t->builds, "sandboxes_made", (json_int_t)t->spawned);

    ASSERT(shown);
    return shown;
}

int template_list_handler(struct http_request *req, struct err *e)
{
    struct rows all = {.rows = xnew_n(struct template_row, TEMPLATES_MAX)};
    cleanup_json json_t *list = NULL;
    json_t *shown = json_array();
    json_t *entry;
    size_t i;
    int r = template_node_list(req, &list, e);

    if (r == 0) {
        r = db_template_list(gateway_of(req)->db, actor_of(req)->project, keep_row, &all, e);
    }
    json_array_foreach(list, i, entry)
    {
        json_object_set_new(entry, "kind", json_string("node"));
        json_array_append(shown, entry);
    }
    for (i = 0; i < all.n; i++) {
        json_array_append_new(shown, show_row(&all.rows[i]));
    }
    free(all.rows);
    if (r < 0) {
        json_decref(shown);
        return r;
    }
    return http_reply_json_take(req, 200, json_pack("{s:o}", "templates", shown), e);
}

/* --- one --- */

static int find_row(struct http_request *req, struct template_row *ret, struct err *e)
{
    struct template_ref ref;

    return template_find_row(req, http_request_param(req, "template"), ret, &ref, e);
}

static int add_tag(void *ctx, const struct template_tag *tag)
{
    json_array_append_new(ctx, json_pack("{s:s, s:s, s:I}", "tag", tag->tag, "build", tag->build,
                                         "created_at_ms", (json_int_t)tag->created_at_ms));
    return 0;
}

static json_t *show_build(const struct build_row *b)
{
    json_t *shown =
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:I}", "id", b->id, "template", b->template_id,
                  "status", template_build_status(b->status), "vcpus", (int)b->shape.vcpus,
                  "memory_mib", (int)b->shape.memory_mib, "disk_mib", (int)b->shape.disk_mib,
                  "created_at_ms", (json_int_t)b->created_at_ms);
    json_t *reason = NULL;
    json_t *config = NULL;

    ASSERT(shown);
    if (b->ended_at_ms) {
        json_object_set_new(shown, "ended_at_ms", json_integer((json_int_t)b->ended_at_ms));
    }
    if (b->sandbox[0]) {
        json_object_set_new(shown, "sandbox", json_string(b->sandbox));
    }
    if (!str_empty(b->reason) &&
        json_parse_object(b->reason, strlen(b->reason), &reason, NULL) == 0) {
        json_object_del(reason, "logEntries");
        json_object_set_new(shown, "reason", reason);
    }
    if (b->status == BUILD_READY && !str_empty(b->config) &&
        json_parse_object(b->config, strlen(b->config), &config, NULL) == 0) {
        json_object_set(shown, "user", json_object_get(config, "user"));
        json_object_set(shown, "workdir", json_object_get(config, "workdir"));
        json_object_set(shown, "live", json_object_get(config, "live"));
        json_decref(config);
    }
    return shown;
}

static int add_build(void *ctx, const struct build_row *b)
{
    if (json_array_size(ctx) < BUILDS_SHOWN_MAX) {
        json_array_append_new(ctx, show_build(b));
    }
    return 0;
}

int template_get_handler(struct http_request *req, struct err *e)
{
    struct db *db = gateway_of(req)->db;
    cleanup_json json_t *shown = NULL;
    json_t *tags = json_array();
    json_t *builds = json_array();
    struct template_row row;
    int r = find_row(req, &row, e);

    if (r == 0) {
        r = db_tag_list(db, row.id, add_tag, tags, e);
    }
    if (r == 0) {
        r = db_build_list(db, row.project, row.id, add_build, builds, e);
    }
    shown = r < 0 ? json_object() : show_row(&row);
    json_object_set_new(shown, "tags", tags);
    json_object_set_new(shown, "build_list", builds);
    return r < 0 ? r : http_reply_json_take(req, 200, json_incref(shown), e);
}

int template_delete_handler(struct http_request *req, struct err *e)
{
    struct template_row row;
    int r = find_row(req, &row, e);

    if (r == 0) {
        r = builds_delete_template(gateway_of(req)->builds, actor_of(req), row.id, e);
    }
    return r < 0 ? r : http_reply_empty(req, 204, e);
}

/* --- files --- */

int template_receive(struct http_request *req, const char *project, const char *hash, struct err *e)
{
    CLEANUP(files_put_freep) struct files_put *put = NULL;
    cleanup_free char *data = xmalloc(PIECE);
    ssize_t n = 1;
    int r;

    if (!template_hash_valid(hash)) {
        return err_field(e, -EINVAL, "invalid_field", "hash",
                         "the hash of files must be 64 hex digits");
    }
    r = files_put_begin(gateway_of(req)->files, project, hash,
                        (uint64_t)MAX(http_body_length(req), 0), &put, e);
    http_body_limit(req, FILES_ONE_MAX);
    while (r == 0 && n > 0) {
        n = http_body_read(req, data, PIECE, e);
        if (n < 0) {
            return (int)n;
        }
        r = fs_write_all(files_put_fd(put), data, (size_t)n);
        if (r < 0) {
            return err_wrap(e, r, "writing an uploaded file");
        }
    }
    return r < 0 ? r : files_put_keep(put, e);
}

int template_files_handler(struct http_request *req, struct err *e)
{
    int r = template_receive(req, actor_of(req)->project, http_request_param(req, "hash"), e);

    return r < 0 ? r : http_reply_empty(req, 204, e);
}

/* The layout that an image comes from. */
static int check_archive(struct http_request *req, const struct template_recipe *recipe,
                         struct err *e)
{
    struct template_image image = {0};
    int r = recipe->image && !template_image_is_base(recipe->image)
                ? template_image_parse(recipe->image, &image, e)
                : 0;

    return r < 0 || !image.archive[0] ||
                   files_have(gateway_of(req)->files, actor_of(req)->project, image.archive)
               ? r
               : err_field(e, -EINVAL, "files_not_uploaded", "fromImage",
                           "the layout of the image was not uploaded");
}

int template_check_files(struct http_request *req, const struct template_recipe *recipe,
                         struct err *e)
{
    for (size_t i = 0; i < recipe->n_steps; i++) {
        struct template_step step = template_recipe_step(recipe, i);

        if (step.type == TEMPLATE_STEP_COPY &&
            !files_have(gateway_of(req)->files, actor_of(req)->project, step.files_hash)) {
            return err_field(e, -EINVAL, "files_not_uploaded", "steps",
                             "step %zu: its files were not uploaded", i + 1);
        }
    }
    return check_archive(req, recipe, e);
}

/* --- build --- */

int template_read_tags(json_t *list, const struct template_ref *ref, json_t *ret, struct err *e)
{
    json_t *tag;
    size_t i;

    if (ref->tag[0]) {
        json_array_append_new(ret, json_string(ref->tag));
    }
    json_array_foreach(list, i, tag)
    {
        if (!json_is_string(tag) || !template_tag_valid(json_string_value(tag)) ||
            json_array_size(ret) >= TEMPLATE_TAGS_MAX) {
            return err_field(
                e, -EINVAL, "invalid_field", "tags",
                "'tags' must hold at most %d tags of letters, digits, '-', '_' and '.'",
                TEMPLATE_TAGS_MAX);
        }
        if (!str_eq(json_string_value(tag), ref->tag)) {
            json_array_append(ret, tag);
        }
    }
    if (json_array_size(ret) == 0) {
        json_array_append_new(ret, json_string(TEMPLATE_DEFAULT_TAG));
    }
    return 0;
}

int template_begin(struct http_request *req, const struct template_ref *ref, json_t *tags,
                   struct template_row *ret, struct build_row *build, struct err *e)
{
    struct gateway *g = gateway_of(req);
    cleanup_json json_t *config = json_pack("{s:O}", "tags", tags);
    struct template_row row = {.created_at_ms = control_now_ms(g->control)};
    int r;

    build->created_at_ms = row.created_at_ms;
    id_new(ID_TEMPLATE, row.id);
    id_new(ID_BUILD, build->id);
    snprintf(row.project, sizeof(row.project), "%s", actor_of(req)->project);
    snprintf(row.name, sizeof(row.name), "%s", ref->name);
    build->config = json_text(config);
    r = db_build_begin(g->db, &row, build, BUILDS_TEMPLATES_MAX, e);
    if (r == 0) {
        control_audit(g->control, actor_of(req), "template.build", row.id, row.name);
        *ret = row;
    }
    return r;
}

static int read_shape(json_t *body, struct shape *ret, struct err *e)
{
    int64_t vcpus = 0;
    int64_t memory = 0;
    int64_t disk = 0;
    int r = json_get_bounded(body, "vcpus",
                             (struct json_bounds){SHAPE_VCPUS_MIN, SHAPE_VCPUS_MAX, 0}, &vcpus, e);

    if (r == 0) {
        r = json_get_bounded(body, "memory_mib",
                             (struct json_bounds){SHAPE_MEMORY_MIB_MIN, SHAPE_MEMORY_MIB_MAX, 0},
                             &memory, e);
    }
    if (r == 0) {
        r = json_get_bounded(body, "disk_mib",
                             (struct json_bounds){SHAPE_DISK_MIB_MIN, SHAPE_DISK_MIB_MAX, 0}, &disk,
                             e);
    }
    if (r == 0) {
        *ret = (struct shape){(unsigned)vcpus, (unsigned)memory, (unsigned)disk};
    }
    return r;
}

/* Our words into those of recipe.h. */
static json_t *recipe_of(json_t *body)
{
    static const char *const names[][2] = {{"from", "fromTemplate"},
                                           {"image", "fromImage"},
                                           {"start", "startCmd"},
                                           {"ready", "readyCmd"},
                                           {"steps", "steps"},
                                           {"force", "force"},
                                           {"registry", "fromImageRegistry"}};
    json_t *recipe = json_object();

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        json_t *value = json_object_get(body, names[i][0]);

        if (value && !json_is_null(value)) {
            json_object_set(recipe, names[i][1], value);
        }
    }
    return recipe;
}

static int check_body(json_t *body, struct err *e)
{
    static const struct json_field fields[] = {{"name", JSON_FIELD_STRING, JSON_REQUIRED},
                                               {"tags", JSON_FIELD_ARRAY, JSON_NULLABLE},
                                               {"from", JSON_FIELD_STRING, JSON_NULLABLE},
                                               {"image", JSON_FIELD_STRING, JSON_NULLABLE},
                                               {"start", JSON_FIELD_STRING, JSON_NULLABLE},
                                               {"ready", JSON_FIELD_STRING, JSON_NULLABLE},
                                               {"steps", JSON_FIELD_ARRAY, JSON_NULLABLE},
                                               {"force", JSON_FIELD_BOOL, JSON_NULLABLE},
                                               {"vcpus", JSON_FIELD_INT, JSON_NULLABLE},
                                               {"memory_mib", JSON_FIELD_INT, JSON_NULLABLE},
                                               {"disk_mib", JSON_FIELD_INT, JSON_NULLABLE},
                                               {"registry", JSON_FIELD_OBJECT, JSON_NULLABLE}};

    return json_check_object(body, fields, ARRAY_SIZE(fields), e);
}

/* Everything that can be wrong is found before there is a build. */
static int read_wish(struct http_request *req, json_t *body, struct build_wish *wish, struct err *e)
{
    cleanup_json json_t *recipe = recipe_of(body);
    int r = read_shape(body, &wish->row.shape, e);

    if (r == 0) {
        r = template_recipe_from_json(recipe, &wish->recipe, e);
    }
    if (r == 0) {
        r = template_check_files(req, &wish->recipe, e);
    }
    return r < 0 ? r : template_base_find(req, &wish->recipe, &wish->row.shape, &wish->base, e);
}

int template_build_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *tags = json_array();
    struct build_wish wish = {.actor = *actor_of(req)};
    struct template_ref ref = {0};
    struct template_row row = {0};
    char build[ID_SIZE] = "";
    int r = http_body_json(req, RECIPE_MAX, &body, e);

    if (r == 0) {
        r = check_body(body, e);
    }
    if (r == 0) {
        r = template_ref_parse(json_get_string(body, "name", ""), &ref, e);
    }
    if (r == 0) {
        r = template_read_tags(json_object_get(body, "tags"), &ref, tags, e);
    }
    if (r == 0) {
        r = read_wish(req, body, &wish, e);
    }
    if (r == 0) {
        r = template_begin(req, &ref, tags, &row, &wish.row, e);
    }
    if (r == 0) {
        memcpy(build, wish.row.id, sizeof(build));
        r = builds_start(gateway_of(req)->builds, &wish, e);
        if (r < 0 && db_build_delete(gateway_of(req)->db, build, NULL) < 0) {
            r = err_set(e, r, NULL, "starting the build"); /* it stays as one that waits */
        }
    }
    build_wish_done(&wish);
    return r < 0 ? r
                 : http_reply_json_take(req, 202,
                                        json_pack("{s:s, s:s, s:s, s:O}", "template", row.id,
                                                  "build", build, "name", row.name, "tags", tags),
                                        e);
}

void template_build_uuid(const char *id, char ret[static BUILD_UUID_SIZE])
{
    char hash[TEMPLATE_HASH_SIZE];

    template_hash_base(id, hash);
    hash[12] = '4'; /* RFC 9562: version 4, and the variant */
    hash[16] = 'a';
    snprintf(ret, BUILD_UUID_SIZE, "%.8s-%.4s-%.4s-%.4s-%.12s", hash, hash + 8, hash + 12,
             hash + 16, hash + 20);
}

struct wanted {
    const char *uuid;
    char id[ID_SIZE]; /* "": not found */
};

static int match_uuid(void *ctx, const struct build_row *row)
{
    struct wanted *w = ctx;
    char uuid[BUILD_UUID_SIZE];

    template_build_uuid(row->id, uuid);
    if (!str_eq(uuid, w->uuid)) {
        return 0;
    }
    memcpy(w->id, row->id, sizeof(w->id));
    return 1;
}

int template_find_build(struct http_request *req, const char *template, struct build_row *ret,
                        struct err *e)
{
    cleanup_build_row struct build_row build = {0};
    struct wanted wanted = {.uuid = http_request_param(req, "build")};
    const char *id = wanted.uuid;
    struct template_row row;
    struct template_ref ref;
    int r = template_find_row(req, template, &row, &ref, e);

    if (r == 0 && !id_valid(ID_BUILD, id)) {
        r = db_build_list(gateway_of(req)->db, row.project, row.id, match_uuid, &wanted, e);
        id = wanted.id;
    }
    if (r >= 0) {
        r = db_build_get(gateway_of(req)->db, row.project, id, &build, e);
    }
    if (r < 0) {
        return r;
    }
    if (!str_eq(build.template_id, row.id)) {
        return err_set(e, -ENOENT, "build_not_found", "build '%s' not found", build.id);
    }
    *ret = build;
    build = (struct build_row){0};
    return 0;
}

int template_read_log(struct http_request *req, struct build_row *build, size_t offset, size_t max,
                      json_t **ret, struct err *e)
{
    struct gateway *g = gateway_of(req);
    cleanup_json json_t *all = NULL;
    int r = builds_log(g->builds, build->id, offset, max, ret);

    if (r == 0) {
        build->status = BUILD_RUNNING;
        return 0;
    }
    if (build->status == BUILD_RUNNING) { /* it has ended in between, or is another gateway's */
        cleanup_free char *id = xstrdup(build->id);

        r = builds_bury(g->builds, actor_of(req)->project, id, build, e);
        if (r < 0) {
            return r;
        }
    }
    if (!str_empty(build->log) && json_parse_any(build->log, strlen(build->log), &all, e) < 0) {
        return -EBADMSG;
    }
    *ret = build_log_slice(all, offset, max);
    return 0;
}

int template_build_get_handler(struct http_request *req, struct err *e)
{
    cleanup_build_row struct build_row build = {0};
    json_t *entries = NULL;
    json_t *shown;
    int64_t offset = 0;
    int r =
        http_query_int(req, "log_offset", (struct http_query_bounds){0, INT32_MAX, 0}, &offset, e);

    if (r == 0) {
        r = template_find_build(req, http_request_param(req, "template"), &build, e);
    }
    if (r == 0) {
        r = template_read_log(req, &build, (size_t)offset, BUILDS_LOG_PAGE, &entries, e);
    }
    if (r < 0) {
        return r;
    }
    shown = show_build(&build);
    json_object_set_new(shown, "log", entries);
    return http_reply_json_take(req, 200, shown, e);
}

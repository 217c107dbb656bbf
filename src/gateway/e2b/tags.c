/* SPDX-License-Identifier: Apache-2.0 */

/* Tags of templates: names for their builds. What the node's operator has built, and snapshots, have "default" alone. */
#include <stdio.h>
#include <string.h>

#include "gateway/e2b/private.h"

/* Of a build, or of something that is none and has a name. */
static json_t *show(const struct template_tag *tag, const char *build)
{
    char uuid[BUILD_UUID_SIZE];
    char at[E2B_TIME_SIZE];

    template_build_uuid(build, uuid);
    e2b_time(tag->created_at_ms, at);
    return json_pack("{s:s, s:s, s:s}", "tag", tag->tag, "buildID", uuid, "createdAt", at);
}

static int add(void *ctx, const struct template_tag *tag)
{
    json_array_append_new(ctx, show(tag, tag->build));
    return 0;
}

/* Of what has one tag only. */
static int show_one(struct http_request *req, json_t *shown, struct err *e)
{
    cleanup_template_found struct template_found t = {0};
    struct template_tag tag = {.tag = TEMPLATE_DEFAULT_TAG};
    int r = template_find(req, http_request_param(req, "id"), &t, e);

    if (r == 0) {
        tag.created_at_ms = t.snapshot.created_at_ms;
        json_array_append_new(shown, show(&tag, t.node_name[0] ? t.node_name : t.snapshot.id));
    }
    return r;
}

int e2b_template_tags_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *shown = json_array();
    struct template_ref ref;
    struct template_row row;
    int r = template_find_row(req, http_request_param(req, "id"), &row, &ref, NULL);

    r = r == 0 ? db_tag_list(gateway_of(req)->db, row.id, add, shown, e) : show_one(req, shown, e);
    return r < 0 ? r : e2b_reply_json_take(req, 200, json_incref(shown), e);
}

/* The names in body.tags, each checked; at least one. */
static int read_tags(json_t *body, json_t **ret, struct err *e)
{
    json_t *tag;
    size_t i;
    int r = e2b_array(body, "tags", ret, e);

    if (r < 0) {
        return r;
    }
    json_array_foreach(*ret, i, tag)
    {
        if (!json_is_string(tag) || !template_tag_valid(json_string_value(tag))) {
            r = -EINVAL;
        }
    }
    if (r < 0 || json_array_size(*ret) == 0 || json_array_size(*ret) > TEMPLATE_TAGS_MAX) {
        return err_field(e, -EINVAL, "invalid_field", "tags",
                         "'tags' must hold 1 to %d tags of letters, digits, '-', '_' and '.'",
                         TEMPLATE_TAGS_MAX);
    }
    return 0;
}

int e2b_tags_add_handler(struct http_request *req, struct err *e)
{
    cleanup_template_found struct template_found t = {0};
    cleanup_json json_t *body = NULL;
    struct template_tag tag = {.created_at_ms = control_now_ms(gateway_of(req)->control)};
    char uuid[BUILD_UUID_SIZE];
    const char *target = NULL;
    json_t *tags = NULL;
    int r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);

    if (r == 0) {
        r = e2b_string(body, "target", &target, e);
    }
    if (r == 0) {
        r = read_tags(body, &tags, e);
    }
    if (r == 0) {
        r = template_find(req, target ? target : "", &t, e);
    }
    if (r == 0 && !t.built.id[0]) {
        return err_set(e, -EPERM, "forbidden",
                       "'%.100s' was not built by this project: it has one tag, "
                       "'" TEMPLATE_DEFAULT_TAG "'",
                       target);
    }
    snprintf(tag.build, sizeof(tag.build), "%s", t.build.id);
    template_build_uuid(t.build.id, uuid);
    for (size_t i = 0; r == 0 && i < json_array_size(tags); i++) {
        snprintf(tag.tag, sizeof(tag.tag), "%s", json_string_value(json_array_get(tags, i)));
        r = db_tag_put(gateway_of(req)->db, t.built.id, &tag, e);
    }
    return r < 0 ? r
                 : e2b_reply_json_take(req, 201,
                                       json_pack("{s:s, s:O}", "buildID", uuid, "tags", tags), e);
}

int e2b_tags_remove_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *body = NULL;
    struct template_ref ref;
    struct template_row row;
    const char *name = NULL;
    json_t *tags = NULL;
    int r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);

    if (r == 0) {
        r = e2b_string(body, "name", &name, e);
    }
    if (r == 0) {
        r = read_tags(body, &tags, e);
    }
    if (r == 0) {
        r = template_find_row(req, name ? name : "", &row, &ref, e);
    }
    for (size_t i = 0; r == 0 && i < json_array_size(tags); i++) {
        r = db_tag_delete(gateway_of(req)->db, row.id, json_string_value(json_array_get(tags, i)),
                          e);
    }
    return r < 0 ? r : http_reply_empty(req, 204, e);
}

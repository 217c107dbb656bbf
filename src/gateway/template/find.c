/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/template/find.h"

#include "base/clock.h"
#include "gateway/template/image.h"
#include "gateway/template/import.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *alias;
    const char *name;
} aliases[] = {
    {"base", "debian"}, /* what clients ask for when their user names nothing */
};

/* The image that E2B's clients build on when their user names none: here it is the template of that role. */

void template_found_done(struct template_found *f)
{
    build_row_done(&f->build);
}

int template_not_found(const char *text, struct err *e)
{
    return err_field(e, -ENOENT, "not_found", "templateID", "template '%.100s' not found", text);
}

/* --- the node's --- */

/* The templates of all nodes: those of one name are one. */
struct gathering {
    struct http_request *req; /* borrowed */
    json_t *list;             /* owned */
    bool answered;
    struct err why; /* of the first node that did not answer */
};

static int ask_templates(struct http_request *req, struct node_client *node, json_t **ret,
                         struct err *e)
{
    struct pollfd watch = http_client_pollfd(req);
    struct node_call call = {.deadline_ns = deadline_in_ms(GATEWAY_NODE_MS), .watch = &watch};
    cleanup_json json_t *answer = NULL;
    json_t *list;
    int r = node_client_get(node, "/v1/templates", &call, &answer, e);

    if (r < 0) {
        return r;
    }
    list = json_object_get(answer, "templates");
    if (!json_is_array(list)) {
        return err_set(e, -EPROTO, "bad_answer", "the node's list of templates cannot be read");
    }
    *ret = json_incref(list);
    return 0;
}

static int gather(void *ctx, struct node_client *node)
{
    struct gathering *g = ctx;
    cleanup_json json_t *list = NULL;
    struct err why = {0};
    json_t *entry;
    size_t i;
    int r = ask_templates(g->req, node, &list, &why);

    if (r < 0) {
        g->why = g->why.code ? g->why : why;
        return r == -ECANCELED ? r : 0;
    }
    g->answered = true;
    json_array_foreach(list, i, entry)
    {
        if (!template_node_entry(g->list, json_get_string(entry, "name", ""))) {
            json_array_append(g->list, entry);
        }
    }
    return 0;
}

int template_node_list(struct http_request *req, json_t **ret, struct err *e)
{
    struct gathering g = {.req = req, .list = json_array()};
    int r = fleet_each(gateway_of(req)->fleet, gather, &g);

    if (r == 0 && g.answered) {
        *ret = g.list;
        return 0;
    }
    json_decref(g.list);
    if (g.why.code == 0) {
        return err_set(e, -EHOSTDOWN, "node_unavailable", "there is no node: try again");
    }
    *e = g.why;
    return g.why.code;
}

json_t *template_node_entry(json_t *list, const char *name)
{
    json_t *entry;
    size_t i;

    json_array_foreach(list, i, entry)
    {
        if (str_eq(json_get_string(entry, "name", ""), name)) {
            return entry;
        }
    }
    return NULL;
}

void template_node_aliases(json_t *names, const char *name, json_t *list)
{
    for (size_t i = 0; i < ARRAY_SIZE(aliases); i++) {
        if (str_eq(aliases[i].name, name) && !template_node_entry(list, aliases[i].alias)) {
            json_array_append_new(names, json_string(aliases[i].alias));
        }
    }
}

static const char *alias_target(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(aliases); i++) {
        if (str_eq(aliases[i].alias, name)) {
            return aliases[i].name;
        }
    }
    return name;
}

/* --- names --- */

/* NAME of [NAMESPACE/]NAME[:TAG]; another tag than the default one names nothing. */
static int plain_name(const char *text, char *ret, size_t size, struct err *e)
{
    const char *slash = strrchr(text, '/');
    const char *name = slash ? slash + 1 : text;
    const char *colon = strchr(name, ':');
    size_t len = colon ? (size_t)(colon - name) : strlen(name);

    if ((colon && !str_eq(colon + 1, TEMPLATE_DEFAULT_TAG)) || len == 0 || len >= size) {
        return template_not_found(text, e);
    }
    memcpy(ret, name, len);
    ret[len] = '\0';
    return 0;
}

int template_find_row(struct http_request *req, const char *text, struct template_row *ret,
                      struct template_ref *ret_ref, struct err *e)
{
    int r = template_ref_parse(text, ret_ref, NULL);

    if (r == 0) {
        r = db_template_find(gateway_of(req)->db, actor_of(req)->project, ret_ref->name, ret, e);
    }
    return r == -ENOENT || r == -EINVAL ? template_not_found(text, e) : r;
}

int template_find_built(struct http_request *req, const char *text, struct template_found *ret,
                        bool *ret_known, struct err *e)
{
    struct db *db = gateway_of(req)->db;
    struct template_tag tag;
    struct template_ref ref;
    struct err why = {0};
    int r = template_find_row(req, text, &ret->built, &ref, &why);

    *ret_known = r == 0;
    if (r < 0) {
        return r == -ENOENT ? r : err_set(e, r, why.reason, "looking for a template: %s", why.msg);
    }
    r = db_tag_find(db, ret->built.id, ref.tag[0] ? ref.tag : TEMPLATE_DEFAULT_TAG, &tag, &why);
    if (r == 0) {
        r = db_build_get(db, ret->built.project, tag.build, &ret->build, &why);
    }
    if (r < 0) {
        return r == -ENOENT
                   ? template_not_found(text, e)
                   : err_set(e, r, why.reason, "looking for a template's build: %s", why.msg);
    }
    snprintf(ret->alias, sizeof(ret->alias), "%s", ret->built.name);
    return 0;
}

static int find_elsewhere(struct http_request *req, const char *text, struct template_found *ret,
                          struct err *e)
{
    cleanup_json json_t *list = NULL;
    char name[SNAPSHOT_NAME_SIZE];
    json_t *entry;
    int r = plain_name(text, name, sizeof(name), e);

    if (r == 0) {
        r = template_node_list(req, &list, e);
    }
    if (r < 0) {
        return r;
    }
    entry = template_node_entry(list, name);
    entry = entry ? entry : template_node_entry(list, alias_target(name));
    if (!entry) {
        r = db_snapshot_find(gateway_of(req)->db, actor_of(req)->project, name, &ret->snapshot, e);
        return r == -ENOENT ? template_not_found(text, e) : r;
    }
    if (str_copy(ret->node_name, sizeof(ret->node_name), json_get_string(entry, "name", "")) < 0 ||
        str_copy(ret->alias, sizeof(ret->alias), name) < 0) {
        return template_not_found(text, e);
    }
    snprintf(ret->node_id, sizeof(ret->node_id), "%s", json_get_string(entry, "id", ""));
    return 0;
}

int template_find(struct http_request *req, const char *text, struct template_found *ret,
                  struct err *e)
{
    cleanup_template_found struct template_found f = {0};
    bool known = false;
    int r = template_find_built(req, text, &f, &known, e);

    if (r == -ENOENT && !known) {
        r = find_elsewhere(req, text, &f, e);
    }
    if (r == 0) {
        *ret = f;
        f = (struct template_found){0};
    }
    return r;
}

json_t *template_fork_body(const struct build_row *build, json_t *env)
{
    cleanup_json json_t *config = NULL;
    cleanup_json json_t *all = NULL;
    json_t *body = json_pack("{s:s}", "snapshot", build->snapshot);

    if (!str_empty(build->config) &&
        json_parse_object(build->config, strlen(build->config), &config, NULL) == 0) {
        all = json_deep_copy(json_object_get(config, "env"));
    }
    all = all ? all : json_object();
    if (env) {
        IGNORE_RESULT(json_object_update(all, env)); /* what is no object is refused later */
    }
    json_object_set(body, "env", json_is_object(env) || !env ? all : env);
    return body;
}

/* --- what a build starts from --- */

static int base_of_node(const struct template_found *f, struct shape *shape, struct build_base *ret,
                        struct err *e)
{
    const struct shape fallback = shape_default();
    cleanup_free char *what = NULL;
    int r;

    shape->vcpus = shape->vcpus ? shape->vcpus : fallback.vcpus;
    shape->memory_mib = shape->memory_mib ? shape->memory_mib : fallback.memory_mib;
    shape->disk_mib = shape->disk_mib ? shape->disk_mib : fallback.disk_mib;
    r = shape_check(shape, e);
    what = xasprintf("node %s %s %u %u %u", f->node_name, f->node_id, shape->vcpus,
                     shape->memory_mib, shape->disk_mib);
    snprintf(ret->node_template, sizeof(ret->node_template), "%s", f->node_name);
    template_hash_base(what, ret->hash);
    return r;
}

static int check_same(const char *field, unsigned asked, unsigned has, struct err *e)
{
    return asked == 0 || asked == has
               ? 0
               : err_field(e, -EINVAL, "invalid_field", field,
                           "what is built on this template has its size, %u: leave out '%s', or "
                           "build on one of the node's",
                           has, field);
}

static int base_of_snapshot(struct http_request *req, const char *sandbox, const char *snapshot,
                            struct shape *shape, struct build_base *ret, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_free char *what = xasprintf("snapshot %s", snapshot);
    int r = control_get(gateway_of(req)->control, actor_of(req), sandbox, &sb, e);

    if (r == 0) {
        r = check_same("cpuCount", shape->vcpus, sb.shape.vcpus, e);
    }
    if (r == 0) {
        r = check_same("memoryMB", shape->memory_mib, sb.shape.memory_mib, e);
    }
    if (r == 0 && shape->disk_mib > sb.shape.disk_mib) {
        r = check_same("minFreeDiskMb", shape->disk_mib, sb.shape.disk_mib, e);
    }
    if (r < 0) {
        return r;
    }
    *shape = sb.shape;
    snprintf(ret->sandbox, sizeof(ret->sandbox), "%s", sandbox);
    snprintf(ret->snapshot, sizeof(ret->snapshot), "%s", snapshot);
    template_hash_base(what, ret->hash);
    return 0;
}

static int base_of_built(struct http_request *req, const struct template_found *f,
                         struct shape *shape, struct build_base *ret, struct err *e)
{
    cleanup_json json_t *config = NULL;
    int r = json_parse_object(f->build.config, strlen(f->build.config), &config, e);

    if (r < 0) {
        return r;
    }
    if (json_get_bool(config, "live", false)) {
        return err_field(e, -EINVAL, "not_supported", "fromTemplate",
                         "template '%s' has a start command, its processes are at work: build on "
                         "what it was built from",
                         f->built.name);
    }
    template_config_done(&ret->config);
    template_config_from_json(config, &ret->config);
    return base_of_snapshot(req, f->build.sandbox, f->build.snapshot, shape, ret, e);
}

/* Unpacked in a machine that the node's operator has made for it. */
static int base_of_image(struct http_request *req, const char *image, struct shape *shape,
                         struct build_base *ret, struct err *e)
{
    struct template_found f = {.node_name = TEMPLATE_IMAGE_NODE};
    struct build_base base = {.image = true};
    cleanup_json json_t *list = NULL;
    cleanup_free char *what = NULL;
    json_t *entry = NULL;
    int r = template_node_list(req, &list, e);

    if (r == 0) {
        entry = template_node_entry(list, TEMPLATE_IMAGE_NODE);
        if (!entry) {
            return err_field(e, -EINVAL, "not_supported", "fromImage",
                             "images are unpacked in the template '" TEMPLATE_IMAGE_NODE
                             "', which this node has not: its operator makes it with "
                             "'space-template-build " TEMPLATE_IMAGE_NODE "'");
        }
        snprintf(f.node_id, sizeof(f.node_id), "%s", json_get_string(entry, "id", ""));
        r = base_of_node(&f, shape, &base, e);
    }
    if (r < 0) {
        return r;
    }
    what = xasprintf("image %s %s", image, base.hash);
    template_hash_base(what, base.hash);
    template_config_init(&base.config);
    *ret = base;
    return 0;
}

int template_base_find(struct http_request *req, const struct template_recipe *recipe,
                       struct shape *shape, struct build_base *ret, struct err *e)
{
    cleanup_template_found struct template_found f = {0};
    const char *name = recipe->parent;
    struct build_base base = {0};
    int r;

    if (!name && template_image_is_base(recipe->image)) {
        name = "base";
    }
    if (!name) {
        return base_of_image(req, recipe->image, shape, ret, e);
    }
    r = template_find(req, name, &f, e);
    if (r < 0) {
        return r;
    }
    template_config_init(&base.config);
    r = f.node_name[0]  ? base_of_node(&f, shape, &base, e)
        : f.built.id[0] ? base_of_built(req, &f, shape, &base, e)
                        : base_of_snapshot(req, f.snapshot.sandbox, f.snapshot.id, shape, &base, e);
    if (r < 0) {
        build_base_done(&base);
        return r;
    }
    *ret = base;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A sandbox from a template that the project has built: a fork of what the build has left. Its size is the build's; policy
 * and network, which a fork has from its parent, are set once it is there.
 */
#include <stdio.h>
#include <string.h>

#include "gateway/e2b/box.h"
#include "gateway/template/find.h"

static int check_size(json_t *body, const char *field, unsigned has, struct err *e)
{
    json_t *value = json_object_get(body, field);

    if (!value || json_is_null(value) || json_integer_value(value) == (json_int_t)has) {
        return 0;
    }
    return err_field(e, -EINVAL, "invalid_field", field,
                     "sandboxes of this template have the size that it was built with, %u: leave "
                     "out '%s'",
                     has, field);
}

static int check_shape(json_t *body, const struct shape *shape, struct err *e)
{
    int r = check_size(body, "vcpus", shape->vcpus, e);

    if (r == 0) {
        r = check_size(body, "memory_mib", shape->memory_mib, e);
    }
    return r < 0 ? r : check_size(body, "disk_mib", shape->disk_mib, e);
}

/* Commands of E2B's clients start as the template says it. */
static char *surface_of(const struct template_found *from)
{
    cleanup_json json_t *config = NULL;
    struct e2b_box box = {.secure = true};

    snprintf(box.alias, sizeof(box.alias), "%s", from->alias);
    snprintf(box.template_id, sizeof(box.template_id), "%s", from->built.id);
    if (json_parse_object(from->build.config, strlen(from->build.config), &config, NULL) == 0) {
        snprintf(box.user, sizeof(box.user), "%s", json_get_string(config, "user", ""));
        snprintf(box.workdir, sizeof(box.workdir), "%s", json_get_string(config, "workdir", ""));
    }
    return e2b_box_text(&box);
}

/* What was said and a fork does not take. */
static int set_rest(struct http_request *req, json_t *body, struct sandbox_spec *spec,
                    const struct control_answer *answer, struct err *e)
{
    cleanup_sandbox_patch struct sandbox_patch patch = {0};
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *made = NULL;
    json_t *policy = json_object_get(body, "policy");
    int r;

    patch.has_policy = policy && !json_is_null(policy);
    patch.policy = spec->policy;
    patch.network = TAKE_PTR(spec->network);
    if (!patch.has_policy && !patch.network) {
        return 0;
    }
    r = json_parse_object(answer->body, strlen(answer->body), &made, e);
    return r < 0 ? r
                 : control_patch(gateway_of(req)->control, actor_of(req),
                                 json_get_string(made, "id", ""), &patch, &sb, e);
}

int template_spawn(struct http_request *req, json_t *body, const struct template_found *from,
                   const struct control_create *how, struct control_answer *ret, struct err *e)
{
    struct gateway *g = gateway_of(req);
    cleanup_json json_t *plain = json_copy(body);
    cleanup_json json_t *wish = template_fork_body(&from->build, json_object_get(body, "env"));
    json_t *metadata = json_object_get(body, "metadata");
    cleanup_sandbox_spec struct sandbox_spec spec = {0};
    cleanup_sandbox_fork struct sandbox_fork fork = {0};
    struct control_create what = *how;
    int r;

    json_object_set_new(plain, "template",
                        json_string("built")); /* its name may have '_' and a tag */
    r = sandbox_spec_from_json(plain, &spec, e);
    if (r == 0) {
        r = check_shape(body, &from->build.shape, e);
    }
    if (r == 0) {
        json_object_set_new(wish, "timeout_s", json_integer((json_int_t)spec.timeout_s));
        json_object_set_new(wish, "metadata",
                            json_is_object(metadata) ? json_incref(metadata) : json_object());
        r = sandbox_fork_from_json(wish, &fork, e);
    }
    if (r < 0) {
        return r;
    }
    fork.surface = surface_of(from);
    fork.has_at_end = true;
    what.spec = NULL;
    what.fork = &fork;
    what.alone = true;
    r = control_fork(g->control, actor_of(req), from->build.sandbox, &what, ret, e);
    if (r == -ENOENT) {
        return err_set(e, r, "template_lost", "template '%s' has lost its snapshot: build it again",
                       from->built.name);
    }
    if (r == 0 && !ret->replayed) {
        r = db_template_spawned(g->db, from->built.id, control_now_ms(g->control), e);
    }
    return r < 0 ? r : set_rest(req, body, &spec, ret, e);
}

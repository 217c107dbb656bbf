/* SPDX-License-Identifier: Apache-2.0 */

/* Creating a sandbox, from a template or from a snapshot. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "gateway/e2b/private.h"

/* Seconds that a sandbox lives when its client does not say: the two versions of the API differ. */
#define TIMEOUT_S_V1 15
#define TIMEOUT_S_V2 300

/* What a request asks for, once it has been read. */
struct wish {
    struct template_found from; /* owned */
    struct e2b_box box;
    enum sandbox_at_end at_end;
    int64_t timeout_s;
    struct e2b_network network; /* owned */
    json_t *env;                /* borrowed from the body; NULL: none */
    json_t *metadata;           /* borrowed from the body; NULL: none */
};

static void wish_done(struct wish *w)
{
    template_found_done(&w->from);
    e2b_network_done(&w->network);
}

static int read_end(json_t *body, struct wish *w, struct err *e)
{
    json_t *resume = NULL;
    bool pause = false;
    bool memory = true;
    int r = e2b_bool(body, "autoPause", false, &pause, e);

    if (r == 0) {
        r = e2b_bool(body, "autoPauseMemory", true, &memory, e);
    }
    if (r == 0) {
        r = e2b_object(body, "autoResume", &resume, e);
    }
    if (r == 0 && resume) {
        r = e2b_bool(resume, "enabled", false, &w->box.auto_resume, e);
    }
    if (r < 0) {
        return r;
    }
    if (!memory && !pause) {
        return err_field(e, -EINVAL, "invalid_field", "autoPauseMemory",
                         "'autoPauseMemory' can be false only together with 'autoPause'");
    }
    if (!memory && w->box.auto_resume) {
        return err_field(e, -EINVAL, "invalid_field", "autoResume",
                         "what keeps only its disk cannot be woken by traffic: leave out "
                         "'autoResume' or 'autoPauseMemory'");
    }
    w->at_end = !pause               ? SANDBOX_AT_END_DELETE
                : !memory            ? SANDBOX_AT_END_STOP
                : w->box.auto_resume ? SANDBOX_AT_END_SLEEP
                                     : SANDBOX_AT_END_PAUSE;
    return 0;
}

/* Known to E2B's API and not to us. */
static int refuse_others(json_t *body, struct err *e)
{
    json_t *mounts = NULL;
    json_t *iam = NULL;
    json_t *mcp = NULL;
    int r = e2b_array(body, "volumeMounts", &mounts, e);

    if (r == 0) {
        r = e2b_object(body, "iam", &iam, e);
    }
    if (r == 0) {
        r = e2b_object(body, "mcp", &mcp, e); /* the client itself starts what this is about */
    }
    if (r == 0 && json_array_size(mounts) > 0) {
        return err_field(e, -EINVAL, "not_supported", "volumeMounts",
                         "'volumeMounts' is not supported here, because there are no volumes: "
                         "leave it out");
    }
    if (r == 0 && json_object_size(json_object_get(iam, "tokens")) > 0) {
        return err_field(e, -EINVAL, "not_supported", "iam",
                         "'iam' is not supported here: leave it out");
    }
    return r;
}

static int read_wish(struct http_request *req, json_t *body, bool v1, struct wish *w, struct err *e)
{
    const struct json_bounds timeout = {1, SANDBOX_TIMEOUT_S_MAX, v1 ? TIMEOUT_S_V1 : TIMEOUT_S_V2};
    const char *template_id = NULL;
    int r = e2b_string(body, "templateID", &template_id, e);

    w->box.secure = true;
    if (r == 0 && !template_id) {
        return err_field(e, -EINVAL, "missing_field", "templateID", "'templateID' is missing");
    }
    if (r == 0) {
        r = e2b_int(body, "timeout", timeout, &w->timeout_s, e);
    }
    if (r == 0 && v1) {
        r = e2b_bool(body, "secure", true, &w->box.secure, e);
    }
    if (r == 0) {
        r = read_end(body, w, e);
    }
    if (r == 0) {
        r = e2b_object(body, "envVars", &w->env, e);
    }
    if (r == 0) {
        r = e2b_object(body, "metadata", &w->metadata, e);
    }
    if (r == 0) {
        r = refuse_others(body, e);
    }
    if (r == 0) {
        r = e2b_network_from_json(body, &w->box, &w->network, e);
    }
    return r < 0 ? r : template_find(req, template_id, &w->from, e);
}

static void add_map(json_t *body, const char *name, json_t *map)
{
    if (map) {
        json_object_set(body, name, map);
    }
}

static int create_from_template(struct http_request *req, const struct wish *w,
                                struct control_answer *answer, struct err *e)
{
    cleanup_json json_t *body = json_pack("{s:s, s:I}", "template", w->from.node_name, "timeout_s",
                                          (json_int_t)w->timeout_s);
    cleanup_sandbox_spec struct sandbox_spec spec = {0};
    struct pollfd watch = http_client_pollfd(req);
    struct control_create what = {.spec = &spec, .watch = &watch};
    int r;

    add_map(body, "env", w->env);
    add_map(body, "metadata", w->metadata);
    r = sandbox_spec_from_json(body, &spec, e);
    if (r < 0) {
        return r;
    }
    spec.at_end = w->at_end;
    spec.network = w->network.policy ? xstrdup(w->network.policy) : NULL;
    spec.surface = e2b_box_text(&w->box);
    return control_create(gateway_of(req)->control, actor_of(req), &what, answer, e);
}

/* What commands in it start with, as the template says. */
static void take_config(struct wish *w)
{
    cleanup_json json_t *config = NULL;

    if (!w->from.built.id[0] ||
        json_parse_object(w->from.build.config, strlen(w->from.build.config), &config, NULL) < 0) {
        return;
    }
    snprintf(w->box.template_id, sizeof(w->box.template_id), "%s", w->from.built.id);
    snprintf(w->box.user, sizeof(w->box.user), "%s", json_get_string(config, "user", ""));
    snprintf(w->box.workdir, sizeof(w->box.workdir), "%s", json_get_string(config, "workdir", ""));
}

/*
 * A snapshot is of a sandbox: what is made from it is a fork of that one as it was then. A template that was built is a snapshot
 * of the sandbox that it was built in.
 */
static int create_from_snapshot(struct http_request *req, const struct wish *w,
                                struct control_answer *answer, struct err *e)
{
    bool built = w->from.built.id[0];
    cleanup_json json_t *body = built ? template_fork_body(&w->from.build, w->env)
                                      : json_pack("{s:s}", "snapshot", w->from.snapshot.id);
    cleanup_json json_t *none = json_object();
    cleanup_sandbox_fork struct sandbox_fork fork = {0};
    struct pollfd watch = http_client_pollfd(req);
    struct control_create what = {.fork = &fork, .watch = &watch};
    int r;

    json_object_set_new(body, "timeout_s", json_integer((json_int_t)w->timeout_s));
    if (!built) {
        add_map(body, "env", w->env);
    }
    add_map(body, "metadata", w->metadata ? w->metadata : none);
    r = sandbox_fork_from_json(body, &fork, e);
    if (r < 0) {
        return r;
    }
    fork.has_at_end = true;
    fork.at_end = w->at_end;
    fork.surface = e2b_box_text(&w->box);
    r = control_fork(gateway_of(req)->control, actor_of(req),
                     built ? w->from.build.sandbox : w->from.snapshot.sandbox, &what, answer, e);
    if (r == 0 && built) {
        r = db_template_spawned(gateway_of(req)->db, w->from.built.id,
                                control_now_ms(gateway_of(req)->control), e);
    }
    return r == -ENOENT && built
               ? err_set(e, r, "template_lost",
                         "template '%s' has lost its snapshot: build it again", w->from.built.name)
               : r;
}

static int set_network(struct http_request *req, const char *id, const char *policy, struct err *e)
{
    cleanup_sandbox_patch struct sandbox_patch patch = {.network = xstrdup(policy)};
    cleanup_sandbox struct sandbox sb = {0};

    return control_patch(gateway_of(req)->control, actor_of(req), id, &patch, &sb, e);
}

/* What can be done only once it is there. Without it the sandbox is not what was asked for, and goes. */
static int finish(struct http_request *req, const char *id, const struct wish *w, struct err *e)
{
    struct err why = {0};
    bool done = false;
    int r = 0;

    if (w->network.policy && !w->from.node_name[0]) { /* a fork has what its parent may reach */
        r = set_network(req, id, w->network.policy, e);
    }
    if (r == 0 && w->box.rules) {
        r = e2b_rules_set(req, id, w->network.rules, e);
    }
    if (r < 0 && control_delete(gateway_of(req)->control, actor_of(req), id, &done, &why) < 0) {
        log_warn(&(struct log_ctx){.sandbox = id}, "made in vain and not deleted: %s", why.msg);
    }
    return r;
}

static int create(struct http_request *req, bool v1, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *body = NULL;
    struct control_answer answer = {0};
    struct wish w = {0};
    char id[ID_SIZE];
    int r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);

    if (r == 0) {
        r = read_wish(req, body, v1, &w, e);
    }
    if (r < 0) {
        wish_done(&w);
        return r;
    }
    snprintf(w.box.alias, sizeof(w.box.alias), "%s", w.from.alias);
    take_config(&w);
    r = w.from.node_name[0] ? create_from_template(req, &w, &answer, e)
                            : create_from_snapshot(req, &w, &answer, e);
    if (r == 0) {
        r = control_answer_id(&answer, id, e);
        free(TAKE_PTR(answer.body));
    }
    if (r == 0) {
        r = finish(req, id, &w, e);
    }
    if (r == 0) {
        r = control_get(gateway_of(req)->control, actor_of(req), id, &sb, e);
    }
    wish_done(&w);
    return r < 0 ? r : e2b_reply_sandbox(req, 201, &sb, e);
}

int e2b_create_handler(struct http_request *req, struct err *e)
{
    return create(req, /* v1 */ false, e);
}

int e2b_create_v1_handler(struct http_request *req, struct err *e)
{
    return create(req, /* v1 */ true, e);
}

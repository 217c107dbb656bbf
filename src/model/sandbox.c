/* SPDX-License-Identifier: Apache-2.0 */
#include "model/sandbox.h"

#include "model/json-text.h"
#include "model/lifetime.h"
#include "model/netpolicy.h"

#include <stdio.h>
#include <string.h>

void sandbox_done(struct sandbox *sb)
{
    if (sb) {
        free(sb->env);
        free(sb->metadata);
        free(sb->surface);
        free(sb->network);
        for (size_t i = 0; i < ARRAY_SIZE(sb->network_outer); i++) {
            free(sb->network_outer[i]);
        }
        memset(sb, 0, sizeof(*sb));
    }
}

void sandbox_copy(struct sandbox *ret, const struct sandbox *from)
{
    ASSERT(ret && from && ret != from);

    *ret = *from;
    ret->env = xstrdup(from->env);
    ret->metadata = xstrdup(from->metadata);
    ret->surface = from->surface ? xstrdup(from->surface) : NULL;
    ret->network = from->network ? xstrdup(from->network) : NULL;
    for (size_t i = 0; i < ARRAY_SIZE(ret->network_outer); i++) {
        ret->network_outer[i] = from->network_outer[i] ? xstrdup(from->network_outer[i]) : NULL;
    }
}

void sandbox_spec_done(struct sandbox_spec *spec)
{
    if (spec) {
        free(spec->env);
        free(spec->metadata);
        free(spec->surface);
        free(spec->network);
        memset(spec, 0, sizeof(*spec));
    }
}

void sandbox_fork_done(struct sandbox_fork *fork)
{
    if (fork) {
        free(fork->env);
        free(fork->metadata);
        free(fork->surface);
        memset(fork, 0, sizeof(*fork));
    }
}

void sandbox_patch_done(struct sandbox_patch *patch)
{
    if (patch) {
        free(patch->metadata);
        free(patch->surface);
        free(patch->network);
        memset(patch, 0, sizeof(*patch));
    }
}

/* Canonical text of a map, "{}" for an absent one. */
static char *map_text(const json_t *map)
{
    char *text = map ? json_dumps(map, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

    ASSERT(!map || text); /* it was checked, so only memory could fail */
    return text ? text : xstrdup("{}");
}

/* Borrowed from body; NULL when absent or null, which mean the same. */
static json_t *find_map(json_t *body, const char *name)
{
    json_t *map = json_object_get(body, name);

    return json_is_null(map) ? NULL : map;
}

static int check_map(const char *field, json_t *map,
                     int (*check)(const char *field, json_t *map, struct err *e), struct err *e)
{
    return map ? check(field, map, e) : 0;
}

/* The default when absent or null. */
static int read_policy(json_t *body, struct policy *ret, struct err *e)
{
    json_t *object = json_object_get(body, "policy");

    if (!object || json_is_null(object)) {
        *ret = policy_default();
        return 0;
    }
    return policy_from_json(object, ret, e);
}

/* NULL: none is asked for. */
static int network_check(json_t *object, struct err *e)
{
    struct netpolicy *policy = NULL;
    int r = object ? netpolicy_from_json(object, &policy, e) : 0;

    netpolicy_unref(policy);
    return r;
}

int sandbox_patch_from_network(json_t *body, struct sandbox_patch *ret, struct err *e)
{
    int r = network_check(body, e);

    if (r == 0) {
        *ret = (struct sandbox_patch){.network = map_text(body)};
    }
    return r;
}

int sandbox_spec_from_json(json_t *body, struct sandbox_spec *ret, struct err *e)
{
    static const struct json_field fields[] = {
        {"template", JSON_FIELD_STRING, JSON_NULLABLE},
        {"vcpus", JSON_FIELD_INT, JSON_NULLABLE},
        {"memory_mib", JSON_FIELD_INT, JSON_NULLABLE},
        {"disk_mib", JSON_FIELD_INT, JSON_NULLABLE},
        {"env", JSON_FIELD_OBJECT, JSON_NULLABLE},
        {"metadata", JSON_FIELD_OBJECT, JSON_NULLABLE},
        {"timeout_s", JSON_FIELD_INT, JSON_NULLABLE},
        {"policy", JSON_FIELD_OBJECT, JSON_NULLABLE},
        {"network", JSON_FIELD_OBJECT, JSON_NULLABLE},
    };
    static const struct json_bounds timeout_bounds = {0, SANDBOX_TIMEOUT_S_MAX,
                                                      SANDBOX_TIMEOUT_S_DEFAULT};
    const char *template_name;
    json_t *env;
    json_t *metadata;
    struct shape shape;
    struct policy policy;
    int64_t timeout_s = 0;
    int r;

    ASSERT(body && ret);

    r = json_check_object(body, fields, ARRAY_SIZE(fields), e);
    if (r < 0) {
        return r;
    }
    template_name = json_get_string(body, "template", SANDBOX_TEMPLATE_DEFAULT);
    env = find_map(body, "env");
    metadata = find_map(body, "metadata");
    if ((r = template_name_check("template", template_name, e)) < 0 ||
        (r = shape_from_json(body, &shape, e)) < 0 ||
        (r = check_map("env", env, env_check, e)) < 0 ||
        (r = check_map("metadata", metadata, metadata_check, e)) < 0 ||
        (r = json_get_bounded(body, "timeout_s", timeout_bounds, &timeout_s, e)) < 0 ||
        (r = read_policy(body, &policy, e)) < 0 ||
        (r = network_check(find_map(body, "network"), e)) < 0) {
        return r;
    }
    *ret = (struct sandbox_spec){
        .network = find_map(body, "network") ? map_text(find_map(body, "network")) : NULL,
        .shape = shape,
        .env = map_text(env),
        .metadata = map_text(metadata),
        .timeout_s = timeout_s,
        .policy = policy,
    };
    snprintf(ret->template_name, sizeof(ret->template_name), "%s", template_name);
    return 0;
}

int sandbox_patch_from_json(json_t *body, struct sandbox_patch *ret, struct err *e)
{
    static const struct json_field fields[] = {
        {"timeout_s", JSON_FIELD_INT, 0},
        {"metadata", JSON_FIELD_OBJECT, 0},
        {"policy", JSON_FIELD_OBJECT, 0},
    };
    struct policy policy;
    json_t *metadata;
    bool has_timeout;
    bool has_policy;
    int64_t timeout_s = 0;
    int r;

    ASSERT(body && ret);

    r = json_check_object(body, fields, ARRAY_SIZE(fields), e);
    if (r < 0) {
        return r;
    }
    has_timeout = json_object_get(body, "timeout_s") != NULL;
    metadata = json_object_get(body, "metadata");
    has_policy = json_object_get(body, "policy") != NULL;
    if (!has_timeout && !metadata && !has_policy) {
        return err_set(e, -EINVAL, "nothing_to_change", "give timeout_s, metadata or policy");
    }
    if ((r = check_map("metadata", metadata, metadata_check, e)) < 0 ||
        (r = json_get_bounded(body, "timeout_s", (struct json_bounds){0, SANDBOX_TIMEOUT_S_MAX, 0},
                              &timeout_s, e)) < 0 ||
        (r = read_policy(body, &policy, e)) < 0) {
        return r;
    }
    *ret = (struct sandbox_patch){
        .has_timeout = has_timeout,
        .timeout_s = timeout_s,
        .has_policy = has_policy,
        .policy = policy,
        .metadata = metadata ? map_text(metadata) : NULL,
    };
    return 0;
}

int sandbox_fork_from_json(json_t *body, struct sandbox_fork *ret, struct err *e)
{
    static const struct json_field fields[] = {
        {"count", JSON_FIELD_INT, JSON_NULLABLE},
        {"snapshot", JSON_FIELD_STRING, JSON_NULLABLE},
        {"env", JSON_FIELD_OBJECT, JSON_NULLABLE},
        {"metadata", JSON_FIELD_OBJECT, JSON_NULLABLE},
        {"timeout_s", JSON_FIELD_INT, JSON_NULLABLE},
    };
    const char *snapshot;
    json_t *env;
    json_t *metadata;
    int64_t count = 0;
    int64_t timeout_s = -1;
    int r;

    ASSERT(body && ret);

    r = json_check_object(body, fields, ARRAY_SIZE(fields), e);
    if (r < 0) {
        return r;
    }
    env = find_map(body, "env");
    metadata = find_map(body, "metadata");
    snapshot = json_get_string(body, "snapshot", "");
    if ((r = json_get_bounded(body, "count", (struct json_bounds){1, SANDBOX_FORK_MAX, 1}, &count,
                              e)) < 0 ||
        (r = json_get_bounded(body, "timeout_s", (struct json_bounds){0, SANDBOX_TIMEOUT_S_MAX, -1},
                              &timeout_s, e)) < 0 ||
        (r = check_map("env", env, env_check, e)) < 0 ||
        (r = check_map("metadata", metadata, metadata_check, e)) < 0) {
        return r;
    }
    if (snapshot[0] && !id_valid(ID_SNAPSHOT, snapshot)) {
        return err_field(e, -EINVAL, "invalid_field", "snapshot",
                         "'snapshot' must be the id of a snapshot");
    }
    *ret = (struct sandbox_fork){
        .count = (unsigned)count,
        .env = env ? map_text(env) : NULL,
        .metadata = metadata ? map_text(metadata) : NULL,
        .has_timeout = timeout_s >= 0,
        .timeout_s = timeout_s,
    };
    snprintf(ret->snapshot, sizeof(ret->snapshot), "%s", snapshot);
    return 0;
}

static int64_t end_of(int64_t timeout_s, int64_t now_ms)
{
    return timeout_s == 0 ? 0 : now_ms + timeout_s * 1000;
}

void sandbox_init(struct sandbox *ret, const struct sandbox_spec *spec, const char *project,
                  int64_t now_ms)
{
    ASSERT(ret && spec && project);

    *ret = (struct sandbox){
        .desired = SANDBOX_STATE_RUNNING,
        .observed = SANDBOX_STATE_CREATING,
        .generation = 1,
        .shape = spec->shape,
        .env = xstrdup(spec->env),
        .metadata = xstrdup(spec->metadata),
        .timeout_s = spec->timeout_s,
        .created_at_ms = now_ms,
        .changed_at_ms = now_ms,
        .end_at_ms = end_of(spec->timeout_s, now_ms),
        .policy = spec->policy,
        .at_end = spec->at_end,
        .surface = spec->surface ? xstrdup(spec->surface) : NULL,
        .network = spec->network ? xstrdup(spec->network) : NULL,
    };
    id_new(ID_SANDBOX, ret->id);
    snprintf(ret->project, sizeof(ret->project), "%s", project);
    snprintf(ret->template_name, sizeof(ret->template_name), "%s", spec->template_name);
}

void sandbox_init_fork(struct sandbox *ret, const struct sandbox *parent,
                       const struct sandbox_fork *fork, int64_t now_ms)
{
    struct sandbox_spec spec = {
        .shape = parent->shape,
        .env = fork->env ? fork->env : parent->env,
        .metadata = fork->metadata ? fork->metadata : parent->metadata,
        .timeout_s = fork->has_timeout ? fork->timeout_s : parent->timeout_s,
        .policy = parent->policy,
        .at_end = fork->has_at_end ? fork->at_end : parent->at_end,
        .surface = fork->surface ? fork->surface : parent->surface,
        .network = parent->network,
    };

    ASSERT(ret);

    snprintf(spec.template_name, sizeof(spec.template_name), "%s", parent->template_name);
    sandbox_init(ret, &spec, parent->project, now_ms);
    snprintf(ret->parent, sizeof(ret->parent), "%s", parent->id);
}

void sandbox_apply(struct sandbox *sb, const struct sandbox_patch *patch, int64_t now_ms)
{
    ASSERT(sb && patch);

    if (patch->has_timeout) {
        sb->timeout_s = patch->timeout_s;
        sb->end_at_ms = end_of(patch->timeout_s, sb->paused_at_ms ? sb->paused_at_ms : now_ms);
    }
    if (patch->has_policy) {
        sb->policy = patch->policy;
    }
    if (patch->metadata) {
        free(sb->metadata);
        sb->metadata = xstrdup(patch->metadata);
    }
    if (patch->has_at_end) {
        sb->at_end = patch->at_end;
    }
    if (patch->network) {
        free(sb->network);
        sb->network = xstrdup(patch->network);
    }
    if (patch->surface) {
        free(sb->surface);
        sb->surface = xstrdup(patch->surface);
    }
    sb->changed_at_ms = now_ms;
}

/*
 * One that was paused at its end has no time left: when it goes on, its time begins anew, or it would be paused again at
 * once.
 */
static bool begins_anew(const struct sandbox *sb, enum sandbox_state to)
{
    return to == SANDBOX_STATE_RUNNING && sb->paused_at_ms && sb->end_at_ms &&
           sb->end_at_ms <= sb->paused_at_ms && sb->at_end != SANDBOX_AT_END_DELETE;
}

void sandbox_move(struct sandbox *sb, struct sandbox_move move, const char *reason)
{
    ASSERT(sb && move.now_ms > 0);
    sandbox_state_move(&sb->observed, move.to, move.by);
    if (begins_anew(sb, move.to)) {
        sb->end_at_ms = end_of(sb->timeout_s, sb->paused_at_ms);
    }
    lifetime_enter(&sb->end_at_ms, &sb->paused_at_ms, move.to, move.now_ms);
    snprintf(sb->reason, sizeof(sb->reason), "%s", reason ? reason : "");
}

static const char *const at_end_names[SANDBOX_AT_END_COUNT_] = {
    [SANDBOX_AT_END_DELETE] = "",
    [SANDBOX_AT_END_PAUSE] = "pause",
    [SANDBOX_AT_END_SLEEP] = "sleep",
    [SANDBOX_AT_END_STOP] = "stop",
};

const char *sandbox_at_end_name(enum sandbox_at_end at_end)
{
    ASSERT(at_end < SANDBOX_AT_END_COUNT_);
    return at_end_names[at_end];
}

bool sandbox_at_end_parse(const char *word, enum sandbox_at_end *ret)
{
    for (int i = 0; i < SANDBOX_AT_END_COUNT_; i++) {
        if (str_eq(at_end_names[i], word)) {
            *ret = (enum sandbox_at_end)i;
            return true;
        }
    }
    return false;
}

enum sandbox_state sandbox_shown_state(const struct sandbox *sb)
{
    ASSERT(sb);
    return sb->desired == SANDBOX_STATE_DELETED ? SANDBOX_STATE_DELETING : sb->observed;
}

static int print_time(struct buf *out, const char *name, int64_t ms)
{
    if (ms == 0) {
        return buf_printf(out, ",\"%s\":null", name);
    }
    return buf_printf(out, ",\"%s\":%lld", name, (long long)ms);
}

static int print_text(struct buf *out, const char *name, const char *text)
{
    int r;

    if (str_empty(text)) {
        return buf_printf(out, ",\"%s\":null", name);
    }
    r = buf_printf(out, ",\"%s\":", name);
    return r < 0 ? r : json_text_string(out, text);
}

/* When it ends; while its time stands still nobody knows that, only how much is left. */
static int print_end(const struct sandbox *sb, struct buf *out)
{
    bool still = sb->paused_at_ms != 0;
    int r = print_time(out, "end_at_ms", still ? 0 : sb->end_at_ms);

    if (r == 0) {
        r = print_time(out, "paused_at_ms", sb->paused_at_ms);
    }
    if (r == 0 && still && sb->end_at_ms) {
        return buf_printf(out, ",\"remaining_ms\":%lld",
                          (long long)MAX(sb->end_at_ms - sb->paused_at_ms, (int64_t)0));
    }
    return r < 0 ? r : buf_add_str(out, ",\"remaining_ms\":null");
}

static int print_policy(struct buf *out, const struct policy *policy)
{
    cleanup_json json_t *object = policy_to_json(policy);
    int r = buf_add_str(out, ",\"policy\":");

    return r < 0 ? r : json_write(object, out);
}

int sandbox_print(const struct sandbox *sb, struct buf *out)
{
    int r;

    ASSERT(sb && out && sb->metadata);

    /* Ids, template names and state words need no escaping; metadata is JSON text of our own making. */
    r = buf_printf(
        out,
        "{\"id\":\"%s\",\"project\":\"%s\",\"template\":\"%s\",\"state\":\"%s\",\"vcpus\":%u,"
        "\"memory_mib\":%u,\"disk_mib\":%u,\"timeout_s\":%lld",
        sb->id, sb->project, sb->template_name, sandbox_state_name(sandbox_shown_state(sb)),
        sb->shape.vcpus, sb->shape.memory_mib, sb->shape.disk_mib, (long long)sb->timeout_s);
    if (r == 0) {
        r = print_text(out, "accel", sb->accel);
    }
    if (r == 0) {
        r = print_text(out, "node", sb->node);
    }
    if (r == 0) {
        r = print_text(out, "reason", sb->reason);
    }
    if (r == 0) {
        r = print_time(out, "created_at_ms", sb->created_at_ms);
    }
    if (r == 0) {
        r = print_time(out, "started_at_ms", sb->started_at_ms);
    }
    if (r == 0) {
        r = print_end(sb, out);
    }
    if (r == 0) {
        r = print_text(out, "parent", sb->parent);
    }
    if (r == 0) {
        r = print_policy(out, &sb->policy);
    }
    if (r == 0) {
        r = buf_printf(out, ",\"metadata\":%s}", sb->metadata);
    }
    return r;
}

json_t *sandbox_network_stack(const struct sandbox *sb)
{
    const char *const texts[NETPOLICY_LEVEL_COUNT_] = {
        [NETPOLICY_ORGANISATION] = sb->network_outer[NETPOLICY_ORGANISATION],
        [NETPOLICY_PROJECT] = sb->network_outer[NETPOLICY_PROJECT],
        [NETPOLICY_SANDBOX] = sb->network,
    };

    return netpolicy_stack_json(texts);
}

json_t *sandbox_node_spec(const struct sandbox *sb, const char *organisation)
{
    json_t *env;
    json_t *metadata;
    json_t *network;
    json_t *spec;

    ASSERT(sb && organisation);

    env = json_loads(sb->env, 0, NULL);
    metadata = json_loads(sb->metadata, 0, NULL);
    if (!env || !metadata) {
        json_decref(env);
        json_decref(metadata);
        return NULL;
    }
    spec = json_pack("{s:s, s:s, s:i, s:i, s:i, s:o, s:o, s:s, s:s, s:o, s:I, s:s}", "id", sb->id,
                     "template", sb->template_name, "vcpus", (int)sb->shape.vcpus, "memory_mib",
                     (int)sb->shape.memory_mib, "disk_mib", (int)sb->shape.disk_mib, "env", env,
                     "metadata", metadata, "org", organisation, "project", sb->project, "policy",
                     policy_to_json(&sb->policy), "end_at_ms", (json_int_t)sb->end_at_ms, "at_end",
                     sandbox_at_end_name(sb->at_end));
    network = sandbox_network_stack(sb);
    if (network) {
        json_object_set_new(spec, "network", network);
    }
    return spec;
}

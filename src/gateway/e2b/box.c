/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/e2b/box.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Clients want an end; what has none ends in the last moment that four digits of a year can say. */
#define TIME_MAX_MS 253402300799000ll

/* --- what is remembered --- */

void e2b_box_read(const struct sandbox *sb, struct e2b_box *ret)
{
    cleanup_json json_t *object = NULL;
    struct e2b_box box = {.secure = true};
    json_t *network;

    ASSERT(sb && ret);
    if (!str_empty(sb->surface) &&
        json_parse_object(sb->surface, strlen(sb->surface), &object, NULL) == 0) {
        box.secure = json_get_bool(object, "secure", true);
        box.auto_resume = json_get_bool(object, "auto_resume", false);
        network = json_object_get(object, "network");
        box.private_traffic = !json_get_bool(network, "allowPublicTraffic", true);
        snprintf(box.mask_host, sizeof(box.mask_host), "%s",
                 json_get_string(network, "maskRequestHost", ""));
        box.killed = json_get_bool(object, "killed", false);
        box.rules = json_get_bool(object, "rules", false);
        box.internet = (enum e2b_internet)json_get_int(object, "internet", E2B_INTERNET_UNSAID);
        snprintf(box.alias, sizeof(box.alias), "%s", json_get_string(object, "alias", ""));
        snprintf(box.template_id, sizeof(box.template_id), "%s",
                 json_get_string(object, "template", ""));
        snprintf(box.user, sizeof(box.user), "%s", json_get_string(object, "user", ""));
        snprintf(box.workdir, sizeof(box.workdir), "%s", json_get_string(object, "workdir", ""));
    }
    *ret = box;
}

static void set(json_t *object, const char *name, json_t *value_take)
{
    int r = json_object_set_new(object, name, value_take);

    ASSERT(r == 0); /* names and values are ours, or were JSON before */
}

static json_t *network_of(const struct e2b_box *box)
{
    json_t *network = json_pack("{s:b}", "allowPublicTraffic", !box->private_traffic);

    if (box->mask_host[0]) {
        json_object_set_new(network, "maskRequestHost", json_string(box->mask_host));
    }
    return network;
}

char *e2b_box_text(const struct e2b_box *box)
{
    cleanup_json json_t *object =
        json_pack("{s:s, s:b, s:b, s:b, s:i, s:o}", "alias", box->alias, "secure", box->secure,
                  "auto_resume", box->auto_resume, "killed", box->killed, "internet",
                  (int)box->internet, "network", network_of(box));

    ASSERT(object);
    if (box->rules) {
        set(object, "rules", json_true());
    }
    if (box->template_id[0]) {
        set(object, "template", json_string(box->template_id));
        set(object, "user", json_string(box->user));
        set(object, "workdir", json_string(box->workdir));
    }
    return json_text(object);
}

const char *e2b_box_template(const struct sandbox *sb, const struct e2b_box *box)
{
    return box->template_id[0] ? box->template_id : sb->template_name;
}

const char *e2b_box_state(const struct sandbox *sb)
{
    switch (sandbox_shown_state(sb)) {
    case SANDBOX_STATE_RUNNING:
        return "running";
    case SANDBOX_STATE_CREATING:
    case SANDBOX_STATE_DELETING:
    case SANDBOX_STATE_DELETED:
        return NULL;
    default:
        return "paused";
    }
}

/* --- times --- */

void e2b_time(int64_t ms, char ret[static E2B_TIME_SIZE])
{
    int64_t bounded = MIN(MAX(ms, (int64_t)0), (int64_t)TIME_MAX_MS);
    time_t seconds = (time_t)(bounded / 1000);
    struct tm tm;
    size_t n;

    ASSERT(gmtime_r(&seconds, &tm));
    n = strftime(ret, E2B_TIME_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(ret + n, E2B_TIME_SIZE - n, ".%03dZ", (int)(bounded % 1000));
}

/* ".123" and what more digits there are. */
static const char *take_fraction(const char *p, int64_t *ms)
{
    int64_t weight = 100;

    if (*p != '.') {
        return p;
    }
    for (p++; *p >= '0' && *p <= '9'; p++) {
        *ms += (*p - '0') * weight;
        weight /= 10;
    }
    return p;
}

int e2b_time_parse(const char *text, int64_t *ret_ms)
{
    struct tm tm = {0};
    const char *p = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    int64_t ms = 0;
    int hours = 0;
    int minutes = 0;
    char sign = '+';

    if (!p) {
        return -EINVAL;
    }
    p = take_fraction(p, &ms);
    if (!str_eq(p, "Z") && !str_eq(p, "z")) {
        if (strlen(p) != 6 || sscanf(p, "%c%2d:%2d", &sign, &hours, &minutes) != 3 ||
            (sign != '+' && sign != '-' &&
             sign != ' ')) { /* a '+' that a query turned into a space */
            return -EINVAL;
        }
    }
    ms += (int64_t)timegm(&tm) * 1000;
    ms -= (sign == '-' ? -1 : 1) * ((int64_t)hours * 60 + minutes) * 60000;
    *ret_ms = ms;
    return 0;
}

/* --- what is shown --- */

static void set_time(json_t *object, const char *name, int64_t ms)
{
    char text[E2B_TIME_SIZE];

    e2b_time(ms, text);
    set(object, name, json_string(text));
}

static void set_or_null(json_t *object, const char *name, const char *text)
{
    set(object, name, text ? json_string(text) : json_null());
}

/* The names that all objects of a sandbox have. */
static json_t *base_object(const struct sandbox *sb, const struct e2b_box *box)
{
    json_t *object = json_pack("{s:s, s:s, s:s, s:s}", "sandboxID", sb->id, "templateID",
                               e2b_box_template(sb, box), "clientID", E2B_CLIENT_ID, "envdVersion",
                               E2B_ENVD_VERSION);

    ASSERT(object);
    set(object, "alias", json_string(box->alias[0] ? box->alias : sb->template_name));
    return object;
}

static void set_tokens(json_t *object, const struct e2b_tokens *tokens)
{
    if (tokens->envd) {
        set(object, "envdAccessToken", json_string(tokens->envd));
    }
    set_or_null(object, "domain", tokens->domain);
}

json_t *e2b_box_sandbox(const struct sandbox *sb, const struct e2b_tokens *tokens)
{
    struct e2b_box box;
    json_t *object;

    e2b_box_read(sb, &box);
    object = base_object(sb, &box);
    set_tokens(object, tokens);
    set_or_null(object, "trafficAccessToken", tokens->traffic);
    return object;
}

/* While it is paused its end is when that began. */
static int64_t end_of(const struct sandbox *sb)
{
    const char *state = e2b_box_state(sb);

    if (state && str_eq(state, "paused")) {
        return sb->paused_at_ms ? sb->paused_at_ms : sb->changed_at_ms;
    }
    return sb->end_at_ms ? sb->end_at_ms : TIME_MAX_MS;
}

static void set_life(json_t *object, const struct sandbox *sb)
{
    const char *state = e2b_box_state(sb);

    set_time(object, "startedAt", sb->started_at_ms ? sb->started_at_ms : sb->created_at_ms);
    set_time(object, "endAt", end_of(sb));
    set(object, "state", json_string(state ? state : "running"));
    set(object, "cpuCount", json_integer(sb->shape.vcpus));
    set(object, "memoryMB", json_integer(sb->shape.memory_mib));
    set(object, "diskSizeMB", json_integer(sb->shape.disk_mib));
    set(object, "metadata", json_loads(sb->metadata, 0, NULL));
    set(object, "volumeMounts", json_array());
}

json_t *e2b_box_listed(const struct sandbox *sb)
{
    struct e2b_box box;
    json_t *object;

    e2b_box_read(sb, &box);
    object = base_object(sb, &box);
    set_life(object, sb);
    return object;
}

json_t *e2b_box_detail(const struct sandbox *sb, const struct e2b_tokens *tokens)
{
    struct e2b_box box;
    json_t *network;
    json_t *object;

    e2b_box_read(sb, &box);
    object = base_object(sb, &box);
    set_life(object, sb);
    set_tokens(object, tokens);
    network = network_of(&box);
    e2b_network_show(sb->network, network);
    set(object, "network", network);
    set(object, "allowInternetAccess",
        box.internet == E2B_INTERNET_DENIED ? json_false() : json_null());
    set(object, "lifecycle",
        json_pack("{s:s, s:b}", "onTimeout", sb->at_end == SANDBOX_AT_END_DELETE ? "kill" : "pause",
                  "autoResume", box.auto_resume));
    return object;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "model/policy.h"

#include <string.h>

#define HOUR_MS (3600ull * 1000)
#define DAY_MS (24 * HOUR_MS)
#define WEEK_MS (7 * DAY_MS)

static const char *const recover_names[] = {"memory", "disk", "none", NULL};
static const char *const before_names[] = {"none", "disk", NULL};
static const char *const cold_names[] = {"allow", "refuse", NULL};

/* Every number of a policy: its name, its place, its bounds. */
static const struct {
    const char *name;
    size_t offset;
    uint32_t min; /* 0 is always allowed */
    uint32_t max;
    uint32_t fallback;
} numbers[] = {
    {"disk_every_s", offsetof(struct policy, disk_every_s), 5, 31536000, 0},
    {"full_every_s", offsetof(struct policy, full_every_s), 30, 31536000, 0},
    {"backup_every_s", offsetof(struct policy, backup_every_s), 30, 31536000, 0},
    {"keep_hour", offsetof(struct policy, keep_hour), 1, 1000, 12},
    {"keep_day", offsetof(struct policy, keep_day), 1, 1000, 24},
    {"keep_week", offsetof(struct policy, keep_week), 1, 1000, 7},
    {"keep_month", offsetof(struct policy, keep_month), 1, 1000, 5},
    {"idle_pause_s", offsetof(struct policy, idle_pause_s), 5, 31536000, 0},
};

static uint32_t *number_at(struct policy *policy, size_t i)
{
    return (uint32_t *)(void *)((char *)policy + numbers[i].offset);
}

struct policy policy_default(void)
{
    struct policy p = {.recover = POLICY_RECOVER_MEMORY};

    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        *number_at(&p, i) = numbers[i].fallback;
    }
    return p;
}

/* The place of a word in a list that ends with NULL; -EINVAL. */
static int find_word(const char *const *words, json_t *value)
{
    const char *text = json_string_value(value);

    for (int i = 0; text && words[i]; i++) {
        if (str_eq(text, words[i])) {
            return i;
        }
    }
    return -EINVAL;
}

static int read_recover(json_t *value, struct policy *p, struct err *e)
{
    int word = find_word(recover_names, value);

    if (word < 0) {
        return err_field(e, -EINVAL, "invalid_field", "recover",
                         "'recover' must be 'memory', 'disk' or 'none'");
    }
    p->recover = (enum policy_recover)word;
    return 0;
}

static int read_before(json_t *value, struct policy *p, struct err *e)
{
    int word = find_word(before_names, value);

    if (word < 0) {
        return err_field(e, -EINVAL, "invalid_field", "before_commands",
                         "'before_commands' must be 'disk' or 'none'");
    }
    p->before_commands = (enum policy_before)word;
    return 0;
}

static int read_cold(json_t *value, struct policy *p, struct err *e)
{
    int word = find_word(cold_names, value);

    if (word < 0) {
        return err_field(e, -EINVAL, "invalid_field", "cold_restore",
                         "'cold_restore' must be 'allow' or 'refuse'");
    }
    p->cold_restore = (enum policy_cold)word;
    return 0;
}

static int read_number(const char *name, json_t *value, struct policy *p, struct err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        json_int_t v = json_integer_value(value);

        if (!str_eq(name, numbers[i].name)) {
            continue;
        }
        if (!json_is_integer(value) || v < 0 || v > numbers[i].max ||
            (v > 0 && v < numbers[i].min)) {
            return err_field(e, -EINVAL, "out_of_range", name, "'%s' must be 0 or from %u to %u",
                             name, numbers[i].min, numbers[i].max);
        }
        *number_at(p, i) = (uint32_t)v;
        return 0;
    }
    return err_field(e, -EINVAL, "unknown_field", name, "a policy has no field '%.60s': remove it",
                     name);
}

static int read_field(const char *name, json_t *value, struct policy *p, struct err *e)
{
    if (str_eq(name, "recover")) {
        return read_recover(value, p, e);
    }
    if (str_eq(name, "cold_restore")) {
        return read_cold(value, p, e);
    }
    return str_eq(name, "before_commands") ? read_before(value, p, e)
                                           : read_number(name, value, p, e);
}

int policy_from_json(json_t *object, struct policy *ret, struct err *e)
{
    struct policy p = policy_default();
    const char *name;
    json_t *value;

    if (!json_is_object(object)) {
        return err_field(e, -EINVAL, "invalid_field", "policy", "'policy' must be an object");
    }
    json_object_foreach(object, name, value)
    {
        int r = read_field(name, value, &p, e);

        if (r < 0) {
            return r;
        }
    }
    *ret = p;
    return 0;
}

json_t *policy_to_json(const struct policy *policy)
{
    struct policy copy = *policy;
    json_t *out = json_object();

    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        json_object_set_new(out, numbers[i].name, json_integer(*number_at(&copy, i)));
    }
    json_object_set_new(out, "recover", json_string(recover_names[policy->recover]));
    json_object_set_new(out, "before_commands", json_string(before_names[policy->before_commands]));
    json_object_set_new(out, "cold_restore", json_string(cold_names[policy->cold_restore]));
    return out;
}

bool policy_equal(const struct policy *a, const struct policy *b)
{
    struct policy left = *a;
    struct policy right = *b;

    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        if (*number_at(&left, i) != *number_at(&right, i)) {
            return false;
        }
    }
    return left.recover == right.recover && left.before_commands == right.before_commands &&
           left.cold_restore == right.cold_restore;
}

struct tier {
    uint64_t age_ms;  /* up to this age */
    uint64_t slot_ms; /* one in each; 0: all */
    uint32_t keep;    /* so many */
};

/* Newest first: the newest of a slot stays, until the tier has as many as it may. */
static void thin_kind(const struct tier tiers[4], uint64_t now_ms, struct policy_item *items,
                      size_t n, bool full)
{
    uint32_t kept[4] = {0};
    uint64_t last_slot[4] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};

    for (size_t i = 0; i < n; i++) {
        uint64_t age_ms = now_ms > items[i].created_at_ms ? now_ms - items[i].created_at_ms : 0;
        uint64_t slot;
        size_t t = 0;

        if (items[i].full != full) {
            continue;
        }
        while (t < 3 && age_ms > tiers[t].age_ms) {
            t++;
        }
        slot = tiers[t].slot_ms ? items[i].created_at_ms / tiers[t].slot_ms : i;
        if (items[i].fixed) {
            last_slot[t] = slot;
            continue;
        }
        items[i].drop = slot == last_slot[t] || kept[t] >= tiers[t].keep;
        if (!items[i].drop) {
            kept[t]++;
            last_slot[t] = slot;
        }
    }
}

void policy_thin(const struct policy *policy, uint64_t now_ms, struct policy_item *items, size_t n)
{
    const struct tier tiers[4] = {{HOUR_MS, 0, policy->keep_hour},
                                  {DAY_MS, HOUR_MS, policy->keep_day},
                                  {WEEK_MS, DAY_MS, policy->keep_week},
                                  {UINT64_MAX, WEEK_MS, policy->keep_month}};

    for (size_t i = 0; i < n; i++) {
        items[i].drop = false;
    }
    thin_kind(tiers, now_ms, items, n, /* full */ false);
    thin_kind(tiers, now_ms, items, n, /* full */ true);
}

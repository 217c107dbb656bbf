/* SPDX-License-Identifier: Apache-2.0 */
#include "model/names.h"

#include <string.h>

#define LOWER_DIGITS "abcdefghijklmnopqrstuvwxyz0123456789"
#define WORD "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"

bool template_name_valid(const char *name)
{
    size_t len;

    ASSERT(name);
    len = strlen(name);
    return len >= 1 && len <= TEMPLATE_NAME_MAX && name[0] != '-' &&
           strspn(name, LOWER_DIGITS "-") == len;
}

int template_name_check(const char *field, const char *name, struct err *e)
{
    if (template_name_valid(name)) {
        return 0;
    }
    return err_field(
        e, -EINVAL, "invalid_name", field,
        "%s must be 1 to %d of a-z, 0-9 and '-', not beginning with '-'; see GET /v1/templates",
        field, TEMPLATE_NAME_MAX);
}

static bool has_control(const char *s)
{
    for (; *s; s++) {
        if ((unsigned char)*s < 0x20 || *s == 0x7f) {
            return true;
        }
    }
    return false;
}

bool metadata_key_valid(const char *key)
{
    size_t len;

    ASSERT(key);
    len = strlen(key);
    return len >= 1 && len <= METADATA_KEY_MAX && !has_control(key);
}

static bool env_name_valid(const char *name)
{
    size_t len = strlen(name);

    return len >= 1 && len <= ENV_NAME_MAX && !strchr("0123456789", name[0]) &&
           strspn(name, WORD "0123456789") == len;
}

/* What metadata and env have in common. */
struct map_rules {
    size_t pairs_max;
    size_t value_max;
    size_t total_max;
    bool (*key_valid)(const char *key);
    const char *key_rule;
};

static int map_check(const char *field, json_t *map, const struct map_rules *rules, struct err *e)
{
    size_t total = 0;
    const char *key;
    json_t *value;

    if (!json_is_object(map)) {
        return err_field(e, -EINVAL, "invalid_type", field, "%s must be an object of strings",
                         field);
    }
    if (json_object_size(map) > rules->pairs_max) {
        return err_field(e, -EINVAL, "too_many", field, "%s may have at most %zu entries, not %zu",
                         field, rules->pairs_max, json_object_size(map));
    }
    json_object_foreach(map, key, value)
    {
        if (!rules->key_valid(key)) {
            return err_field(e, -EINVAL, "invalid_name", field,
                             "a name in %s must be %s, unlike '%.60s'", field, rules->key_rule,
                             key);
        }
        if (!json_is_string(value)) {
            return err_field(e, -EINVAL, "invalid_type", field, "%s.%.60s must be a string", field,
                             key);
        }
        if (json_string_length(value) > rules->value_max) {
            return err_field(e, -EINVAL, "too_long", field,
                             "%s.%.60s may have at most %zu bytes, not %zu", field, key,
                             rules->value_max, json_string_length(value));
        }
        total += strlen(key) + json_string_length(value);
    }
    if (total > rules->total_max) {
        return err_field(e, -EINVAL, "too_long", field,
                         "%s may have at most %zu bytes in all, not %zu", field, rules->total_max,
                         total);
    }
    return 0;
}

int metadata_check(const char *field, json_t *map, struct err *e)
{
    static const struct map_rules rules = {
        .pairs_max = METADATA_PAIRS_MAX,
        .value_max = METADATA_VALUE_MAX,
        .total_max = METADATA_TOTAL_MAX,
        .key_valid = metadata_key_valid,
        .key_rule = "1 to 128 bytes without control characters",
    };

    return map_check(field, map, &rules, e);
}

int env_check(const char *field, json_t *map, struct err *e)
{
    static const struct map_rules rules = {
        .pairs_max = ENV_PAIRS_MAX,
        .value_max = ENV_VALUE_MAX,
        .total_max = ENV_TOTAL_MAX,
        .key_valid = env_name_valid,
        .key_rule = "letters, digits and '_', not beginning with a digit",
    };

    return map_check(field, map, &rules, e);
}

int idempotency_key_check(const char *key, struct err *e)
{
    size_t len = strlen(key);
    bool printable = true;

    for (size_t i = 0; i < len; i++) {
        printable = printable && key[i] > 0x20 && key[i] < 0x7f;
    }
    if (len == 0 || len > IDEMPOTENCY_KEY_MAX || !printable) {
        return err_field(
            e, -EINVAL, "invalid_name", "Idempotency-Key",
            "the header Idempotency-Key must be 1 to %d printable ASCII characters without spaces",
            IDEMPOTENCY_KEY_MAX);
    }
    return 0;
}

bool node_name_valid(const char *name)
{
    size_t len = name ? strlen(name) : 0;

    return len >= 1 && len < 64 && name[0] != '-' && name[0] != '.' &&
           strspn(name, LOWER_DIGITS "-.") == len;
}

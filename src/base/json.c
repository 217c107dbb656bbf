/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include <string.h>

int json_parse_any(const void *text, size_t len, json_t **ret, struct err *e)
{
    json_error_t where;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);

    if (!root) {
        return err_set(e, -EINVAL, "invalid_json",
                       "the body is not valid JSON: %.120s at line %d column %d", where.text,
                       where.line, where.column);
    }
    *ret = root;
    return 0;
}

int json_parse_object(const void *text, size_t len, json_t **ret, struct err *e)
{
    json_t *root = NULL;
    int r = json_parse_any(text, len, &root, e);

    if (r < 0) {
        return r;
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(e, -EINVAL, "invalid_json", "the body must be a JSON object");
    }
    *ret = root;
    return 0;
}

/* Counts what can begin a value; in what is no JSON it may count wrong. */
static bool has_too_many_values(const char *text, size_t len)
{
    bool in_string = false;
    size_t n = 1;

    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"') {
            in_string = !in_string;
        } else if (in_string) {
            i += text[i] == '\\';
        } else {
            n += text[i] == ',' || text[i] == '[' || text[i] == '{';
        }
    }
    return n > JSON_UNTRUSTED_VALUES_MAX;
}

int json_parse_untrusted(const void *text, size_t len, json_t **ret, struct err *e)
{
    if (has_too_many_values(text, len)) {
        return err_set(e, -E2BIG, "too_large", "the body has more than %u values",
                       JSON_UNTRUSTED_VALUES_MAX);
    }
    return json_parse_object(text, len, ret, e);
}

static bool is_string_map(json_t *value)
{
    const char *key;
    json_t *item;

    if (!json_is_object(value)) {
        return false;
    }
    json_object_foreach(value, key, item)
    {
        if (!json_is_string(item)) {
            return false;
        }
    }
    return true;
}

static bool type_matches(json_t *value, enum json_field_type type)
{
    switch (type) {
    case JSON_FIELD_STRING:
        return json_is_string(value);
    case JSON_FIELD_INT:
        return json_is_integer(value);
    case JSON_FIELD_BOOL:
        return json_is_boolean(value);
    case JSON_FIELD_OBJECT:
        return json_is_object(value);
    case JSON_FIELD_ARRAY:
        return json_is_array(value);
    case JSON_FIELD_STRING_MAP:
        return is_string_map(value);
    case JSON_FIELD_ANY:
        return true;
    }
    return false;
}

static const struct json_field *find_field(const struct json_field *fields, size_t n,
                                           const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (str_eq(fields[i].name, name)) {
            return &fields[i];
        }
    }
    return NULL;
}

int json_check_object(json_t *object, const struct json_field *fields, size_t n, struct err *e)
{
    static const char *const type_names[] = {"a string",  "an integer", "true or false",
                                             "an object", "an array",   "an object of strings",
                                             "a value"};
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value)
    {
        const struct json_field *field = find_field(fields, n, name);

        if (!field) {
            return err_field(e, -EINVAL, "unknown_field", name,
                             "there is no field '%.60s' here: remove it", name);
        }
        if (json_is_null(value) && (field->flags & JSON_NULLABLE)) {
            continue;
        }
        if (!type_matches(value, field->type)) {
            return err_field(e, -EINVAL, "invalid_field", name, "'%.60s' must be %s", name,
                             type_names[field->type]);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if ((fields[i].flags & JSON_REQUIRED) && !json_object_get(object, fields[i].name)) {
            return err_field(e, -EINVAL, "missing_field", fields[i].name,
                             "'%s' is missing: give %s", fields[i].name,
                             type_names[fields[i].type]);
        }
    }
    return 0;
}

const char *json_get_string(json_t *object, const char *name, const char *fallback)
{
    const char *s = json_string_value(json_object_get(object, name));

    return s ? s : fallback;
}

int64_t json_get_int(json_t *object, const char *name, int64_t fallback)
{
    json_t *value = json_object_get(object, name);

    return json_is_integer(value) ? json_integer_value(value) : fallback;
}

bool json_get_bool(json_t *object, const char *name, bool fallback)
{
    json_t *value = json_object_get(object, name);

    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

int json_get_bounded(json_t *object, const char *name, struct json_bounds bounds, int64_t *ret,
                     struct err *e)
{
    int64_t value = json_get_int(object, name, bounds.fallback);

    if (json_object_get(object, name) && (value < bounds.min || value > bounds.max)) {
        return err_field(e, -EINVAL, "out_of_range", name,
                         "'%s' must be from %lld to %lld, not %lld", name, (long long)bounds.min,
                         (long long)bounds.max, (long long)value);
    }
    *ret = value;
    return 0;
}

static int add_chunk(const char *data, size_t len, void *arg)
{
    return buf_add(arg, data, len) < 0 ? -1 : 0;
}

int json_write(const json_t *value, struct buf *b)
{
    size_t before = b->len;

    if (json_dump_callback(value, add_chunk, b, JSON_COMPACT | JSON_ENCODE_ANY) < 0) {
        b->len = before;
        return -E2BIG;
    }
    return 0;
}

char *json_text(const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

    ASSERT(text);
    return text;
}

json_t *json_error_object(const struct err *e)
{
    json_t *inner = json_pack("{s:s, s:s}", "code", err_reason(e), "message", e->msg);

    if (!inner) { /* the message holds bytes that are not UTF-8 */
        inner = json_pack("{s:s, s:s}", "code", err_reason(e), "message",
                          "the message cannot be shown");
    }
    ASSERT(inner);
    if (e->field[0]) {
        json_object_set_new(inner, "field", json_string(e->field));
    }
    return json_pack("{s:o}", "error", inner);
}

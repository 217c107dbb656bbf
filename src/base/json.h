/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict JSON at the borders, over jansson: duplicates, trailing bytes, invalid UTF-8 and deep nesting are
 * refused; a field of the wrong type or out of range gives an error that names it; unknown fields are
 * refused, never ignored.
 *
 *     static const struct json_field fields[] = {
 *         {"template", JSON_FIELD_STRING, JSON_REQUIRED},
 *         {"vcpus", JSON_FIELD_INT, 0},
 *     };
 *     r = json_check_object(root, fields, ARRAY_SIZE(fields), e);
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>

#define cleanup_json CLEANUP(json_cleanup)
static inline void json_cleanup(json_t **j)
{
    json_decref(*j);
}

enum json_field_type {
    JSON_FIELD_STRING,
    JSON_FIELD_INT,
    JSON_FIELD_BOOL,
    JSON_FIELD_OBJECT,
    JSON_FIELD_ARRAY,
    JSON_FIELD_STRING_MAP, /* object whose values are all strings */
    JSON_FIELD_ANY,
};
#define JSON_REQUIRED (1u << 0)
#define JSON_NULLABLE (1u << 1)

struct json_field {
    const char *name; /* static */
    enum json_field_type type;
    unsigned flags;
};

/* -EINVAL with a sentence that says where the text stops being JSON. The root must be an object. */
MUST_CHECK int json_parse_object(const void *text, size_t len, json_t **ret, struct err *e);
/*
 * The same for what a client or a guest wrote. A value of two bytes takes up to two hundred once it is
 * parsed, so a limit of bytes is no limit of memory: -E2BIG for more values than this.
 */
#define JSON_UNTRUSTED_VALUES_MAX 16384u
MUST_CHECK int json_parse_untrusted(const void *text, size_t len, json_t **ret, struct err *e);
/* Also for answers that may be arrays. */
MUST_CHECK int json_parse_any(const void *text, size_t len, json_t **ret, struct err *e);
/* Types right, required ones there, nothing unknown. */
MUST_CHECK int json_check_object(json_t *object, const struct json_field *fields, size_t n,
                                 struct err *e);
/* Optional fields: the default is given back when the field is absent or null. Borrowed strings. */
const char *json_get_string(json_t *object, const char *name, const char *fallback);
int64_t json_get_int(json_t *object, const char *name, int64_t fallback);
bool json_get_bool(json_t *object, const char *name, bool fallback);
/* An integer within bounds, else -EINVAL naming the field and the bounds; fallback when absent. */
struct json_bounds {
    int64_t min;
    int64_t max;
    int64_t fallback;
};
MUST_CHECK int json_get_bounded(json_t *object, const char *name, struct json_bounds bounds,
                                int64_t *ret, struct err *e);
/* Compact text onto b. -E2BIG. */
MUST_CHECK int json_write(const json_t *value, struct buf *b);
/* The text as a heap string. */
char *json_text(const json_t *value);
/* {"error":{"code","message","field"?}} for e. */
json_t *json_error_object(const struct err *e);

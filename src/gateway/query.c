/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/query.h"

#include <stdio.h>
#include <string.h>

void list_cursor_print(int64_t created_at_ms, const char *id, char ret[static LIST_CURSOR_SIZE])
{
    snprintf(ret, LIST_CURSOR_SIZE, "%lld-%s", (long long)created_at_ms, id);
}

static int add_cursor(struct list_query *list, const char *value, struct err *e)
{
    const char *dash = strchr(value, '-');
    char number[24];
    uint64_t ms = 0;

    if (dash && (size_t)(dash - value) < sizeof(number)) {
        snprintf(number, sizeof(number), "%.*s", (int)(dash - value), value);
        if (str_to_u64(number, INT64_MAX, &ms) == 0 && id_valid(ID_SANDBOX, dash + 1)) {
            snprintf(list->after_id, sizeof(list->after_id), "%s", dash + 1);
            list->query.after_id = list->after_id;
            list->query.after_ms = (int64_t)ms;
            return 0;
        }
    }
    return err_field(e, -EINVAL, "invalid_cursor", "cursor",
                     "give the next_cursor of the page before, or none");
}

static int add_limit(struct list_query *list, const char *value, struct err *e)
{
    uint64_t n = 0;

    if (str_to_u64(value, LIST_LIMIT_MAX, &n) < 0 || n == 0) {
        return err_field(e, -EINVAL, "out_of_range", "limit", "limit must be from 1 to %d",
                         LIST_LIMIT_MAX);
    }
    list->query.limit = (int64_t)n;
    return 0;
}

static int add_states(struct list_query *list, const char *value, struct err *e)
{
    while (*value) {
        size_t len = strcspn(value, ",");
        char word[24] = "";
        enum sandbox_state state;

        if (len < sizeof(word)) {
            snprintf(word, sizeof(word), "%.*s", (int)len, value);
        }
        if (!sandbox_state_parse(word, &state)) {
            return err_field(
                e, -EINVAL, "unknown_state", "state",
                "state must be a comma list of: creating, running, pausing, paused, resuming, "
                "suspending, suspended, restoring, stopping, stopped, failed, deleting");
        }
        list->query.states |= 1u << state;
        value += len;
        value += *value == ',';
    }
    return 0;
}

static int add_filter(struct list_query *list, const char *key, const char *value, struct err *e)
{
    if (!metadata_key_valid(key)) {
        return err_field(e, -EINVAL, "invalid_name", "metadata",
                         "write metadata.KEY=VALUE with a key");
    }
    if (list->query.n_filters == SANDBOX_FILTER_MAX) {
        return err_field(e, -EINVAL, "too_many", "metadata",
                         "at most %d metadata filters can be given", SANDBOX_FILTER_MAX);
    }
    list->query.filters[list->query.n_filters++] =
        (struct sandbox_filter){.key = key, .value = value};
    return 0;
}

static int add_builders(struct list_query *list, const char *value, struct err *e)
{
    if (!str_eq(value, "true") && !str_eq(value, "false")) {
        return err_field(e, -EINVAL, "invalid_field", "builders",
                         "builders must be 'true' or 'false'");
    }
    list->query.no_builders = str_eq(value, "false");
    return 0;
}

int list_query_add(struct list_query *list, const char *name, const char *value, struct err *e)
{
    ASSERT(list && name && value);

    if (str_eq(name, "limit")) {
        return add_limit(list, value, e);
    }
    if (str_eq(name, "cursor")) {
        return add_cursor(list, value, e);
    }
    if (str_eq(name, "state")) {
        return add_states(list, value, e);
    }
    if (str_eq(name, "builders")) {
        return add_builders(list, value, e);
    }
    if (str_starts(name, "metadata.")) {
        return add_filter(list, name + strlen("metadata."), value, e);
    }
    return err_field(e, -EINVAL, "unknown_parameter", name,
                     "there is no parameter '%.60s'; known: state, metadata.KEY, builders, limit, "
                     "cursor",
                     name);
}

int list_query_from_request(const struct http_request *req, struct list_query *ret, struct err *e)
{
    const char *name;
    const char *value;
    int r;

    *ret = (struct list_query){.query.limit = LIST_LIMIT_DEFAULT, .query.no_builders = true};
    for (size_t i = 0; http_query_at(req, i, &name, &value); i++) {
        r = list_query_add(ret, name, value, e);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

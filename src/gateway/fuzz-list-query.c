/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/query.h"
#include "wire/url.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PAIRS_MAX 64

/* A cursor that is accepted prints as it was given; limits and filters stay in bounds. */
static void check(const struct list_query *list)
{
    char cursor[LIST_CURSOR_SIZE];
    struct list_query again = {0};

    ASSERT(list->query.n_filters <= SANDBOX_FILTER_MAX);
    ASSERT(list->query.limit >= 0 && list->query.limit <= LIST_LIMIT_MAX);
    for (size_t i = 0; i < list->query.n_filters; i++) {
        ASSERT(metadata_key_valid(list->query.filters[i].key));
    }
    if (list->after_id[0]) {
        ASSERT(id_valid(ID_SANDBOX, list->after_id));
        list_cursor_print(list->query.after_ms, list->after_id, cursor);
        ASSERT(list_query_add(&again, "cursor", cursor, NULL) == 0);
        ASSERT(again.query.after_ms == list->query.after_ms);
        ASSERT(str_eq(again.after_id, list->after_id));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct url_query q = {.rest = (const char *)data, .len = size};
    char *decoded[2 * PAIRS_MAX];
    struct list_query list = {0};
    struct url_pair pair;
    size_t n = 0;

    while (n < 2 * PAIRS_MAX && url_query_next(&q, &pair)) {
        struct err e = {0};
        size_t len = 0;
        char *name = xmalloc(pair.name_len + 1);
        char *value = xmalloc(pair.value_len + 1);

        decoded[n++] = name;
        decoded[n++] = value;
        if (url_decode(pair.name, pair.name_len, URL_PLUS_IS_SPACE, name, &len) < 0 ||
            url_decode(pair.value, pair.value_len, URL_PLUS_IS_SPACE, value, &len) < 0) {
            break;
        }
        if (list_query_add(&list, name, value, &e) < 0) {
            ASSERT(e.code == -EINVAL && e.reason[0] && e.msg[0]);
        }
    }
    check(&list);
    for (size_t i = 0; i < n; i++) {
        free(decoded[i]);
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "http/headers.h"

#include "base/util.h"
#include "wire/http1.h"

#include <string.h>
#include <strings.h>

void http_headers_done(struct http_headers *h)
{
    for (size_t i = 0; i < h->n; i++) {
        util_freep(&h->v[i].name); /* the value is in the same block */
    }
    free(h->v);
    *h = (struct http_headers)HTTP_HEADERS_INIT;
}

void http_headers_add(struct http_headers *h, const char *name, const char *value)
{
    size_t name_len = strlen(name);
    size_t value_len = strlen(value);
    char *block;

    ASSERT(http1_is_token(name, name_len));
    if (h->n == h->cap) {
        h->cap = MAX(h->cap * 2, (size_t)8);
        h->v = xrealloc(h->v, h->cap * sizeof(h->v[0]));
    }
    block = xmalloc(name_len + value_len + 2);
    memcpy(block, name, name_len + 1);
    memcpy(block + name_len + 1, value, value_len + 1);
    for (char *p = block + name_len + 1; *p; p++) {
        if (!http1_is_value(p, 1)) {
            *p = '?';
        }
    }
    h->v[h->n++] = (struct http_header){block, block + name_len + 1};
}

void http_headers_remove(struct http_headers *h, const char *name)
{
    size_t kept = 0;

    for (size_t i = 0; i < h->n; i++) {
        if (strcasecmp(h->v[i].name, name) == 0) {
            util_freep(&h->v[i].name);
        } else {
            h->v[kept++] = h->v[i];
        }
    }
    h->n = kept;
}

void http_headers_set(struct http_headers *h, const char *name, const char *value)
{
    char *copy = xstrdup(value); /* it may be one of ours */

    http_headers_remove(h, name);
    http_headers_add(h, name, copy);
    free(copy);
}

const char *http_headers_get(const struct http_headers *h, const char *name)
{
    for (size_t i = 0; i < h->n; i++) {
        if (strcasecmp(h->v[i].name, name) == 0) {
            return h->v[i].value;
        }
    }
    return NULL;
}

bool http_headers_has_token(const struct http_headers *h, const char *name, const char *token)
{
    for (size_t i = 0; i < h->n; i++) {
        const char *value = h->v[i].value;

        if (strcasecmp(h->v[i].name, name) == 0 &&
            http1_list_has((struct http1_view){value, strlen(value)}, token)) {
            return true;
        }
    }
    return false;
}

const char *http_bearer(const char *value)
{
    static const char scheme[] = "Bearer ";
    const size_t len = sizeof(scheme) - 1;

    return value && strncasecmp(value, scheme, len) == 0 ? value + len + strspn(value + len, " ")
                                                         : NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/inject-internal.h"

#include <string.h>

#include "base/base64.h"
#include "credential/secret.h"

#define BASIC "Basic "
#define BASIC_LEN 6u

int inject_basic_plain(struct http1_view value, struct buf *ret)
{
    const char *s = value.p;
    size_t len = value.len;

    if (len <= BASIC_LEN || strncasecmp(s, BASIC, BASIC_LEN) != 0) {
        return -ENOENT;
    }
    s += BASIC_LEN;
    len -= BASIC_LEN;
    while (len > 0 && *s == ' ') {
        s++;
        len--;
    }
    return base64_decode(s, len, ret) < 0 ? -ENOENT : 0;
}

int inject_basic(const struct plan *plan, struct http1_view value, struct buf *ret)
{
    cleanup_secret_buf struct buf plain = BUF_INIT(HTTP1_MAX_HEAD);
    cleanup_secret_buf struct buf filled = BUF_INIT(INJECT_HEAD_MAX / 2);
    int r = inject_basic_plain(value, &plain);

    if (r < 0 || !plain.len || !memmem(plain.data, plain.len, "{{", 2)) {
        return -ENOENT;
    }
    r = inject_replace(plan, CREDENTIAL_IN_HEADER, plain.data, plain.len, NULL, &filled);
    r = r < 0 ? r : buf_add_str(ret, BASIC);
    return r < 0 ? r : base64_encode(filled.data, filled.len, ret);
}

/* The cookie's name is before the first '=', without white space; a cookie without one is all name. */
static bool is_injected(const struct plan *plan, const char *s, size_t len)
{
    const char *equals = memchr(s, '=', len);
    size_t n = equals ? (size_t)(equals - s) : len;

    while (n > 0 && (s[n - 1] == ' ' || s[n - 1] == '\t')) {
        n--;
    }
    for (size_t i = 0; i < plan->n; i++) {
        if (plan->v[i].kind == INJECTION_COOKIE && strlen(plan->v[i].name) == n &&
            memcmp(plan->v[i].name, s, n) == 0) {
            return true;
        }
    }
    return false;
}

int inject_copy_cookies(const struct plan *plan, struct http1_view value, struct buf *line)
{
    const char *s = value.p;
    const char *end = value.p + value.len;
    int r = 0;

    while (s < end && r == 0) {
        const char *semicolon = memchr(s, ';', (size_t)(end - s));
        size_t len = (size_t)((semicolon ? semicolon : end) - s);

        while (len > 0 && (*s == ' ' || *s == '\t')) {
            s++;
            len--;
        }
        if (len > 0 && !is_injected(plan, s, len)) {
            r = line->len ? buf_add_str(line, "; ") : 0;
            r = r < 0 ? r
                      : inject_replace(plan, CREDENTIAL_IN_HEADER, s, len, /* escape */ NULL, line);
        }
        s += len + 1;
    }
    return r;
}

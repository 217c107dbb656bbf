/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/traceparent.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_hex(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!((s[i] >= '0' && s[i] <= '9') || (s[i] >= 'a' && s[i] <= 'f'))) {
            return false;
        }
    }
    return true;
}

static bool is_zero(const char *s, size_t n)
{
    return strspn(s, "0") >= n;
}

int traceparent_parse(const char *text, struct traceparent *ret)
{
    /* version-trace-span-flags */
    const size_t len = text ? strnlen(text, 512) : 0;
    const char *trace = text ? text + 3 : NULL;
    const char *span = text ? text + 36 : NULL;
    const char *flags = text ? text + 53 : NULL;

    if (len < 55 || !is_hex(text, 2) || text[2] != '-' || !is_hex(trace, 32) || text[35] != '-' ||
        !is_hex(span, 16) || text[52] != '-' || !is_hex(flags, 2)) {
        return -EINVAL;
    }
    if (strncmp(text, "ff", 2) == 0 || is_zero(trace, 32) || is_zero(span, 16) ||
        (len > 55 && (strncmp(text, "00", 2) == 0 || text[55] != '-'))) {
        return -EINVAL;
    }
    snprintf(ret->trace, sizeof(ret->trace), "%.32s", trace);
    snprintf(ret->span, sizeof(ret->span), "%.16s", span);
    ret->sampled = strchr("13579bdf", flags[1]) != NULL;
    return 0;
}

void traceparent_print(const char *trace, const char *span, char ret[static TRACEPARENT_SIZE])
{
    snprintf(ret, TRACEPARENT_SIZE, "00-%.32s-%.16s-01", trace, span);
}

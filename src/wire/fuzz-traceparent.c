/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever is taken for a traceparent has the right form, and is read again from what is printed of it. */
#include "wire/traceparent.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    cleanup_free char *text = xmalloc(len + 1);
    struct traceparent got = {0};
    struct traceparent again = {0};
    char printed[TRACEPARENT_SIZE];

    memcpy(text, data, len);
    text[len] = '\0';
    if (traceparent_parse(text, &got) == 0) {
        ASSERT(strspn(got.trace, "0123456789abcdef") == 32 && strlen(got.trace) == 32);
        ASSERT(strspn(got.span, "0123456789abcdef") == 16 && strlen(got.span) == 16);
        traceparent_print(got.trace, got.span, printed);
        ASSERT(traceparent_parse(printed, &again) == 0);
        ASSERT(str_eq(got.trace, again.trace) && str_eq(got.span, again.span));
    }
    return 0;
}

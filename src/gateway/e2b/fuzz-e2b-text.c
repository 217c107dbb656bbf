/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of a query: the metadata filter and a time. */
#include <string.h>

#include "gateway/e2b/box.h"
#include "gateway/e2b/list.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_free char *text = xstrndup((const char *)data, size);
    CLEANUP(e2b_filters_done) struct e2b_filters f = {0};
    struct err e = {0};
    int64_t ms = 0;
    int64_t again = 0;
    char printed[E2B_TIME_SIZE];

    if (e2b_filters_parse(text, &f, &e) == 0) {
        ASSERT(f.n <= SANDBOX_FILTER_MAX);
        for (size_t i = 0; i < f.n; i++) {
            ASSERT(strlen(f.filters[i].key) + strlen(f.filters[i].value) <= size);
        }
    } else {
        ASSERT(f.n == 0 && e.field[0]);
    }
    if (e2b_time_parse(text, &ms) == 0 && ms >= 0 && ms < 253402300799000) {
        e2b_time(ms, printed);
        ASSERT(e2b_time_parse(printed, &again) == 0 && again == ms);
    }
    return 0;
}

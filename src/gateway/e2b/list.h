/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The metadata filter of E2B's lists. Clients encode it three times: each key and value, the query that they make of
 * them, and that query as a parameter. Here comes the parameter's value, decoded once. Pure.
 */
#pragma once

#include "database/database.h"

struct e2b_filters {
    char *text; /* owned: what the filters point into */
    struct sandbox_filter filters[SANDBOX_FILTER_MAX];
    size_t n;
};

void e2b_filters_done(struct e2b_filters *f);
/* -EINVAL with the field "metadata". */
MUST_CHECK int e2b_filters_parse(const char *text, struct e2b_filters *ret, struct err *e);

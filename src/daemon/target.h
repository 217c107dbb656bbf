/* SPDX-License-Identifier: Apache-2.0 */
/* A request's path and query, taken apart. Pure, fuzzed. */
#pragma once

#include "base/err.h"
#include "daemon/route.h"

#define TARGET_SEGMENTS_MAX 8
#define TARGET_PARAMS_MAX 24

struct target {
    char *text;                                /* owned: all the strings below */
    const char *segments[TARGET_SEGMENTS_MAX]; /* borrowed: text; decoded, none empty */
    size_t n_segments;
    struct target_param {
        const char *name;
        const char *value;
    } params[TARGET_PARAMS_MAX]; /* borrowed: text; decoded */
    size_t n_params;
};

/* "/a/b?x=1". -EINVAL with a sentence: not a path, an empty segment, a bad escape, a NUL, too many parts. */
MUST_CHECK int target_parse(const char *s, struct target *ret, struct err *e);
void target_done(struct target *t);
/* The first value of that name, NULL when absent. */
const char *target_param(const struct target *t, const char *name);
/* True when the pattern ("/commands/{id}") fits; then captures holds the values of its {x}. */
bool target_matches(const struct target *t, const char *pattern,
                    const char *captures[static ROUTE_CAPTURES_MAX]);

/* SPDX-License-Identifier: Apache-2.0 */
/* `space cp`, and the copies that `space run` makes. */
#pragma once

#include "cli/copy.h"

struct cp_result {
    uint64_t files;
    uint64_t bytes;
    uint64_t n_errors;
};

/* Copies local to guest (in) or guest to local; adds to *ret. Tells about single entries itself. */
MUST_CHECK int cp_one(struct cli *cli, const char *sandbox, const struct sigs *sigs, bool in,
                      const char *source, const char *target, struct cp_result *ret, struct err *e);
/* Splits "SRC:DST" at the first colon. -EINVAL. Both are owned by the caller. */
MUST_CHECK int cp_split(const char *pair, const char *option, char **ret_source, char **ret_target,
                        struct err *e);

/* SPDX-License-Identifier: Apache-2.0 */

/* What a sandbox uses, from the answer of its daemon's GET /metrics. */
#pragma once

#include "base/json.h"
#include "http/server.h"
#include "model/sandbox.h"

struct e2b_usage {
    int64_t cpu_count;
    double cpu_percent;   /* of all its processors, since it has been up */
    int64_t memory_total; /* these in bytes */
    int64_t memory_used;
    int64_t memory_cache;
    int64_t disk_total;
    int64_t disk_used;
};

/* Pure; what is not said, or is no number, counts as 0. */
void e2b_usage_read(json_t *guest, struct e2b_usage *ret);
/* Asks a running sandbox. */
MUST_CHECK int e2b_usage(struct http_request *req, const struct sandbox *sb, struct e2b_usage *ret,
                         struct err *e);

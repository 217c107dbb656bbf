/* SPDX-License-Identifier: Apache-2.0 */

/* What a sandbox uses, from the answer of its daemon's GET /metrics. */
#pragma once

#include "base/json.h"
#include "http/server.h"
#include "model/sandbox.h"

struct e2b_usage {
    int64_t cpu_count;
    double cpu_percent;  /* of all its processors, since it has been up or since a former time */
    int64_t cpu_busy_ms; /* since it has been up, summed over its processors */
    int64_t cpu_all_ms;
    int64_t memory_total; /* these in bytes */
    int64_t memory_used;
    int64_t memory_cache;
    int64_t disk_total;
    int64_t disk_used;
};

/* Pure; what is not said, or is no number, counts as 0. */
void e2b_usage_read(json_t *guest, struct e2b_usage *ret);
/* Makes the percentage that of the time since; before is an earlier one of the same sandbox, perhaps of another boot. */
void e2b_usage_since(struct e2b_usage *u, const struct e2b_usage *before);
/* Asks a running sandbox. */
MUST_CHECK int e2b_usage(struct http_request *req, const struct sandbox *sb, struct e2b_usage *ret,
                         struct err *e);

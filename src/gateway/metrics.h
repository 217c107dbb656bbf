/* SPDX-License-Identifier: Apache-2.0 */

/* What the gateway counts, and its Prometheus text. Thread-safe, no lock on the way of a request. */
#pragma once

#include "base/buf.h"
#include "control/control.h"
#include "http/route.h"

struct metrics;

/* One row of counters per route of the two tables, and one for what matches none. */
struct metrics *metrics_new(const struct http_router *ours, const struct http_router *e2b);
void metrics_free(struct metrics *m);
DEFINE_CLEANUP(struct metrics *, metrics_free);

/* route NULL: none matched. */
void metrics_count(struct metrics *m, const struct http_route *route, const struct http_done *done);

MUST_CHECK int metrics_print(struct metrics *m, struct control *control, struct db *db,
                             struct buf *out, struct err *e);

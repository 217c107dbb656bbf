/* SPDX-License-Identifier: Apache-2.0 */
/* What the network gateway counts, of all sandboxes together; see base/metric.h. Thread-safe. */
#pragma once

#include "base/buf.h"
#include "network/egress.h"

struct gate;

/* In main, before the first thread; nothing is counted before. */
void figures_register(void);
void figures_count_decision(const struct egress_entry *entry);
/* One connection too many of a sandbox. */
void figures_count_refused(void);
void figures_count_bytes(uint64_t up, uint64_t down);
/* HTTP requests that were looked into and let through; refused: the last one was ended by us. */
void figures_count_inspected(uint32_t requests, bool refused);
/* From the thread that may ask the gate. */
MUST_CHECK int figures_print(struct gate *gate, struct buf *out);

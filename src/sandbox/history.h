/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened to a sandbox: one JSON object a line in records/ID.history, newest last, bounded: when it
 * has grown beyond its limit the older half goes. For people and for post-mortems; nothing is decided on it.
 */
#pragma once

#include "base/json.h"

struct resident;

#define HISTORY_BYTES_MAX (512u * 1024)

/* event is a stable word ("created", "paused", "snapshot", "recovered", ...); the rest is a sentence. */
void history_add(struct resident *res, const char *event, const char *fmt, ...) PRINTF(3, 4);
/* An array, oldest first. */
MUST_CHECK int history_read(struct resident *res, json_t **ret, struct err *e);
/* Begins with what another node had written: such an array, or NULL. */
void history_take_over(struct resident *res, const json_t *history);
MUST_CHECK int history_remove(struct resident *res);

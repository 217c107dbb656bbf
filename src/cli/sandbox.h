/* SPDX-License-Identifier: Apache-2.0 */
/* Steps with sandboxes that more than one verb takes. */
#pragma once

#include "cli/cli.h"

/*
 * Makes a sandbox of the shape in cli->args. timeout_s: UINT64_MAX leaves it to the service. env is borrowed, may be
 * NULL. A repeated request after a broken connection cannot make a second one. watch ends it early (-ECANCELED);
 * the gateway then removes what was begun.
 */
MUST_CHECK int sandbox_create(struct cli *cli, uint64_t timeout_s, json_t *env, const struct pollfd *watch,
                              json_t **ret, struct err *e);
/* Removes; 0 also when it was not there and missing_ok. */
MUST_CHECK int sandbox_remove(struct cli *cli, const char *id, bool missing_ok, struct err *e);
/* Milliseconds since 1970 in a field of an object; 0: none. */
int64_t sandbox_time(json_t *object, const char *name);

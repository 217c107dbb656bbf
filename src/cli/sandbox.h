/* SPDX-License-Identifier: Apache-2.0 */
/* Steps with sandboxes that more than one verb takes. */
#pragma once

#include "cli/cli.h"
#include "cli/table.h"

/* Template and shape in the options, as the API has them in a creation's body. */
MUST_CHECK int sandbox_shape_body(const struct args *a, json_t **ret, struct err *e);
/*
 * Makes a sandbox of the shape in cli->args. timeout_s: UINT64_MAX leaves it to the service. env is borrowed, may be
 * NULL. A repeated request after a broken connection cannot make a second one. watch ends it early (-ECANCELED);
 * the gateway then removes what was begun.
 */
MUST_CHECK int sandbox_create(struct cli *cli, uint64_t timeout_s, json_t *env,
                              const struct pollfd *watch, json_t **ret, struct err *e);
/* Removes; 0 also when it was not there and missing_ok. */
MUST_CHECK int sandbox_remove(struct cli *cli, const char *id, bool missing_ok, struct err *e);
/*
 * A POST that must not be done twice, repeated after a broken connection. watch (may be NULL) ends it early with
 * -ECANCELED.
 */
MUST_CHECK int sandbox_post_once(struct cli *cli, const char *target, const json_t *body,
                                 const struct pollfd *watch, json_t **ret, struct err *e);
/* POST /v1/sandboxes/ID/WORD; body may be NULL. */
MUST_CHECK int sandbox_post(struct cli *cli, const char *id, const char *word, const json_t *body,
                            json_t **ret, struct err *e);
/* Does `one` to every sandbox named; goes on after a failure. Connects first. Returns an exit code. */
int sandbox_each(struct cli *cli, const char *doing, bool missing_ok,
                 int (*one)(struct cli *cli, const char *id, json_t **ret, struct err *e));
/* An object of the API for people, a line for each field. */
void sandbox_print_object(struct cli *cli, json_t *object);
/* Milliseconds since 1970 in a field of an object; 0: none. */
int64_t sandbox_time(json_t *object, const char *name);
/* A time as people read it, into the table's next cell. */
void sandbox_cell_when(struct table *t, int64_t ms);

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The query of GET /v1/sandboxes: state=running,stopped, metadata.KEY=VALUE (all must match), builders=true
 * (those that templates are built in, too), limit, cursor. Parameters that are not known are refused, or a misspelt filter would list everything.
 *
 * A cursor is where the last page ended: MILLISECONDS-ID of its last sandbox. Clients need not know.
 */
#pragma once

#include "database/database.h"
#include "http/server.h"

#define LIST_LIMIT_DEFAULT 100
#define LIST_LIMIT_MAX 1000
#define LIST_CURSOR_SIZE 48

struct list_query {
    struct sandbox_query query; /* its strings are borrowed from the request and from below */
    char after_id[ID_SIZE];
};

/* One parameter, decoded. Pure. -EINVAL with the parameter as the field. */
MUST_CHECK int list_query_add(struct list_query *list, const char *name, const char *value,
                              struct err *e);
MUST_CHECK int list_query_from_request(const struct http_request *req, struct list_query *ret,
                                       struct err *e);
void list_cursor_print(int64_t created_at_ms, const char *id, char ret[static LIST_CURSOR_SIZE]);

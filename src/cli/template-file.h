/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file that `space template build` reads: one step a line, as in a Dockerfile, and what the API takes for it. Pure.
 *
 *     # a comment
 *     FROM debian                  what it is built on
 *     RUN make                     a line that ends with \ goes on in the next
 *     COPY SOURCE DESTINATION      SOURCE beneath the context, without spaces
 *     ENV NAME=VALUE               the value is the rest of the line
 *     WORKDIR /app
 *     USER root
 *     START server --listen        goes on in every sandbox
 *     READY curl -s localhost      succeeds once it is ready
 *
 * COPY steps have no hash yet: whoever uploads adds "filesHash" to them.
 */
#pragma once

#include "base/json.h"

#define TEMPLATE_FILE_MAX (1u << 20)
#define TEMPLATE_FILE_STEPS_MAX 256

/* {"from"?, "start"?, "ready"?, "steps"}; -EINVAL with the line's number. The caller ends *ret with json_decref(). */
MUST_CHECK int template_file_parse(const char *text, json_t **ret, struct err *e);

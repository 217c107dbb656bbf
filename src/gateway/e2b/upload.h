/* SPDX-License-Identifier: Apache-2.0 */

/* One file on its way into a sandbox: a PUT to our daemon, whose body comes in pieces, gzipped or not. */
#pragma once

#include "gateway/e2b/inside.h"

struct upload;

/* Gzipped when the request says so. path as inside_path() gives it; metadata (borrowed) may be NULL. */
MUST_CHECK int upload_new(struct inside *in, const char *path, json_t *metadata,
                          struct upload **ret, struct err *e);
/* At any time; what was not ended leaves nothing behind. */
void upload_free(struct upload *u);
DEFINE_CLEANUP(struct upload *, upload_free);
const char *upload_path(const struct upload *u);

/* -EINVAL: it was to be gzip and is not. When the daemon takes no more, upload_finish() says why. */
MUST_CHECK int upload_write(struct upload *u, const void *data, size_t len, struct err *e);
/* All of it was given. -EINVAL as above. */
MUST_CHECK int upload_end(struct upload *u, struct err *e);
/* Waits until the file is in place: {"name","path","type","metadata"?} for the client, who ends it with json_decref(). */
MUST_CHECK int upload_finish(struct upload *u, json_t **ret, struct err *e);

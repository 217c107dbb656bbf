/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request of the node API that belongs to the guest: passed through to its daemon over the channel, both
 * directions streaming. Only commands, files and ports pass; what sets a guest up stays ours.
 */
#pragma once

#include "http/server.h"
#include "sandbox/resident.h"

/* rest is the raw path behind "/guest", e.g. "/commands/c.../output". */
MUST_CHECK int guest_proxy(struct http_request *req, struct resident *res, const char *rest,
                           struct err *e);

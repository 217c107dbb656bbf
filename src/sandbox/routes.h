/* SPDX-License-Identifier: Apache-2.0 */
/* The node API: HTTP over the sandbox manager's unix socket, for the gateway only. */
#pragma once

#include "http/route.h"

extern const struct http_router node_router;

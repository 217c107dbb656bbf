/* SPDX-License-Identifier: Apache-2.0 */
/* The node's figures in the Prometheus text format (exposition format 0.0.4). */
#pragma once

#include "sandbox/node.h"

#include "base/buf.h"

MUST_CHECK int metrics_print(struct node *node, struct buf *out);

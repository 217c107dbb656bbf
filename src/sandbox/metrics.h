/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node's figures in the Prometheus text format (exposition format 0.0.4): ours, and those of the services that have no
 * address of their own. One that does not answer within METRICS_SERVICE_MS is left out, and space_node_service_up says so.
 */
#pragma once

#include "sandbox/node.h"

#include "base/buf.h"

#define METRICS_SERVICE_MS 2000u

MUST_CHECK int metrics_print(struct node *node, struct buf *out);

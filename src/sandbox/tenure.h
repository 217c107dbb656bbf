/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Until when this node may run machines (model/lease.h): what gateways granted, told to the node manager, which makes all
 * machines stand still when it is over, whether or not we live.
 *
 * A node that was never granted anything is the only one of its control plane and goes on for ever. From the first grant on it
 * is leased, for good: a file in the pool says so, and after a start nothing runs before somebody has granted it again,
 * unless the node manager knows of a lease that goes on. While it is fenced nothing is decided about sandboxes: they stand
 * still, requests that would change them are refused ("node_fenced"), only deletions go through, of what the control plane
 * has given to other nodes meanwhile.
 *
 * Thread-safe.
 */
#pragma once

#include "base/json.h"
#include "model/lease.h"
#include "sandbox/node.h"

struct tenure;

/* Looks whether the node is leased, and tells the node manager, which must be there. */
MUST_CHECK int tenure_open(struct node *node, struct tenure **ret, struct err *e);
/* Ends the watch; the lease stays with the node manager. */
void tenure_close(struct tenure *t);

/* Do machines stand still? NULL is a node without leases. */
bool tenure_fenced(const struct tenure *t);
/* -ESTALE "lease_stale", -EINVAL "invalid_lease", or the node manager's. */
MUST_CHECK int tenure_grant(struct tenure *t, const struct lease_grant *grant, struct err *e);
/* The node leaves its cluster: it is nobody's, and goes on for ever. */
MUST_CHECK int tenure_end(struct tenure *t, struct err *e);
/* {"epoch", "stamp_ms", "leased", "fenced", "left_ms"}: the stamp is read now. */
json_t *tenure_json(struct tenure *t);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox may reach, as the node keeps it: the policy is in its record; the network gateway holds the
 * sockets of its machine and gets the policy with them.
 *
 * A sandbox whose policy is closed (the default) costs nothing: no socket is opened, and the island resets what its
 * guest tries. Another is handed over before its machine runs, so that the first packet finds the policy, and is
 * handed over again whenever its machine is another, or one of the two services was: one thread watches the
 * connection to the gateway, and goes through all sandboxes when it is a new one. While the gateway is not
 * there sandboxes run without a network.
 */
#pragma once

#include "model/netpolicy.h"
#include "sandbox/resident.h"

struct network;

struct network *network_start(struct node *node);
void network_stop(struct network *network);

/* Before the machine runs, or after anything has changed. Cannot fail: what could not be done is done again later. */
void network_attach(struct resident *res);
/* Before the machine ends. */
void network_detach(struct resident *res);
/* A reference; the caller ends it. */
const struct netpolicy *network_policy(struct resident *res);
MUST_CHECK int network_set_policy(struct resident *res, const struct netpolicy *policy,
                                  struct err *e);
/* One of the requests of ipc/netgate.h about this sandbox, with more members from extra (taken). */
MUST_CHECK int network_ask_take(struct resident *res, const char *op, json_t *extra, json_t **ret,
                                struct err *e);

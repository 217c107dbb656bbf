/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the sandbox manager talks to the network gateway: a SOCK_SEQPACKET socket in the run directory, one JSON
 * object a packet, one back. {"op": ...} with
 *
 *     attach   sandbox, machine, project, organisation, policy; two descriptors: PRIV_SOCKET_TCP and PRIV_SOCKET_DNS
 *     policy   sandbox, policy: judges what is open again
 *     detach   sandbox, machine (if it still has that one): resets what is open
 *     keep     sandboxes: an array of ids; all others are detached
 *     status   sandbox: {"connections", ..., "open": [...], "asks": [...]}
 *     log      sandbox, after, limit
 *     propose  sandbox: {"rules": [...]}
 *     answer   sandbox, ask, allow, remember_s: for how long it counts; token: it must be the one that a webhook got
 *     totals   of all together
 *     metrics  {"text"}: what it counts; see base/metric.h
 *
 * Any of them may have "request", the id of the request that it is for (base/log.h).
 *
 * The answer is an object; with a member "error" (as json_error_object() makes it) when it could not be
 * done. A packet that is no such request closes the connection.
 *
 * Attaching again is how sockets are handed over after either of the two was restarted: the gateway then goes on with
 * the new sockets, and keeps the connections that it has.
 */
#pragma once

#include "base/json.h"

#define NETGATE_SOCKET "network/gateway.sock"
/* A policy of NETPOLICY_STACK_TEXT_MAX with ids, or a page of the log; less than a socket's buffer (212,992). */
#define NETGATE_PACKET_MAX 196608u
/* How long a person's answer counts: an hour, unless it says so; a month at most. */
#define NETGATE_REMEMBER_DEFAULT_S 3600
#define NETGATE_REMEMBER_MAX_S (31 * 86400)
#define NETGATE_CALL_TIMEOUT_NS (10ull * 1000 * 1000 * 1000)

struct netgate;

/* Does not connect yet. Thread-safe: calls queue up. */
struct netgate *netgate_new(const char *socket_path);
void netgate_free(struct netgate *c);
DEFINE_CLEANUP(struct netgate *, netgate_free);

/*
 * Sends request, with n_fds descriptors that stay the caller's, and waits. Repeats once over a new connection
 * when the old one broke: all requests may be repeated. *ret (may be NULL) is the answer's object.
 * -ECONNREFUSED, -ENOENT, -ECONNRESET "network_gateway_lost"; else what the gateway said.
 */
MUST_CHECK int netgate_call_take(struct netgate *c, json_t *request, const int *fds, size_t n_fds,
                                 json_t **ret, struct err *e);
/* Connects if need be, and waits until the connection ends or the deadline. 0: it has ended; -ETIMEDOUT; not there: negative errno. */
MUST_CHECK int netgate_watch(struct netgate *c, uint64_t deadline_ns, struct err *e);

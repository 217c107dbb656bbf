/* SPDX-License-Identifier: Apache-2.0 */
/* The node API: HTTP over the sandbox manager's unix socket, for the gateway only. */
#pragma once

#include "http/route.h"
#include "sandbox/resident.h"

extern const struct http_router node_router;

/* The sandbox that the path's {id} names, with a reference. -ENOENT. */
MUST_CHECK int route_find(struct http_request *req, struct resident **ret, struct err *e);

/* routes-time.c */
http_handler_fn route_pause;
http_handler_fn route_resume;
http_handler_fn route_snapshot_take;
http_handler_fn route_snapshot_list;
http_handler_fn route_snapshot_get;
http_handler_fn route_snapshot_change;
http_handler_fn route_snapshot_delete;
http_handler_fn route_rollback;
http_handler_fn route_fork;
http_handler_fn route_history;
http_handler_fn route_usage;
http_handler_fn route_end;
http_handler_fn route_policy;
http_handler_fn route_trace;

/* routes-store.c */
http_handler_fn route_suspend;
http_handler_fn route_restore;
http_handler_fn route_stored_get;
http_handler_fn route_stored_delete;

/* routes-node.c */
http_handler_fn route_node;
http_handler_fn route_node_prepare;
http_handler_fn route_node_lease;
http_handler_fn route_node_lease_end;

/* routes-network.c */
MUST_CHECK int route_network_get(struct http_request *req, struct err *e);
MUST_CHECK int route_network_set(struct http_request *req, struct err *e);
MUST_CHECK int route_network_log(struct http_request *req, struct err *e);
MUST_CHECK int route_network_proposal(struct http_request *req, struct err *e);
MUST_CHECK int route_network_explain(struct http_request *req, struct err *e);
MUST_CHECK int route_network_answer(struct http_request *req, struct err *e);

/* SPDX-License-Identifier: Apache-2.0 */

/* What the handlers that talk to a sandbox's daemon share. */
#pragma once

#include "gateway/gateway.h"
#include "http/client.h"
#include "http/proxy.h"

/* The node's path for this request: /v1/sandboxes/ID + middle + what follows the id, and the query. */
char *guest_target(struct http_request *req, const char *id, const char *middle);
/* Fields that keep a browser from interpreting what a guest wrote. */
void guest_reply_headers(struct http_request *req);
/* The command id of the path, well-formed; -ENOENT "command_not_found". */
MUST_CHECK int require_command(struct http_request *req, char ret_cid[static ID_SIZE],
                               struct err *e);

struct guest_call_opts {
    const char *method;
    const char *target;
    const char *content_type;
    const void *body;           /* borrowed for the call */
    int64_t body_len;           /* HTTP_BODY_STREAM: written by the caller */
    const char *range;          /* of a file; may be NULL */
    const struct pollfd *watch; /* ready: the call ends; NULL: when the client goes away */
};

/* A call on the client's behalf: it ends (-ECANCELED) when what it watches is ready. */
MUST_CHECK int guest_call(struct http_request *req, const struct guest_call_opts *opts,
                          struct http_call **ret, struct err *e);

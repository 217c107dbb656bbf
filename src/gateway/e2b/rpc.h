/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The Connect protocol with JSON, as E2B's clients speak it: calls (one JSON document each way) and streams (envelopes,
 * see wire/connect.h). In messages a field may be called in camelCase or, as protocol buffers allow, in snake_case.
 */
#pragma once

#include "gateway/e2b/inside.h"
#include "wire/connect.h"

/* A message: SendInput carries up to some megabytes of base64. */
#define RPC_MESSAGE_MAX (16u << 20)

/* The paths of all methods, for the comparison with the docs; NULL: there are no more. */
const char *rpc_path(size_t i);
/* Is the path one of a service of ours, or would it be? */
bool rpc_is_path(const char *path);
/* How a failure of this request is told. */
enum inside_kind rpc_kind(const struct http_request *req);
/* The whole request. -ENOENT "not_found": there is no such method. */
MUST_CHECK int rpc_handle(struct inside *in, struct err *e);
/* Tells of an error, when nothing was answered yet. */
MUST_CHECK int rpc_reply_error(struct inside *in, const struct err *why, struct err *e);
enum connect_code rpc_code(const struct err *why);

/* Fields of a message, borrowed; "" / 0 / false / NULL when they are absent or of another type. */
json_t *rpc_field(json_t *message, const char *camel, const char *snake);
const char *rpc_string(json_t *message, const char *camel, const char *snake);
bool rpc_bool(json_t *message, const char *camel, const char *snake, bool fallback);
/* Also from a string of digits, as 64-bit numbers are written. */
uint64_t rpc_uint(json_t *message, const char *name);

/* A call's answer. */
MUST_CHECK int rpc_reply_take(struct inside *in, json_t *message, struct err *e);

/* A stream's answer, in this order. */
MUST_CHECK int rpc_begin(struct inside *in, struct err *e);
MUST_CHECK int rpc_send_take(struct inside *in, json_t *message, struct err *e);
/* why NULL: it ended well. */
MUST_CHECK int rpc_end(struct inside *in, const struct err *why, struct err *e);

/* What clients ask of a stream. */
struct rpc_times {
    uint64_t timeout_ms;   /* Connect-Timeout-Ms; 0: none */
    uint64_t keepalive_ms; /* of silence */
};
struct rpc_times rpc_times_of(const struct http_request *req);

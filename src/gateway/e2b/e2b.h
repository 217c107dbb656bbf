/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The E2B-compatible surface, for clients that speak E2B's API and know nothing of ours. Beside our own routes, on
 * the same port and over the same functions of control/. docs/e2b.md says what of it is covered.
 *
 *     control API    e2b_handle()   /sandboxes, /v2/sandboxes, /templates, ...: with an API key
 *     envd API       e2b_inside()   what E2B's daemon serves at port 49983 of a sandbox: files, processes, watching; with
 *                                   the sandbox's own token. Each call becomes one or a few calls of our
 *                                   daemon's API, see guest.h
 *
 * What our records have no field for (the alias a template was asked by, whether a token is needed, ...) stands in
 * sandbox.surface, see box.h.
 *
 * Errors are {"code":STATUS,"message":...}: the clients decide by the number in the body. A sandbox that is not there, or
 * does not run, answers 502 to whatever is asked of its inside.
 *
 * Streams and pauses. A stream of ours outlives a pause; E2B's clients expect that it breaks, and then ask whether the
 * sandbox is there. live.h knows the streams at work and breaks them.
 */
#pragma once

#include "gateway/address.h"
#include "gateway/gateway.h"

struct e2b;

struct e2b *e2b_new(void);
/* When no request is left. */
void e2b_free(struct e2b *x);
DEFINE_CLEANUP(struct e2b *, e2b_free);

extern const struct http_router e2b_router;

/* A request for the control API. */
MUST_CHECK int e2b_handle(struct http_request *req, struct err *e);
/* A request for port 49983 of a sandbox. */
MUST_CHECK int e2b_inside(struct http_request *req, const struct address *to, struct err *e);
/* The paths it serves but for calls (rpc.h), for the comparison with the docs; NULL: there are no more. */
const char *e2b_inside_path(size_t i);
/* Breaks what clients have open to the inside of a sandbox; any thread. */
void e2b_cut(struct e2b *x, const char *sandbox);

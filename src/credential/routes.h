/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The credential manager's API: HTTP with JSON on RUN_DIR/credential/manager.sock. Who connects is known from the
 * kernel, and each route has its callers:
 *
 *     API gateway       /v1/credentials..., /v1/log, /v1/verify, /v1/authority: never a value in an answer
 *     network gateway   /v1/use, /v1/leaf, /v1/targets, /v1/authority, /v1/ssh/open, /v1/ssh/sign
 *     sandbox manager   /v1/authority
 *     root              all but /v1/use: root can read our memory, but no tool of root's should be able to by mistake
 *
 * Anybody else's connection is closed before a byte is read.
 */
#pragma once

#include "credential/manager.h"
#include "http/route.h"

/* How long /v1/targets waits for a change. */
#define TARGETS_WAIT_MS 25000u

struct service {
    struct manager *manager; /* borrowed */
    uid_t gateway_uid;       /* (uid_t)-1: there is no such user here */
    uid_t network_uid;
    uid_t sandbox_uid;
};

bool service_peer_allowed(const struct ucred *peer, void *service);
/* For http_server_opts; its ctx is the service. */
int service_handle(struct http_request *req, struct err *e);
void service_done(void *ctx, struct http_request *req, const struct http_done *done);

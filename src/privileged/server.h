/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket: accepts connections of the one allowed user, takes one packet at a time, closes the
 * connection of whoever sends what no correct client sends. One thread; a primitive runs to its end
 * before the next packet is looked at, so no two of them ever race.
 */
#pragma once

#include "privileged/ops.h"

/* Closed when a new connection comes and all are taken: the sandbox manager needs one. */
#define SERVER_CLIENTS_MAX 8u

struct server {
    struct priv_ctx *ctx; /* borrowed: lives as long as the server */
    int listen_fd;        /* borrowed */
    int signal_fd;        /* borrowed: SIGTERM, SIGINT and SIGCHLD */
    uid_t peer_uid;       /* who may connect */
};

/* Serves until SIGTERM or SIGINT. */
MUST_CHECK int server_run(const struct server *server, struct err *e);

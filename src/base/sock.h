/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unix sockets. A path that does not fit sockaddr_un (107 bytes) is refused with -ENAMETOOLONG, never cut.
 */
#pragma once

#include "base/err.h"

#include <sys/socket.h>
#include <sys/types.h>

struct peer {
    pid_t pid;
    uid_t uid;
    gid_t gid;
};

/*
 * A listening socket at path, replacing what an earlier process left there. type is SOCK_STREAM or
 * SOCK_SEQPACKET, mode the access bits of the file. -EADDRINUSE: somebody still listens.
 */
MUST_CHECK int sock_listen_unix(const char *path, int type, mode_t mode, struct err *e);
MUST_CHECK int sock_connect_unix(const char *path, int type, struct err *e);
MUST_CHECK int sock_peer(int fd, struct peer *ret);
/* Waits for poll events (POLLIN, ...) on fd. 0: ready; -ETIMEDOUT. */
MUST_CHECK int sock_wait(int fd, short events, uint64_t deadline_ns);
/* Blocking all-or-error with a deadline, over a socket that may be non-blocking. SIGPIPE never happens. */
MUST_CHECK int sock_send_all(int fd, const void *data, size_t len, uint64_t deadline_ns);
/* What is there, at least one byte; 0 at the end of the stream. */
MUST_CHECK ssize_t sock_recv(int fd, void *ret, size_t len, uint64_t deadline_ns);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest for tests: the real guest end in a thread of its own on one end of a socket pair, with a few
 * routes (/echo, /bytes?N, /hang, /fail, /early) and ways to spoil the connection.
 */
#pragma once

#include "base/util.h"

struct test_peer;

struct test_peer *test_peer_new(int fd_take, bool announce);
/* Ends the thread and the guest, keeps the descriptor: returned for the next peer. */
int test_peer_free(struct test_peer *p);
/* Throw away the next n bytes that come from the host. */
void test_peer_drop(struct test_peer *p, size_t n);
/* Streams that are open in the guest now. */
unsigned test_peer_streams(struct test_peer *p);

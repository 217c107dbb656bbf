/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Node-local messages: unix SOCK_SEQPACKET sockets, one message per packet, descriptors passed
 * along, the peer known from the kernel (SO_PEERCRED) and never from what it says.
 *
 * Every size is bounded by the caller: a packet that does not fit, or that carries more descriptors
 * than were asked for, is -EMSGSIZE, and the descriptors that did arrive are closed. Received
 * descriptors are close-on-exec. No call here blocks but by its deadline. Listening, connecting and
 * asking for the peer are in base/sock.h.
 */
#pragma once

#include "base/clock.h"
#include "base/util.h"

#include <sys/types.h>

#define SEQPACKET_FDS_MAX 16u

/* -EAGAIN: nobody waits. */
MUST_CHECK int seqpacket_accept(int listen_fd, int *ret_fd);

/*
 * Sends one packet; fds stay the caller's. -ETIMEDOUT, -EPIPE, -ECONNRESET are meant for the
 * caller.
 */
MUST_CHECK int seqpacket_send(int fd, const void *data, size_t len, const int *fds, size_t n_fds,
                              uint64_t deadline_ns);

/* What arrived with a packet. The descriptors are owned by the receiver. */
struct seqpacket_fds {
    int fd[SEQPACKET_FDS_MAX]; /* owned */
    size_t n;
    size_t max; /* how many are welcome; set by the caller */
};

#define cleanup_fds CLEANUP(seqpacket_fds_done)
void seqpacket_fds_done(struct seqpacket_fds *fds);

/*
 * Receives one packet into data. Returns its length (a packet is never empty), or -ECONNRESET when
 * the peer has closed, -EMSGSIZE when the packet or its descriptors do not fit, -ETIMEDOUT, -EAGAIN
 * (only with a deadline of 0: there is none now).
 */
MUST_CHECK ssize_t seqpacket_recv(int fd, void *data, size_t size, struct seqpacket_fds *fds,
                                  uint64_t deadline_ns);

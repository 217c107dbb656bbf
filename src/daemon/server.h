/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's end of the channel on the loop: reads the port, feeds the engine (channel/guest.h), makes
 * requests of its streams (route.h), writes what the engine has to say.
 *
 * A virtio-serial port reports hang-up for as long as no host is connected, which a level-triggered loop would
 * see without end. So:
 *
 *     state     | epoll                      | left by
 *     CONNECTED | level: read, write if due  | hang-up -> WAITING: the session ends
 *     WAITING   | edge: any change           | an event without hang-up -> CONNECTED: we say READY
 *
 * On a socket (tests) hang-up is final and stops the loop.
 */
#pragma once

#include "base/err.h"
#include "base/loop.h"

struct daemon;
struct guest_stream;
struct server;

/* Non-blocking descriptor of the port or a socket; taken over, also on failure. */
struct server *server_new(struct daemon *d, int fd_take);
/* Ends all requests. */
void server_free(struct server *s);
DEFINE_CLEANUP(struct server *, server_free);
/* Ends all requests; the host hears of it and starts afresh. */
void server_drop_session(struct server *s);
bool server_connected(const struct server *s);

/* route.c: what the engine's callbacks do. */
void request_open(struct daemon *d, struct guest_stream *stream);
void request_body_came(struct guest_stream *stream);
void request_room_came(struct guest_stream *stream);
void request_closed(struct guest_stream *stream);

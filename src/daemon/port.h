/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers inside the sandbox, reached from outside: POST /ports/{port}?wait_ms=N.
 *
 * The daemon connects to 127.0.0.1, then ::1, so a server that listens on loopback only is reached like any
 * other. When neither takes the connection it tries again until wait_ms is over (a server that is just starting),
 * then answers 502 "port_closed". Else it answers 200, and from then on the request's body goes to the server and
 * what the server says is the answer, both at once:
 *
 *     client ended its body       -> the server sees the end of input; its answer goes on
 *     server ended                -> the answer ends; what the client still sends is thrown away
 *     server broke (reset)        -> the answer is cut, never ended
 *     either side does not read   -> the other is held back: at most one buffer each way waits here
 *     client gone                 -> the connection is closed
 *
 * Nothing in the bytes is looked at. At most PORT_TUNNELS_MAX are open at once, so that commands and files keep their
 * share of the channel's streams.
 */
#pragma once

#include "daemon/module.h"

#define PORT_TUNNELS_MAX 128
#define PORT_WAIT_MS_MAX 30000
#define PORT_RETRY_MS 50
/* One attempt: a listener whose queue is full answers to nothing. */
#define PORT_CONNECT_MS 5000

extern const struct module port_module;

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Watches whose client does not stay: CreateWatcher begins one, GetWatcherEvents takes what has happened since,
 * RemoveWatcher ends it. Python's synchronous client works so.
 *
 * Each is a stream from our daemon and a thread that collects its events. It is this process's: when the gateway starts anew its
 * watchers are unknown (not_found), and clients begin new ones. A pause does not end it. One that nobody has asked for in
 * WATCHER_IDLE_MS is ended when the next is begun; when events were lost, or its sandbox has gone, it ends by itself.
 */
#pragma once

#include "gateway/gateway.h"

/* In all, and of one sandbox: each costs a thread and a connection to the node. */
#define WATCHERS_MAX 512
#define WATCHERS_OF_SANDBOX_MAX 32
#define WATCHER_EVENTS_MAX 16384
#define WATCHER_IDLE_MS 600000

struct watchers;

struct watchers *watchers_new(void);
/* Ends them all. */
void watchers_free(struct watchers *ws);

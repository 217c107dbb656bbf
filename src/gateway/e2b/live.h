/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The requests that are at work inside sandboxes, so that they can be broken off when their sandbox is paused or
 * killed. Each has one descriptor that becomes ready when its client has gone or it was cut; the calls that it
 * makes watch that descriptor. Thread-safe.
 */
#pragma once

#include "http/server.h"

#include "base/id.h"

struct live_set;
struct live;

struct live_set *live_set_new(void);
/* When nothing is in it. */
void live_set_free(struct live_set *set);

/* -EMFILE and the like. */
MUST_CHECK int live_enter(struct live_set *set, struct http_request *req, const char *sandbox,
                          struct live **ret, struct err *e);
void live_leave(struct live *l);
DEFINE_CLEANUP(struct live *, live_leave);
/* Ready: the client has gone, or it was cut. */
struct pollfd live_pollfd(const struct live *l);
bool live_is_cut(const struct live *l);
void live_cut(struct live_set *set, const char *sandbox);

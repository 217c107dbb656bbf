/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon is a small core (channel, router, children, workload) and modules: commands, files, watches.
 * A module is one line in module.c's list. The core calls its functions, in list order, from the loop.
 *
 * struct daemon is the one place where everything hangs; there is exactly one per process, made by
 * main.c (or by the test daemon), and handed to everyone. Nothing is global.
 */
#pragma once

#include "base/err.h"
#include "base/loop.h"
#include "daemon/children.h"
#include "daemon/route.h"
#include "daemon/workload.h"

#define MODULES_MAX 8

struct daemon;

struct module {
    const char *name;           /* static */
    const struct route *routes; /* static */
    size_t n_routes;
    /* Called once at start; *ret_state comes back in every other call. May be NULL. */
    MUST_CHECK int (*init)(struct daemon *d, void **ret_state, struct err *e);
    /*
     * The sandbox is taken away (a rehearsal has ended): everything that refers to the workload's files
     * and processes must be let go; kill what runs, end the requests that wait for it. May be NULL.
     */
    void (*teardown)(struct daemon *d, void *state);
    /* Adds the module's figures to GET /metrics; obj is borrowed. May be NULL. */
    void (*metrics)(struct daemon *d, void *state, json_t *obj);
    /* Last call, at the end of the process (tests: everything must be freed). May be NULL. */
    void (*done)(struct daemon *d, void *state);
};

struct activity {
    uint64_t last_ns;    /* monotonic: last request of a client that counts, or byte of a stream */
    uint64_t n_requests; /* ever, that count */
    unsigned n_open;     /* requests open now, that count */
};

struct daemon {
    struct loop *loop;         /* owned */
    struct children *children; /* owned */
    struct workload *workload; /* owned */
    struct server *server;     /* owned: the channel's guest end and its requests */
    struct activity activity;
    void *module_state[MODULES_MAX]; /* owned by the module of the same index */
    bool test; /* running on a host for tests: never touches the machine itself */
};

/* Every module's own line, then the list in module.c gets one too. */
extern const struct module state_module; /* state.c: health, metrics, set-up, identity, freeze */

/* The modules, in order. */
extern const struct module *const daemon_modules[];
extern const size_t n_daemon_modules;

MUST_CHECK int modules_init(struct daemon *d, struct err *e);
void modules_teardown(struct daemon *d);
void modules_metrics(struct daemon *d, json_t *obj);
void modules_done(struct daemon *d);
/* The state of the module with these routes; for handlers: module_state(request_daemon(req), &command_module). */
void *module_state(const struct daemon *d, const struct module *m);
/* Something a client did or saw: keeps the sandbox from being idle. */
void daemon_touch(struct daemon *d);

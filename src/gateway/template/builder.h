/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The sandbox that a template is built in: what steps do, however hostile, they do in a machine of its own. It is a sandbox of
 * the project like others, counted, and shown by our own API when it is asked for builders (metadata "space.build" is the build), not by
 * E2B's. When the build has ended it stays, stopped, for the snapshots that were taken of it: they are the template and its layers.
 *
 * Every wait ends (-ECANCELED) when `stop` becomes readable. One thread at a time.
 */
#pragma once

#include "control/control.h"
#include "gateway/template/recipe.h"

/* Borrowed, all of it: lives longer than the builder. */
struct builder_world {
    struct db *db;
    struct fleet *fleet;
    struct control *control;
    const struct control_actor *actor;
    const char *build; /* its id */
    int stop_fd;
};

struct builder {
    const struct builder_world *world;
    char id[ID_SIZE];                      /* of the sandbox; "": none yet */
    struct node_client *node;              /* borrowed: its; once it is made */
    char default_user[TEMPLATE_USER_SIZE]; /* who acts when nobody is said */
    bool shell_is_bash;
    char started[ID_SIZE]; /* the detached command; "": none yet */
};

/* What may be reached while steps run: the registries of packages. */
#define BUILDER_NETWORK "{\"preset\":\"registries\"}"

/* A new one from a template of the node. Failing leaves none. */
MUST_CHECK int builder_make(struct builder *b, const char *node_template, const struct shape *shape,
                            struct err *e);
/* A new one that starts from a snapshot; -ENOENT: the snapshot or its sandbox is gone. */
MUST_CHECK int builder_fork(struct builder *b, const char *sandbox, const char *snapshot,
                            struct err *e);
/* A snapshot that stays until it is deleted. */
MUST_CHECK int builder_snapshot(struct builder *b, bool full, char ret[static ID_SIZE],
                                struct err *e);
/* Cuts it from the network, so that nothing made from it inherits the builder's. */
MUST_CHECK int builder_cut_off(struct builder *b, struct err *e);
/* What it may reach from now on: the text of a policy. */
MUST_CHECK int builder_set_network(struct builder *b, const char *network, struct err *e);
/* Starts from its disk alone, and looks again who acts there. */
MUST_CHECK int builder_restart(struct builder *b, struct err *e);
/* Stops it for good. It stays for its snapshots. */
MUST_CHECK int builder_rest(struct builder *b, struct err *e);
/* Removes it, now or when the node can be reached. */
void builder_remove(struct builder *b);

/* A piece of what a command prints; not UTF-8, not lines. */
typedef void builder_output_fn(void *ctx, const char *data, size_t len, bool is_error);
struct builder_command {
    const char *const *argv; /* up to NULL */
    const json_t *env;       /* may be NULL */
    const char *user;        /* NULL or "": the default one */
    const char *cwd;         /* NULL or "": the user's home */
    int64_t timeout_ms;
    bool detached;             /* it goes on by itself: returns when it has started */
    builder_output_fn *output; /* may be NULL */
    void *ctx;
};
/* *ret_exit is its exit status, 128 and more for a signal, as shells say it; of a detached one 0. */
MUST_CHECK int builder_run(struct builder *b, const struct builder_command *command, int *ret_exit,
                           struct err *e);
/*
 * The detached command that was started last has ended by itself, and not well: -ECHILD, when what it printed has gone to output.
 * One that ended well may have left what it is for in the background.
 */
MUST_CHECK int builder_check_started(struct builder *b, builder_output_fn *output, void *ctx,
                                     struct err *e);
/* Writes the file's bytes from fd to path, as root. */
MUST_CHECK int builder_upload(struct builder *b, int fd, const char *path, struct err *e);

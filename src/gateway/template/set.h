/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The builds at work, each in a thread of its own. What a build is stands in the database before it starts and when it has ended;
 * while it runs its log is here. A gateway that ends calls its builds off; one that begins notes as failed what was at
 * work in the one before, and removes what that has left.
 *
 * Threads: any.
 */
#pragma once

#include "gateway/template/build.h"

#define BUILDS_AT_ONCE 8          /* of all projects */
#define BUILDS_AT_ONCE_PROJECT 4  /* of one */
#define BUILDS_TEMPLATES_MAX 1000 /* of one project */
#define BUILDS_CACHE_AGE_MS \
    (14ll * 24 * 3600 * 1000) /* layers that no build has used for so long go */
#define BUILDS_CACHE_SANDBOXES \
    8 /* sandboxes of builds that no tag points to, at most, for their layers */

struct builds;

struct builds_opts {
    struct db *db;             /* borrowed: lives longer */
    struct control *control;   /* borrowed: lives longer */
    const struct files *files; /* borrowed: lives longer */
};

struct builds *builds_new(const struct builds_opts *opts);
/* Calls all off and waits for them. */
void builds_free(struct builds *b);
DEFINE_CLEANUP(struct builds *, builds_free);

struct build_wish {
    struct control_actor actor;
    struct template_recipe recipe; /* owned */
    struct build_base base;        /* owned */
    struct build_row row;          /* owned: it becomes BUILD_RUNNING */
};
void build_wish_done(struct build_wish *wish);
/* Takes over what is in the wish, also on failure. -EAGAIN "too_many_builds". */
MUST_CHECK int builds_start(struct builds *b, struct build_wish *wish_take, struct err *e);
/* Entries of the log of a build at work; -ENOENT: it is not at work. The caller ends *ret with json_decref(). */
MUST_CHECK int builds_log(struct builds *b, const char *build, size_t offset, size_t max,
                          json_t **ret);
/* Calls off those of a template, and waits for them. */
void builds_cancel(struct builds *b, const char *template_id);

/* Removes a template with all that belongs to it alone. */
MUST_CHECK int builds_delete_template(struct builds *b, const struct control_actor *actor,
                                      const char *id, struct err *e);
/*
 * A build that is said to run and does not here: when no other gateway has it, whoever ran it is dead, and it is noted as failed.
 * *ret is replaced by the row as it is then.
 */
MUST_CHECK int builds_bury(struct builds *b, const char *project, const char *id,
                           struct build_row *ret, struct err *e);
/* Of an earlier gateway: see above. Before the first request. */
MUST_CHECK int builds_recover(struct builds *b, struct err *e);

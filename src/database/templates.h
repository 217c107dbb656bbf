/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Templates that clients build. A template is a name in a project; a build is one attempt to make it, and when it has
 * succeeded a snapshot of the sandbox that the steps ran in; a tag of the template points to one of its builds. A layer is the
 * disk after a step, a snapshot too, found by the hash of what led to it.
 *
 * The snapshots are the node's. A row here that names one which is gone is found out when it is used.
 */
#pragma once

#include "database/database.h"

#define TEMPLATE_TAG_SIZE 65
#define TEMPLATE_HASH_SIZE 65

struct template_row {
    char id[ID_SIZE];
    char project[ID_SIZE];
    char name[TEMPLATE_NAME_SIZE]; /* unique in the project */
    int64_t created_at_ms;
    int64_t updated_at_ms; /* a build of it became ready; 0: none yet */
    int64_t spawned_at_ms; /* 0: never */
    int64_t spawned;       /* sandboxes that were made from it */
    int64_t builds;        /* out: how many it has */
};

enum build_status {
    BUILD_WAITING, /* its files come, nobody has started it */
    BUILD_RUNNING,
    BUILD_READY,
    BUILD_FAILED,
    BUILD_STATUS_COUNT_,
};

struct build_row {
    char id[ID_SIZE];
    char template_id[ID_SIZE];
    char project[ID_SIZE];
    enum build_status status;
    struct shape shape;
    char sandbox[ID_SIZE];  /* the steps ran in it; "": none yet */
    char snapshot[ID_SIZE]; /* what sandboxes are made from; "": it is not ready */
    char *config; /* owned; JSON object: tags that were asked for, environment, user, ... */
    char *reason; /* owned; JSON object: why it failed; "" or NULL: it did not */
    char *log;    /* owned; JSON array of entries; "" or NULL: none */
    int64_t created_at_ms;
    int64_t ended_at_ms; /* 0: not yet */
};
void build_row_done(struct build_row *row);
#define cleanup_build_row CLEANUP(build_row_done)

/*
 * A new build of the template with row->name in row->project, which is made when it is not there; row becomes it as it is, and
 * build->template_id its id. -EDQUOT: the project has as many templates as it may have.
 */
MUST_CHECK int db_build_begin(struct db *db, struct template_row *row, struct build_row *build,
                              int64_t max_templates, struct err *e);
/* By id or by name. -ENOENT "template_not_found". */
MUST_CHECK int db_template_find(struct db *db, const char *project, const char *id_or_name,
                                struct template_row *ret, struct err *e);
typedef int db_template_fn(void *ctx, const struct template_row *row);
/* By name. each as in db_sandbox_list(). */
MUST_CHECK int db_template_list(struct db *db, const char *project, db_template_fn *each, void *ctx,
                                struct err *e);
/* With its builds, tags, and the layers of the builds' sandboxes. Not an error when it is not there. */
MUST_CHECK int db_template_delete(struct db *db, const char *project, const char *id,
                                  struct err *e);
MUST_CHECK int db_template_spawned(struct db *db, const char *id, int64_t at_ms, struct err *e);

/* -ENOENT "build_not_found". The caller ends *ret with build_row_done(). */
MUST_CHECK int db_build_get(struct db *db, const char *project, const char *id,
                            struct build_row *ret, struct err *e);
typedef int db_build_fn(void *ctx, const struct build_row *row);
/* Newest first, without their logs; template_id NULL: of all templates of the project; project NULL: all. */
MUST_CHECK int db_build_list(struct db *db, const char *project, const char *template_id,
                             db_build_fn *each, void *ctx, struct err *e);
/* Everything but what it belongs to. -ENOENT: it is gone. */
MUST_CHECK int db_build_update(struct db *db, const struct build_row *row, struct err *e);
/* It is ready: the row is written, tags point to it, the template has changed. */
MUST_CHECK int db_build_finish(struct db *db, const struct build_row *row, const char *const *tags,
                               size_t n_tags, struct err *e);
/* With the tags that point to it. Not an error when it is not there. */
MUST_CHECK int db_build_delete(struct db *db, const char *id, struct err *e);

struct template_tag {
    char tag[TEMPLATE_TAG_SIZE];
    char build[ID_SIZE];
    int64_t created_at_ms;
};
MUST_CHECK int db_tag_put(struct db *db, const char *template_id, const struct template_tag *tag,
                          struct err *e);
/* Not an error when it is not there. */
MUST_CHECK int db_tag_delete(struct db *db, const char *template_id, const char *tag,
                             struct err *e);
/* -ENOENT "tag_not_found". */
MUST_CHECK int db_tag_find(struct db *db, const char *template_id, const char *tag,
                           struct template_tag *ret, struct err *e);
typedef int db_tag_fn(void *ctx, const struct template_tag *tag);
MUST_CHECK int db_tag_list(struct db *db, const char *template_id, db_tag_fn *each, void *ctx,
                           struct err *e);

struct layer_row {
    char project[ID_SIZE];
    char hash[TEMPLATE_HASH_SIZE];
    char sandbox[ID_SIZE];
    char snapshot[ID_SIZE];
    int64_t used_at_ms;
    char *
        config; /* owned: JSON text of an image's template_config, of the layer that is the image; NULL or "": none */
};
void layer_row_done(struct layer_row *row);
#define cleanup_layer_row CLEANUP(layer_row_done)
/* Replaces one with the same hash. */
MUST_CHECK int db_layer_put(struct db *db, const struct layer_row *row, struct err *e);
/* Notes the use. -ENOENT. The caller ends *ret with layer_row_done(). */
MUST_CHECK int db_layer_use(struct db *db, const char *project, const char *hash, int64_t at_ms,
                            struct layer_row *ret, struct err *e);
MUST_CHECK int db_layer_forget(struct db *db, const char *project, const char *hash, struct err *e);
/*
 * The sandbox whose layers were used last before before_ms, and which no tagged build is of, nor one that waits or runs;
 * beyond keep of those without, the one that was used the longest ago. -ENOENT: there is none.
 */
MUST_CHECK int db_layer_stale(struct db *db, const char *project, int64_t before_ms, int64_t keep,
                              char ret_sandbox[static ID_SIZE], struct err *e);
/* Its layers, and the builds that were made in it with their tags. */
MUST_CHECK int db_layer_forget_sandbox(struct db *db, const char *project, const char *sandbox,
                                       struct err *e);

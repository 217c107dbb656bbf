/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Templates by the names that clients use: ID, NAME, NAMESPACE/NAME, each with ":TAG" or without. The first that fits:
 *
 *     built     one of the caller's project (database/templates.h); without a tag it is the tag "default"
 *     node      a template of the node, which is its operator's; it has that one tag only
 *     alias     another name for one of the node's, as long as the node has none of that name: "base"
 *     snapshot  one that E2B's API knows by id or name, a template in that API
 */
#pragma once

#include "gateway/gateway.h"
#include "gateway/template/build.h"

struct template_found {
    char node_name[TEMPLATE_NAME_SIZE]; /* of the node's template; "": it is not one */
    char node_id[80];                   /* what the node says that its content is */
    char alias[TEMPLATE_NAME_SIZE];     /* as it was asked for, without namespace and tag */
    struct template_row built;          /* id "": not one of the project's */
    struct build_row build;             /* owned: the one that the tag points to; it is ready */
    struct snapshot_row snapshot;       /* id "": not one */
};
void template_found_done(struct template_found *f);
#define cleanup_template_found CLEANUP(template_found_done)

/* -ENOENT "not_found". */
MUST_CHECK int template_find(struct http_request *req, const char *text, struct template_found *ret,
                             struct err *e);
/*
 * One that the project has built, with the tag's build, into *ret, which is empty. *ret_known false: there is none of that name, and
 * -ENOENT comes without a word.
 */
MUST_CHECK int template_find_built(struct http_request *req, const char *text,
                                   struct template_found *ret, bool *ret_known, struct err *e);
/* One of the project's, without its tag's build: also one that was never ready. -ENOENT. */
MUST_CHECK int template_find_row(struct http_request *req, const char *text,
                                 struct template_row *ret, struct template_ref *ret_ref,
                                 struct err *e);
int template_not_found(const char *text, struct err *e);

/* The node's own; the caller ends *ret, an array, with json_decref(). */
MUST_CHECK int template_node_list(struct http_request *req, json_t **ret, struct err *e);
/* The entry of a list with that name, borrowed; NULL: there is none. */
json_t *template_node_entry(json_t *list, const char *name);
/* Other names that an entry of the list goes by are added to names. */
void template_node_aliases(json_t *names, const char *name, json_t *list);

/* --- what the routes of both APIs share (routes.c) --- */

#define BUILDS_LOG_PAGE 100 /* entries of a log in one answer: clients ask on */

/* Of the name and of the list (may be NULL), once each, into ret; none: the default one. -EINVAL. */
MUST_CHECK int template_read_tags(json_t *list, const struct template_ref *ref, json_t *ret,
                                  struct err *e);
/* Writes a new build (build->shape is set) of the template that ref names, which is made when it is not there. */
MUST_CHECK int template_begin(struct http_request *req, const struct template_ref *ref,
                              json_t *tags, struct template_row *ret, struct build_row *build,
                              struct err *e);
/* The request's body becomes the project's archive with that hash. */
MUST_CHECK int template_receive(struct http_request *req, const char *project, const char *hash,
                                struct err *e);
/* -EINVAL "files_not_uploaded". */
MUST_CHECK int template_check_files(struct http_request *req, const struct template_recipe *recipe,
                                    struct err *e);
/* What E2B's clients are told as the id of a build, who want a UUID: made of ours (any text), the same each time. */
#define BUILD_UUID_SIZE 37
void template_build_uuid(const char *id, char ret[static BUILD_UUID_SIZE]);
/* The build of the path, by its id or the UUID, if it is one of that template's. The caller ends *ret with build_row_done(). */
MUST_CHECK int template_find_build(struct http_request *req, const char *template,
                                   struct build_row *ret, struct err *e);
/* Of the build at work, or what it has left; then build is read anew when what it said may be old. */
MUST_CHECK int template_read_log(struct http_request *req, struct build_row *build, size_t offset,
                                 size_t max, json_t **ret, struct err *e);
/* A snapshot that is a template, as a fork's body says it: "snapshot", and "env" with the template's under what is given. */
json_t *template_fork_body(const struct build_row *build, json_t *env);
/* spawn.c: a sandbox from one of the project's; body is that of POST /v1/sandboxes, how has the idempotency key and who waits. */
MUST_CHECK int template_spawn(struct http_request *req, json_t *body,
                              const struct template_found *from, const struct control_create *how,
                              struct control_answer *ret, struct err *e);

/*
 * What a build starts from. shape is what was asked for, 0 what was not; it becomes what the build has. -EINVAL: what is
 * built on a snapshot has that one's shape.
 */
MUST_CHECK int template_base_find(struct http_request *req, const struct template_recipe *recipe,
                                  struct shape *shape, struct build_base *ret, struct err *e);

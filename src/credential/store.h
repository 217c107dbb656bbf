/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The credentials that there are, without their values: a list in memory and its file, written anew with each change
 * (temporary file, fsync, rename), and what changes with use (how many uses are left).
 *
 * Each change moves the generation on and wakes who waits for it: that is how running sandboxes learn of a new credential at
 * once. Thread-safe; what store_find() and its like give back are copies.
 */
#pragma once

#include "credential/credential.h"

#define STORE_MAX 10000u
#define STORE_PROJECT_MAX 1000u

struct store;

/* -EBADMSG: the file is not ours; never taken for an empty one. */
MUST_CHECK int store_open(const char *dir, struct store **ret, struct err *e);
void store_free(struct store *s);
DEFINE_CLEANUP(struct store *, store_free);

/* -EEXIST: the scope has one of that name; -EDQUOT. */
MUST_CHECK int store_add(struct store *s, const struct credential *c, struct err *e);
/* Replaces the one with its id. -ENOENT. */
MUST_CHECK int store_change(struct store *s, const struct credential *c, struct err *e);
MUST_CHECK int store_remove(struct store *s, const char *id, struct err *e);

/* -ENOENT: there is none, or it belongs to another organisation, or (project not NULL) to another project. */
MUST_CHECK int store_find(struct store *s, const char *id, const char *organisation,
                          const char *project, struct credential *ret, struct err *e);
/*
 * Those that a caller of the project sees: its organisation's, its own, its sandboxes'. project NULL: all of the
 * organisation. Owned by the caller: free().
 */
size_t store_list(struct store *s, const char *organisation, const char *project,
                  struct credential **ret);

/* What a request gets (credential_choose). ret is owned by the caller: free(). */
size_t store_choose(struct store *s, const struct credential_request *q, struct credential **ret);
/* The nearest one of that name, whatever its target; -ENOENT. */
MUST_CHECK int store_named(struct store *s, const struct credential_request *q, const char *name,
                           struct credential *ret);
/* Who is told of questions (credential_webhook); -ENOENT. */
MUST_CHECK int store_webhook(struct store *s, const struct credential_request *q,
                             struct credential *ret);
/* What SSH to the request's host and port logs in with (credential_ssh); -ENOENT. */
MUST_CHECK int store_ssh(struct store *s, const struct credential_request *q,
                         struct credential *ret);
/* Takes one use. -EUSERS "credential_rate": none is left now. */
MUST_CHECK int store_take_use(struct store *s, const struct credential *c, struct err *e);

/* Waits until the generation is another than `known`, or the deadline. Returns the present one, never 0. */
uint64_t store_wait(struct store *s, uint64_t known, uint64_t deadline_ns);
void store_wake(struct store *s);
/* Scope and target of all, for who has to know which connections to look into. */
json_t *store_targets(struct store *s, uint64_t *ret_generation);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secrets of projects: values that have a name and go nowhere by themselves. Credentials refer to them (vault "secret", their ref is
 * the name), so one value serves many sandboxes and is changed in one place. Here is what is known of them without their
 * values: a list in memory and its file, written anew with each change as that of store.h.
 *
 * One of them is a JSON object; what is only ours stands in it, too ("organisation", "project", "ref", the place of its value in
 * the vault "sealed"): named_public() leaves that out. Thread-safe; what is given back are copies, owned by the caller.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"

#define NAMED_MAX 5000u
#define NAMED_PROJECT_MAX 500u
/* Of metadata, as at E2B. */
#define NAMED_PAIRS_MAX 32u
#define NAMED_KEY_MAX 128u
#define NAMED_VALUE_MAX 1024u
#define NAMED_METADATA_MAX 8192u

struct named;

struct named_owner {
    const char *organisation; /* borrowed, as the other */
    const char *project;
};

/* -EBADMSG: the file is not ours; never taken for an empty one. */
MUST_CHECK int named_open(const char *dir, struct named **ret, struct err *e);
void named_free(struct named *n);
DEFINE_CLEANUP(struct named *, named_free);

/* item is copied. -EEXIST "secret_exists": the project has one of that name; -EDQUOT "too_many_secrets". */
MUST_CHECK int named_add(struct named *n, json_t *item, struct err *e);
/*
 * Replaces the one with its id. Its "version" must be one more than what is there: -EBUSY "secret_changed", somebody was
 * faster. -ENOENT.
 */
MUST_CHECK int named_change(struct named *n, json_t *item, struct err *e);
/* -ENOENT: it is not there any more. */
MUST_CHECK int named_remove(struct named *n, const char *id, struct err *e);
/* By id or name. -ENOENT "secret_not_found": not there, or not the owner's. */
MUST_CHECK int named_find(struct named *n, const struct named_owner *owner, const char *which,
                          json_t **ret, struct err *e);
/* At most limit of the owner's, in the order of their names, public; those after the name `after` ("": from the first). */
json_t *named_list(struct named *n, const struct named_owner *owner, const char *after,
                   size_t limit, bool *ret_more);

/* Owned by the caller. */
json_t *named_public(const json_t *item);
/* What a client may say of metadata: -EINVAL. Pure. */
MUST_CHECK int named_metadata_valid(json_t *metadata, struct err *e);

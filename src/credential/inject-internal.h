/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of inject.h share. */
#pragma once

#include "credential/inject.h"
#include "wire/url.h"

typedef int inject_escape_fn(struct buf *b, const char *value);

/* Copies len bytes with the placeholders of that surface filled in; escape NULL: as they are. */
MUST_CHECK int inject_replace(const struct plan *plan, unsigned surface, const char *s, size_t len,
                              inject_escape_fn *escape, struct buf *ret);
/* The one in the plan that may be filled in there; NULL. */
const struct injection *inject_find_placeholder(const struct plan *plan, const char *name,
                                                unsigned surface);
/* "name=value", both encoded, after `before` if that is not NUL. */
MUST_CHECK int inject_add_pair(struct buf *b, const char *name, const char *value, char before);

/* ---- inject-field.c ---- */

/* What "Basic ..." says, decoded. -ENOENT: it is something else. */
MUST_CHECK int inject_basic_plain(struct http1_view value, struct buf *ret);
/* The same with placeholders filled in and encoded again. -ENOENT: as above, or without a placeholder. */
MUST_CHECK int inject_basic(const struct plan *plan, struct http1_view value, struct buf *ret);
/* Appends the cookies of one field but those that are injected. */
MUST_CHECK int inject_copy_cookies(const struct plan *plan, struct http1_view value,
                                   struct buf *line);

/* ---- inject-sign.c ---- */

/* A field of the guest's that our signature replaces. */
bool inject_is_signed_by_us(struct http1_view name);
/* Adds the fields of the signature; target is what the start line says. */
MUST_CHECK int inject_sign(const struct inject_request *req, const char *target, struct buf *ret,
                           struct err *e);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts secrets into one request, and takes out what the guest had put in their places. Pure: a parsed head (wire/http1.h)
 * and a plan in, the head for the server out. Fuzzed.
 *
 * What is written is always HTTP/1.1 in origin form with one Host (ours, not the guest's), our own framing, and every
 * field that describes the hop left out (Connection and what it names, Keep-Alive, TE, Trailer, Transfer-Encoding,
 * Upgrade, Proxy-*), but that trailers are understood, and which will come. A field, parameter or cookie that is injected replaces all of that name that the guest sent,
 * whatever their case or encoding; "Connection: authorization" cannot take an injected field away.
 *
 * Bodies are changed only for injections of the kind body or placeholder-in-body, and for signatures that need their
 * hash: such a body is gathered first (at most INJECT_BODY_MAX) and sent with its length.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "credential/plan.h"
#include "wire/http1.h"

#define INJECT_BODY_MAX (8u * 1024 * 1024)
/* The guest's own head, and what is put into it. */
#define INJECT_HEAD_MAX (HTTP1_MAX_HEAD + 4u * PLAN_VALUE_MAX)
#define INJECT_NAMES_MAX 8u

struct inject_request {
    const struct http1_head *head; /* borrowed, as all here */
    const char *host; /* as the Host field is to say it, with a port if it is not 443 */
    const struct plan *plan;
    uint64_t time_s; /* now, for signatures: seconds since 1970 */
    bool body_known; /* the whole body is in `body`, already changed */
    const void *body;
    size_t body_len;
};

/* Does the plan need the whole body before the head can be written? */
bool inject_needs_body(const struct http1_head *head, const struct plan *plan);
/*
 * The body with its injections: JSON (an object gets or replaces the member at its top), forms, and placeholders in any
 * other text. -EINVAL "body_not_injectable": not a form or JSON object that a field could be put into.
 */
MUST_CHECK int inject_body(const struct http1_head *head, const struct plan *plan, const void *body,
                           size_t len, struct buf *ret, struct err *e);
/*
 * The head for the server. -EINVAL: the request is such that a secret cannot be put in (its reason says why); -E2BIG.
 */
MUST_CHECK int inject_head(const struct inject_request *req, struct buf *ret, struct err *e);

/*
 * Names of placeholders "{{name}}" in head, at most INJECT_NAMES_MAX, without repetition: what the plan is asked for. Bodies
 * are searched only if a plan says so. Returns how many.
 */
size_t inject_placeholders(const struct http1_head *head,
                           char ret[static INJECT_NAMES_MAX][CREDENTIAL_NAME_SIZE]);

/* Does something that is put into the head replace a field of that name? Then it has no place in trailers either. */
bool inject_replaces(const struct plan *plan, struct http1_view name);

/* Is it one of the fields that describe the hop, by name or because Connection names it? */
bool inject_is_hop(const struct http1_head *head, const struct http1_field *field);

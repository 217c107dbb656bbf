/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a secret out of what goes back to the guest: each occurrence becomes as many '*', so that lengths stay true.
 * Pure, streaming: what is found does not depend on how the bytes were cut into pieces.
 *
 * Promised forms of each secret: as it is; in base64 (also URL-safe) on its own and at each of the three offsets within
 * a longer text, as in base64(user:SECRET), but for the one or two characters at its ends that it shares with its
 * neighbours; percent-encoded (escapes in either case) as a form and as a URL would; escaped as in JSON; in hex of
 * either case. Not promised: compressed, encrypted, reversed, split by other bytes, or secrets below
 * REDACT_MIN bytes.
 *
 * At most as many bytes are kept back as are the beginning of something that is searched for: an event stream stays
 * an event stream. After 101 (WebSocket) they are given out when nothing has come for a moment, so that a message that ends like that
 * arrives; a server that sends a secret in pieces with pauses shows it.
 */
#pragma once

#include "base/buf.h"

#define REDACT_MIN 6u
#define REDACT_NEEDLES_MAX 256u
/* A form may be three times as long as a secret. */
#define REDACT_NEEDLE_MAX (3u * 32768u)

struct redact {
    char *needles[REDACT_NEEDLES_MAX]; /* owned, wiped */
    size_t lens[REDACT_NEEDLES_MAX];
    size_t n;
    bool first[256]; /* some needle begins with that byte */
    struct buf kept; /* owned, wiped: not given out yet */
    size_t reach;    /* a mask that has begun goes on for that many of the bytes kept */
    uint64_t n_found;
};

void redact_init(struct redact *r);
void redact_done(struct redact *r);
/* All forms of it. -E2BIG: too many; then nothing may be passed on. */
MUST_CHECK int redact_add(struct redact *r, const char *secret);
static inline bool redact_active(const struct redact *r)
{
    return r->n > 0;
}

/*
 * Takes the next bytes and appends to `out` what can be given out by now; with end set, all of it. -E2BIG of out (which
 * wants room for len + REDACT_NEEDLE_MAX bytes).
 */
MUST_CHECK int redact_next(struct redact *r, const void *data, size_t len, bool end,
                           struct buf *out);
/* A whole text in place, apart from the stream. */
void redact_text(struct redact *r, char *data, size_t len);

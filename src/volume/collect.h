/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing what nobody needs: chunks, images and keys that no manifest names.
 *
 * Any number of nodes store while this runs, and they use chunks that are there already, so that a chunk nobody named a
 * moment ago may be named now. Two visits, COLLECT_GRACE_MS apart, settle that without a lock:
 *
 *     first     everything that no manifest names and that is older than the grace is written into "condemned.json" of its
 *               organisation, with the time
 *     second    of those, what still no manifest names and what has not been put again since goes
 *
 * Who stores reads condemned.json before, and puts anew what stands in it instead of using it. Who began before that was
 * written is done, or has given up, within the grace: no store takes longer (the sandbox manager's deadline).
 *
 * Whether something was put again is told by its age: it was older than the grace when it was condemned, so what is younger than half
 * of that was put since, whatever the difference between the store's clock and ours (up to that half) and however coarse the
 * store's times. It is looked at once more right before it is removed.
 *
 * Manifests are read from outside only; no key is needed. A manifest that cannot be read ends the visit of its organisation
 * before anything is removed.
 */
#pragma once

#include "base/json.h"
#include "volume/archive.h"

#define COLLECT_GRACE_MS (3600ull * 1000)
#define COLLECT_CONDEMNED_MAX 65536u /* the rest waits for another visit */

struct collect_result {
    uint64_t objects; /* looked at */
    uint64_t condemned;
    uint64_t removed;
    uint64_t removed_bytes;
};

/* All organisations. The first error ends it. */
MUST_CHECK int collect(struct archive *a, struct collect_result *ret, struct err *e);
/* The same with another idea of the grace and of the time, for tests. */
MUST_CHECK int collect_at(struct archive *a, uint64_t now_ms, uint64_t grace_ms,
                          struct collect_result *ret, struct err *e);

/* The condemned of one organisation, for who stores. */
struct condemned {
    json_t *names; /* owned: object, key -> true */
    uint64_t since_ms;
    uint64_t again_ms; /* what is younger than this was put again since */
};
void condemned_done(struct condemned *c);
/* None when there is no list. */
MUST_CHECK int condemned_load(struct archive *a, const char *organisation, struct condemned *ret,
                              struct err *e);
/* For struct transfer: may this object be used although it was there before? */
bool condemned_may_reuse(void *condemned, const struct store_object *object);

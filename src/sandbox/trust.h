/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The certificate and the host key of SSH that guests of an organisation are to trust: asked from the credential manager once for each organisation, kept from then
 * on. Without a credential manager there is none, and sandboxes begin without: a connection that is looked into then fails in
 * the guest, nothing else does. Thread-safe; waits for TRUST_ASK_MS at most, and not again within TRUST_RETRY_MS after a failure.
 */
#pragma once

#include "base/id.h"
#include "base/json.h"

#define TRUST_ASK_MS 2000u
#define TRUST_RETRY_MS 1000u

struct trust;

struct trust *trust_new(const char *run_dir);
void trust_free(struct trust *t);
DEFINE_CLEANUP(struct trust *, trust_free);

/* The organisation that was asked for last: a machine made in advance is likely to be for it. "" before that. */
void trust_usual(struct trust *t, char ret[static ID_SIZE]);
/* What the credential manager counts, for metrics.h: {"text"}. The caller ends *ret with json_decref(). */
MUST_CHECK int trust_metrics(struct trust *t, uint64_t ms, json_t **ret, struct err *e);
struct trust_what {
    const char *authority;    /* PEM, borrowed for the life of the trust; NULL: there is none */
    const char *ssh_host_key; /* a line, the same */
};
struct trust_what trust_get(struct trust *t, const char *organisation);

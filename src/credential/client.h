/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The credential manager as its clients see it. Thread-safe. Codes: whatever the manager answers, with its reason; an
 * unreachable manager is "unavailable".
 */
#pragma once

#include "credential/plan.h"
#include "http/client.h"

/* In the run directory. The folder is the manager's own. */
#define CREDENTIAL_SOCKET "credential/manager.sock"

struct credential_client;

/* url: "unix:/run/space/credential/manager.sock". Does not connect. */
MUST_CHECK int credential_client_new(const char *url, struct credential_client **ret,
                                     struct err *e);
void credential_client_free(struct credential_client *c);
DEFINE_CLEANUP(struct credential_client *, credential_client_free);

/* What a request asks for. All borrowed. */
struct credential_ask {
    struct credential_request q;
    const char (*names)[CREDENTIAL_NAME_SIZE]; /* placeholders in it */
    size_t n_names;
    struct sigv4_scope sign; /* what the guest signed for */
};
MUST_CHECK int credential_client_use(struct credential_client *c, const struct credential_ask *ask,
                                     uint64_t deadline_ns, struct plan *ret, struct err *e);

/* What SSH to q's host and port needs, as manager_ssh_open() says it. The caller ends *ret with json_decref(). */
MUST_CHECK int credential_client_ssh_open(struct credential_client *c,
                                          const struct credential_request *q, json_t **ret,
                                          struct err *e);
/* The signature of a login there. */
MUST_CHECK int credential_client_ssh_sign(struct credential_client *c,
                                          const struct credential_request *q, const void *data,
                                          size_t len, struct buf *ret, struct err *e);

/* PEM of a leaf for the name and public key; owned by the caller. */
MUST_CHECK int credential_client_leaf(struct credential_client *c, const char *organisation,
                                      const char *name, const void *spki, size_t len, char **ret,
                                      struct err *e);
/* PEM of the organisation's authority, and the line of its host key of SSH; both owned by the caller, the line NULL if there is none. Waits for so long at most. */
MUST_CHECK int credential_client_authority(struct credential_client *c, const char *organisation,
                                           uint64_t ms, char **ret, char **ret_ssh, struct err *e);
/*
 * All targets once their generation is another than known (0: at once), or after a while in any case.
 * watch ends the wait (-ECANCELED).
 */
MUST_CHECK int credential_client_targets(struct credential_client *c, uint64_t known,
                                         const struct pollfd *watch, json_t **ret, struct err *e);
/* What the manager counts: {"text"}. Waits for so long at most. */
MUST_CHECK int credential_client_metrics(struct credential_client *c, uint64_t ms, json_t **ret,
                                         struct err *e);
/* Any exchange as JSON, for the API gateway. */
MUST_CHECK int credential_client_call(struct credential_client *c, const char *method,
                                      const char *target, const json_t *body, json_t **ret,
                                      struct err *e);

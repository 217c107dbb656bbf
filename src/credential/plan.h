/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the credential manager tells the network gateway to do to one request: the injections, and the secrets that its
 * answer must not show. A plan lives as long as its request; it is wiped when it ends.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "credential/credential.h"

#define PLAN_INJECTIONS_MAX 16u
#define PLAN_SECRETS_MAX 16u
/* A token that a server gave us may be longer than what a client may store. */
#define PLAN_VALUE_MAX 32768u
#define PLAN_KEY_SIZE 32u

enum injection_kind {
    INJECTION_HEADER,
    INJECTION_QUERY,
    INJECTION_COOKIE,
    INJECTION_BODY,
    INJECTION_PLACEHOLDER,
    INJECTION_SIGV4,
    INJECTION_KIND_COUNT_,
};

/* What AWS Signature Version 4 needs: a key for one day, region and service only, never the secret itself. */
struct sigv4_scope {
    char date[9]; /* YYYYMMDD */
    char region[64];
    char service[64];
};

struct injection {
    enum injection_kind kind;
    char credential[CREDENTIAL_NAME_SIZE]; /* whose it is, for logs */
    char *name;                            /* owned; sigv4: the access key id */
    char *value;                           /* owned, wiped; sigv4: "" */
    unsigned surfaces;                     /* placeholder: CREDENTIAL_IN_* */
    struct sigv4_scope scope;
    unsigned char key[PLAN_KEY_SIZE];
};

struct plan {
    struct injection v[PLAN_INJECTIONS_MAX];
    size_t n;
    char *secrets[PLAN_SECRETS_MAX]; /* owned, wiped: what an answer must not show */
    size_t n_secrets;
};

#define cleanup_plan CLEANUP(plan_done)

void plan_done(struct plan *plan);
/* Adds; the texts are copied. -E2BIG: there is no room. */
MUST_CHECK int plan_add(struct plan *plan, const struct injection *what);
MUST_CHECK int plan_hide(struct plan *plan, const char *secret);
bool plan_has(const struct plan *plan, enum injection_kind kind);

json_t *plan_json(const struct plan *plan);
/* -EPROTO: not what plan_json() writes. */
MUST_CHECK int plan_from_json(json_t *json, struct plan *ret, struct err *e);

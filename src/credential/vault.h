/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where values are kept: one interface, several back ends.
 *
 *   sealed   a folder of sealed files under our own key; the embedded default
 *   kv       HashiCorp Vault or OpenBao, secrets engine KV version 2, over HTTP
 *   exec     a program of the operator's
 *   env      variables of our own environment; for development, read only
 *
 * A reference names a value within its back end: 1 to VAULT_REF_MAX bytes of letters, digits and "-_./#", no empty
 * or dot segments. Back ends are told nothing else about a credential. All calls may block for as long as the back end's
 * own time limit; thread-safe.
 *
 * Codes meant for callers: -ENOENT no such value; -EROFS it cannot be written; -EHOSTDOWN or -ETIMEDOUT (reason
 * "vault_unavailable") it does not answer, never to be taken for "no such value"; -EACCES it refused us.
 */
#pragma once

#include "base/err.h"
#include "credential/seal.h"
#include "credential/secret.h"

#define VAULT_REF_MAX 500u

struct vault;

struct vault_driver {
    const char *name;
    MUST_CHECK int (*get)(struct vault *v, const char *ref, struct secret *ret, struct err *e);
    /* NULL: read only. */
    MUST_CHECK int (*put)(struct vault *v, const char *ref, const struct secret *value,
                          struct err *e);
    /* 0 also when it was not there. */
    MUST_CHECK int (*remove)(struct vault *v, const char *ref, struct err *e);
    void (*free)(struct vault *v);
};

/* Each back end's struct begins with this. */
struct vault {
    const struct vault_driver *driver; /* static */
};

bool vault_ref_valid(const char *ref);
/* These check the reference, then ask the back end. */
MUST_CHECK int vault_get(struct vault *v, const char *ref, struct secret *ret, struct err *e);
MUST_CHECK int vault_put(struct vault *v, const char *ref, const struct secret *value,
                         struct err *e);
MUST_CHECK int vault_remove(struct vault *v, const char *ref, struct err *e);
void vault_free(struct vault *v);
DEFINE_CLEANUP(struct vault *, vault_free);

/* ---- the back ends ---- */

/* The folder is made if need be. The key is taken. */
MUST_CHECK int vault_sealed_new(const char *dir, struct seal_key *key_take, struct vault **ret,
                                struct err *e);
/* "api.token" is the variable PREFIX_API_TOKEN. */
struct vault *vault_env_new(const char *prefix);

/*
 * PROGRAM get REF writes the value to its output and ends with 0; PROGRAM put REF reads it from its input; PROGRAM remove
 * REF. Code 2: no such value, 3: read only; anything else is a failure, and its first line of errors is told to the
 * operator's log only. It runs as our user with an environment of PATH alone.
 */
struct vault *vault_exec_new(const char *program);

struct vault_kv_opts {
    const char *url;        /* https://vault.example.com:8200 or unix:/path */
    const char *mount;      /* of the engine; NULL: "secret" */
    const char *prefix;     /* before each reference; NULL: "space" */
    const char *token_file; /* read anew for each call, so that an agent may renew it */
    const char *name_space; /* Vault Enterprise and OpenBao; NULL: none */
    const char *ca_file;    /* NULL: the system's authorities */
};
/* A reference may end in "#field"; without it the field is "value". */
MUST_CHECK int vault_kv_new(const struct vault_kv_opts *opts, struct vault **ret, struct err *e);

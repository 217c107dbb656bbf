/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The credential manager: credentials, their vaults, tokens, the organisations' authorities and the audit log put together.
 * What it decides is the same for every way of asking; routes.c turns it into HTTP on a unix socket.
 *
 * A use, in this order: which credentials the request gets (store_choose); each one's time and rate; its value out of the
 * vault; its token, if it stands for one; the row in the audit log; the plan. If any of them fails the request gets no
 * plan at all: a request that should carry a secret is refused rather than sent without.
 *
 * A change, in this order: the value into the vault under a new reference, the row in the audit log, the list, then the old
 * value out of the vault. A crash in between leaves at most a sealed value that nothing refers to.
 */
#pragma once

#include <pthread.h>

#include "credential/audit.h"
#include "credential/authority.h"
#include "credential/named.h"
#include "credential/plan.h"
#include "credential/store.h"
#include "credential/token.h"
#include "credential/vault.h"
#include "wire/ssh-agent.h"

#define MANAGER_VAULTS_MAX 4u
/* The name that credentials give as their vault when their value is a secret of their project (named.h). */
#define MANAGER_VAULT_SECRET "secret"
/* Of a text to a webhook. */
#define MANAGER_NOTICE_MAX 16384u

struct manager_opts {
    const char *state_dir;
    const char *key_file;    /* NULL: credential.key in state_dir, made if need be */
    const char *env_prefix;  /* NULL: no vault "env" */
    const char *exec;        /* program; NULL: no vault "exec" */
    struct vault_kv_opts kv; /* url NULL: no vault "kv" */
    struct post_opts outside;
};

struct manager {
    struct store *store; /* owned, as all here */
    struct named *named;
    struct audit *audit;
    struct authority *authority;
    struct tokens *tokens;
    struct post_opts outside; /* its strings are borrowed: live as long as the manager */
    struct vault *vaults[MANAGER_VAULTS_MAX]; /* [0]: sealed */
    size_t n_vaults;
    char *state_dir;
    int lock_fd;
    pthread_mutex_t ssh_lock; /* one makes an organisation's host key */
};

MUST_CHECK int manager_open(const struct manager_opts *opts, struct manager **ret, struct err *e);
void manager_free(struct manager *m);
DEFINE_CLEANUP(struct manager *, manager_free);

/* Who changes something, from the API gateway. */
struct manager_actor {
    const char *organisation; /* all borrowed */
    const char *project;
    const char *key;
    bool
        whole_organisation; /* may touch what belongs to the organisation and to its other projects */
};

/* Each gives the public object back. body is the client's. */
MUST_CHECK int manager_add(struct manager *m, const struct manager_actor *who, json_t *body,
                           json_t **ret, struct err *e);
MUST_CHECK int manager_change(struct manager *m, const struct manager_actor *who, const char *id,
                              json_t *body, json_t **ret, struct err *e);
MUST_CHECK int manager_remove(struct manager *m, const struct manager_actor *who, const char *id,
                              struct err *e);
MUST_CHECK int manager_get(struct manager *m, const struct manager_actor *who, const char *id,
                           json_t **ret, struct err *e);
json_t *manager_list(struct manager *m, const struct manager_actor *who);

/*
 * Secrets of the actor's project (named.h). body of add: name, value, metadata; of change: secret (its name or id), value,
 * metadata (absent: stays). A change is refused where the value does not fit a credential that refers to it. When a secret has gone
 * those credentials stay, and requests that should carry them are refused.
 */
MUST_CHECK int manager_secret_add(struct manager *m, const struct manager_actor *who, json_t *body,
                                  json_t **ret, struct err *e);
MUST_CHECK int manager_secret_change(struct manager *m, const struct manager_actor *who,
                                     json_t *body, json_t **ret, struct err *e);
MUST_CHECK int manager_secret_get(struct manager *m, const struct manager_actor *who,
                                  const char *which, json_t **ret, struct err *e);
MUST_CHECK int manager_secret_remove(struct manager *m, const struct manager_actor *who,
                                     const char *which, json_t **ret, struct err *e);
/* As named_list(). */
json_t *manager_secret_list(struct manager *m, const struct manager_actor *who, const char *after,
                            size_t limit, bool *ret_more);
/* The value for a credential that refers to one; -ENOENT "secret_not_found". */
MUST_CHECK int manager_secret_value(struct manager *m, const struct credential *c,
                                    struct secret *ret, struct err *e);
/* May a new credential refer to what it refers to? -EINVAL. */
MUST_CHECK int manager_secret_settle(struct manager *m, const struct credential *c, struct err *e);

/* What the network gateway asks for one request. */
struct manager_use {
    struct credential_request q;
    const char *names[8]; /* placeholders in the request; borrowed */
    size_t n_names;
    struct sigv4_scope sign; /* what the guest itself signed for; empty: nothing */
};

/* What is used is counted from then on; see base/metric.h. */
void manager_metrics_register(void);
/* The plan, maybe an empty one. */
MUST_CHECK int manager_use(struct manager *m, const struct manager_use *use, struct plan *ret,
                           struct err *e);
/* The value itself, or the token that it stands for. */
MUST_CHECK int manager_value_of(struct manager *m, const struct credential *c, struct secret *ret,
                                struct err *e);
/*
 * Tells the webhook of the sandbox that q names (host, port, method and path are not looked at) text, signed: see
 * manager-notify.c. One try. -ENOENT "no_webhook"; -EHOSTDOWN "webhook_failed"; what refuses a use refuses this.
 */
MUST_CHECK int manager_notify(struct manager *m, const struct credential_request *q,
                              const char *text, struct err *e);
/*
 * SSH (manager-ssh.c); q: the host and port, method and path are not looked at. What a connection needs: {"host_key", "credential", "public"}, or
 * "refused" in place of the last two.
 */
MUST_CHECK int manager_ssh_open(struct manager *m, const struct credential_request *q, json_t **ret,
                                struct err *e);
/* The signature of a login. -EACCES "not_a_login". */
MUST_CHECK int manager_ssh_sign(struct manager *m, const struct credential_request *q,
                                struct ssh_view data, struct buf *ret, struct err *e);
/* The public host key that guests of the organisation see, as a line. */
MUST_CHECK int manager_ssh_host(struct manager *m, const char *organisation, struct buf *ret,
                                struct err *e);
/* The authority's certificate. */
MUST_CHECK int manager_authority(struct manager *m, const char *organisation, struct buf *ret,
                                 struct err *e);

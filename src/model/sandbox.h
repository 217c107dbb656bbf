/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The sandbox as the control plane knows it: one record, what a client may ask for when making and
 * changing it, and how it is shown. Pure; the database stores the record, the gateway and the
 * reconciler decide over it.
 *
 * Desired and observed state: see sandbox-state.h. The record of a sandbox whose desired state is
 * "deleted" stays until the node has said that nothing is left of it; until then it shows as "deleting",
 * accepts nothing but DELETE, and counts against the quota.
 *
 * Life time: timeout_s 0 means for ever (end_at_ms 0), else the sandbox is deleted at end_at_ms, wall
 * clock. Changing the timeout counts from the moment of the change.
 *
 * While a sandbox is paused (or suspended) its time stands still with it: paused_at_ms says since when, and nothing
 * ends it. When it goes on, or ends up stopped or failed, end_at_ms moves by as long as that was. Clients are
 * shown what is left (remaining_ms) instead of an end that nobody can know yet.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/id.h"
#include "model/names.h"
#include "model/netpolicy.h"
#include "model/policy.h"
#include "model/sandbox-state.h"
#include "model/shape.h"

#include <stdint.h>

#define SANDBOX_TIMEOUT_S_DEFAULT 3600
#define SANDBOX_TIMEOUT_S_MAX 315360000 /* ten years; 0 says for ever */
#define SANDBOX_TEMPLATE_DEFAULT "debian"
#define SANDBOX_REASON_SIZE 400
#define SANDBOX_NODE_SIZE 64
#define SANDBOX_ACCEL_SIZE 16

/* What becomes of a sandbox whose time is over. */
enum sandbox_at_end {
    SANDBOX_AT_END_DELETE,
    SANDBOX_AT_END_PAUSE, /* until somebody resumes it */
    SANDBOX_AT_END_SLEEP, /* paused, and the next request to its inside wakes it */
    SANDBOX_AT_END_STOP,  /* only its disk is kept */
    SANDBOX_AT_END_COUNT_,
};

struct sandbox {
    char id[ID_SIZE];
    char project[ID_SIZE];
    enum sandbox_state desired;
    enum sandbox_state observed;
    int64_t generation;           /* grows with every write; the base of compare-and-set */
    char node[SANDBOX_NODE_SIZE]; /* where it is; "" before it was placed */
    char owner[ID_SIZE];          /* the gateway process that is creating it; "" otherwise */
    char template_name[TEMPLATE_NAME_SIZE];
    struct shape shape;
    char accel[SANDBOX_ACCEL_SIZE]; /* "kvm", "tcg"; "" until the node said so */
    char *env;                      /* owned; JSON object text; never shown */
    char *metadata;                 /* owned; JSON object text */
    int64_t timeout_s;
    int64_t created_at_ms;
    int64_t started_at_ms; /* 0: never yet */
    int64_t changed_at_ms;
    int64_t end_at_ms;    /* 0: never */
    int64_t paused_at_ms; /* its time stands still since then; 0: it does not */
    struct policy policy;
    char *
        network; /* owned; what it may reach: JSON object text of model/netpolicy.h; NULL or "": nothing */
    char *network_outer
        [NETPOLICY_SANDBOX]; /* owned; of the levels around it, read with the row, never written; NULL or "": none */
    enum sandbox_at_end at_end;
    char *
        surface; /* owned; what another API than ours remembers of it, JSON object text; "": nothing */
    char parent[ID_SIZE]; /* it was forked from; "": made from its template */
    char batch[ID_SIZE];  /* the first of the children that one request forked; "": not forked */
    char reason[SANDBOX_REASON_SIZE];
};

void sandbox_done(struct sandbox *sb);
#define cleanup_sandbox CLEANUP(sandbox_done)
/* A copy that owns its strings. */
void sandbox_copy(struct sandbox *ret, const struct sandbox *from);

/* What POST /v1/sandboxes says. */
struct sandbox_spec {
    char template_name[TEMPLATE_NAME_SIZE];
    struct shape shape;
    char *env;      /* owned; JSON object text */
    char *metadata; /* owned; JSON object text */
    int64_t timeout_s;
    struct policy policy;
    char *network;              /* owned; JSON object text; NULL: nothing may be reached */
    enum sandbox_at_end at_end; /* these two are not said in our own API */
    char *surface;              /* owned; NULL: none */
};

/* Checks everything; on failure *ret is untouched and e names the field. */
int sandbox_spec_from_json(json_t *body, struct sandbox_spec *ret, struct err *e);
void sandbox_spec_done(struct sandbox_spec *spec);
#define cleanup_sandbox_spec CLEANUP(sandbox_spec_done)

/* What PATCH /v1/sandboxes/{id} says. */
struct sandbox_patch {
    bool has_timeout;
    int64_t timeout_s;
    char *metadata; /* owned; replaces all of it; NULL: unchanged */
    bool has_policy;
    struct policy policy; /* replaces all of it */
    char *network;   /* owned; replaces all of it; NULL: unchanged. PATCH .../network says it */
    bool has_at_end; /* these two are not said in our own API */
    enum sandbox_at_end at_end;
    char *surface; /* owned; replaces all of it; NULL: unchanged */
};

/* What PATCH /v1/sandboxes/{id}/network says. */
int sandbox_patch_from_network(json_t *body, struct sandbox_patch *ret, struct err *e);
/* -EINVAL also when it would change nothing. */
int sandbox_patch_from_json(json_t *body, struct sandbox_patch *ret, struct err *e);
void sandbox_patch_done(struct sandbox_patch *patch);
#define cleanup_sandbox_patch CLEANUP(sandbox_patch_done)

/* What POST /v1/sandboxes/{id}/fork says. */
#define SANDBOX_FORK_MAX 100

struct sandbox_fork {
    unsigned count;
    char snapshot[ID_SIZE]; /* "": from the present */
    char *env;              /* owned; JSON object text; NULL: the parent's */
    char *metadata;         /* owned; JSON object text; NULL: the parent's */
    bool has_timeout;
    int64_t timeout_s;
    bool has_at_end; /* these two are not said in our own API; not set: the parent's */
    enum sandbox_at_end at_end;
    char *surface; /* owned; NULL: the parent's */
};

MUST_CHECK int sandbox_fork_from_json(json_t *body, struct sandbox_fork *ret, struct err *e);
void sandbox_fork_done(struct sandbox_fork *fork);
#define cleanup_sandbox_fork CLEANUP(sandbox_fork_done)

/* A new record in state creating, desired running. */
void sandbox_init(struct sandbox *ret, const struct sandbox_spec *spec, const char *project,
                  int64_t now_ms);
/* A child of parent; the caller sets its batch. */
void sandbox_init_fork(struct sandbox *ret, const struct sandbox *parent,
                       const struct sandbox_fork *fork, int64_t now_ms);
void sandbox_apply(struct sandbox *sb, const struct sandbox_patch *patch, int64_t now_ms);

/*
 * The observed state moves, and with it the clock of the life time; asserts that the table allows it. reason may be
 * NULL (then it is cleared).
 */
struct sandbox_move {
    enum sandbox_state to;
    unsigned by;
    int64_t now_ms;
};
void sandbox_move(struct sandbox *sb, struct sandbox_move move, const char *reason);

/* The stable words of the database: "" for delete, "pause", "sleep", "stop". */
const char *sandbox_at_end_name(enum sandbox_at_end at_end);
bool sandbox_at_end_parse(const char *word, enum sandbox_at_end *ret);

/* What clients see: "deleting" as soon as deletion was asked for, else the observed state. */
enum sandbox_state sandbox_shown_state(const struct sandbox *sb);
/* Adds the public JSON object. -E2BIG when the buf is full. */
MUST_CHECK int sandbox_print(const struct sandbox *sb, struct buf *out);
/* What it may reach with the levels around it, as the node gets it; the caller's. NULL: a text is no JSON. */
json_t *sandbox_network_stack(const struct sandbox *sb);
/* The body of the node's POST /v1/sandboxes; the caller ends it with json_decref. NULL: the record is damaged. */
json_t *sandbox_node_spec(const struct sandbox *sb, const char *organisation);

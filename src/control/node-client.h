/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One node as the control plane talks to it: HTTP to its sandbox manager.
 *
 * What the node says is read strictly. An answer that cannot be read in full is an error, never an empty
 * answer: the reconciler ends machines over it. Errors that the node gave itself keep their code, reason
 * and sentence. A call that broke on the way is -EHOSTDOWN "node_unavailable", -ETIMEDOUT "node_timeout" or
 * -ECANCELED (the watch fired); the node may then have done what was asked, unless unreached says
 * that nobody was there to be asked.
 *
 * Thread-safe.
 */
#pragma once

#include "base/json.h"
#include "http/client.h"
#include "model/sandbox.h"

struct node_client;

/*
 * name is what the rows call the node. url: "unix:/path", "https://..." with tls (mutual; borrowed: lives longer), else
 * NULL. Does not connect.
 */
MUST_CHECK int node_client_new(const char *name, const char *url, struct http_tls *tls,
                               struct node_client **ret, struct err *e);
void node_client_free(struct node_client *node);
DEFINE_CLEANUP(struct node_client *, node_client_free);
const char *node_client_name(const struct node_client *node);
/* For requests that are passed on as they are. */
struct http_client *node_client_http(struct node_client *node);

/* A sandbox as the node sees it. */
struct node_sandbox {
    char id[ID_SIZE];
    enum sandbox_state state;
    char accel[SANDBOX_ACCEL_SIZE];
    char reason[SANDBOX_REASON_SIZE];
    int64_t started_at_ms; /* 0: never */
    bool has_policy;       /* it said under which policy it keeps the sandbox */
    struct policy policy;
    bool has_network;  /* it said what the sandbox may reach */
    uint64_t network;  /* the fingerprint of that */
    bool has_end;      /* it said until when it keeps the sandbox */
    int64_t end_at_ms; /* if its time went on now; 0: for ever */
    enum sandbox_at_end at_end;
};

struct node_list {
    struct node_sandbox *items; /* owned; sorted by id */
    size_t n;
};
void node_list_done(struct node_list *list);
#define cleanup_node_list CLEANUP(node_list_done)
/* NULL when it is not there. */
const struct node_sandbox *node_list_find(const struct node_list *list, const char *id);

/* One call: until when, what ends the wait early (-ECANCELED), and how it went. */
struct node_call {
    uint64_t deadline_ns;
    const struct pollfd *watch; /* borrowed for the call; may be NULL */
    bool unreached;             /* out: it failed, and the node cannot have heard of it */
    bool refused;               /* out: it failed, and the node itself said so */
    char why[200]; /* out: what broke, for our log: it names paths that are no client's business */
};

MUST_CHECK int node_client_create(struct node_client *node, const json_t *spec,
                                  struct node_call *call, struct node_sandbox *ret, struct err *e);
MUST_CHECK int node_client_list(struct node_client *node, struct node_call *call,
                                struct node_list *ret, struct err *e);
/* 0 also when the node does not have it. */
MUST_CHECK int node_client_delete(struct node_client *node, const char *id, struct node_call *call,
                                  struct err *e);
/* The same, but what is stored of it elsewhere stays: the sandbox is on another node. */
MUST_CHECK int node_client_leave(struct node_client *node, const char *id, struct node_call *call,
                                 struct err *e);
MUST_CHECK int node_client_stop(struct node_client *node, const char *id, struct node_call *call,
                                struct err *e);
MUST_CHECK int node_client_start(struct node_client *node, const char *id, struct node_call *call,
                                 struct node_sandbox *ret, struct err *e);
/*
 * What moves a sandbox through time. action: "pause", "resume" or "rollback"; body may be NULL. *ret_json (may be
 * NULL) is the whole answer, for the caller to end with json_decref().
 */
MUST_CHECK int node_client_act(struct node_client *node, const char *id, const char *action,
                               const json_t *body, struct node_call *call, struct node_sandbox *ret,
                               json_t **ret_json, struct err *e);
/* The children in the order of their ids in the body; n is how many were asked for. */
MUST_CHECK int node_client_fork(struct node_client *node, const char *id, const json_t *body,
                                struct node_call *call, struct node_sandbox *ret, size_t n,
                                struct err *e);
/* What the row and the levels around it say. */
MUST_CHECK int node_client_set_network(struct node_client *node, const struct sandbox *row,
                                       struct node_call *call, struct err *e);
MUST_CHECK int node_client_set_policy(struct node_client *node, const char *id,
                                      const struct policy *policy, struct node_call *call,
                                      struct err *e);
/* When its life ends, and how, as the row says it now: the node ends it then, should we not. */
MUST_CHECK int node_client_set_end(struct node_client *node, const struct sandbox *row,
                                   int64_t now_ms, struct node_call *call, struct err *e);
/* Any other exchange about a sandbox: rest is what follows its id, e.g. "/snapshots". *ret as in node_client_get(). */
struct node_ask {
    const char *method;
    const char *id;
    const char *rest;
    const json_t *body; /* may be NULL */
};
MUST_CHECK int node_client_ask(struct node_client *node, const struct node_ask *ask,
                               struct node_call *call, json_t **ret, struct err *e);
/* GET of a JSON document, e.g. "/v1/templates". The caller ends *ret with json_decref(). */
MUST_CHECK int node_client_get(struct node_client *node, const char *target, struct node_call *call,
                               json_t **ret, struct err *e);

/* PUT and DELETE of something of the node itself, such as its lease. */
MUST_CHECK int node_client_put(struct node_client *node, const char *target, const json_t *body,
                               struct node_call *call, struct err *e);
MUST_CHECK int node_client_forget(struct node_client *node, const char *target,
                                  struct node_call *call, struct err *e);

/* Pure: the answers of the node. Whatever they say, only well-formed ids and known states come through. */
MUST_CHECK int node_sandbox_from_json(json_t *json, struct node_sandbox *ret, struct err *e);
MUST_CHECK int node_list_from_json(json_t *json, struct node_list *ret, struct err *e);

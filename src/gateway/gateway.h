/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The API gateway: the one way in. It authenticates, authorises, turns requests into desired state
 * (control/), and passes streams through to the node. It holds no state of its own but caches.
 *
 * Life of a request: the server calls gateway_handle(); it gets a request id and goes to the route table;
 * before the handler runs, the route's flags say whether a key is needed and of which scope; the
 * handler does its work on its own thread and replies.
 *
 * Tenancy. Everything with an id is looked up together with the caller's project. Not there and not
 * yours give the same bytes. Whatever could tell the difference (validation of bodies, states) comes
 * after the look-up or does not depend on it.
 *
 * What comes from the node about a sandbox's inside was written by a guest that may be hostile: only
 * chosen header fields pass, with fields that keep a browser from interpreting the body.
 */
#pragma once

#include "control/control.h"
#include "credential/client.h"
#include "gateway/auth.h"
#include "gateway/metrics.h"
#include "gateway/rate.h"
#include "http/route.h"
#include "http/server.h"

#define GATEWAY_BODY_MAX (1u << 20) /* JSON bodies; files and stdin are streamed without limit */
/* A page of the largest list: 1000 sandboxes with metadata as large as allowed. */
#define GATEWAY_ANSWER_MAX (64u << 20)
#define GATEWAY_NODE_MS 30000 /* short questions to the node */

struct tokens;
struct node_authority;
struct e2b;
struct builds;
struct files;

struct gateway_opts {
    struct db *db;                         /* borrowed: lives longer */
    struct fleet *fleet;                   /* borrowed: lives longer */
    struct control *control;               /* borrowed: lives longer */
    struct credential_client *credentials; /* borrowed: lives longer; NULL: there are none here */
    const char *console_dir;               /* borrowed: lives longer; NULL: no console */
    const char *domain;                    /* borrowed: lives longer; see address.h; NULL: none */
    const struct tokens *tokens;           /* borrowed: lives longer */
    struct node_authority *node_authority; /* borrowed: lives longer; NULL: no node joins here */
    const char *state_dir;   /* borrowed for the call: what clients upload is kept there */
    struct rate_limit limit; /* of each key */
};

struct gateway {
    struct db *db;
    struct fleet *fleet;
    struct control *control;
    struct credential_client *credentials; /* borrowed; may be NULL */
    struct auth *auth;                     /* owned */
    struct rates *rates;                   /* owned */
    struct metrics *metrics;               /* owned */
    int console_fd;                        /* owned; FD_NONE: no console */
    const char *domain;                    /* borrowed; NULL: none */
    const struct tokens *tokens;           /* borrowed: lives longer */
    struct node_authority *node_authority; /* borrowed; may be NULL */
    const char
        *domain_shown;     /* borrowed; what E2B's clients are told; NULL: they know themselves */
    struct e2b *e2b;       /* owned */
    struct files *files;   /* owned */
    struct builds *builds; /* owned */
};

MUST_CHECK int gateway_new(const struct gateway_opts *opts, struct gateway **ret, struct err *e);
void gateway_free(struct gateway *g);
DEFINE_CLEANUP(struct gateway *, gateway_free);

/* For http_server_opts: handler with ctx = the gateway, and done. */
int gateway_handle(struct http_request *req, struct err *e);
void gateway_done(void *ctx, struct http_request *req, const struct http_done *done);

/* --- the route table; open so that tests can compare it with the OpenAPI file --- */

#define ROUTE_PUBLIC (1u << 0)       /* no key */
#define ROUTE_LOCAL (1u << 1)        /* no key from a loopback address */
#define ROUTE_ORGANISATION (1u << 2) /* only a key with the scope of the organisation */
#define ROUTE_STREAM (1u << 3)       /* may stay silent for as long as it likes */
#define ROUTE_UNDOCUMENTED (1u << 4) /* not part of the API: console */
#define ROUTE_OPERATOR (1u << 5)     /* only a key with the scope of an operator */

extern const struct http_router gateway_router;

/* --- what handlers share --- */

/* Kept with each request. */
struct request {
    struct gateway *gateway; /* borrowed */
    char id[65];             /* X-Request-Id */
    struct caller caller;
    struct node_client
        *node;            /* of the sandbox it is about; NULL: the home node; see request_about() */
    bool entered;         /* counted for the caller's project */
    char visits[ID_SIZE]; /* counted among the visitors of a project; "": not */
};

static inline struct gateway *gateway_of(const struct http_request *req)
{
    return http_request_ctx(req);
}
struct request *request_of(const struct http_request *req);
/* The request is about this sandbox, as its row is now: what follows goes to its node. */
void request_about(struct http_request *req, const struct sandbox *sb);
struct http_client *request_node(const struct http_request *req);
/* What the database complains about goes to our log: e then says that the client may try again. */
void gateway_hide_database_error(const struct http_request *req, struct err *e);
const struct control_actor *actor_of(const struct http_request *req);
/* Takes one of what the caller's key may ask: -EAGAIN "rate_limited", with the field Retry-After. */
MUST_CHECK int request_check_rate(struct http_request *req, struct err *e);
/* JSON text as the reply. */
MUST_CHECK int reply_text(struct http_request *req, int status, const struct buf *text,
                          struct err *e);
MUST_CHECK int reply_sandbox(struct http_request *req, int status, const struct sandbox *sb,
                             struct err *e);
/* Of a creation or a fork; the answer's text goes with it. */
MUST_CHECK int reply_answer(struct http_request *req, struct control_answer *answer, struct err *e);
/* The request's Idempotency-Key, checked, and what it is bound to into print and *what. */
MUST_CHECK int idempotency_of(const struct http_request *req, const json_t *body,
                              char print[static KEY_HASH_SIZE], struct control_create *what,
                              struct err *e);
/* The caller's sandbox: control_get(), but where the row says "failed" the node is asked whether that is still so. */
MUST_CHECK int get_sandbox(struct http_request *req, const char *id, struct sandbox *ret,
                           struct err *e);
/* The caller's running sandbox of the path, woken if it is asleep: -ENOENT as always, -ESTALE "sandbox_not_running". */
MUST_CHECK int require_running(struct http_request *req, char ret_id[static ID_SIZE],
                               struct err *e);

/* handlers, by file */
int sandbox_create_handler(struct http_request *req, struct err *e);
int sandbox_list_handler(struct http_request *req, struct err *e);
int sandbox_get_handler(struct http_request *req, struct err *e);
int sandbox_delete_handler(struct http_request *req, struct err *e);
int sandbox_patch_handler(struct http_request *req, struct err *e);
int sandbox_stop_handler(struct http_request *req, struct err *e);
int sandbox_start_handler(struct http_request *req, struct err *e);

int sandbox_pause_handler(struct http_request *req, struct err *e);
int sandbox_resume_handler(struct http_request *req, struct err *e);
int sandbox_suspend_handler(struct http_request *req, struct err *e);
int sandbox_stored_handler(struct http_request *req, struct err *e);
int sandbox_rollback_handler(struct http_request *req, struct err *e);
int sandbox_fork_handler(struct http_request *req, struct err *e);
int snapshot_create_handler(struct http_request *req, struct err *e);
int snapshot_list_handler(struct http_request *req, struct err *e);
int snapshot_get_handler(struct http_request *req, struct err *e);
int snapshot_patch_handler(struct http_request *req, struct err *e);
int snapshot_delete_handler(struct http_request *req, struct err *e);
int history_handler(struct http_request *req, struct err *e);
int trace_handler(struct http_request *req, struct err *e);
int network_get_handler(struct http_request *req, struct err *e);
int network_patch_handler(struct http_request *req, struct err *e);
int network_log_handler(struct http_request *req, struct err *e);
int network_proposal_handler(struct http_request *req, struct err *e);
int network_explain_handler(struct http_request *req, struct err *e);
int network_token_answer_handler(struct http_request *req, struct err *e);
int network_answer_handler(struct http_request *req, struct err *e);

int guest_forward_handler(struct http_request *req, struct err *e);
int guest_command_handler(struct http_request *req, struct err *e);
int guest_start_handler(struct http_request *req, struct err *e);
int guest_output_handler(struct http_request *req, struct err *e);
int node_logs_handler(struct http_request *req, struct err *e);
int run_handler(struct http_request *req, struct err *e);
int terminal_handler(struct http_request *req, struct err *e);
int port_address_handler(struct http_request *req, struct err *e);

int node_token_handler(struct http_request *req, struct err *e);
int node_join_handler(struct http_request *req, struct err *e);
int node_renew_handler(struct http_request *req, struct err *e);
int nodes_list_handler(struct http_request *req, struct err *e);
int nodes_add_handler(struct http_request *req, struct err *e);
int nodes_get_handler(struct http_request *req, struct err *e);
int nodes_patch_handler(struct http_request *req, struct err *e);
int nodes_delete_handler(struct http_request *req, struct err *e);

int key_create_handler(struct http_request *req, struct err *e);
int key_list_handler(struct http_request *req, struct err *e);
int key_delete_handler(struct http_request *req, struct err *e);
int project_create_handler(struct http_request *req, struct err *e);
int project_list_handler(struct http_request *req, struct err *e);
int organisation_network_get_handler(struct http_request *req, struct err *e);
int organisation_network_put_handler(struct http_request *req, struct err *e);
int project_network_get_handler(struct http_request *req, struct err *e);
int project_network_put_handler(struct http_request *req, struct err *e);
/* The project that the path names, if the caller may see it. */
int tenant_project_of_path(struct http_request *req, struct project *ret, struct err *e);
int project_get_handler(struct http_request *req, struct err *e);
int project_patch_handler(struct http_request *req, struct err *e);
int audit_list_handler(struct http_request *req, struct err *e);

/* One exchange with the credential manager on the caller's behalf; body_take NULL: {}. ret may be NULL. */
MUST_CHECK int credentials_ask(struct http_request *req, const char *target, json_t *body_take,
                               json_t **ret, struct err *e);
/* A body that may hold a value: as http_body_json(), and the text is wiped. The caller frees *ret. */
MUST_CHECK int credentials_body(struct http_request *req, json_t **ret, struct err *e);
int credential_create_handler(struct http_request *req, struct err *e);
int credential_list_handler(struct http_request *req, struct err *e);
int credential_get_handler(struct http_request *req, struct err *e);
int credential_patch_handler(struct http_request *req, struct err *e);
int credential_delete_handler(struct http_request *req, struct err *e);
int credential_log_handler(struct http_request *req, struct err *e);
int credential_verify_handler(struct http_request *req, struct err *e);
int credential_authority_handler(struct http_request *req, struct err *e);

int template_list_handler(struct http_request *req, struct err *e);
int template_build_handler(struct http_request *req, struct err *e);
int template_get_handler(struct http_request *req, struct err *e);
int template_delete_handler(struct http_request *req, struct err *e);
int template_build_get_handler(struct http_request *req, struct err *e);
int template_files_handler(struct http_request *req, struct err *e);
int node_get_handler(struct http_request *req, struct err *e);
int node_metrics_handler(struct http_request *req, struct err *e);
int schedule_explain_handler(struct http_request *req, struct err *e);
int health_handler(struct http_request *req, struct err *e);
int metrics_handler(struct http_request *req, struct err *e);
int openapi_handler(struct http_request *req, struct err *e);
int console_handler(struct http_request *req, struct err *e);

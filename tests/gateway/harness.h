/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the gateway's tests stand on: a whole gateway in this process (database, control, server on a free
 * port) before a fake node, with a database that can be made to fail and a clock that only we move.
 * The reconciler's thread does not run; tests call its passes. The environment's TEST_DATABASE says which product it
 * is: sqlite (as without it) or postgresql. TEST_NODE=tls puts the node at a port, with mutual TLS.
 */
#pragma once

#include "base/clock.h"
#include "base/json.h"
#include "base/test.h"
#include "control/control.h"
#include "fake-node.h"
#include "gateway/gateway.h"
#include "gateway/tokens.h"
#include "http/client.h"

/* No step takes that long unless it hangs. */
#define TEST_MS 30000

enum tenant {
    ALICE,
    BOB,
    ALICE_MEMBER,
    OPERATOR,
    TENANT_COUNT_
};

struct world {
    char dir[40];
    char socket[64];
    char url[200];               /* of the database */
    uint16_t node_port;          /* 0: the node is at the socket */
    struct http_tls *node_tls;   /* owned; the node's */
    struct http_tls *client_tls; /* owned; ours */
    struct fake_node *node;      /* owned; NULL in a second gateway: the first one's */
    struct db *db;               /* owned */
    struct fleet *fleet;         /* owned */
    struct control *control;
    struct tokens *tokens; /* owned */
    struct gateway *gateway;
    struct http_server *server;
    pthread_t thread;
    struct http_client *http; /* of the tests */
    char keys[TENANT_COUNT_][KEY_TEXT_SIZE];
    char projects[TENANT_COUNT_][ID_SIZE];
    struct rate_limit limit; /* of a gateway that is started; none at first */
    int64_t now_ms;          /* atomic: the gateway's wall clock */
};

/* Two organisations, alice and bob, each with a key of the organisation; a project key of alice; and an operator. */
void world_init(struct world *w);
void world_done(struct world *w);
#define WORLD(w_) \
    CLEANUP(world_done) struct world w_; \
    world_init(&w_)
/*
 * Another gateway over the same database and node, with the same keys; for databases that can be shared. It ends before
 * the first one.
 */
void world_init_second(struct world *w, const struct world *first);
/* The same with a node of its own, which it calls as the first one calls its own. */
void world_init_second_apart(struct world *w, const struct world *first);
/* Is there a database that can be shared? */
bool world_can_share(void);
/* The gateway dies and comes back on the same database; the node lives on. */
void world_restart_gateway(struct world *w);
/* The node dies (its sandboxes with it) and comes back. */
void world_stop_node(struct world *w);
void world_start_node(struct world *w);
void world_advance_ms(struct world *w, int64_t ms);
/* Ends what is over by that clock, as the reconciler would. */
int world_expire(struct world *w);

struct answer {
    int status; /* 0: no answer; error then says why */
    int error;
    char *text; /* owned; the body */
    size_t len;
    json_t *json; /* owned; NULL when the body is no JSON */
    char request_id[80];
    char type[64];
    char retry_after[24]; /* "": not given */
    bool replayed;
};
void answer_done(struct answer *a);
#define cleanup_answer CLEANUP(answer_done)

struct ask {
    const char *method;
    const char *target;
    const char *body;            /* NULL: none */
    const char *key;             /* NULL: none */
    const char *idempotency_key; /* NULL: none */
    const char *accept;          /* NULL: none */
    const struct pollfd *watch;  /* gives up when ready */
};
struct answer world_ask(struct world *w, const struct ask *ask);
/* Alice asks; body may be NULL. */
struct answer alice(struct world *w, const char *method, const char *target, const char *body);
/* Anybody asks. */
struct answer asks(struct world *w, enum tenant who, const char *method, const char *target,
                   const char *body);
/* A request in a thread of its own; the answer is the caller's after the join. */
struct running {
    struct world *w; /* borrowed */
    struct ask ask;
    struct answer answer;
    pthread_t thread;
};
void ask_start(struct running *r, struct world *w, const struct ask *ask);
void ask_join(struct running *r);
/* The word in error.code, "" without one. */
const char *answer_code(const struct answer *a);
/* Makes a sandbox of a tenant; aborts when that fails. */
void world_make(struct world *w, enum tenant who, char ret_id[static ID_SIZE]);
/* The state as GET shows it; "" when it is not there. */
void world_state(struct world *w, const char *id, char ret[static 24]);
/* Rows of the whole database. */
int world_rows(struct world *w);

/* The database fails: the n-th (1: the next) statement whose SQL begins with the text; NULL: no more. */
void world_fail_sql(const char *prefix, int nth);
/* The rows of the next such statement break off after n of them. */
void world_break_rows(const char *prefix, int after);

/* SPDX-License-Identifier: Apache-2.0 */
/* One gateway and three fake nodes, for tests. */
#pragma once

#include "database/nodes.h"
#include "harness.h"

#define NODES 3

extern const char *const nodes_names[NODES];

struct nodes {
    struct world w;
    struct fake_node *node[NODES]; /* the first one is the world's */
    char *socket[NODES];           /* owned */
};

void nodes_init(struct nodes *t);
void nodes_done(struct nodes *t);
#define NODES_WORLD(t_) \
    CLEANUP(nodes_done) struct nodes t_ = {0}; \
    nodes_init(&t_)

/* As a node would say it; those further down have less room. */
void nodes_tell(struct nodes *t, int i, bool alive, enum schedule_wanted wanted);
/* Which node has it: never two; -1: none. */
int nodes_where(struct nodes *t, const char *id);
/* Which one its row names; -1: none. */
int nodes_row(struct nodes *t, const char *id);
/* Alice's request about it; returns the status. body may be NULL. */
int nodes_post(struct nodes *t, const char *id, const char *what, const char *body);
/* Checks the state that the API shows. */
void nodes_state(struct nodes *t, const char *id, const char *want);
/* In the database it is lost from now on, and the gateway knows. */
void nodes_lose(struct nodes *t, int i);

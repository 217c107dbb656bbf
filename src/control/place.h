/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One search for a node: the scheduler's order, one candidate after the other until one takes it. Nodes know best: after
 * those that fit by what was heard of them, the others that take sandboxes at all are asked, too, and what they say counts.
 */
#pragma once

#include "control/fleet.h"

/* More nodes than that are not asked for one sandbox. */
#define PLACE_TRIES_MAX 8

struct place {
    struct fleet *fleet;       /* borrowed */
    struct schedule_wish wish; /* its words are borrowed */
    char tried[PLACE_TRIES_MAX][SANDBOX_NODE_SIZE];
    size_t n_tried;
    bool cold; /* out: the last one would start it afresh from the disk */
};

/* 1: ret is the next one to ask, counted as tried. 0: there is no other. */
int place_next(struct place *p, char ret[static SANDBOX_NODE_SIZE]);
/* Of one that does not fit by what was heard: may it be asked all the same, when no other is left? */
bool place_may_ask(enum schedule_why why);
/* Did a node say by this that another one may have room? Then it has left nothing. */
bool place_is_full(const struct node_call *call, const struct err *e);

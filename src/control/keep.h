/* SPDX-License-Identifier: Apache-2.0 */

/* What the keeper does with one node; see keeper.h. Any thread; blocks as long as the node may take to answer. */
#pragma once

#include "control/control.h"
#include "database/nodes.h"

/*
 * Asks a node and does what its row, as it was read, wants: renews and grants, or takes it back. What it tells is written. An
 * error: it does not answer, is another node than the row's, or has to leave something that it could not leave yet. Nothing
 * that is half done matters: the next time begins anew.
 */
MUST_CHECK int keep_node(struct control *c, const struct node_row *row, struct err *e);

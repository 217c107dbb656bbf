/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a start of this process: what was there before is taken back, finished or removed, until records,
 * machines, subvolumes and run folders say the same. Nothing is decided on an answer that could not be
 * read: then the start fails and is tried again by whoever supervises us.
 */
#pragma once

#include "sandbox/node.h"

MUST_CHECK int recover_node(struct node *node, struct err *e);

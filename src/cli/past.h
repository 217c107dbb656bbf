/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The past of a sandbox as one path: the snapshots that its present came after, and, where it was forked, those of its
 * parent before that, and so on. What was rolled back from is on other branches of the tree and left out.
 */
#pragma once

#include "cli/scratch.h"

#define PAST_FORKS_MAX 64u /* generations that are followed; the path is then shorter, not wrong */

/*
 * An array for the caller to end, oldest first: snapshots as the API shows them, each with "sandbox", whose it is. Where
 * a parent has gone the path begins later.
 */
MUST_CHECK int past_read(struct scratch *scratch, const char *sandbox, json_t **ret, struct err *e);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock of a sandbox's life time, kept in the same way by the control plane and by the node: until when it lives,
 * and since when its time stands still. Wall clock, in ms; 0 means never. Pure.
 */
#pragma once

#include "model/sandbox-state.h"

#include <stdint.h>

/*
 * The sandbox enters a state: its time stands still while nothing runs for its owner's account (paused, suspended), and
 * goes on where it was, so that its end comes later by as long as that took.
 */
void lifetime_enter(int64_t *end_at_ms, int64_t *paused_at_ms, enum sandbox_state to,
                    int64_t now_ms);
/* When it would end if its time went on now; 0: never. */
int64_t lifetime_end(int64_t end_at_ms, int64_t paused_at_ms, int64_t now_ms);

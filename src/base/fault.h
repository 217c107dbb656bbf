/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Failing on purpose. FAULT("name") is an expression that is true when the step that stands beside
 * it is to fail now; outside of test builds it is constant false and leaves no trace in the
 * program.
 *
 *     if (FAULT("jail.root") || mkdirat(...) < 0) {
 *
 * In a test build the environment variable SPACE_FAULT_AT says which point fails: the Nth that is
 * passed, counted over this process and its children together. errno is set to EIO. SPACE_FAULT_ONLY limits counting to points whose names begin so ("create."). With
 * SPACE_FAULT_KILL set, too, the program is killed at that point instead (a child of it goes on).
 */
#pragma once

#include "base/util.h"

#ifdef SPACE_FAULTS
bool fault_hit(const char *name);
/* Reads SPACE_FAULT_AT; to be called once, before the first point. */
void fault_init(void);
#define FAULT(name_) fault_hit(name_)
#else
#define FAULT(name_) false
static inline void fault_init(void)
{
}
#endif

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What belongs to the whole guest: names, clock, randomness, and figures.
 */
#pragma once

#include "base/err.h"
#include "daemon/setup-spec.h"

/* Sets what the spec says. The first failure ends it. Not in tests: they would change their host. */
MUST_CHECK int machine_identify(const struct setup_spec *spec, struct err *e);
/* Adds cpu, memory, processes and load to obj. What cannot be read is left out. */
void machine_metrics(json_t *obj);
/* The kernel's boot id; "" when it cannot be read. ret holds 37 bytes. */
void machine_boot_id(char ret[static 37]);

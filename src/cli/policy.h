/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies as people write them: disk_every_s=5m,keep_day=48,recover=disk, or a file with the JSON object of the
 * API. Times take a unit. Whether a name or value exists is for the service to say; it names the field.
 */
#pragma once

#include "cli/cli.h"

/* text with '=' is the policy itself, else the name of a file. */
MUST_CHECK int policy_read(const char *text, json_t **ret, struct err *e);

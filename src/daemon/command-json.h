/* SPDX-License-Identifier: Apache-2.0 */
/* The command object, as the API shows it. */
#pragma once

#include "daemon/command.h"

#include <jansson.h>

/* A new reference. Foreign bytes that are not UTF-8 become U+FFFD. */
json_t *command_json(const struct command *c);

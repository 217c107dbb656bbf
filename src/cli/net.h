/* SPDX-License-Identifier: Apache-2.0 */
/* The network policy as the command line takes it: a preset's name, or a JSON file. */
#pragma once

#include <jansson.h>

#include "base/err.h"

/* -ENOENT and the like: neither a preset nor a file that can be read. */
MUST_CHECK int net_read(const char *text, json_t **ret, struct err *e);

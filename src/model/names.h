/* SPDX-License-Identifier: Apache-2.0 */

/* Rules for names and small maps that clients choose. Pure; errors name the field and the fix. */
#pragma once

#include "base/json.h"

#define TEMPLATE_NAME_MAX 63
#define TEMPLATE_NAME_SIZE (TEMPLATE_NAME_MAX + 1)

/* On the sandboxes that templates are built in: the build's id. Lists leave these out unless they are asked for. */
#define SANDBOX_METADATA_BUILD "space.build"
#define METADATA_PAIRS_MAX 64
#define METADATA_KEY_MAX 128
#define METADATA_VALUE_MAX 1024
#define METADATA_TOTAL_MAX 16384 /* it is copied into every list that shows the sandbox */

#define ENV_PAIRS_MAX 256
#define ENV_NAME_MAX 128
#define ENV_VALUE_MAX 32768
#define ENV_TOTAL_MAX 131072 /* what execve(2) takes in one string, and a row should stay small */

#define IDEMPOTENCY_KEY_MAX 128

/* [a-z0-9][a-z0-9-]{0,62}. Takes any string. */
bool template_name_valid(const char *name);
/* 1 to 63 of a-z, 0-9, '-' and '.', beginning with a letter or digit: a host's name or address will do. */
bool node_name_valid(const char *name);
int template_name_check(const char *field, const char *name, struct err *e);

/* An object of strings within the METADATA_ limits; keys are UTF-8 without control characters. */
int metadata_check(const char *field, json_t *map, struct err *e);
/* One key on its own, e.g. of a list filter. */
bool metadata_key_valid(const char *key);

/* An object of strings within the ENV_ limits; names are [A-Za-z_][A-Za-z0-9_]*. */
int env_check(const char *field, json_t *map, struct err *e);

/* 1 to 128 printable ASCII characters. */
int idempotency_key_check(const char *key, struct err *e);

/* SPDX-License-Identifier: Apache-2.0 */
/* Help, made from the table of verbs. */
#pragma once

#include "cli/verbs.h"

/* All verbs, grouped. */
void help_overview(FILE *out);
/* The verbs whose first word is this one. */
void help_family(FILE *out, const char *word);
void help_verb(FILE *out, const struct verb *verb);
/* Everything in the table, for programs. */
json_t *help_json(void);

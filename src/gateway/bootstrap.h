/* SPDX-License-Identifier: Apache-2.0 */

/* The first organisation, project and key, which no API call can make because there is no key yet. */
#pragma once

#include "database/database.h"

struct bootstrap {
    const char *organisation; /* borrowed: names; made when they are not there */
    const char *project;
    const char *key_name; /* borrowed; NULL: only organisation and project */
    const char *scope;    /* borrowed */
};

/* With a key name, *ret is {"id","key","name","prefix","project","scope"}; the caller ends it. Else NULL. */
MUST_CHECK int bootstrap_run(struct db *db, const struct bootstrap *what, json_t **ret,
                             struct err *e);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a service does first: it becomes its own user, if it was started as root, and keeps no capability.
 */
#pragma once

#include "base/err.h"

struct privilege {
    const char *program; /* borrowed, like the rest: for the error */
    const char *user;    /* whom to become as root; NULL: see owner_of */
    const char *
        owner_of; /* without a user, root becomes the owner of this folder, if that is not root; NULL: root is refused */
    const char *usual; /* the user that is named in the error */
};

/*
 * Afterwards: not root, no supplementary group when it was root, no capability, none to be gained, no core dumps, not dumpable, umask 077. Works
 * where a unit forbids the system calls whose work is done already. Before any thread.
 */
MUST_CHECK int privilege_drop(const struct privilege *p, struct err *e);

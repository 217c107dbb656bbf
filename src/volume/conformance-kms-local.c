/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fs.h"
#include "volume/conformance-kms.h"

#include <fcntl.h>
#include <stdio.h>

static char folder[] = "/tmp/space-kms-XXXXXX";

static void remove_folder(void)
{
    IGNORE_RESULT(fs_remove_tree(AT_FDCWD, folder)); /* a leftover in /tmp fails no test */
}

struct kms *conformance_open(void)
{
    struct kms *k = NULL;

    ASSERT(mkdtemp(folder) && atexit(remove_folder) == 0);
    ASSERT(kms_local_open(folder, &k, NULL) == 0);
    return k;
}

void conformance_revoke(const char *organisation, bool revoked)
{
    cleanup_free char *there = xasprintf("%s/%s.keys", folder, organisation);
    cleanup_free char *away = xasprintf("%s/%s.away", folder, organisation);

    ASSERT(rename(revoked ? there : away, revoked ? away : there) == 0);
}

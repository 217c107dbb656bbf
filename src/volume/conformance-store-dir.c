/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fs.h"
#include "volume/conformance-store.h"

#include <fcntl.h>

static char folder[] = "/tmp/space-store-XXXXXX";

static void remove_folder(void)
{
    IGNORE_RESULT(fs_remove_tree(AT_FDCWD, folder)); /* a leftover in /tmp fails no test */
}

struct store *conformance_open(void)
{
    struct store *s = NULL;

    ASSERT(mkdtemp(folder) && atexit(remove_folder) == 0);
    ASSERT(store_dir_open(folder, &s, NULL) == 0);
    return s;
}

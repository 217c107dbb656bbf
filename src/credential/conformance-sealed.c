/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fs.h"
#include "credential/conformance.h"

static char dir[] = "/tmp/space-vault-XXXXXX";
static bool made;

static void clean(void)
{
    IGNORE_RESULT(fs_remove_tree(AT_FDCWD, dir)); /* at exit: nobody is left to tell */
}

static struct vault *open_sealed(void)
{
    cleanup_free char *key_path = NULL;
    cleanup_free char *vault_path = NULL;
    struct seal_key key = {0};
    struct vault *v = NULL;

    if (!made) {
        ASSERT(mkdtemp(dir));
        made = true;
        atexit(clean);
    }
    key_path = xasprintf("%s/key", dir);
    vault_path = xasprintf("%s/vault", dir);
    ASSERT(seal_key_load(key_path, /* create */ true, &key, NULL) == 0);
    ASSERT(vault_sealed_new(vault_path, &key, &v, NULL) == 0);
    return v;
}

struct conformance conformance = {.open = open_sealed, .bytes = true};

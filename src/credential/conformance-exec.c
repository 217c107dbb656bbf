/* SPDX-License-Identifier: Apache-2.0 */
/* Against a program of a few lines of shell, as an operator might write it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "credential/conformance.h"

static char dir[] = "/tmp/space-vault-XXXXXX";
static bool made;

static void clean(void)
{
    IGNORE_RESULT(fs_remove_tree(AT_FDCWD, dir)); /* at exit: nobody is left to tell */
}

static struct vault *open_exec(void)
{
    static const char script[] = "#!/bin/sh\n"
                                 "file=$(dirname \"$0\")/v-$(printf %s \"$2\" | tr / :)\n"
                                 "case $1 in\n"
                                 "get) [ -e \"$file\" ] || exit 2; cat \"$file\" ;;\n"
                                 "put) cat >\"$file\" ;;\n"
                                 "remove) rm -f \"$file\" ;;\n"
                                 "*) echo 'no such verb' >&2; exit 1 ;;\n"
                                 "esac\n";
    cleanup_free char *path = NULL;
    cleanup_close int dir_fd = FD_NONE;

    if (!made) {
        ASSERT(mkdtemp(dir));
        made = true;
        atexit(clean);
        dir_fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
        ASSERT(fs_write_file_durable(dir_fd, "program", script, strlen(script), 0700) == 0);
    }
    path = xasprintf("%s/program", dir);
    return vault_exec_new(path);
}

struct conformance conformance = {.open = open_exec, .bytes = true};

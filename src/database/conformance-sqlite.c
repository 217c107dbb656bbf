/* SPDX-License-Identifier: Apache-2.0 */
#include "database/conformance.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fs.h"

static char folder[] = "/tmp/space-db-XXXXXX";
static char url[64];

static struct db *open_url(void)
{
    struct db *db = NULL;
    struct err e = {0};
    int r = db_open(url, &db, &e);

    if (r < 0) {
        fprintf(stderr, "%s\n", e.msg);
    }
    ASSERT(r == 0);
    return db;
}

bool conformance_available(void)
{
    return true;
}

struct db *conformance_open_new(void)
{
    snprintf(folder, sizeof(folder), "/tmp/space-db-XXXXXX");
    ASSERT(mkdtemp(folder));
    snprintf(url, sizeof(url), "sqlite:%s/space.db", folder);
    return open_url();
}

struct db *conformance_reopen_take(struct db *db)
{
    db_free(db);
    return open_url();
}

void conformance_close_take(struct db *db)
{
    cleanup_close int dir_fd = FD_NONE;
    int r;

    db_free(db);
    dir_fd = fs_open("/tmp", O_RDONLY | O_DIRECTORY, 0);
    ASSERT(dir_fd >= 0);
    r = fs_remove_tree(dir_fd, folder + 5);
    ASSERT(r == 0);
}

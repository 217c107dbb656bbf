/* SPDX-License-Identifier: Apache-2.0 */

/* What organisations and projects let their sandboxes reach. */
#include "database/private.h"

static int not_found(enum netpolicy_level level, struct err *e)
{
    return level == NETPOLICY_PROJECT
               ? err_set(e, -ENOENT, "project_not_found", "there is no such project")
               : err_set(e, -ENOENT, "organisation_not_found", "there is no such organisation");
}

int db_network_set(struct db *db, enum netpolicy_level level, const char *id, const char *text,
                   struct err *e)
{
    static const char *const sql[NETPOLICY_SANDBOX] = {
        [NETPOLICY_ORGANISATION] = "UPDATE organisations SET network = $2 WHERE id = $1",
        [NETPOLICY_PROJECT] = "UPDATE projects SET network = $2 WHERE id = $1",
    };
    int64_t changes = 0;
    int r;

    ASSERT(level < NETPOLICY_SANDBOX && id && text);
    r = db_write_one(db, DB_QUERY(sql[level], DB_TEXT(id), DB_TEXT(text)), &changes, e);
    if (r < 0) {
        return r;
    }
    return changes == 0 ? not_found(level, e) : 0;
}

int db_network_get(struct db *db, enum netpolicy_level level, const char *id, char **ret,
                   struct err *e)
{
    static const char *const sql[NETPOLICY_SANDBOX] = {
        [NETPOLICY_ORGANISATION] = "SELECT network FROM organisations WHERE id = $1",
        [NETPOLICY_PROJECT] = "SELECT network FROM projects WHERE id = $1",
    };
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r;

    ASSERT(level < NETPOLICY_SANDBOX && id && ret);
    r = db_read_first(db, DB_QUERY(sql[level], DB_TEXT(id)), &tx, &res, e);
    if (r <= 0) {
        return r < 0 ? r : not_found(level, e);
    }
    *ret = db_get_text_dup(&res, 0);
    return 0;
}

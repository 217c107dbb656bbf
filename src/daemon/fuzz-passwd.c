/* SPDX-License-Identifier: Apache-2.0 */
/* "name NUL passwd NUL group": whatever they hold, what is found is sound. */
#include "daemon/passwd.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t piece(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, '\0', size);

    return end ? (size_t)(end - data) : size;
}

static void check_user(const struct workload_user *u)
{
    ASSERT(u->name[0] && strlen(u->name) < sizeof(u->name) && !strchr(u->name, ':'));
    ASSERT(u->home[0] == '/' && u->shell[0] == '/');
    ASSERT(u->uid != (uid_t)-1 && u->gid != (gid_t)-1);
    ASSERT(u->n_groups >= 1 && u->n_groups <= WORKLOAD_GROUPS_MAX && u->groups[0] == u->gid);
    for (size_t i = 0; i < u->n_groups; i++) {
        for (size_t k = 0; k < i; k++) {
            ASSERT(u->groups[i] != u->groups[k]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n = piece(data, size);
    cleanup_free char *name = xstrndup((const char *)data, n);
    cleanup_free char *passwd = NULL;
    cleanup_free char *group = NULL;
    size_t n_passwd;
    size_t n_group;
    struct workload_user u;

    data += MIN(n + 1, size);
    size -= MIN(n + 1, size);
    n_passwd = piece(data, size);
    passwd = xmemdup(
        data, n_passwd + (size > n_passwd)); /* exact, so that a sanitizer sees every overrun */
    data += MIN(n_passwd + 1, size);
    n_group = size - MIN(n_passwd + 1, size);
    group = xmemdup(data, n_group);
    if (passwd_find_name(passwd, n_passwd, name, &u) == 0) {
        ASSERT(str_eq(u.name, name));
        group_collect(group, n_group, &u);
        check_user(&u);
    }
    if (passwd_find_uid(passwd, n_passwd, 1000, &u) == 0) {
        ASSERT(u.uid == 1000);
        group_collect(group, n_group, &u);
        check_user(&u);
    }
    return 0;
}

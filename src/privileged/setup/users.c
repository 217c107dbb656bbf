/* SPDX-License-Identifier: Apache-2.0 */
#include "privileged/setup/setup.h"

#include <pwd.h>
#include <stdio.h>

static int setup_user(const char *name, uid_t *ret_uid, gid_t *ret_gid, struct err *e)
{
    const char *const argv[] = {"/usr/sbin/useradd",
                                "--system",
                                "--user-group",
                                "--no-create-home",
                                "--home-dir",
                                "/nonexistent",
                                "--shell",
                                "/usr/sbin/nologin",
                                name,
                                NULL};
    const struct passwd *pw = getpwnam(name);
    int r;

    if (!pw) {
        r = setup_run(argv, e);
        if (r < 0) {
            return err_wrap(e, r, "making the user '%s'", name);
        }
        printf("made user %s\n", name);
        pw = getpwnam(name);
        if (!pw) {
            return err_set(e, -ENOENT, NULL, "the user '%s' was made but cannot be found", name);
        }
    }
    *ret_uid = pw->pw_uid;
    *ret_gid = pw->pw_gid;
    return 0;
}

int setup_users(struct setup *s, struct err *e)
{
    int r = setup_user(s->gateway_user, &s->gateway_uid, &s->gateway_gid, e);

    return r < 0 ? r : setup_user(s->sandbox_user, &s->sandbox_uid, &s->sandbox_gid, e);
}

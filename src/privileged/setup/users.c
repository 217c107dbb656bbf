/* SPDX-License-Identifier: Apache-2.0 */
#include "privileged/setup/setup.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>

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

/* Where /dev/kvm is for a group, the sandbox manager joins it, to see whether it can be used. */
static int setup_kvm_group(const struct setup *s, struct err *e)
{
    const char *argv[] = {"/usr/sbin/usermod", "--append", "--groups", NULL, s->sandbox_user, NULL};
    const struct group *group;
    struct stat st;
    int r;

    if (stat("/dev/kvm", &st) < 0 || (st.st_mode & 0060) != 0060 || st.st_gid == 0 ||
        s->sandbox_uid == 0) {
        return 0;
    }
    group = getgrgid(st.st_gid);
    if (!group) {
        return 0;
    }
    for (char *const *member = group->gr_mem; *member; member++) {
        if (str_eq(*member, s->sandbox_user)) {
            return 0;
        }
    }
    argv[3] = group->gr_name;
    r = setup_run(argv, e);
    if (r == 0) {
        printf("user %s joined group %s\n", s->sandbox_user, group->gr_name);
    }
    return r < 0 ? err_wrap(e, r, "giving '%s' access to /dev/kvm", s->sandbox_user) : 0;
}

int setup_users(struct setup *s, struct err *e)
{
    int r = setup_user(s->gateway_user, &s->gateway_uid, &s->gateway_gid, e);

    if (r == 0) {
        r = setup_user(s->sandbox_user, &s->sandbox_uid, &s->sandbox_gid, e);
    }
    if (r == 0) {
        r = setup_user(s->credential_user, &s->credential_uid, &s->credential_gid, e);
    }
    if (r == 0) {
        r = setup_user(s->volume_user, &s->volume_uid, &s->volume_gid, e);
    }
    if (r == 0) {
        r = setup_user(s->network_user, &s->network_uid, &s->network_gid, e);
    }
    return r < 0 ? r : setup_kvm_group(s, e);
}

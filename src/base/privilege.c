/* SPDX-License-Identifier: Apache-2.0 */
#include "base/privilege.h"

#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int find_named(const struct privilege *p, uid_t *ret_uid, gid_t *ret_gid, struct err *e)
{
    const struct passwd *pw = getpwnam(p->user);

    if (!pw) {
        return err_set(e, -EPERM, "usage", "there is no user '%s': make it, or give another --user",
                       p->user);
    }
    *ret_uid = pw->pw_uid;
    *ret_gid = pw->pw_gid;
    return 0;
}

static int find_owner(const struct privilege *p, uid_t *ret_uid, gid_t *ret_gid, struct err *e)
{
    struct stat st;

    if (!p->owner_of || stat(p->owner_of, &st) < 0 || st.st_uid == 0) {
        return err_set(e, -EPERM, "usage", "%s does not run as root: start it as user %s%s",
                       p->program, p->usual,
                       p->owner_of ? ", or name a folder that belongs to that user" : "");
    }
    *ret_uid = st.st_uid;
    *ret_gid = st.st_gid;
    return 0;
}

static int become_user(const struct privilege *p, struct err *e)
{
    uid_t uid = 0;
    gid_t gid = 0;
    int r = p->user ? find_named(p, &uid, &gid, e) : find_owner(p, &uid, &gid, e);

    if (r < 0) {
        return r;
    }
    if (uid == 0) {
        return err_set(e, -EPERM, "usage", "%s does not run as root: --user must not be root",
                       p->program);
    }
    if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0) {
        return err_wrap(e, -errno, "becoming user %u", uid);
    }
    return 0;
}

static bool has_capability(const struct __user_cap_data_struct *data)
{
    uint32_t any = 0;

    for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
        any |= data[i].effective | data[i].permitted | data[i].inheritable;
    }
    return any != 0;
}

/* Asked for first: systemd's @privileged, which units forbid, holds capset(2) but not capget(2). */
static int drop_capabilities(struct err *e)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

    memset(data, 0, sizeof(data));
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
        syscall(SYS_capget, &header, data) < 0) {
        return err_wrap(e, -errno, "looking at capabilities");
    }
    if (!has_capability(data)) {
        return 0;
    }
    memset(data, 0, sizeof(data));
    return syscall(SYS_capset, &header, data) < 0 ? err_wrap(e, -errno, "dropping capabilities")
                                                  : 0;
}

int privilege_drop(const struct privilege *p, struct err *e)
{
    const struct rlimit no_core = {0, 0};
    int r = geteuid() == 0 ? become_user(p, e) : 0;

    if (r == 0) {
        r = drop_capabilities(e);
    }
    if (r < 0) {
        return r;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
        setrlimit(RLIMIT_CORE, &no_core) < 0) {
        return err_wrap(e, -errno, "giving up privileges");
    }
    umask(0077);
    return 0;
}

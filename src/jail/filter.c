/* SPDX-License-Identifier: Apache-2.0 */
#include "jail/filter.h"

#include "base/fs.h"

#include <linux/seccomp.h>
#include <seccomp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PROGRAM_SIZE_MAX ((size_t)BPF_MAXINSNS * sizeof(struct sock_filter))

DEFINE_CLEANUP(scmp_filter_ctx, seccomp_release);

static bool filter_mentions(const struct filter_rule *rules, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (str_eq(rules[i].name, name)) {
            return true;
        }
    }
    return false;
}

static int filter_add(scmp_filter_ctx ctx, const struct filter_rule *rule)
{
    struct scmp_arg_cmp cmp = {
        .arg = rule->arg, .op = SCMP_CMP_MASKED_EQ, .datum_a = rule->mask, .datum_b = rule->value};
    uint32_t action = rule->refuse ? SCMP_ACT_ERRNO((uint16_t)rule->refuse) : SCMP_ACT_ALLOW;
    int nr = seccomp_syscall_resolve_name(rule->name);

    if (nr == __NR_SCMP_ERROR) {
        return 0; /* newer than this libseccomp */
    }
    return seccomp_rule_add_array(ctx, action, nr, rule->has_arg ? 1 : 0, &cmp);
}

/* libseccomp can only write the program to a file. */
static int filter_export(scmp_filter_ctx ctx, struct sock_fprog *ret)
{
    cleanup_close int fd = memfd_create("filter", MFD_CLOEXEC);
    cleanup_buf struct buf b = BUF_INIT(PROGRAM_SIZE_MAX);
    int r;

    if (fd < 0) {
        return -errno;
    }
    r = seccomp_export_bpf(ctx, fd);
    if (r < 0) {
        return r;
    }
    if (lseek(fd, 0, SEEK_SET) < 0) {
        return -errno;
    }
    r = fs_read_fd(fd, &b);
    if (r < 0) {
        return r;
    }
    ret->len = (unsigned short)(b.len / sizeof(struct sock_filter));
    ret->filter = xmemdup(b.data, b.len);
    return 0;
}

int jail_filter_build(const struct filter_rule *rules, size_t n, const struct filter_rule *more,
                      size_t n_more, struct sock_fprog *ret, struct err *e)
{
    CLEANUP(seccomp_releasep) scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int r;

    ASSERT(rules && ret && ctx);
    /* Binary search over the numbers instead of a chain: the filter runs at every call. */
    r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    for (size_t i = 0; i < n && r >= 0; i++) {
        r = filter_add(ctx, &rules[i]);
        if (r < 0) {
            return err_wrap(e, r, "filtering '%s'", rules[i].name);
        }
    }
    for (size_t i = 0; i < n_more && r >= 0; i++) {
        r = filter_mentions(rules, n, more[i].name) ? 0 : filter_add(ctx, &more[i]);
        if (r < 0) {
            return err_wrap(e, r, "filtering '%s'", more[i].name);
        }
    }
    if (r >= 0) {
        r = filter_export(ctx, ret);
    }
    return r < 0 ? err_wrap(e, r, "compiling a system call filter") : 0;
}

int jail_filter_install(const struct sock_fprog *program)
{
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program) < 0) {
        return -errno;
    }
    return 0;
}

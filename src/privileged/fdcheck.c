/* SPDX-License-Identifier: Apache-2.0 */
#include "privileged/fdcheck.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum fd_type {
    FD_FILE,
    FD_FILE_OR_PIPE,
    FD_LISTENER,
};

struct fd_rule {
    const char *name;
    enum fd_type type;
    int access;         /* O_RDONLY, O_WRONLY or O_RDWR */
    bool named_in_jail; /* the VMM opens it again, as its own user */
};

static const struct fd_rule rules[PRIV_FD_COUNT_] = {
    [PRIV_FD_MEMORY] = {"memory", FD_FILE, O_RDONLY, true},
    [PRIV_FD_DISK] = {"disk", FD_FILE, O_RDWR, false},
    [PRIV_FD_QMP] = {"qmp", FD_LISTENER, O_RDWR, false},
    [PRIV_FD_CHANNEL] = {"channel", FD_LISTENER, O_RDWR, false},
    [PRIV_FD_CONSOLE] = {"console", FD_FILE_OR_PIPE, O_WRONLY, false},
    [PRIV_FD_KERNEL] = {"kernel", FD_FILE, O_RDONLY, true},
    [PRIV_FD_INITRD] = {"initrd", FD_FILE, O_RDONLY, true},
    [PRIV_FD_DEVICE_STATE] = {"device_state", FD_FILE, O_RDONLY, false},
};
/* A base machine writes its RAM into the memory file. */
static const struct fd_rule rule_base_memory = {"memory", FD_FILE, O_RDWR, true};

static int fd_bad(const char *name, const char *why, struct err *e)
{
    return err_set(e, -EINVAL, "bad_descriptor", "the descriptor '%s' %s", name, why);
}

static int socket_option(int fd, int option)
{
    int value = -1;
    socklen_t len = sizeof(value);

    return getsockopt(fd, SOL_SOCKET, option, &value, &len) < 0 ? -1 : value;
}

static bool fd_is_listener(int fd)
{
    return socket_option(fd, SO_DOMAIN) == AF_UNIX && socket_option(fd, SO_TYPE) == SOCK_STREAM &&
           socket_option(fd, SO_ACCEPTCONN) == 1;
}

static int fdcheck_mode(const struct fd_rule *rule, mode_t mode, struct err *e)
{
    mode_t need = rule->access == O_RDWR ? 0006 : 0004;

    if ((mode & need) != need) {
        return fd_bad(rule->name,
                      need == 0006 ? "must be readable and writable for others (mode 0666)"
                                   : "must be readable for others (mode 0444)",
                      e);
    }
    if (rule->access == O_RDONLY && (mode & 0002)) {
        return fd_bad(rule->name, "must not be writable for others", e);
    }
    return 0;
}

static int fdcheck_one(const struct fd_rule *rule, int fd, struct stat *ret_st, struct err *e)
{
    int flags = fcntl(fd, F_GETFL);
    bool type_ok;

    if (flags < 0 || fstat(fd, ret_st) < 0) {
        return err_wrap(e, -errno, "looking at the descriptor '%s'", rule->name);
    }
    switch (rule->type) {
    case FD_FILE:
        type_ok = S_ISREG(ret_st->st_mode);
        break;
    case FD_FILE_OR_PIPE:
        type_ok = S_ISREG(ret_st->st_mode) || S_ISFIFO(ret_st->st_mode);
        break;
    default:
        type_ok = S_ISSOCK(ret_st->st_mode) && fd_is_listener(fd);
        break;
    }
    if (!type_ok) {
        return fd_bad(rule->name, "is of the wrong kind", e);
    }
    if ((flags & O_PATH) || (flags & O_ACCMODE) != rule->access) {
        return fd_bad(rule->name,
                      rule->access == O_RDONLY   ? "must be open for reading only"
                      : rule->access == O_WRONLY ? "must be open for writing only"
                                                 : "must be open for reading and writing",
                      e);
    }
    if (rule->access == O_RDWR && rule->type == FD_FILE && (flags & O_APPEND)) {
        return fd_bad(rule->name, "must not be open for appending", e);
    }
    return rule->named_in_jail ? fdcheck_mode(rule, ret_st->st_mode, e) : 0;
}

int fdcheck_machine(const struct priv_machine_start *m, const int fds[PRIV_FD_COUNT_],
                    struct err *e)
{
    int64_t ram_bytes = (int64_t)m->memory_mib << 20;
    struct stat st;
    int r;

    for (size_t i = 0; i < PRIV_FD_COUNT_; i++) {
        bool base_memory = i == PRIV_FD_MEMORY && (m->flags & PRIV_MACHINE_BASE);

        if (fds[i] < 0) {
            continue;
        }
        r = fdcheck_one(base_memory ? &rule_base_memory : &rules[i], fds[i], &st, e);
        if (r < 0) {
            return r;
        }
        if (i == PRIV_FD_MEMORY && st.st_size != ram_bytes) {
            return fd_bad("memory", "must be exactly as large as the machine's memory", e);
        }
    }
    return 0;
}

static int fdcheck_copy_file(const char *name, int fd, int access, struct err *e)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        (fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_PATH)) != access) {
        return fd_bad(name,
                      access == O_RDWR ? "must be a regular file, readable and writable"
                                       : "must be a regular file, open for reading only",
                      e);
    }
    return 0;
}

int fdcheck_copy(const struct priv_machine_copy *m, const int fds[PRIV_FD_COUNT_], struct err *e)
{
    int access = m->flags & PRIV_COPY_INTO ? O_RDONLY : O_RDWR;
    int control = fds[PRIV_COPY_FD_CONTROL];
    int r = fdcheck_copy_file("file", fds[PRIV_COPY_FD_FILE], access, e);

    if (r == 0) {
        r = fdcheck_copy_file("pages", fds[PRIV_COPY_FD_PAGES], access, e);
    }
    if (r < 0) {
        return r;
    }
    if (socket_option(control, SO_DOMAIN) != AF_UNIX ||
        socket_option(control, SO_TYPE) != SOCK_SEQPACKET ||
        socket_option(control, SO_ACCEPTCONN) != 0) {
        return fd_bad("control", "must be a connected packet socket", e);
    }
    return 0;
}

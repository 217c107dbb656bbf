/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon for tests on a host: the same routes over an inherited socket, with a folder as the sandbox's root.
 *
 *     daemon-on-host --fd N --root DIR [--cgroup DIR]
 *
 * It ends when the other end of the socket is closed, with everything freed, so that leak checks mean something.
 */
#include "base/fs.h"
#include "base/log.h"
#include "daemon/module.h"
#include "daemon/server.h"

#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

struct options {
    uint64_t fd;
    const char *root;
    const char *cgroup;
};

static int options_parse(int argc, char **argv, struct options *ret)
{
    static const struct option names[] = {
        {"fd", required_argument, NULL, 'f'},
        {"root", required_argument, NULL, 'r'},
        {"cgroup", required_argument, NULL, 'c'},
        {NULL, 0, NULL, 0},
    };
    int c;

    *ret = (struct options){0};
    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (c == 'f' && str_to_u64(optarg, 1000000, &ret->fd) < 0) {
            return -EINVAL;
        }
        if (c == 'r') {
            ret->root = optarg;
        } else if (c == 'c') {
            ret->cgroup = optarg;
        } else if (c != 'f') {
            return -EINVAL;
        }
    }
    return ret->root && ret->fd > 2 ? 0 : -EINVAL;
}

static int daemon_start(struct daemon *d, const struct options *o, struct err *e)
{
    struct workload_cgroups cgroups = {FD_NONE, FD_NONE};
    struct workload_place place = {FD_NONE, FD_NONE};
    int r;

    place.root_fd = fs_open(o->root, O_PATH | O_DIRECTORY, 0);
    if (place.root_fd < 0) {
        return err_wrap(e, place.root_fd, "opening %s", o->root);
    }
    if (o->cgroup) {
        cgroups.cgroup_fd = fs_open(o->cgroup, O_PATH | O_DIRECTORY, 0);
    }
    d->test = true;
    d->workload = workload_new(cgroups);
    workload_enter_ready(d->workload, place);
    d->loop = loop_new();
    r = children_new(d->loop, /* reap_all */ true, &d->children);
    if (r < 0) {
        return err_wrap(e, r, "listening for children");
    }
    r = fd_set_nonblock((int)o->fd, true);
    if (r < 0 || fcntl((int)o->fd, F_SETFD, FD_CLOEXEC) < 0) {
        return err_set(e, -EBADF, NULL, "--fd is not a socket");
    }
    r = modules_init(d, e);
    if (r < 0) {
        return r;
    }
    d->server = server_new(d, (int)o->fd);
    daemon_touch(d);
    return 0;
}

int main(int argc, char **argv)
{
    static struct daemon d;
    struct options o;
    struct err e = {0};

    log_init("daemon-on-host");
    if (options_parse(argc, argv, &o) < 0) {
        fprintf(stderr, "usage: daemon-on-host --fd N --root DIR [--cgroup DIR]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (daemon_start(&d, &o, &e) < 0) {
        log_error(NULL, "cannot start: %s", e.msg);
        return 1;
    }
    loop_run(d.loop);
    modules_teardown(&d);
    server_free(d.server);
    modules_done(&d);
    children_free(d.children);
    workload_free(d.workload);
    loop_run_once(d.loop, 0); /* what was freed goes */
    loop_free(d.loop);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space-daemon: PID 1 of the guest, in the initramfs, single-threaded.
 *
 * In stages:
 *   1. guest_prepare       file systems, console, modules      now possible: log, devices
 *   2. guest_make_cgroups  the daemon's share is safe           now possible: start processes of others
 *   3. guest_open_port     the way to the host                  now possible: be asked
 *   4. serve               for ever; nothing in the guest can end it
 *
 * A failure before stage 4 ends the process, which ends the machine: the host sees it and has the console.
 */
#include "base/clock.h"
#include "base/log.h"
#include "daemon/guest-init.h"
#include "daemon/module.h"
#include "daemon/network.h"
#include "daemon/server.h"

#include <stdio.h>
#include <unistd.h>

#define PORT_NAME "space.0"
#define PORT_WAIT_MS 60000

static int daemon_start(struct daemon *d, struct err *e)
{
    struct workload_cgroups cgroups;
    struct err net = {0};
    int port_fd;
    int r = guest_prepare(e);

    if (r == 0) {
        r = guest_make_cgroups(&cgroups, e);
    }
    if (r < 0) {
        return r;
    }
    d->workload = workload_new(cgroups);
    d->loop = loop_new();
    r = children_new(d->loop, /* reap_all */ true, &d->children);
    if (r < 0) {
        return err_wrap(e, r, "listening for children");
    }
    if (network_loopback_up(&net) < 0) {
        log_warn(NULL, "%s, ignoring", net.msg);
    }
    if (network_eth0_up(&net) < 0) {
        log_warn(NULL, "%s, ignoring", net.msg);
    }
    r = modules_init(d, e);
    if (r < 0) {
        return r;
    }
    r = guest_open_port(PORT_NAME, deadline_in_ms(PORT_WAIT_MS), &port_fd, e);
    if (r < 0) {
        return r;
    }
    d->server = server_new(d, port_fd);
    daemon_touch(d);
    return 0;
}

int main(int argc, char **argv)
{
    static struct daemon d;
    struct err e = {0};

    if (argc > 1 && str_eq(argv[1], "--version")) {
        printf("space-daemon %s\n", SPACE_VERSION);
        return 0;
    }
    if (getpid() != 1) {
        fprintf(
            stderr,
            "space-daemon is the first process of a sandbox's guest; it is of no use elsewhere\n");
        return 2;
    }
    log_init("space-daemon");
    if (daemon_start(&d, &e) < 0) {
        log_error(NULL, "cannot start: %s", e.msg);
        return 1;
    }
    for (;;) {
        loop_run(d.loop);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests and measurements: the island of a machine without the machine. A network namespace of the test takes the place of
 * the guest: the other end of the island's tap is a tap "eth0" in there, and this program carries the frames, as QEMU
 * would.
 *
 *     island-on-host GUEST_NETNS GATEWAY_SOCKET SANDBOX PROJECT ORGANISATION POLICY
 *
 * Prints "ready" when the network gateway has the sockets; ends with its input. The island goes with it.
 */
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "ipc/netgate.h"
#include "jail/net.h"

/* A segment that the kernel has left whole, with its header. */
#define FRAME_MAX 66000u
#define FRAMES_AT_ONCE 64

struct taps {
    int island; /* owned */
    int guest;  /* owned */
};

/* Large segments pass whole, as with a guest whose driver can do that. */
static int allow_large(int fd)
{
    return ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) < 0 ? -errno : 0;
}

/* In the guest's namespace, which the caller enters and leaves. */
static int open_guest_tap(const char *netns, int home_fd, int *ret_fd, struct err *e)
{
    cleanup_close int ns_fd = open(netns, O_RDONLY | O_CLOEXEC);
    cleanup_close int fd = FD_NONE;
    struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    int r;

    if (ns_fd < 0 || setns(ns_fd, CLONE_NEWNET) < 0) {
        return err_wrap(e, -errno, "entering the namespace of the guest");
    }
    snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "eth0");
    fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    r = fd < 0 || ioctl(fd, TUNSETIFF, &ifr) < 0 ? -errno : allow_large(fd);
    if (setns(home_fd, CLONE_NEWNET) < 0) {
        abort();
    }
    if (r < 0) {
        return err_wrap(e, r, "making the guest's interface");
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* The island is the namespace that this process stays in. */
static int make_island(const char *netns, struct taps *ret, struct err *e)
{
    cleanup_close int home_fd = FD_NONE;
    int r;

    if (unshare(CLONE_NEWNET) < 0) {
        return err_wrap(e, -errno, "making a network namespace");
    }
    home_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    r = home_fd < 0 ? err_wrap(e, -errno, "opening the namespace") : jail_net(&ret->island, e);
    if (r == 0 && allow_large(ret->island) < 0) {
        r = err_wrap(e, -errno, "setting up the island's interface");
    }
    return r < 0 ? r : open_guest_tap(netns, home_fd, &ret->guest, e);
}

static int attach(char **argv, struct err *e)
{
    cleanup_close int home_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    cleanup_close int self_fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
    CLEANUP(netgate_freep) struct netgate *gate = netgate_new(argv[2]);
    cleanup_json json_t *policy = NULL;
    int fds[2] = {FD_NONE, FD_NONE};
    int r = json_parse_object(argv[6], strlen(argv[6]), &policy, e);

    if (r == 0 && (home_fd < 0 || self_fd < 0)) {
        r = err_wrap(e, -errno, "opening this process");
    }
    r = r < 0 ? r : jail_net_socket(self_fd, home_fd, PRIV_SOCKET_TCP, &fds[0], e);
    r = r < 0 ? r : jail_net_socket(self_fd, home_fd, PRIV_SOCKET_DNS, &fds[1], e);
    if (r == 0) {
        r = netgate_call_take(gate,
                              json_pack("{s:s, s:s, s:s, s:s, s:s, s:O}", "op", "attach", "sandbox",
                                        argv[3], "machine", argv[3], "project", argv[4],
                                        "organisation", argv[5], "policy", policy),
                              fds, 2, NULL, e);
    }
    fd_close(fds[0]);
    fd_close(fds[1]);
    return r;
}

/* A frame that the other end has no room for is lost, as on any wire. */
static void carry(int from, int to, char *frame)
{
    for (unsigned i = 0; i < FRAMES_AT_ONCE; i++) {
        ssize_t n = read(from, frame, FRAME_MAX);

        if (n <= 0) {
            return;
        }
        IGNORE_RESULT(write(to, frame, (size_t)n));
    }
}

static void carry_until_the_end(const struct taps *taps)
{
    cleanup_free char *frame = xmalloc(FRAME_MAX);
    struct pollfd p[] = {
        {.fd = taps->island, .events = POLLIN},
        {.fd = taps->guest, .events = POLLIN},
        {.fd = STDIN_FILENO, .events = POLLIN},
    };

    while (!p[2].revents) {
        if (poll(p, ARRAY_SIZE(p), -1) < 0) {
            continue;
        }
        if (p[0].revents) {
            carry(taps->island, taps->guest, frame);
        }
        if (p[1].revents) {
            carry(taps->guest, taps->island, frame);
        }
    }
}

int main(int argc, char **argv)
{
    struct taps taps = {FD_NONE, FD_NONE};
    struct err e = {0};
    int r;

    log_init("island-on-host");
    if (argc != 7) {
        fprintf(stderr, "wrong number of words\n");
        return 2;
    }
    r = make_island(argv[1], &taps, &e);
    r = r < 0 ? r : attach(argv, &e);
    if (r == 0) {
        printf("ready\n");
        fflush(stdout);
        carry_until_the_end(&taps);
    } else {
        log_error(NULL, "%s", e.msg);
    }
    fd_close(taps.guest);
    fd_close(taps.island);
    return r < 0 ? 1 : 0;
}

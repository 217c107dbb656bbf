/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/network.h"

#include "base/fs.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* 10.0.0.2/30 and its one neighbour; the other end is made by src/jail/net.c. */
#define GUEST_ADDR 0x0a000002u
#define GATEWAY_ADDR 0x0a000001u
#define NETMASK 0xfffffffcu

static void set_addr(struct sockaddr *where, uint32_t addr)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(addr)};

    memcpy(where, &in, sizeof(in));
}

static int bring_up(int fd, struct ifreq *ifr)
{
    if (ioctl(fd, SIOCGIFFLAGS, ifr) < 0) {
        return -errno;
    }
    ifr->ifr_flags |= IFF_UP | IFF_RUNNING;
    return ioctl(fd, SIOCSIFFLAGS, ifr) < 0 ? -errno : 0;
}

int network_loopback_up(struct err *e)
{
    cleanup_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq ifr = {.ifr_name = "lo"};
    int r = fd < 0 ? -errno : bring_up(fd, &ifr);

    return r < 0 ? err_wrap(e, r, "bringing the loopback interface up") : 0;
}

/* There is none behind eth0, and looking for it costs each new machine packets that are dropped. */
static void disable_ipv6(void)
{
    cleanup_close int fd = fs_open("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", O_WRONLY, 0);

    if (fd >= 0) {
        IGNORE_RESULT(fs_write_all(fd, "1", 1)); /* a kernel without IPv6 has no such file either */
    }
}

static int add_default_route(int fd)
{
    struct rtentry route = {.rt_flags = RTF_UP | RTF_GATEWAY};

    set_addr(&route.rt_dst, 0);
    set_addr(&route.rt_genmask, 0);
    set_addr(&route.rt_gateway, GATEWAY_ADDR);
    return ioctl(fd, SIOCADDRT, &route) < 0 && errno != EEXIST ? -errno : 0;
}

int network_eth0_up(struct err *e)
{
    cleanup_close int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq ifr = {.ifr_name = "eth0"};
    int r = 0;

    disable_ipv6();
    set_addr(&ifr.ifr_addr, GUEST_ADDR);
    if (fd < 0 || ioctl(fd, SIOCSIFADDR, &ifr) < 0) {
        r = -errno;
    }
    set_addr(&ifr.ifr_netmask, NETMASK);
    if (r == 0 && ioctl(fd, SIOCSIFNETMASK, &ifr) < 0) {
        r = -errno;
    }
    if (r == 0) {
        r = bring_up(fd, &ifr);
    }
    if (r == 0) {
        r = add_default_route(fd);
    }
    return r < 0 ? err_wrap(e, r, "bringing eth0 up") : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "jail/net.h"

#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "jail/net-rules.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/ip.h>
#include <linux/neighbour.h>
#include <linux/netconf.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define GATEWAY_ADDR 0x0a000001u
#define GUEST_ADDR 0x0a000002u
#define PREFIX_LEN 30
/* A new network namespace numbers its interfaces from 1, and lo is the first. */
#define LOOPBACK_INDEX 1
#define LISTEN_BACKLOG 512
/* Of datagrams that wait for the gateway: a few hundred questions. */
#define DNS_BUFFER_BYTES 262144

/* The hardware address that every guest remembers of its neighbour. */
static const uint8_t tap_mac[6] = {0x02, 0x53, 0x50, 0x00, 0x00, 0x01};

static int make_tap(int *ret_fd, int *ret_index)
{
    cleanup_close int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    cleanup_close int any_fd = FD_NONE;

    snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", JAIL_NET_TAP);
    if (FAULT("jail.tap") || fd < 0 || ioctl(fd, TUNSETIFF, &ifr) < 0) {
        return -errno;
    }
    any_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (any_fd < 0 || ioctl(any_fd, SIOCGIFINDEX, &ifr) < 0) {
        return -errno;
    }
    *ret_index = ifr.ifr_ifindex;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* What is said for all interfaces counts as well, so this is for one that is more generous. */
static void put_link_settings(struct netlink *nl)
{
    const struct {
        uint16_t which;
        uint32_t value;
    } settings[] = {
        {IPV4_DEVCONF_FORWARDING, 0},
        {IPV4_DEVCONF_ARP_IGNORE, 1}, /* answers for its own address, not for "anywhere is local" */
        {IPV4_DEVCONF_RP_FILTER, 0},  /* the rules know the one source */
        {IPV4_DEVCONF_ACCEPT_REDIRECTS, 0},
        {IPV4_DEVCONF_SEND_REDIRECTS, 0},
    };
    size_t all = netlink_nest(nl, IFLA_AF_SPEC);
    size_t inet = netlink_nest(nl, AF_INET);
    size_t conf = netlink_nest(nl, IFLA_INET_CONF);
    size_t inet6;
    uint8_t no_address = IN6_ADDR_GEN_MODE_NONE;

    for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
        netlink_put_u32(nl, settings[i].which, settings[i].value);
    }
    netlink_nest_end(nl, conf);
    netlink_nest_end(nl, inet);
    inet6 = netlink_nest(nl, AF_INET6);
    netlink_put(nl, IFLA_INET6_ADDR_GEN_MODE, &no_address, sizeof(no_address));
    netlink_nest_end(nl, inet6);
    netlink_nest_end(nl, all);
}

static void put_link_up(struct netlink *nl, int index)
{
    const struct ifinfomsg link = {.ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};

    netlink_begin(nl, &(struct netlink_message){RTM_NEWLINK, NLM_F_ACK, &link, sizeof(link)});
}

static void put_tap(struct netlink *nl, int index)
{
    const struct ifinfomsg link = {.ifi_index = index};
    const struct ifaddrmsg addr = {
        .ifa_family = AF_INET, .ifa_prefixlen = PREFIX_LEN, .ifa_index = (uint32_t)index};

    /* Before it is up: IPv6 would give itself an address at that moment. */
    netlink_begin(nl, &(struct netlink_message){RTM_NEWLINK, NLM_F_ACK, &link, sizeof(link)});
    netlink_put(nl, IFLA_ADDRESS, tap_mac, sizeof(tap_mac));
    put_link_settings(nl);
    put_link_up(nl, index);
    netlink_begin(
        nl, &(struct netlink_message){RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE, &addr, sizeof(addr)});
    netlink_put_be32(nl, IFA_LOCAL, GATEWAY_ADDR);
    netlink_put_be32(nl, IFA_ADDRESS, GATEWAY_ADDR);
}

/* Everything that is not the guest's is here. */
static void put_anywhere_is_local(struct netlink *nl)
{
    const struct rtmsg route = {.rtm_family = AF_INET,
                                .rtm_table = RT_TABLE_MAIN,
                                .rtm_protocol = RTPROT_STATIC,
                                .rtm_scope = RT_SCOPE_HOST,
                                .rtm_type = RTN_LOCAL};

    netlink_begin(nl, &(struct netlink_message){RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE, &route,
                                                sizeof(route)});
    netlink_put_u32(nl, RTA_OIF, LOOPBACK_INDEX);
}

static int commit(int protocol, int tap_index, struct err *e)
{
    struct netlink nl;
    int r = netlink_open(&nl, protocol);

    if (r < 0) {
        return err_wrap(e, r, "asking the kernel for a network");
    }
    if (protocol == NETLINK_NETFILTER) {
        net_rules_put(&nl);
    } else {
        put_link_up(&nl, LOOPBACK_INDEX);
        put_tap(&nl, tap_index);
        put_anywhere_is_local(&nl);
    }
    r = FAULT("jail.network") ? -EIO : netlink_commit(&nl);
    netlink_done(&nl);
    if (r < 0 && protocol == NETLINK_NETFILTER) {
        return err_wrap(e, r, "setting the packet filter (nf_tables with tproxy and reject)");
    }
    return r < 0 ? err_wrap(e, r, "setting addresses and routes") : 0;
}

int jail_net(int *ret_fd, struct err *e)
{
    cleanup_close int fd = FD_NONE;
    int index = 0;
    int r = make_tap(&fd, &index);

    if (r < 0) {
        return err_wrap(e, r, "making the machine's network interface (/dev/net/tun)");
    }
    r = commit(NETLINK_NETFILTER, index, e); /* the door before the way */
    if (r == 0) {
        r = commit(NETLINK_ROUTE, index, e);
    }
    if (r == 0) {
        *ret_fd = TAKE_FD(fd);
    }
    return r;
}

int jail_net_check(struct err *e)
{
    int fd = FD_NONE;
    int r = unshare(CLONE_NEWNET) < 0 ? err_wrap(e, -errno, "making a network namespace") : 0;

    r = r < 0 ? r : jail_net(&fd, e);
    fd_close(fd);
    return r;
}

/* ---- sockets ---- */

static int set_option(int fd, int level, int option, int value)
{
    return setsockopt(fd, level, option, &value, sizeof(value)) < 0 ? -errno : 0;
}

static int open_socket(enum priv_socket_kind kind, int *ret_fd)
{
    bool tcp = kind == PRIV_SOCKET_TCP;
    const struct sockaddr_in any = {.sin_family = AF_INET,
                                    .sin_port = htons(tcp ? NET_RULES_TCP_PORT : 53)};
    cleanup_close int fd =
        socket(AF_INET, (tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r = fd < 0 ? -errno : set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1);

    if (r == 0) {
        r = set_option(fd, SOL_IP, IP_TRANSPARENT, 1);
    }
    if (r == 0 && !tcp) {
        r = set_option(fd, SOL_IP, IP_PKTINFO, 1);
    }
    if (r == 0 && !tcp) {
        r = set_option(fd, SOL_SOCKET, SO_RCVBUF, DNS_BUFFER_BYTES);
    }
    if (r == 0 && bind(fd, (const struct sockaddr *)&any, sizeof(any)) < 0) {
        r = -errno;
    }
    if (r == 0 && tcp && listen(fd, LISTEN_BACKLOG) < 0) {
        r = -errno;
    }
    if (r == 0) {
        *ret_fd = TAKE_FD(fd);
    }
    return r;
}

int jail_net_socket(int pidfd, int home_fd, enum priv_socket_kind kind, int *ret_fd, struct err *e)
{
    cleanup_close int fd = FD_NONE;
    int r;

    if (FAULT("jail.socket") || setns(pidfd, CLONE_NEWNET) < 0) {
        return err_wrap(e, -errno, "entering the machine's network namespace");
    }
    r = open_socket(kind, &fd);
    if (setns(home_fd, CLONE_NEWNET) < 0) {
        log_error(NULL, "cannot come back from a machine's network namespace: %m");
        abort();
    }
    if (r < 0) {
        return err_wrap(e, r, "opening the socket");
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

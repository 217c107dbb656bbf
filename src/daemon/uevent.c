/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/uevent.h"

#include "base/clock.h"

#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>

#define LOOK_AGAIN_MS 100

int uevent_listen(void)
{
    const struct sockaddr_nl addr = {.nl_family = AF_NETLINK, .nl_groups = 1};
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);

    if (fd >= 0 && bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0) {
        fd = fd_close(fd);
    }
    return fd < 0 ? FD_NONE : fd;
}

void uevent_wait(int fd, uint64_t deadline_ns)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    char drop[4096];

    poll(&pfd, 1, deadline_poll_ms(MIN(deadline_ns, deadline_in_ms(LOOK_AGAIN_MS))));
    while (fd >= 0 && recv(fd, drop, sizeof(drop), 0) > 0) {
        /* Which device it was does not matter. */
    }
}

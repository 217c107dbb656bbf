/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/guest-init.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/sock.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PORTS "/sys/class/virtio-ports"
/* A change could be missed between two looks; then this is how long we wait at most. */
#define LOOK_AGAIN_MS 100

static bool port_has_name(const char *device, const char *name)
{
    cleanup_buf struct buf text = BUF_INIT(256);
    char path[320];

    snprintf(path, sizeof(path), PORTS "/%.200s/name", device);
    if (fs_read_file(AT_FDCWD, path, &text) < 0) {
        return false;
    }
    return text.len == strlen(name) + 1 && memcmp(text.data, name, strlen(name)) == 0;
}

/* The device node's name, "vport0p1". */
static bool port_find(const char *name, char *ret, size_t size)
{
    DIR *dir = opendir(PORTS);
    struct dirent *entry;
    bool found = false;

    while (dir && !found && (entry = readdir(dir))) {
        found = entry->d_name[0] != '.' && port_has_name(entry->d_name, name) &&
                str_copy(ret, size, entry->d_name) == 0;
    }
    if (dir) {
        closedir(dir);
    }
    return found;
}

/* The kernel's own announcements of devices: there is no udev that would tell us. */
static int listen_for_devices(void)
{
    const struct sockaddr_nl addr = {.nl_family = AF_NETLINK, .nl_groups = 1};
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);

    if (fd >= 0 && bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0) {
        fd = fd_close(fd);
    }
    return fd < 0 ? FD_NONE : fd;
}

int guest_open_port(const char *name, uint64_t deadline_ns, int *ret_fd, struct err *e)
{
    cleanup_close int news_fd = listen_for_devices();
    char device[128] = "";
    char path[256];
    char drop[4096];
    int fd;

    while (!port_find(name, device, sizeof(device))) {
        struct pollfd pfd = {.fd = news_fd, .events = POLLIN};

        if (deadline_passed(deadline_ns)) {
            return err_set(e, -ETIMEDOUT, NULL, "there is no virtio port named '%s'", name);
        }
        poll(&pfd, 1, LOOK_AGAIN_MS);
        while (news_fd >= 0 && recv(news_fd, drop, sizeof(drop), 0) > 0) {
            /* Which device it was does not matter: we look at all. */
        }
    }
    snprintf(path, sizeof(path), "/dev/%s", device);
    fd = fs_open(path, O_RDWR | O_NONBLOCK, 0);
    if (fd < 0) {
        return err_wrap(e, fd, "opening %s", path);
    }
    *ret_fd = fd;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/guest-init.h"

#include "base/clock.h"
#include "base/fs.h"
#include "daemon/uevent.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PORTS "/sys/class/virtio-ports"

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

int guest_open_port(const char *name, uint64_t deadline_ns, int *ret_fd, struct err *e)
{
    cleanup_close int news_fd = uevent_listen();
    char device[128] = "";
    char path[256];
    int fd;

    while (!port_find(name, device, sizeof(device))) {
        if (deadline_passed(deadline_ns)) {
            return err_set(e, -ETIMEDOUT, NULL, "there is no virtio port named '%s'", name);
        }
        uevent_wait(news_fd, deadline_ns);
    }
    snprintf(path, sizeof(path), "/dev/%s", device);
    fd = fs_open(path, O_RDWR | O_NONBLOCK, 0);
    if (fd < 0) {
        return err_wrap(e, fd, "opening %s", path);
    }
    *ret_fd = fd;
    return 0;
}

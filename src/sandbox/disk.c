/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/disk.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

int disk_clone_into(int from_fd, int to_fd)
{
    struct stat from;
    struct stat to;

    if (fstat(from_fd, &from) < 0 || fstat(to_fd, &to) < 0) {
        return -errno;
    }
    /* The clone of a shorter file would leave the rest of a longer one in place. */
    if (to.st_size > from.st_size && ftruncate(to_fd, 0) < 0) {
        return -errno;
    }
    return ioctl(to_fd, FICLONE, from_fd) < 0 ? -errno : 0;
}

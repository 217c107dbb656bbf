/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/disk.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXTENTS_PER_CALL 512

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

/* One FIEMAP call's worth of extents from at on. Returns how many; 0 at the end. */
static int read_extents(int fd, uint64_t at, struct fiemap *map, unsigned room)
{
    memset(map, 0, sizeof(*map));
    map->fm_start = at;
    map->fm_length = FIEMAP_MAX_OFFSET - at;
    map->fm_extent_count = room;
    return ioctl(fd, FS_IOC_FIEMAP, map) < 0 ? -errno : (int)map->fm_mapped_extents;
}

int disk_exclusive_bytes(int fd, uint64_t *ret)
{
    cleanup_free struct fiemap *map =
        xcalloc(1, sizeof(*map) + EXTENTS_PER_CALL * sizeof(struct fiemap_extent));
    uint64_t sum = 0;
    uint64_t at = 0;
    int n;

    while ((n = read_extents(fd, at, map, EXTENTS_PER_CALL)) > 0) {
        for (int i = 0; i < n; i++) {
            const struct fiemap_extent *x = &map->fm_extents[i];

            sum += x->fe_flags & (FIEMAP_EXTENT_SHARED | FIEMAP_EXTENT_UNKNOWN) ? 0 : x->fe_length;
            at = x->fe_logical + x->fe_length;
            if (x->fe_flags & FIEMAP_EXTENT_LAST) {
                *ret = sum;
                return 0;
            }
        }
    }
    if (n == 0) {
        *ret = sum;
    }
    return n;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/memory-copy.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAGE_BYTES 4096ull
#define MAPS_MAX (1024u * 1024)
#define REGIONS_MAX 64
#define ENTRIES_PER_READ 4096u
#define PAGES_PER_COPY 256u

#define ENTRY_SOFT_DIRTY (1ull << 55)
#define ENTRY_FILE (1ull << 61)
#define ENTRY_SWAPPED (1ull << 62)
#define ENTRY_PRESENT (1ull << 63)

/* A part of the RAM as it lies in the process. */
struct region {
    uint64_t start;
    uint64_t end;
    uint64_t offset; /* in the file: the guest's physical order */
};

struct memory_copy {
    struct memory_copy_files files;
    struct region regions[REGIONS_MAX];
    size_t n_regions;
    bool soft_dirty; /* the kernel tracks it */
    unsigned round;
    uint8_t *written; /* owned: a bit per page that out_fd holds from us */
    uint64_t n_pages;
    uint64_t entries[ENTRIES_PER_READ];
    uint8_t data[PAGES_PER_COPY * PAGE_BYTES];
    uint8_t old[PAGES_PER_COPY * PAGE_BYTES];
};

/*
 * "start-end perms offset dev inode path": the RAM is the private writable mapping of that inode. Its
 * name depends on who looks and vanishes when the jail is sealed; the device that is shown is
 * not the one that stat(2) tells on btrfs.
 */
static bool parse_region(const char *line, uint64_t ram_inode, struct region *ret)
{
    char perms[5];
    uint64_t inode;

    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64 " %*s %" SCNu64, &ret->start, &ret->end,
               perms, &ret->offset, &inode) != 5) {
        return false;
    }
    return str_eq(perms, "rw-p") && inode == ram_inode;
}

static int find_regions(struct memory_copy *c, uint64_t ram_bytes)
{
    cleanup_buf struct buf maps = BUF_INIT(MAPS_MAX);
    uint64_t found = 0;
    char *line;
    char *rest;
    int r = fs_read_fd(c->files.maps_fd, &maps);

    if (r < 0) {
        return r;
    }
    rest = maps.len ? maps.data : NULL;
    while ((line = strsep(&rest, "\n"))) {
        struct region region;

        if (!parse_region(line, c->files.ram_inode, &region)) {
            continue;
        }
        if (c->n_regions == REGIONS_MAX || region.end <= region.start ||
            region.offset > ram_bytes || region.end - region.start > ram_bytes - region.offset) {
            return -EBADMSG;
        }
        found += region.end - region.start;
        c->regions[c->n_regions++] = region;
    }
    return found == ram_bytes ? 0 : -ENOENT;
}

static bool clear_soft_dirty(struct memory_copy *c)
{
    return c->files.clear_refs_fd >= 0 && pwrite(c->files.clear_refs_fd, "4", 1, 0) == 1;
}

bool memory_copy_soft_dirty(void)
{
    static volatile uint8_t probe[2 * PAGE_BYTES];
    cleanup_close int fd = fs_open("/proc/self/pagemap", 0, 0);
    volatile uint8_t *page = probe + PAGE_BYTES - (uintptr_t)probe % PAGE_BYTES;
    uint64_t entry = 0;

    *page = 1; /* fresh pages count as dirty where dirtiness is tracked */
    return fd >= 0 &&
           pread(fd, &entry, sizeof(entry),
                 (off_t)((uintptr_t)page / PAGE_BYTES * sizeof(entry))) == (ssize_t)sizeof(entry) &&
           (entry & ENTRY_SOFT_DIRTY);
}

int memory_copy_new(const struct memory_copy_files *files, uint64_t ram_bytes,
                    struct memory_copy **ret)
{
    CLEANUP(memory_copy_freep) struct memory_copy *c = xnew(struct memory_copy);
    int r;

    c->files = *files;
    r = find_regions(c, ram_bytes);
    if (r < 0) {
        return r;
    }
    c->n_pages = ram_bytes / PAGE_BYTES;
    c->written = xcalloc(c->n_pages / 8 + 1, 1);
    c->soft_dirty = files->soft_dirty;
    *ret = TAKE_PTR(c);
    return 0;
}

void memory_copy_free(struct memory_copy *copy)
{
    if (copy) {
        free(copy->written);
        free(copy);
    }
}

static bool is_private(uint64_t entry)
{
    return (entry & ENTRY_SWAPPED) || ((entry & ENTRY_PRESENT) && !(entry & ENTRY_FILE));
}

static bool was_written(const struct memory_copy *c, uint64_t page)
{
    return c->written[page / 8] & (1u << (page % 8));
}

static bool wanted(const struct memory_copy *c, uint64_t entry, uint64_t page)
{
    if (!is_private(entry)) {
        return false;
    }
    return !c->soft_dirty || (entry & ENTRY_SOFT_DIRTY) || !was_written(c, page);
}

static int write_pages(struct memory_copy *c, uint64_t page, size_t n,
                       struct memory_copy_stats *stats)
{
    size_t bytes = n * PAGE_BYTES;

    if (pwrite(c->files.out_fd, c->data, bytes, (off_t)(page * PAGE_BYTES)) != (ssize_t)bytes) {
        return errno ? -errno : -EIO;
    }
    stats->written_pages += n;
    for (size_t i = 0; i < n; i++) {
        c->written[(page + i) / 8] |= (uint8_t)(1u << ((page + i) % 8));
    }
    return 0;
}

/* Without the kernel's help: only what differs from the round before is written again. */
static bool same_as_written(struct memory_copy *c, uint64_t page, size_t n)
{
    size_t bytes = n * PAGE_BYTES;

    for (size_t i = 0; i < n; i++) {
        if (!was_written(c, page + i)) {
            return false;
        }
    }
    return pread(c->files.out_fd, c->old, bytes, (off_t)(page * PAGE_BYTES)) == (ssize_t)bytes &&
           memcmp(c->old, c->data, bytes) == 0;
}

static int copy_run(struct memory_copy *c, uint64_t address, uint64_t page, size_t n,
                    struct memory_copy_stats *stats)
{
    size_t bytes = n * PAGE_BYTES;

    errno = 0;
    if (pread(c->files.mem_fd, c->data, bytes, (off_t)address) != (ssize_t)bytes) {
        return errno ? -errno : -EIO;
    }
    if (!c->soft_dirty && c->round > 0 && same_as_written(c, page, n)) {
        return 0;
    }
    return write_pages(c, page, n, stats);
}

static int copy_entries(struct memory_copy *c, const struct region *region, uint64_t first,
                        size_t n, struct memory_copy_stats *stats)
{
    uint64_t page = region->offset / PAGE_BYTES + first;
    size_t i = 0;

    while (i < n) {
        size_t run = 0;
        int r;

        stats->private_pages += is_private(c->entries[i]);
        while (i + run < n && run < PAGES_PER_COPY &&
               wanted(c, c->entries[i + run], page + i + run)) {
            stats->private_pages += run > 0;
            run++;
        }
        if (run == 0) {
            i++;
            continue;
        }
        r = copy_run(c, region->start + (first + i) * PAGE_BYTES, page + i, run, stats);
        if (r < 0) {
            return r;
        }
        i += run;
    }
    return 0;
}

static int copy_region(struct memory_copy *c, const struct region *region,
                       struct memory_copy_stats *stats)
{
    uint64_t n_pages = (region->end - region->start) / PAGE_BYTES;

    for (uint64_t first = 0; first < n_pages; first += ENTRIES_PER_READ) {
        size_t n = (size_t)MIN(n_pages - first, (uint64_t)ENTRIES_PER_READ);
        off_t at = (off_t)((region->start / PAGE_BYTES + first) * sizeof(uint64_t));
        int r;

        if (pread(c->files.pagemap_fd, c->entries, n * sizeof(uint64_t), at) !=
            (ssize_t)(n * sizeof(uint64_t))) {
            return errno ? -errno : -EIO;
        }
        r = copy_entries(c, region, first, n, stats);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

int memory_copy_round(struct memory_copy *c, struct memory_copy_stats *ret)
{
    struct memory_copy_stats stats = {0};
    uint64_t begun_ns = clock_now_ns();
    int r = 0;

    /* Cleared before the pages are read: what changes meanwhile is dirty again for the next round. */
    if (c->round == 0 && c->soft_dirty) {
        c->soft_dirty = clear_soft_dirty(c);
    }
    for (size_t i = 0; i < c->n_regions && r == 0; i++) {
        r = copy_region(c, &c->regions[i], &stats);
    }
    if (r < 0) {
        return r;
    }
    c->round++;
    stats.duration_ns = clock_now_ns() - begun_ns;
    *ret = stats;
    return 0;
}

void memory_copy_serve(const struct memory_copy_files *files, uint64_t ram_bytes, int control_fd)
{
    struct memory_copy *c = NULL;
    int failed = memory_copy_new(files, ram_bytes, &c);
    char command;

    while (recv(control_fd, &command, 1, 0) == 1) {
        struct memory_copy_answer answer = {.page_bytes = PAGE_BYTES};

        answer.code = failed < 0 ? failed : memory_copy_round(c, &answer.stats);
        if (send(control_fd, &answer, sizeof(answer), MSG_NOSIGNAL) != (ssize_t)sizeof(answer)) {
            break;
        }
    }
    memory_copy_free(c);
    _exit(0);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/memory-copy.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define PAGE_BYTES 4096ull
#define MAPS_MAX (1024u * 1024)
#define REGIONS_MAX 64
/* What a worker takes at a time. */
#define CHUNK_PAGES 1024u
#define PAGES_PER_COPY 128u
#define WORKERS_MAX 4

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
    uint64_t *written; /* owned: of each page the hash of what out_fd holds from us; 0: nothing */
    uint64_t n_pages;
    uint64_t seed;            /* so that a guest cannot make pages that look the same to us */
    atomic_size_t next_chunk; /* of this round */
};

/* One thread of a round. */
struct worker {
    struct memory_copy *copy; /* borrowed */
    pthread_t thread;
    int result;
    struct memory_copy_stats stats;
    uint64_t entries[CHUNK_PAGES];
    uint8_t data[PAGES_PER_COPY * PAGE_BYTES];
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
    c->written = xcalloc(c->n_pages, sizeof(*c->written));
    c->soft_dirty = files->soft_dirty;
    if (getrandom(&c->seed, sizeof(c->seed), 0) != (ssize_t)sizeof(c->seed)) {
        return -errno;
    }
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

static bool wanted(const struct memory_copy *c, uint64_t entry, uint64_t page)
{
    if (!is_private(entry)) {
        return false;
    }
    return !c->soft_dirty || (entry & ENTRY_SOFT_DIRTY) || c->written[page] == 0;
}

static int write_pages(struct worker *w, uint64_t page, size_t at, size_t n)
{
    size_t bytes = n * PAGE_BYTES;

    errno = 0;
    if (n > 0 && pwrite(w->copy->files.out_fd, w->data + at * PAGE_BYTES, bytes,
                        (off_t)(page * PAGE_BYTES)) != (ssize_t)bytes) {
        return errno ? -errno : -EIO;
    }
    w->stats.written_pages += n;
    return 0;
}

/* Without the kernel's help: what looks as it did in the round before is not written again. */
static bool has_changed(struct worker *w, uint64_t page, size_t at)
{
    struct memory_copy *c = w->copy;
    uint64_t hash;

    if (c->soft_dirty) {
        c->written[page] = 1;
        return true;
    }
    hash = XXH3_64bits_withSeed(w->data + at * PAGE_BYTES, PAGE_BYTES, c->seed) | 1;
    if (c->written[page] == hash) {
        return false;
    }
    c->written[page] = hash;
    return true;
}

static int copy_run(struct worker *w, uint64_t address, uint64_t page, size_t n)
{
    size_t bytes = n * PAGE_BYTES;
    size_t from = 0; /* what is not written yet begins here */
    int r = 0;

    errno = 0;
    if (pread(w->copy->files.mem_fd, w->data, bytes, (off_t)address) != (ssize_t)bytes) {
        return errno ? -errno : -EIO;
    }
    for (size_t i = 0; i < n && r == 0; i++) {
        if (!has_changed(w, page + i, i)) {
            r = write_pages(w, page + from, from, i - from);
            from = i + 1;
        }
    }
    return r < 0 ? r : write_pages(w, page + from, from, n - from);
}

static int copy_entries(struct worker *w, const struct region *region, uint64_t first, size_t n)
{
    struct memory_copy *c = w->copy;
    uint64_t page = region->offset / PAGE_BYTES + first;
    size_t i = 0;

    while (i < n) {
        size_t run = 0;
        int r;

        w->stats.private_pages += is_private(w->entries[i]);
        while (i + run < n && run < PAGES_PER_COPY &&
               wanted(c, w->entries[i + run], page + i + run)) {
            w->stats.private_pages += run > 0;
            run++;
        }
        if (run == 0) {
            i++;
            continue;
        }
        r = copy_run(w, region->start + (first + i) * PAGE_BYTES, page + i, run);
        if (r < 0) {
            return r;
        }
        i += run;
    }
    return 0;
}

static int copy_chunk(struct worker *w, const struct region *region, uint64_t first)
{
    uint64_t n_pages = (region->end - region->start) / PAGE_BYTES;
    size_t n = (size_t)MIN(n_pages - first, (uint64_t)CHUNK_PAGES);
    off_t at = (off_t)((region->start / PAGE_BYTES + first) * sizeof(uint64_t));

    errno = 0;
    if (pread(w->copy->files.pagemap_fd, w->entries, n * sizeof(uint64_t), at) !=
        (ssize_t)(n * sizeof(uint64_t))) {
        return errno ? -errno : -EIO;
    }
    return copy_entries(w, region, first, n);
}

/* The chunks of all regions are numbered through. */
static bool find_chunk(const struct memory_copy *c, size_t chunk, const struct region **ret,
                       uint64_t *ret_first)
{
    for (size_t i = 0; i < c->n_regions; i++) {
        uint64_t n_pages = (c->regions[i].end - c->regions[i].start) / PAGE_BYTES;
        uint64_t n_chunks = (n_pages + CHUNK_PAGES - 1) / CHUNK_PAGES;

        if (chunk < n_chunks) {
            *ret = &c->regions[i];
            *ret_first = chunk * CHUNK_PAGES;
            return true;
        }
        chunk -= n_chunks;
    }
    return false;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    const struct region *region;
    uint64_t first;

    while (w->result == 0 &&
           find_chunk(w->copy, atomic_fetch_add(&w->copy->next_chunk, 1), &region, &first)) {
        w->result = copy_chunk(w, region, first);
    }
    return NULL;
}

static int work_all(struct memory_copy *c, unsigned n, struct memory_copy_stats *stats)
{
    cleanup_free struct worker *workers = xcalloc(n, sizeof(*workers));
    bool started[WORKERS_MAX] = {false};
    int r = 0;

    for (unsigned i = 0; i < n; i++) {
        workers[i].copy = c;
        /* One that cannot be started leaves its share to the others. */
        started[i] = i > 0 && pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0;
    }
    work(&workers[0]);
    for (unsigned i = 0; i < n; i++) {
        if (started[i]) {
            pthread_join(workers[i].thread, NULL);
        }
        r = r < 0 ? r : workers[i].result;
        stats->private_pages += workers[i].stats.private_pages;
        stats->written_pages += workers[i].stats.written_pages;
    }
    return r;
}

int memory_copy_round(struct memory_copy *c, unsigned threads, struct memory_copy_stats *ret)
{
    struct memory_copy_stats stats = {0};
    uint64_t begun_ns = clock_now_ns();
    int r;

    /* Cleared before the pages are read: what changes meanwhile is dirty again for the next round. */
    if (c->round == 0 && c->soft_dirty) {
        c->soft_dirty = clear_soft_dirty(c);
    }
    atomic_store(&c->next_chunk, 0);
    r = work_all(c, MIN(MAX(threads, 1u), (unsigned)WORKERS_MAX), &stats);
    if (r < 0) {
        return r;
    }
    c->round++;
    stats.duration_ns = clock_now_ns() - begun_ns;
    *ret = stats;
    return 0;
}

/* ---- the map of pages ---- */

static int write_map(const struct memory_copy *c)
{
    size_t bytes = (size_t)(c->n_pages + 7) / 8;
    cleanup_free uint8_t *map = xcalloc(bytes, 1);

    for (uint64_t page = 0; page < c->n_pages; page++) {
        map[page / 8] |= (uint8_t)((c->written[page] != 0) << (page % 8));
    }
    errno = 0;
    return pwrite(c->files.pages_fd, map, bytes, MEMORY_PAGES_AT) != (ssize_t)bytes
               ? (errno ? -errno : -EIO)
               : 0;
}

static const struct region *region_of(const struct memory_copy *c, uint64_t page)
{
    for (size_t i = 0; i < c->n_regions; i++) {
        const struct region *r = &c->regions[i];

        if (page * PAGE_BYTES >= r->offset && page * PAGE_BYTES - r->offset < r->end - r->start) {
            return r;
        }
    }
    return NULL;
}

static int load_run(struct memory_copy *c, uint64_t page, size_t n, uint8_t *data)
{
    const struct region *region = region_of(c, page);
    size_t bytes = n * PAGE_BYTES;

    if (!region || region != region_of(c, page + n - 1)) {
        return -EBADMSG;
    }
    errno = 0;
    if (pread(c->files.out_fd, data, bytes, (off_t)(page * PAGE_BYTES)) != (ssize_t)bytes ||
        pwrite(c->files.mem_fd, data, bytes,
               (off_t)(region->start + page * PAGE_BYTES - region->offset)) != (ssize_t)bytes) {
        return errno ? -errno : -EIO;
    }
    return 0;
}

static bool in_map(const uint8_t *map, uint64_t page)
{
    return map[page / 8] & (1u << (page % 8));
}

int memory_copy_load(struct memory_copy *c, struct memory_copy_stats *ret)
{
    size_t bytes = (size_t)(c->n_pages + 7) / 8;
    cleanup_free uint8_t *map = xcalloc(bytes, 1);
    cleanup_free uint8_t *data = xmalloc(PAGES_PER_COPY * PAGE_BYTES);
    struct memory_copy_stats stats = {0};
    uint64_t begun_ns = clock_now_ns();
    uint64_t page = 0;

    if (pread(c->files.pages_fd, map, bytes, MEMORY_PAGES_AT) != (ssize_t)bytes) {
        return -EBADMSG;
    }
    while (page < c->n_pages) {
        size_t n = 0;
        int r;

        while (n < PAGES_PER_COPY && page + n < c->n_pages && in_map(map, page + n) &&
               region_of(c, page) == region_of(c, page + n)) {
            n++;
        }
        r = n > 0 ? load_run(c, page, n, data) : 0;
        if (r < 0) {
            return r;
        }
        stats.written_pages += n;
        page += MAX(n, (size_t)1);
    }
    stats.duration_ns = clock_now_ns() - begun_ns;
    *ret = stats;
    return 0;
}

static int serve_one(struct memory_copy *c, char command, struct memory_copy_stats *ret)
{
    long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int r;

    if (command == MEMORY_COPY_LOAD) {
        return memory_copy_load(c, ret);
    }
    if (command != MEMORY_COPY_PAUSED) {
        return memory_copy_round(c, 1, ret);
    }
    r = memory_copy_round(c, n_cpus > 1 ? (unsigned)n_cpus : 1, ret);
    return r < 0 ? r : write_map(c);
}

void memory_copy_serve(const struct memory_copy_files *files, uint64_t ram_bytes, int control_fd)
{
    struct memory_copy *c = NULL;
    int failed = memory_copy_new(files, ram_bytes, &c);
    char command;

    while (recv(control_fd, &command, 1, 0) == 1) {
        struct memory_copy_answer answer = {.page_bytes = PAGE_BYTES};

        answer.code = failed < 0 ? failed : serve_one(c, command, &answer.stats);
        if (send(control_fd, &answer, sizeof(answer), MSG_NOSIGNAL) != (ssize_t)sizeof(answer)) {
            break;
        }
    }
    memory_copy_free(c);
    _exit(0);
}

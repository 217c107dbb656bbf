/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/extent.h"

#include <linux/btrfs.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/id.h"

#define PER_CALL 512u
#define EXTENTS_MAX (1u << 20) /* 32 MiB of them; a file in more pieces is compared byte by byte */
#define READ_BYTES (256u << 10)
#define HASH_BLOCK (64u << 10)
#define INCOMPARABLE \
    (FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_ENCODED | \
     FIEMAP_EXTENT_DATA_ENCRYPTED | FIEMAP_EXTENT_NOT_ALIGNED | FIEMAP_EXTENT_DATA_INLINE | \
     FIEMAP_EXTENT_DATA_TAIL | FIEMAP_EXTENT_UNWRITTEN)

struct span {
    uint64_t start;
    uint64_t end;
    uint64_t physical;
    bool comparable;
};

struct spans {
    struct span *list; /* owned */
    size_t n;
    size_t room;
};

static void spans_done(struct spans *s)
{
    free(s->list);
}

static int add_span(struct spans *s, const struct span *span)
{
    if (s->n == EXTENTS_MAX) {
        return -E2BIG;
    }
    if (s->n == s->room) {
        s->room = MAX(s->room * 2, (size_t)64);
        s->list = xrealloc(s->list, s->room * sizeof(*s->list));
    }
    s->list[s->n++] = *span;
    return 0;
}

/* ---- what a file consists of ---- */

static int map_part(int fd, uint64_t at, struct fiemap *map)
{
    memset(map, 0, sizeof(*map));
    map->fm_start = at;
    map->fm_length = FIEMAP_MAX_OFFSET - at;
    map->fm_flags = at == 0 ? FIEMAP_FLAG_SYNC : 0;
    map->fm_extent_count = PER_CALL;
    return ioctl(fd, FS_IOC_FIEMAP, map) < 0 ? -errno : (int)map->fm_mapped_extents;
}

static int map_file(int fd, struct spans *ret)
{
    cleanup_free struct fiemap *map =
        xcalloc(1, sizeof(*map) + PER_CALL * sizeof(struct fiemap_extent));
    uint64_t at = 0;
    int n;

    while ((n = map_part(fd, at, map)) > 0) {
        for (int i = 0; i < n; i++) {
            const struct fiemap_extent *x = &map->fm_extents[i];
            const struct span span = {x->fe_logical, x->fe_logical + x->fe_length, x->fe_physical,
                                      !(x->fe_flags & INCOMPARABLE)};
            int r = add_span(ret, &span);

            if (r < 0) {
                return r;
            }
            at = span.end;
            if (x->fe_flags & FIEMAP_EXTENT_LAST) {
                return 0;
            }
        }
    }
    return n;
}

/* Data and holes, where there is no map of extents. */
static int seek_file(int fd, uint64_t size, struct spans *ret)
{
    uint64_t at = 0;

    while (at < size) {
        off_t data = lseek(fd, (off_t)at, SEEK_DATA);
        off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
        struct span span;
        int r;

        if (data < 0 && errno == ENXIO) {
            return 0;
        }
        if (data < 0 || hole < 0) {
            return -errno;
        }
        span = (struct span){(uint64_t)data, (uint64_t)hole, 0, false};
        r = add_span(ret, &span);
        if (r < 0) {
            return r;
        }
        at = span.end;
    }
    return 0;
}

static int whole(uint64_t size, struct spans *ret)
{
    ret->n = 0;
    return size == 0 ? 0 : add_span(ret, &(struct span){0, size, 0, false});
}

static int describe(int fd, uint64_t size, struct spans *ret)
{
    int r = map_file(fd, ret);

    if (r < 0) {
        ret->n = 0;
        r = seek_file(fd, size, ret);
    }
    return r < 0 ? whole(size, ret) : 0;
}

static bool same_spans(const struct spans *a, const struct spans *b)
{
    for (size_t i = 0; i < a->n && a->n == b->n; i++) {
        const struct span *x = &a->list[i];
        const struct span *y = &b->list[i];

        if (x->start != y->start || x->end != y->end || x->physical != y->physical ||
            x->comparable != y->comparable) {
            return false;
        }
    }
    return a->n == b->n;
}

/* Subvolumes of one btrfs have device numbers of their own. */
static bool same_file_system(int a, int b)
{
    struct btrfs_ioctl_fs_info_args one = {0};
    struct btrfs_ioctl_fs_info_args two = {0};
    struct stat sa;
    struct stat sb;

    if (ioctl(a, BTRFS_IOC_FS_INFO, &one) == 0 && ioctl(b, BTRFS_IOC_FS_INFO, &two) == 0) {
        return memcmp(one.fsid, two.fsid, sizeof(one.fsid)) == 0;
    }
    return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev;
}

/* ---- comparing ---- */

struct diffing {
    const struct extent_pair *pair;
    extent_fn *each;
    void *ctx;
    unsigned char *ours;   /* owned: READ_BYTES */
    unsigned char *theirs; /* owned */
    uint64_t run_start;
    uint64_t run_end; /* equal to run_start: no run is open */
};

static void diffing_done(struct diffing *d)
{
    free(d->ours);
    free(d->theirs);
}

static int read_at(int fd, uint64_t offset, unsigned char *ret, size_t len)
{
    size_t done = 0;

    while (fd >= 0 && done < len) {
        ssize_t n = pread(fd, ret + done, len - done, (off_t)(offset + done));

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -errno;
        }
        if (n == 0) {
            break;
        }
        done += (size_t)n;
    }
    memset(ret + done, 0, len - done);
    return 0;
}

static int flush_run(struct diffing *d)
{
    uint64_t start = d->run_start;
    uint64_t length = d->run_end - start;

    d->run_start = d->run_end;
    return length > 0 ? d->each(d->ctx, start, length) : 0;
}

static int add_run(struct diffing *d, uint64_t offset, uint64_t length)
{
    int r = 0;

    if (offset != d->run_end) {
        r = flush_run(d);
        d->run_start = offset;
    }
    d->run_end = offset + length;
    return r;
}

static int compare_range(struct diffing *d, uint64_t start, uint64_t end)
{
    int r = 0;

    for (uint64_t at = start; at < end && r == 0; at += READ_BYTES) {
        size_t len = end - at < READ_BYTES ? (size_t)(end - at) : READ_BYTES;

        r = read_at(d->pair->fd, at, d->ours, len);
        if (r == 0) {
            r = read_at(d->pair->base_fd, at, d->theirs, len);
        }
        for (size_t i = 0; i < len && r == 0; i += EXTENT_BLOCK) {
            size_t n = MIN(len - i, (size_t)EXTENT_BLOCK);

            if (memcmp(d->ours + i, d->theirs + i, n) != 0) {
                r = add_run(d, at + i, n);
            }
        }
    }
    return r;
}

/* What there is at a place, and up to where it is like that. */
struct at {
    const struct span *span; /* NULL: a hole */
    uint64_t end;
};

static struct at look(const struct spans *s, size_t *i, uint64_t at, uint64_t size)
{
    while (*i < s->n && s->list[*i].end <= at) {
        (*i)++;
    }
    if (*i == s->n) {
        return (struct at){NULL, size};
    }
    if (s->list[*i].start > at) {
        return (struct at){NULL, MIN(s->list[*i].start, size)};
    }
    return (struct at){&s->list[*i], MIN(s->list[*i].end, size)};
}

static bool shared(const struct at *a, const struct at *b, uint64_t at)
{
    if (!a->span || !b->span) {
        return !a->span && !b->span;
    }
    return a->span->comparable && b->span->comparable &&
           a->span->physical + (at - a->span->start) == b->span->physical + (at - b->span->start);
}

static int walk(struct diffing *d, const struct spans *ours, const struct spans *theirs)
{
    uint64_t size = d->pair->size;
    uint64_t open = 0; /* a range to compare begins here */
    uint64_t at = 0;
    size_t i = 0;
    size_t j = 0;
    int r = 0;

    while (at < size && r == 0) {
        struct at a = look(ours, &i, at, size);
        struct at b = look(theirs, &j, at, size);
        uint64_t end = MIN(a.end, b.end);

        if (shared(&a, &b, at)) {
            r = compare_range(d, open, at);
            open = end;
        }
        at = end;
    }
    return r < 0 ? r : compare_range(d, open, size);
}

int extent_diff(const struct extent_pair *pair, extent_fn *each, void *ctx)
{
    CLEANUP(diffing_done)
    struct diffing d = {.pair = pair, .each = each, .ctx = ctx};
    CLEANUP(spans_done) struct spans ours = {0};
    CLEANUP(spans_done) struct spans theirs = {0};
    CLEANUP(spans_done) struct spans again = {0};
    int r = 0;

    d.ours = xmalloc(READ_BYTES);
    d.theirs = xmalloc(READ_BYTES);
    if (pair->base_fd >= 0) {
        r = describe(pair->base_fd, pair->size, &theirs);
    }
    if (r == 0) {
        r = describe(pair->fd, pair->size, &ours);
    }
    if (r == 0 && pair->base_fd >= 0) {
        r = describe(pair->base_fd, pair->size, &again);
    }
    if (r == 0 && pair->base_fd >= 0 &&
        (!same_spans(&theirs, &again) || !same_file_system(pair->fd, pair->base_fd))) {
        r = whole(pair->size, &ours);
    }
    if (r == 0) {
        r = walk(&d, &ours, &theirs);
    }
    return r != 0 ? r : flush_run(&d);
}

/* ---- the name of an image ---- */

static bool all_zero(const unsigned char *data, size_t len)
{
    return len == 0 || (data[0] == 0 && memcmp(data, data + 1, len - 1) == 0);
}

static int hash_blocks(EVP_MD_CTX *ctx, int fd, const struct spans *spans, uint64_t size)
{
    cleanup_free unsigned char *block = xmalloc(HASH_BLOCK);
    uint64_t next = 0; /* the first block that was not looked at yet */
    int r = 0;

    for (size_t i = 0; i < spans->n && r == 0; i++) {
        uint64_t at = MAX(spans->list[i].start / HASH_BLOCK * HASH_BLOCK, next);

        for (; at < spans->list[i].end && at < size && r == 0; at += HASH_BLOCK) {
            size_t len = size - at < HASH_BLOCK ? (size_t)(size - at) : HASH_BLOCK;

            r = read_at(fd, at, block, len);
            if (r == 0 && !all_zero(block, len)) {
                ASSERT(EVP_DigestUpdate(ctx, &at, sizeof(at)) == 1 &&
                       EVP_DigestUpdate(ctx, block, len) == 1);
            }
        }
        next = MAX(next, at);
    }
    return r;
}

int extent_image_name(int fd, uint64_t size, char ret[static CIPHER_NAME_SIZE])
{
    CLEANUP(spans_done) struct spans spans = {0};
    unsigned char digest[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *ctx;
    int r = describe(fd, size, &spans);

    if (r < 0) {
        return r;
    }
    ctx = EVP_MD_CTX_new();
    ASSERT(ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1);
    ASSERT(EVP_DigestUpdate(ctx, &size, sizeof(size)) == 1);
    r = hash_blocks(ctx, fd, &spans, size);
    ASSERT(EVP_DigestFinal_ex(ctx, digest, NULL) == 1);
    EVP_MD_CTX_free(ctx);
    if (r == 0) {
        hex_encode(digest, (CIPHER_NAME_SIZE - 1) / 2, ret);
    }
    return r;
}

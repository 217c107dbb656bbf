/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/transfer-internal.h"

#include <string.h>
#include <unistd.h>

#include "volume/chunk.h"

struct download {
    struct crew crew;
    const struct manifest_file *file;
    int fd;
    size_t next; /* guarded by the crew's lock, as the next */
    struct transfer_stats stats;
};

/* What a thread works with. */
struct bench {
    struct buf sealed;
    unsigned char packed[CHUNK_PACKED_MAX];
    unsigned char plain[CHUNK_PLAIN_MAX];
};

static int write_piece(void *ctx, uint64_t offset, const unsigned char *data, size_t length)
{
    const struct download *d = ctx;

    while (length > 0) {
        ssize_t n = pwrite(d->fd, data, length, (off_t)offset);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -errno;
        }
        data += n;
        offset += (uint64_t)n;
        length -= (size_t)n;
    }
    return 0;
}

static int damaged(const struct download *d, size_t index, struct err *e)
{
    return err_set(e, -EBADMSG, "chunk_damaged",
                   "chunk %zu of '%s' in the object store is damaged, or is another's", index,
                   d->file->name);
}

static int fetch(const struct download *d, const struct manifest_chunk *chunk, struct buf *ret,
                 struct err *e)
{
    char key[STORE_KEY_MAX + 1];
    int r;

    transfer_chunk_key(d->crew.t->organisation, chunk->id.name, key);
    r = store_get(d->crew.t->store, key, ret, e);
    /* What is asked for exists, only this part of it does not: not the client's mistake. */
    return r == -ENOENT
               ? err_set(e, -EIO, "object_missing",
                         "the object store has lost '%s', which '%s' needs", key, d->file->name)
               : r;
}

static int get_chunk(struct download *d, struct bench *bench, size_t index, struct err *e)
{
    const struct manifest_chunk *chunk = &d->file->chunks[index];
    size_t len = 0;
    int r;

    bench->sealed = BUF_INIT(CHUNK_PACKED_MAX + CIPHER_TAG_SIZE);
    r = fetch(d, chunk, &bench->sealed, e);
    if (r == -E2BIG || (r == 0 && bench->sealed.len != chunk->sealed_len)) {
        r = damaged(d, index, e);
    }
    if (r == 0 &&
        (cipher_open_chunk(&chunk->id, bench->sealed.data, bench->sealed.len, bench->packed) < 0 ||
         chunk_unpack(bench->packed, bench->sealed.len - CIPHER_TAG_SIZE, bench->plain, &len) <
             0)) {
        r = damaged(d, index, e);
    }
    buf_done(&bench->sealed);
    if (r < 0) {
        return r;
    }
    r = chunk_parse(bench->plain, len, d->file->size, write_piece, d);
    if (r == -EBADMSG) {
        return damaged(d, index, e);
    }
    return r < 0 ? err_wrap(e, r, "writing '%s'", d->file->name) : 0;
}

static bool take_index(struct download *d, size_t *ret)
{
    bool is_one;

    pthread_mutex_lock(&d->crew.lock);
    is_one = d->crew.error == 0 && d->next < d->file->n_chunks;
    if (is_one) {
        *ret = d->next++;
        d->stats.chunks++;
        d->stats.stored_bytes += d->file->chunks[*ret].sealed_len;
    }
    pthread_mutex_unlock(&d->crew.lock);
    return is_one;
}

static void *download_main(void *arg)
{
    struct download *d = arg;
    struct bench *bench = xmalloc(sizeof(*bench));
    size_t index = 0;

    while (take_index(d, &index)) {
        struct err e = {0};
        int r = transfer_watch(d->crew.t, &e);

        if (r == 0) {
            r = get_chunk(d, bench, index, &e);
        }
        if (r < 0) {
            crew_fail(&d->crew, r, &e);
        }
    }
    explicit_bzero(bench->plain, sizeof(bench->plain));
    free(bench);
    return NULL;
}

int transfer_download(const struct transfer *t, const struct manifest_file *file, int fd,
                      struct transfer_stats *stats, struct err *e)
{
    struct download d = {.file = file, .fd = fd};
    int r;

    crew_init(&d.crew, t);
    crew_start(&d.crew, download_main, &d);
    crew_join(&d.crew);
    r = d.crew.error;
    if (r < 0 && e) {
        *e = d.crew.why;
    }
    crew_done(&d.crew);
    stats->chunks += d.stats.chunks;
    stats->stored_bytes += d.stats.stored_bytes;
    return r < 0 ? err_wrap(e, r, "fetching '%s'", file->name) : 0;
}

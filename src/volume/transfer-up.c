/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/transfer-internal.h"

#include <string.h>
#include <unistd.h>

#include "volume/chunk.h"

/* A plain chunk on its way to a thread. */
struct load {
    struct load *next;
    size_t index;
    size_t len;
    unsigned char plain[CHUNK_PLAIN_MAX];
};

struct upload {
    struct crew crew; /* its lock guards what is marked so */
    const struct secret *tenant;
    const struct extent_pair *pair;
    struct chunk_builder builder;  /* the caller's thread only */
    struct load *spare;            /* owned: list; guarded */
    struct load *queue;            /* owned: list, the oldest first; guarded */
    struct load **queue_end;       /* guarded */
    bool closed;                   /* nothing more comes; guarded */
    struct manifest_chunk *chunks; /* owned; guarded */
    size_t n_chunks;               /* guarded */
    size_t room;                   /* guarded */
    struct transfer_stats stats;   /* guarded */
};

static void free_loads(struct load *list)
{
    while (list) {
        struct load *next = list->next;

        free(list);
        list = next;
    }
}

static void upload_done(struct upload *u)
{
    chunk_builder_done(&u->builder);
    free_loads(u->spare);
    free_loads(u->queue);
    if (u->chunks) {
        explicit_bzero(u->chunks, u->n_chunks * sizeof(*u->chunks));
    }
    free(u->chunks);
    crew_done(&u->crew);
}

/* ---- the threads ---- */

/* What a thread works with, apart from the load. */
struct bench {
    unsigned char packed[CHUNK_PACKED_MAX];
    unsigned char sealed[CHUNK_PACKED_MAX + CIPHER_TAG_SIZE];
};

/* 1: it was not there and was put; 0: it was there. */
static int put_unless_there(const struct transfer *t, const char *name, const void *data,
                            size_t len, struct err *e)
{
    struct store_object object;
    char key[STORE_KEY_MAX + 1];
    int r;

    transfer_chunk_key(t->organisation, name, key);
    r = store_stat(t->store, key, &object, e);
    if (r == 0 && object.size == len && (!t->may_reuse || t->may_reuse(t->ctx, &object))) {
        return 0;
    }
    if (r < 0 && r != -ENOENT) {
        return r;
    }
    r = store_put(t->store, key, data, len, e);
    return r < 0 ? r : 1;
}

static int send_load(struct upload *u, struct bench *bench, const struct load *load, struct err *e)
{
    struct manifest_chunk chunk = {0};
    size_t packed = chunk_pack(load->plain, load->len, bench->packed);
    int r;

    cipher_chunk_id(u->tenant, bench->packed, packed, &chunk.id);
    chunk.sealed_len = (uint32_t)cipher_seal_chunk(&chunk.id, bench->packed, packed, bench->sealed);
    r = put_unless_there(u->crew.t, chunk.id.name, bench->sealed, chunk.sealed_len, e);
    if (r < 0) {
        return r;
    }
    pthread_mutex_lock(&u->crew.lock);
    u->chunks[load->index] = chunk;
    u->stats.chunks++;
    u->stats.stored_bytes += chunk.sealed_len;
    u->stats.uploaded_bytes += r == 1 ? chunk.sealed_len : 0;
    pthread_mutex_unlock(&u->crew.lock);
    return 0;
}

/* NULL: nothing more is to be done. */
static struct load *take_load(struct upload *u)
{
    struct load *load = NULL;

    pthread_mutex_lock(&u->crew.lock);
    while (u->crew.error == 0 && !u->queue && !u->closed) {
        pthread_cond_wait(&u->crew.changed, &u->crew.lock);
    }
    if (u->crew.error == 0 && u->queue) {
        load = u->queue;
        u->queue = load->next;
        if (!u->queue) {
            u->queue_end = &u->queue;
        }
    }
    pthread_mutex_unlock(&u->crew.lock);
    return load;
}

static void give_back(struct upload *u, struct load *load)
{
    pthread_mutex_lock(&u->crew.lock);
    load->next = u->spare;
    u->spare = load;
    pthread_cond_broadcast(&u->crew.changed);
    pthread_mutex_unlock(&u->crew.lock);
}

static void *upload_main(void *arg)
{
    struct upload *u = arg;
    struct bench *bench = xmalloc(sizeof(*bench));
    struct load *load;

    while ((load = take_load(u))) {
        struct err e = {0};
        int r = send_load(u, bench, load, &e);

        give_back(u, load);
        if (r < 0) {
            crew_fail(&u->crew, r, &e);
        }
    }
    free(bench);
    return NULL;
}

/* ---- the caller's thread ---- */

/* NULL: a thread has failed. */
static struct load *take_spare(struct upload *u)
{
    struct load *load = NULL;

    pthread_mutex_lock(&u->crew.lock);
    while (u->crew.error == 0 && !u->spare) {
        pthread_cond_wait(&u->crew.changed, &u->crew.lock);
    }
    if (u->crew.error == 0) {
        load = u->spare;
        u->spare = load->next;
    }
    pthread_mutex_unlock(&u->crew.lock);
    return load;
}

/* Place for one chunk more in the list. -E2BIG. */
static int grow(struct upload *u)
{
    struct manifest_chunk *bigger;

    if (u->n_chunks == MANIFEST_CHUNKS_MAX) {
        return -E2BIG;
    }
    if (u->n_chunks == u->room) {
        u->room = MAX(u->room * 2, (size_t)64);
        bigger = xnew_n(struct manifest_chunk, u->room);
        if (u->chunks) {
            memcpy(bigger, u->chunks, u->n_chunks * sizeof(*bigger));
            explicit_bzero(u->chunks, u->n_chunks * sizeof(*bigger));
            free(u->chunks);
        }
        u->chunks = bigger;
    }
    return 0;
}

static int submit(struct upload *u)
{
    struct load *load;
    struct err e = {0};
    int r = transfer_watch(u->crew.t, &e);

    if (r < 0) {
        crew_fail(&u->crew, r, &e);
    }
    load = take_spare(u);
    if (!load) {
        return -ECANCELED; /* what the crew says counts */
    }
    load->next = NULL;
    load->len = chunk_finish(&u->builder, load->plain);
    pthread_mutex_lock(&u->crew.lock);
    r = grow(u);
    if (r == 0) {
        load->index = u->n_chunks++;
        *u->queue_end = load;
        u->queue_end = &load->next;
        pthread_cond_broadcast(&u->crew.changed);
    } else {
        load->next = u->spare;
        u->spare = load;
    }
    pthread_mutex_unlock(&u->crew.lock);
    return r;
}

static int read_into(struct upload *u, uint64_t offset, size_t len)
{
    unsigned char *at = chunk_add(&u->builder, offset, len);

    while (len > 0) {
        ssize_t n = pread(u->pair->fd, at, len, (off_t)offset);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? -errno : -ESTALE; /* it has become shorter */
        }
        at += n;
        offset += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

static int add_run(void *ctx, uint64_t offset, uint64_t length)
{
    struct upload *u = ctx;
    int r = 0;

    u->stats.plain_bytes += length;
    while (length > 0 && r == 0) {
        size_t want = length < CHUNK_DATA_MAX ? (size_t)length : CHUNK_DATA_MAX;
        size_t room = chunk_room(&u->builder, offset, want);

        if (room == 0) {
            r = submit(u);
            continue;
        }
        r = read_into(u, offset, room);
        offset += room;
        length -= room;
    }
    return r;
}

/* All is read, or not; now the threads may end. */
static int finish(struct upload *u, int r, struct err *e)
{
    if (r == 0 && u->builder.n > 0) {
        r = submit(u);
    }
    pthread_mutex_lock(&u->crew.lock);
    if (r < 0 && u->crew.error == 0) {
        u->crew.error = r;
    }
    u->closed = true;
    pthread_cond_broadcast(&u->crew.changed);
    pthread_mutex_unlock(&u->crew.lock);
    crew_join(&u->crew);
    r = u->crew.error;
    if (r < 0 && e) {
        *e = u->crew.why;
    }
    return r;
}

int transfer_upload(const struct transfer *t, const struct secret *tenant,
                    const struct extent_pair *pair, struct manifest_file *ret,
                    struct transfer_stats *stats, struct err *e)
{
    CLEANUP(upload_done) struct upload u = {.tenant = tenant, .pair = pair};
    int r;

    crew_init(&u.crew, t);
    chunk_builder_init(&u.builder);
    u.queue_end = &u.queue;
    crew_start(&u.crew, upload_main, &u);
    for (unsigned i = 0; i < u.crew.n_threads + 1; i++) {
        struct load *load = xmalloc(sizeof(*load));

        give_back(&u, load);
    }
    r = finish(&u, extent_diff(pair, add_run, &u), e);
    if (r < 0) {
        return err_wrap(e, r, "storing '%s'", ret->name);
    }
    ret->size = pair->size;
    ret->n_chunks = u.n_chunks;
    ret->chunks = u.chunks ? TAKE_PTR(u.chunks) : xnew(struct manifest_chunk);
    stats->chunks += u.stats.chunks;
    stats->plain_bytes += u.stats.plain_bytes;
    stats->stored_bytes += u.stats.stored_bytes;
    stats->uploaded_bytes += u.stats.uploaded_bytes;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/chunk.h"

#include <endian.h>
#include <string.h>
#include <zstd.h>

/* The latency of a suspend counts more than its last percents of size. */
#define ZSTD_LEVEL 1

enum packing {
    PACKING_PLAIN,
    PACKING_ZSTD
};

void chunk_builder_init(struct chunk_builder *b)
{
    b->n = 0;
    b->data_len = 0;
    b->data = xmalloc(CHUNK_DATA_MAX);
}

void chunk_builder_done(struct chunk_builder *b)
{
    free(b->data);
    b->data = NULL;
}

size_t chunk_room(const struct chunk_builder *b, uint64_t offset, size_t length)
{
    uint64_t in_region = CHUNK_REGION - offset % CHUNK_REGION;
    size_t room = CHUNK_DATA_MAX - b->data_len;

    if (b->n > 0 && b->pieces[0].offset / CHUNK_REGION != offset / CHUNK_REGION) {
        return 0;
    }
    if (b->n == CHUNK_PIECES_MAX) {
        return 0;
    }
    room = MIN(room, length);
    return room < in_region ? room : (size_t)in_region;
}

unsigned char *chunk_add(struct chunk_builder *b, uint64_t offset, size_t length)
{
    unsigned char *at = b->data + b->data_len;

    ASSERT(length > 0 && chunk_room(b, offset, length) == length);
    b->pieces[b->n++] = (struct chunk_piece){offset, (uint32_t)length};
    b->data_len += length;
    return at;
}

static void put_u32(unsigned char *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof(value));
}

static void put_u64(unsigned char *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof(value));
}

static uint32_t get_u32(const unsigned char *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof(value));
    return le32toh(value);
}

static uint64_t get_u64(const unsigned char *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof(value));
    return le64toh(value);
}

size_t chunk_finish(struct chunk_builder *b, unsigned char *ret)
{
    size_t at = 4;

    ASSERT(b->n > 0 && b->n <= CHUNK_PIECES_MAX);
    put_u32(ret, (uint32_t)b->n);
    for (size_t i = 0; i < b->n; i++) {
        put_u64(ret + at, b->pieces[i].offset);
        put_u32(ret + at + 8, b->pieces[i].length);
        at += CHUNK_PIECE_SIZE;
    }
    memcpy(ret + at, b->data, b->data_len);
    at += b->data_len;
    b->n = 0;
    b->data_len = 0;
    return at;
}

/* Do the pieces lie in order beneath file_size, and does their sum use up the bytes after the heads? */
static int check_pieces(const unsigned char *plain, size_t len, uint64_t file_size, size_t n)
{
    uint64_t end = 0;
    size_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t offset = get_u64(plain + 4 + i * CHUNK_PIECE_SIZE);
        uint32_t length = get_u32(plain + 4 + i * CHUNK_PIECE_SIZE + 8);

        if (length == 0 || length > CHUNK_DATA_MAX || offset < end || offset > file_size ||
            length > file_size - offset) {
            return -EBADMSG;
        }
        end = offset + length;
        sum += length;
    }
    return sum <= CHUNK_DATA_MAX && sum == len - 4 - n * CHUNK_PIECE_SIZE ? 0 : -EBADMSG;
}

int chunk_parse(const unsigned char *plain, size_t len, uint64_t file_size, chunk_piece_fn *each,
                void *ctx)
{
    const unsigned char *data;
    size_t n;
    int r;

    if (len < 4 || len > CHUNK_PLAIN_MAX) {
        return -EBADMSG;
    }
    n = get_u32(plain);
    if (n == 0 || n > CHUNK_PIECES_MAX || len - 4 < n * CHUNK_PIECE_SIZE) {
        return -EBADMSG;
    }
    r = check_pieces(plain, len, file_size, n);
    data = plain + 4 + n * CHUNK_PIECE_SIZE;
    for (size_t i = 0; i < n && r == 0; i++) {
        uint32_t length = get_u32(plain + 4 + i * CHUNK_PIECE_SIZE + 8);

        r = each(ctx, get_u64(plain + 4 + i * CHUNK_PIECE_SIZE), data, length);
        data += length;
    }
    return r;
}

size_t chunk_pack(const unsigned char *plain, size_t len, unsigned char *ret)
{
    size_t n;

    ASSERT(len > 0 && len <= CHUNK_PLAIN_MAX);
    /* Room for less than the plain bytes: what does not fit there is not worth it. */
    n = ZSTD_compress(ret + 1, len - 1, plain, len, ZSTD_LEVEL);
    if (ZSTD_isError(n)) {
        ret[0] = PACKING_PLAIN;
        memcpy(ret + 1, plain, len);
        return 1 + len;
    }
    ret[0] = PACKING_ZSTD;
    return 1 + n;
}

int chunk_unpack(const unsigned char *packed, size_t len, unsigned char *ret, size_t *ret_len)
{
    size_t n;

    if (len < 2 || len > CHUNK_PACKED_MAX) {
        return -EBADMSG;
    }
    if (packed[0] == PACKING_PLAIN) {
        memcpy(ret, packed + 1, len - 1);
        *ret_len = len - 1;
        return 0;
    }
    if (packed[0] != PACKING_ZSTD) {
        return -EBADMSG;
    }
    n = ZSTD_decompress(ret, CHUNK_PLAIN_MAX, packed + 1, len - 1);
    if (ZSTD_isError(n)) {
        return -EBADMSG;
    }
    *ret_len = n;
    return 0;
}

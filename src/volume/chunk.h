/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is in a chunk once it is decrypted: pieces of one file, with their places. Pure.
 *
 *     u32 pieces | pieces x { u64 offset, u32 length } | the bytes of all pieces, in order        (little endian)
 *
 * A chunk holds at most CHUNK_DATA_MAX bytes of the file and never crosses a region of CHUNK_REGION bytes, so that a
 * change in one part of a file leaves the chunks of all other parts as they were, and small changes that lie
 * scattered, as those in a machine's memory do, share a chunk.
 *
 * On the wire a chunk is zstd over that, or the plain bytes where compressing them gains nothing, then sealed (cipher.h).
 */
#pragma once

#include "base/err.h"

#define CHUNK_DATA_MAX (1u << 20)
#define CHUNK_REGION (16ull << 20)
#define CHUNK_PIECES_MAX 4096u /* of 4 KiB, all apart: a region's worth */
#define CHUNK_PIECE_SIZE 12u
#define CHUNK_PLAIN_MAX (4u + CHUNK_PIECES_MAX * CHUNK_PIECE_SIZE + CHUNK_DATA_MAX)
/* A chunk begins with one byte that says how it is packed. */
#define CHUNK_PACKED_MAX (1u + CHUNK_PLAIN_MAX)

struct chunk_piece {
    uint64_t offset;
    uint32_t length;
};

/* A chunk in the making. */
struct chunk_builder {
    struct chunk_piece pieces[CHUNK_PIECES_MAX];
    size_t n;
    size_t data_len;
    unsigned char *data; /* owned: CHUNK_DATA_MAX bytes */
};

void chunk_builder_init(struct chunk_builder *b);
void chunk_builder_done(struct chunk_builder *b);
/* How many of length bytes at offset may still go in; 0: the chunk is full, or the region is another. */
size_t chunk_room(const struct chunk_builder *b, uint64_t offset, size_t length);
/* Place for that many bytes, which chunk_room() has granted; the caller fills it. */
unsigned char *chunk_add(struct chunk_builder *b, uint64_t offset, size_t length);
/* The plain chunk into ret (CHUNK_PLAIN_MAX bytes); returns its length. The builder is empty afterwards. */
size_t chunk_finish(struct chunk_builder *b, unsigned char *ret);

/* Reads a plain chunk, piece by piece; pieces lie in order, apart, beneath file_size, and use up the bytes. -EBADMSG. */
typedef int chunk_piece_fn(void *ctx, uint64_t offset, const unsigned char *data, size_t length);
MUST_CHECK int chunk_parse(const unsigned char *plain, size_t len, uint64_t file_size,
                           chunk_piece_fn *each, void *ctx);

/* Compresses into ret (CHUNK_PACKED_MAX bytes); returns the length. */
size_t chunk_pack(const unsigned char *plain, size_t len, unsigned char *ret);
/* Into ret (CHUNK_PLAIN_MAX bytes). -EBADMSG: not packed by chunk_pack(), or larger. */
MUST_CHECK int chunk_unpack(const unsigned char *packed, size_t len, unsigned char *ret,
                            size_t *ret_len);

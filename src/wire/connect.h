/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The envelopes of the Connect protocol (connectrpc.com/docs/protocol), in which a stream's messages go:
 *
 *     u8 flags | u32 length, big-endian | length bytes
 *
 * The last envelope of an answer has CONNECT_END_STREAM, with JSON that says how it ended; a stream without it has
 * been cut. Compressed envelopes are not accepted, because nobody is told that we would. Also the protocol's words for
 * errors, with the HTTP status that a call without a stream gives for them.
 */
#pragma once

#include "base/buf.h"

#define CONNECT_HEAD_LEN 5u
#define CONNECT_COMPRESSED (1u << 0)
#define CONNECT_END_STREAM (1u << 1)

struct connect_envelope {
    unsigned flags;
    const char *payload; /* borrowed: points into the parsed bytes */
    size_t len;
};

/*
 * The first envelope of data. -EAGAIN: not all of it is there yet; -EPROTO: unknown flags, or compressed; -E2BIG: its
 * payload is longer than max. *ret_used is its size, head included.
 */
MUST_CHECK int connect_parse(const void *data, size_t len, size_t max, struct connect_envelope *ret,
                             size_t *ret_used);
/* A whole envelope onto b. -E2BIG. */
MUST_CHECK int connect_add(struct buf *b, unsigned flags, const void *payload, size_t len);
/*
 * The same in two steps, for a payload that is written right behind its head: begin says where the envelope starts,
 * finish fills in how long it has become.
 */
MUST_CHECK int connect_begin(struct buf *b, size_t *ret_at);
void connect_finish(struct buf *b, size_t at, unsigned flags);

enum connect_code {
    CONNECT_CANCELED,
    CONNECT_UNKNOWN,
    CONNECT_INVALID_ARGUMENT,
    CONNECT_DEADLINE_EXCEEDED,
    CONNECT_NOT_FOUND,
    CONNECT_ALREADY_EXISTS,
    CONNECT_PERMISSION_DENIED,
    CONNECT_RESOURCE_EXHAUSTED,
    CONNECT_FAILED_PRECONDITION,
    CONNECT_UNIMPLEMENTED,
    CONNECT_INTERNAL,
    CONNECT_UNAVAILABLE,
    CONNECT_UNAUTHENTICATED,
    CONNECT_CODE_COUNT_,
};
const char *connect_code_name(enum connect_code code);
int connect_code_status(enum connect_code code);

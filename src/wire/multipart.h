/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multipart/form-data (RFC 7578) as it streams in: bytes go in, parts come out, and memory stays at one window whatever a
 * part holds. Pure.
 *
 *     multipart_init(&m, content_type);
 *     for each piece of at most MULTIPART_FEED_MAX bytes:
 *         multipart_feed(&m, piece, len);
 *         while ((r = multipart_next(&m, &ev)) == 1) ...
 *
 * Events of a form: (BEGIN DATA* END)* DONE. What follows DONE is dropped. A form that is over before DONE was cut.
 *
 * Of a part's fields only name and filename are looked at, with the escapes of WHATWG clients: %22 for a quotation
 * mark, %0D and %0A for the ends of lines; nothing else is decoded, and bytes stay bytes.
 */
#pragma once

#include "base/buf.h"

#define MULTIPART_BOUNDARY_MAX 70u /* RFC 2046 5.1.1 */
#define MULTIPART_FEED_MAX (64u * 1024)
#define MULTIPART_HEAD_MAX \
    (16u * 1024) /* a part's fields; a file name may be a path of 4 KiB, escaped */
#define MULTIPART_NAME_MAX 256u
#define MULTIPART_FILENAME_MAX 8192u

enum multipart_state {
    MULTIPART_PREAMBLE,
    MULTIPART_HEAD,
    MULTIPART_BODY,
    MULTIPART_DONE,
};

struct multipart {
    enum multipart_state state;
    char delimiter[MULTIPART_BOUNDARY_MAX + 5]; /* CR LF -- boundary */
    size_t delimiter_len;
    bool told;          /* DONE was given out */
    size_t given;       /* bytes at the front of pending that the last event pointed to */
    struct buf pending; /* owned */
};

enum multipart_event_type {
    MULTIPART_EVENT_BEGIN,
    MULTIPART_EVENT_DATA,
    MULTIPART_EVENT_END,
    MULTIPART_EVENT_DONE,
};

struct multipart_event {
    enum multipart_event_type type;
    const char *data; /* DATA; borrowed until the next call */
    size_t len;
    char name[MULTIPART_NAME_MAX + 1];         /* BEGIN */
    bool has_filename;                         /* BEGIN */
    char filename[MULTIPART_FILENAME_MAX + 1]; /* BEGIN */
};

/* -EINVAL: the content type is not multipart/form-data with a usable boundary. */
MUST_CHECK int multipart_init(struct multipart *m, const char *content_type);
void multipart_done(struct multipart *m);
/* At most MULTIPART_FEED_MAX bytes, when multipart_next() has said 0. */
void multipart_feed(struct multipart *m, const void *data, size_t len);
/* 1: *ret is the next event. 0: more bytes are needed, or the form is DONE. -EPROTO: this is no such form. */
MUST_CHECK int multipart_next(struct multipart *m, struct multipart_event *ret);

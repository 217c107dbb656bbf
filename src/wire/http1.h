/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 heads and chunked bodies: bytes to structs and back, pure, without I/O or allocation.
 *
 * Strict on purpose (RFC 9112 and then some): whatever two parsers could read differently is
 * refused, because a difference between two hops is how requests are smuggled. Refused are:
 * Content-Length together with Transfer-Encoding, either of them twice, lists or signs or leading
 * zeros in Content-Length, codings other than exactly "chunked", Transfer-Encoding in HTTP/1.0,
 * obs-fold, bare CR or LF, white space before the colon or around the request line, control bytes,
 * targets with bytes outside visible ASCII or with '#', backslashes in paths, a missing or repeated
 * or malformed Host, a Host that differs from an absolute target, chunk extensions.
 *
 * Parsing a head takes two steps. http1_scan finds its end in what was received so far, at a cost
 * of one look at each byte however slowly they come; http1_parse_* then takes the complete head.
 * Views in struct http1_head point into the caller's bytes.
 */
#pragma once

#include "base/buf.h"
#include "base/util.h"

/* A head with a 4 KiB path, each byte percent-encoded, and a good deal of fields must fit. */
#define HTTP1_MAX_HEAD (32u * 1024)
#define HTTP1_MAX_TARGET (16u * 1024)
#define HTTP1_MAX_METHOD 24u
#define HTTP1_MAX_FIELDS 100u
/* What a peer may send behind the last chunk. */
#define HTTP1_MAX_TRAILER (8u * 1024)

enum http1_error {
    HTTP1_OK,
    HTTP1_BAD_LINE, /* start line */
    HTTP1_BAD_METHOD,
    HTTP1_BAD_TARGET,
    HTTP1_TARGET_TOO_LONG,
    HTTP1_BAD_VERSION,
    HTTP1_BAD_NEWLINE, /* bare CR or LF */
    HTTP1_BAD_FIELD,
    HTTP1_OBS_FOLD,
    HTTP1_TOO_LARGE, /* bytes or fields */
    HTTP1_BAD_HOST,
    HTTP1_BAD_LENGTH,     /* Content-Length */
    HTTP1_BAD_CODING,     /* Transfer-Encoding that breaks the rules */
    HTTP1_UNKNOWN_CODING, /* one that we do not implement */
    HTTP1_BAD_EXPECT,
    HTTP1_BAD_STATUS,
    HTTP1_ERROR_COUNT_,
};

/* For an error reply, and a sentence to go with it. */
int http1_error_status(enum http1_error why);
const char *http1_error_text(enum http1_error why);

struct http1_view {
    const char *p; /* borrowed: the caller's bytes */
    size_t len;
};

struct http1_field {
    struct http1_view name;
    struct http1_view value; /* without white space at the ends */
};

enum http1_form {
    HTTP1_FORM_ORIGIN,    /* /path?query */
    HTTP1_FORM_ABSOLUTE,  /* http://host/path?query */
    HTTP1_FORM_AUTHORITY, /* host:port, only with CONNECT */
    HTTP1_FORM_ASTERISK,  /* *, only with OPTIONS */
};

enum http1_framing {
    HTTP1_BODY_NONE,
    HTTP1_BODY_LENGTH,
    HTTP1_BODY_CHUNKED,
    HTTP1_BODY_CLOSE, /* answers only: until the connection ends */
};

struct http1_head {
    /* Requests. */
    struct http1_view method;
    struct http1_view target; /* as received */
    enum http1_form form;
    struct http1_view
        path; /* origin and absolute form: never empty ("/" is supplied); '*' else empty */
    struct http1_view query;     /* without '?'; p is NULL when there is none */
    struct http1_view authority; /* of an absolute or authority-form target, else the Host field */
    bool expect_continue;
    /* Answers. */
    unsigned status;
    /* Both. */
    unsigned minor; /* HTTP/1.<minor>: 0 or 1 */
    struct http1_field fields[HTTP1_MAX_FIELDS];
    size_t n_fields;
    enum http1_framing framing;
    uint64_t content_length; /* HTTP1_BODY_LENGTH */
    bool has_length; /* a Content-Length was given, also where no body follows (HEAD, 304) */
    bool keep_alive;
    bool upgrade; /* "Connection: upgrade" */
};

/* Where http1_scan has got to; zero at the start of a head. */
struct http1_scan {
    size_t pos;
    size_t line;
};

/* 0: *ret_len bytes are a head, ended by its empty line, or enough to know that it is not one
 * (parse then says why). -EAGAIN: more is needed. -E2BIG: HTTP1_TOO_LARGE. */
MUST_CHECK int http1_scan(struct http1_scan *scan, const char *data, size_t len, size_t *ret_len);

/* data must be what http1_scan found. HTTP1_OK or why not; *ret is undefined then. */
MUST_CHECK enum http1_error http1_parse_request(const char *data, size_t len,
                                                struct http1_head *ret);
/* head_request: the answer is to a HEAD, so that no body follows. */
MUST_CHECK enum http1_error http1_parse_response(const char *data, size_t len, bool head_request,
                                                 struct http1_head *ret);

/*
 * Trailers, as http1_chunked gave them: lines without the empty one. Only fields of *ret are set. HTTP1_BAD_FIELD also for one
 * that says what only a head can say.
 */
MUST_CHECK enum http1_error http1_parse_trailers(const char *data, size_t len,
                                                 struct http1_head *ret);
/* Does a field of that name frame, route, authenticate or describe a message, so that it has no place in trailers? (RFC 9110, 6.5.1) */
bool http1_is_head_only(struct http1_view name);

/* The only field of that name (NULL: none or several). */
const struct http1_field *http1_field_get(const struct http1_head *head, const char *name);
/* Compares without regard to the case of ASCII letters. */
bool http1_view_is(struct http1_view v, const char *s);
/* Is the token in the comma list? */
bool http1_list_has(struct http1_view list, const char *token);
bool http1_is_token(const char *s, size_t len);
/*
 * May these bytes be a field's value? (No controls but tab; no white space at the ends is not
 * required.)
 */
bool http1_is_value(const char *s, size_t len);

/* Printers. -E2BIG from the buffer; -EINVAL for what would not be read back as it was meant. */
MUST_CHECK int http1_print_request(struct buf *b, const char *method, const char *target);
MUST_CHECK int http1_print_status(struct buf *b, unsigned minor, unsigned status);
MUST_CHECK int http1_print_field(struct buf *b, const char *name, const char *value);
MUST_CHECK int http1_print_end(struct buf *b);
/* "Not Found"; "" when unknown. */
const char *http1_status_text(unsigned status);

/* Largest print of a chunk's first line, with its NUL. */
#define HTTP1_CHUNK_LINE_SIZE 20u
/* "1a\r\n"; the data and "\r\n" follow. Returns its length. */
size_t http1_print_chunk(char ret[static HTTP1_CHUNK_LINE_SIZE], uint64_t len);
/* Trailers, and an empty line, follow. */
#define HTTP1_LAST_CHUNK "0\r\n"

/* ---- chunked bodies ---- */

enum http1_chunk_state {
    HTTP1_CHUNK_SIZE,
    HTTP1_CHUNK_SIZE_LF,
    HTTP1_CHUNK_DATA,
    HTTP1_CHUNK_DATA_CR,
    HTTP1_CHUNK_DATA_LF,
    HTTP1_CHUNK_TRAILER, /* at the start of a trailer line */
    HTTP1_CHUNK_TRAILER_NAME,
    HTTP1_CHUNK_TRAILER_VALUE,
    HTTP1_CHUNK_TRAILER_LF,
    HTTP1_CHUNK_END_LF,
    HTTP1_CHUNK_DONE,
};

/* Zero at the start of a body, but for trailers. */
struct http1_chunked {
    enum http1_chunk_state state;
    uint64_t left;        /* data bytes left in this chunk */
    unsigned digits;      /* of the size, read so far */
    size_t trailer_bytes; /* read so far */
    struct buf
        *trailers; /* borrowed: their lines go there, room for HTTP1_MAX_TRAILER; NULL: nowhere */
};

/*
 * Reads from data as far as one run of body bytes: *ret_used bytes are done with, of which the last
 * *ret_body_len are body. Returns 1 when the body is over (nothing behind it was used), 0
 * otherwise, -EBADMSG. With ret_body_len 0 and return 0 everything was used: more is needed.
 */
MUST_CHECK int http1_chunked_next(struct http1_chunked *c, const char *data, size_t len,
                                  size_t *ret_used, size_t *ret_body_len);

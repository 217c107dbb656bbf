/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/tls-hello.h"

#include <string.h>

#define RECORD_HANDSHAKE 22u
#define RECORD_HEADER_LEN 5u
#define RECORD_MAX 16384u
#define MESSAGE_HEADER_LEN 4u
#define MESSAGE_CLIENT_HELLO 1u
#define RANDOM_LEN 32u
#define SESSION_ID_MAX 32u
#define EXTENSION_SERVER_NAME 0u
#define EXTENSION_ALPN 16u
/* Browsers send about twenty. */
#define EXTENSIONS_MAX 128u

struct reader {
    const uint8_t *p;
    size_t len;
};

static bool take(struct reader *r, size_t n, struct reader *ret)
{
    if (r->len < n) {
        return false;
    }
    *ret = (struct reader){r->p, n};
    r->p += n;
    r->len -= n;
    return true;
}

static bool get(struct reader *r, unsigned bytes, size_t *ret)
{
    struct reader v;

    if (!take(r, bytes, &v)) {
        return false;
    }
    *ret = 0;
    for (size_t i = 0; i < v.len; i++) {
        *ret = *ret << 8 | v.p[i];
    }
    return true;
}

/* A run of bytes behind its length. */
static bool take_vector(struct reader *r, unsigned length_bytes, struct reader *ret)
{
    size_t n;

    return get(r, length_bytes, &n) && take(r, n, ret);
}

bool tls_hello_begins(const uint8_t *data, size_t len)
{
    return len > 0 && data[0] == RECORD_HANDSHAKE && (len < 2 || data[1] == 3);
}

/*
 * Takes the handshake's bytes out of their records, as many as are there: *ret_n of them. -EBADMSG: another kind
 * of record before the message is whole.
 */
static int join_records(const uint8_t *data, size_t len, uint8_t message[static TLS_HELLO_MAX],
                        size_t *ret_n)
{
    struct reader r = {data, len};
    size_t want = MESSAGE_HEADER_LEN;
    size_t n = 0;

    while (n < want) {
        size_t type;
        size_t version;
        size_t record_len;
        size_t part;

        if (!get(&r, 1, &type) || !get(&r, 2, &version) || !get(&r, 2, &record_len)) {
            return -EAGAIN;
        }
        if (type != RECORD_HANDSHAKE || version >> 8 != 3 || record_len == 0 ||
            record_len > RECORD_MAX) {
            return -EBADMSG;
        }
        part = MIN(MIN(record_len, r.len), TLS_HELLO_MAX - n);
        memcpy(message + n, r.p, part);
        n += part;
        if (n >= 1 && message[0] != MESSAGE_CLIENT_HELLO) {
            return -EBADMSG;
        }
        if (n >= MESSAGE_HEADER_LEN) {
            want = MESSAGE_HEADER_LEN +
                   ((size_t)message[1] << 16 | (size_t)message[2] << 8 | message[3]);
        }
        if (want > TLS_HELLO_MAX) {
            return -E2BIG;
        }
        if (n < want && part < record_len) {
            return -EAGAIN;
        }
        r.p += part;
        r.len -= part;
    }
    *ret_n = want;
    return 0;
}

static bool read_server_name(struct reader r, struct tls_hello *hello)
{
    struct reader list;
    struct reader name;
    size_t type;

    if (!take_vector(&r, 2, &list) || r.len != 0 || !get(&list, 1, &type) || type != 0 ||
        !take_vector(&list, 2, &name) || list.len != 0 || name.len == 0 ||
        name.len >= TLS_HELLO_NAME_SIZE || memchr(name.p, '\0', name.len)) {
        return false;
    }
    memcpy(hello->name, name.p, name.len);
    hello->name[name.len] = '\0';
    return true;
}

static bool read_alpn(struct reader r, struct tls_hello *hello)
{
    struct reader list;

    if (!take_vector(&r, 2, &list) || r.len != 0) {
        return false;
    }
    while (list.len > 0) {
        struct reader protocol;

        if (!take_vector(&list, 1, &protocol) || protocol.len == 0) {
            return false;
        }
        hello->has_h2 = hello->has_h2 || (protocol.len == 2 && memcmp(protocol.p, "h2", 2) == 0);
    }
    return true;
}

static bool read_extensions(struct reader r, struct tls_hello *hello)
{
    uint16_t seen[EXTENSIONS_MAX];
    size_t n = 0;

    while (r.len > 0) {
        struct reader body;
        size_t type;

        if (n == EXTENSIONS_MAX || !get(&r, 2, &type) || !take_vector(&r, 2, &body)) {
            return false;
        }
        for (size_t i = 0; i < n; i++) {
            if (seen[i] == type) {
                return false;
            }
        }
        seen[n++] = (uint16_t)type;
        if ((type == EXTENSION_SERVER_NAME && !read_server_name(body, hello)) ||
            (type == EXTENSION_ALPN && !read_alpn(body, hello))) {
            return false;
        }
    }
    return true;
}

int tls_hello_parse(const uint8_t *data, size_t len, struct tls_hello *ret)
{
    uint8_t message[TLS_HELLO_MAX];
    struct tls_hello hello = {0};
    struct reader r = {message, 0};
    struct reader part;
    size_t version;
    int err = join_records(data, len, message, &r.len);

    if (err < 0) {
        return err;
    }
    if (!take(&r, MESSAGE_HEADER_LEN, &part) || !get(&r, 2, &version) || version >> 8 != 3 ||
        !take(&r, RANDOM_LEN, &part) || !take_vector(&r, 1, &part) || part.len > SESSION_ID_MAX ||
        !take_vector(&r, 2, &part) || part.len == 0 || part.len % 2 != 0 ||
        !take_vector(&r, 1, &part) || part.len == 0) {
        return -EBADMSG;
    }
    if (r.len > 0 && /* before TLS 1.2 there may be no extensions at all */
        (!take_vector(&r, 2, &part) || r.len != 0 || !read_extensions(part, &hello))) {
        return -EBADMSG;
    }
    *ret = hello;
    return 0;
}

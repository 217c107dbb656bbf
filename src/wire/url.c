/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/url.h"

#include <string.h>
#include <strings.h>

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int url_decode(const char *s, size_t len, unsigned flags, char *ret, size_t *ret_len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        char c = s[i];

        if (c == '%') {
            int high = i + 2 < len ? hex_value(s[i + 1]) : -1;
            int low = i + 2 < len ? hex_value(s[i + 2]) : -1;

            if (high < 0 || low < 0) {
                return -EINVAL;
            }
            c = (char)(high * 16 + low);
            i += 2;
        } else if (c == '+' && (flags & URL_PLUS_IS_SPACE)) {
            c = ' ';
        }
        if (c == '\0') {
            return -EINVAL;
        }
        if (ret) {
            ret[n] = c;
        }
        n++;
    }
    if (ret) {
        ret[n] = '\0';
    }
    *ret_len = n;
    return 0;
}

static bool is_unreserved(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

int url_encode(struct buf *b, const void *data, size_t len, unsigned flags)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *s = data;
    size_t before = b->len;

    for (size_t i = 0; i < len; i++) {
        char escaped[3] = {'%', digits[(unsigned char)s[i] >> 4], digits[(unsigned char)s[i] & 15]};
        bool plain = is_unreserved(s[i]) || (s[i] == '/' && (flags & URL_KEEP_SLASH));
        int r = plain ? buf_add(b, &s[i], 1) : buf_add(b, escaped, sizeof(escaped));

        if (r < 0) {
            b->len = before;
            if (b->data) {
                b->data[before] = '\0';
            }
            return r;
        }
    }
    return 0;
}

int url_add_query(struct buf *b, const char *name, const char *value)
{
    bool more = b->len > 0 && memchr(b->data, '?', b->len);
    int r = buf_add_str(b, more ? "&" : "?");

    if (r == 0) {
        r = url_encode(b, name, strlen(name), 0);
    }
    if (r == 0) {
        r = buf_add_str(b, "=");
    }
    return r == 0 ? url_encode(b, value, strlen(value), 0) : r;
}

bool url_query_next(struct url_query *q, struct url_pair *ret)
{
    while (q->len > 0) {
        const char *start = q->rest;
        const char *amp = memchr(start, '&', q->len);
        size_t n = amp ? (size_t)(amp - start) : q->len;
        const char *equals = n ? memchr(start, '=', n) : NULL;

        q->rest += n + (amp ? 1 : 0);
        q->len -= n + (amp ? 1 : 0);
        if (n == 0) {
            continue;
        }
        ret->name = start;
        ret->name_len = equals ? (size_t)(equals - start) : n;
        ret->value = equals ? equals + 1 : start + n;
        ret->value_len = equals ? n - ret->name_len - 1 : 0;
        return true;
    }
    return false;
}

/* ---- addresses ---- */

static int parse_port(const char *s, size_t len, uint16_t *ret)
{
    char digits[6];
    uint64_t n;

    if (len == 0 || len >= sizeof(digits)) {
        return -EINVAL;
    }
    memcpy(digits, s, len);
    digits[len] = '\0';
    if (str_to_u64(digits, UINT16_MAX, &n) < 0) {
        return -EINVAL;
    }
    *ret = (uint16_t)n;
    return 0;
}

static bool is_host(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (!is_unreserved(s[i]) && s[i] != ':' && s[i] != '%') {
            return false;
        }
    }
    return true;
}

/* host, host:port, :port, [v6], [v6]:port */
static int parse_authority(const char *s, size_t len, struct url *ret)
{
    const char *host = s;
    const char *colon;
    size_t host_len;

    if (len > 0 && s[0] == '[') {
        const char *end = memchr(s, ']', len);

        if (!end) {
            return -EINVAL;
        }
        host = s + 1;
        host_len = (size_t)(end - host);
        colon = (size_t)(end + 1 - s) < len ? end + 1 : NULL;
        if (host_len == 0 || (colon && *colon != ':')) {
            return -EINVAL;
        }
    } else {
        colon = memchr(s, ':', len);
        host_len = colon ? (size_t)(colon - s) : len;
        if (colon && memchr(colon + 1, ':', len - host_len - 1)) {
            return -EINVAL; /* an address of IPv6 needs brackets */
        }
    }
    if (host_len >= sizeof(ret->host) || !is_host(host, host_len)) {
        return -EINVAL;
    }
    memcpy(ret->host, host, host_len);
    ret->host[host_len] = '\0';
    return colon ? parse_port(colon + 1, len - (size_t)(colon + 1 - s), &ret->port) : 0;
}

static int parse_unix(const char *path, struct url *ret)
{
    ret->scheme = URL_UNIX;
    if (str_starts(path, "//")) {
        path += 2;
    }
    return path[0] == '/' && path[1] != '\0' && str_copy(ret->path, sizeof(ret->path), path) == 0
               ? 0
               : -EINVAL;
}

int url_parse(const char *s, struct url *ret)
{
    struct url u = {.scheme = URL_HTTP, .port = 80};
    bool bare = false;
    size_t len;
    int r;

    for (const char *p = s; *p; p++) {
        if (*p <= 0x20 || *p == 0x7f) {
            return -EINVAL;
        }
    }
    if (strncasecmp(s, "unix:", 5) == 0) {
        r = parse_unix(s + 5, &u);
    } else {
        if (strncasecmp(s, "http://", 7) == 0) {
            s += 7;
        } else if (strncasecmp(s, "https://", 8) == 0) {
            s += 8;
            u.scheme = URL_HTTPS;
            u.port = 443;
        } else {
            bare = true;
        }
        len = strcspn(s, "/");
        if (strpbrk(s, "?#@\\") || (bare && s[len]) || (!bare && (len == 0 || s[0] == ':'))) {
            return -EINVAL;
        }
        r = len == 0 ? -EINVAL : parse_authority(s, len, &u);
        if (r == 0 && s[len]) {
            size_t path_len = strlen(s + len);

            while (path_len > 0 && s[len + path_len - 1] == '/') {
                path_len--;
            }
            if (path_len >= sizeof(u.path)) {
                return -EINVAL;
            }
            memcpy(u.path, s + len, path_len);
        }
    }
    if (r == 0) {
        *ret = u;
    }
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/redact.h"

#include <ctype.h>
#include <string.h>

#include "base/base64.h"
#include "base/id.h"
#include "credential/secret.h"

void redact_init(struct redact *r)
{
    *r = (struct redact){.kept = BUF_INIT(2 * REDACT_NEEDLE_MAX + 65536)};
}

void redact_done(struct redact *r)
{
    for (size_t i = 0; i < r->n; i++) {
        explicit_bzero(r->needles[i], r->lens[i]);
        free(r->needles[i]);
    }
    secret_wipe_buf(&r->kept);
    *r = (struct redact){0};
}

static int add_needle(struct redact *r, const char *p, size_t len)
{
    if (len < REDACT_MIN) {
        return 0;
    }
    for (size_t i = 0; i < r->n; i++) {
        if (r->lens[i] == len && memcmp(r->needles[i], p, len) == 0) {
            return 0;
        }
    }
    if (r->n == REDACT_NEEDLES_MAX || len > REDACT_NEEDLE_MAX) {
        return -E2BIG;
    }
    r->needles[r->n] = xmemdup(p, len);
    r->lens[r->n++] = len;
    r->first[(unsigned char)p[0]] = true;
    return 0;
}

/* URL-safe letters for the others. */
static void url_safe(struct buf *b)
{
    for (size_t i = 0; i < b->len; i++) {
        if (b->data[i] == '+') {
            b->data[i] = '-';
        } else if (b->data[i] == '/') {
            b->data[i] = '_';
        }
    }
}

/*
 * In a longer text the secret begins 0, 1 or 2 bytes into a group of three. The characters that hold bits of its
 * neighbours too are left out at both ends.
 */
static int add_base64(struct redact *r, const char *secret)
{
    size_t len = strlen(secret);
    int ret = 0;

    for (size_t offset = 0; offset < 3 && ret == 0; offset++) {
        cleanup_secret_buf struct buf plain = BUF_INIT(REDACT_NEEDLE_MAX);
        cleanup_secret_buf struct buf text = BUF_INIT(REDACT_NEEDLE_MAX * 2);
        size_t skip = offset == 0 ? 0 : offset + 1;
        size_t whole = (offset + len) * 8 / 6; /* characters that hold only known bits */

        ret = buf_add(&plain, "\0\0", offset);
        ret = ret < 0 ? ret : buf_add(&plain, secret, len);
        ret = ret < 0 ? ret : base64_encode(plain.data, plain.len, &text);
        if (ret == 0 && whole > skip) {
            ret = add_needle(r, text.data + skip, whole - skip);
            url_safe(&text);
            ret = ret < 0 ? ret : add_needle(r, text.data + skip, whole - skip);
        }
    }
    return ret;
}

/* keep: characters that stay as they are besides letters and digits. */
static int add_percent(struct redact *r, const char *secret, const char *keep, bool plus)
{
    static const char *const digits[] = {"0123456789ABCDEF", "0123456789abcdef"};
    int ret = 0;

    for (size_t form = 0; form < 2 && ret == 0; form++) {
        cleanup_secret_buf struct buf text = BUF_INIT(REDACT_NEEDLE_MAX);

        for (const char *s = secret; *s && ret == 0; s++) {
            unsigned char c = (unsigned char)*s;
            char escape[3] = {'%', digits[form][c >> 4], digits[form][c & 15]};

            if (c == ' ' && plus) {
                ret = buf_add(&text, "+", 1);
            } else if (isalnum(c) || strchr(keep, c)) {
                ret = buf_add(&text, s, 1);
            } else {
                ret = buf_add(&text, escape, 3);
            }
        }
        ret = ret < 0 ? ret : add_needle(r, text.data, text.len);
    }
    return ret;
}

static int add_json(struct redact *r, const char *secret, bool slash)
{
    cleanup_secret_buf struct buf text = BUF_INIT(REDACT_NEEDLE_MAX * 2);
    int ret = 0;

    for (const char *s = secret; *s && ret == 0; s++) {
        const char *at = strchr("\"\\\n\r\t\b\f", *s);

        if (at) {
            char escape[2] = {'\\', "\"\\nrtbf"[at - "\"\\\n\r\t\b\f"]};

            switch (*s) {
            case '"':
            case '\\':
                escape[1] = *s;
                break;
            case '\n':
                escape[1] = 'n';
                break;
            case '\r':
                escape[1] = 'r';
                break;
            case '\t':
                escape[1] = 't';
                break;
            default:
                escape[1] = *s == '\b' ? 'b' : 'f';
            }
            ret = buf_add(&text, escape, 2);
        } else if (*s == '/' && slash) {
            ret = buf_add(&text, "\\/", 2);
        } else {
            ret = buf_add(&text, s, 1);
        }
    }
    return ret < 0 ? ret : add_needle(r, text.data, text.len);
}

static int add_hex(struct redact *r, const char *secret)
{
    size_t len = strlen(secret);
    cleanup_secret_free char *hex = xmalloc(2 * len + 1);
    int ret;

    hex_encode(secret, len, hex);
    ret = add_needle(r, hex, 2 * len);
    for (char *s = hex; *s; s++) {
        *s = (char)toupper((unsigned char)*s);
    }
    return ret < 0 ? ret : add_needle(r, hex, 2 * len);
}

int redact_add(struct redact *r, const char *secret)
{
    int ret = add_needle(r, secret, strlen(secret));

    if (strlen(secret) < REDACT_MIN) {
        return ret;
    }
    ret = ret < 0 ? ret : add_base64(r, secret);
    ret = ret < 0 ? ret : add_percent(r, secret, "-._~", /* plus */ false);
    ret = ret < 0 ? ret : add_percent(r, secret, "-._*", /* plus */ true);
    ret = ret < 0 ? ret : add_percent(r, secret, "-._~!*'()", /* plus */ false);
    ret = ret < 0 ? ret : add_percent(r, secret, "-._~/", /* plus */ false);
    ret = ret < 0 ? ret : add_json(r, secret, /* slash */ false);
    ret = ret < 0 ? ret : add_json(r, secret, /* slash */ true);
    return ret < 0 ? ret : add_hex(r, secret);
}

/* What is at p: the length of the longest needle there; *ret_partial: p may be the beginning of one. */
static size_t look(const struct redact *r, const char *p, size_t left, bool *ret_partial)
{
    size_t found = 0;

    *ret_partial = false;
    if (!r->first[(unsigned char)*p]) {
        return 0;
    }
    for (size_t i = 0; i < r->n; i++) {
        if (memcmp(p, r->needles[i], MIN(left, r->lens[i])) != 0) {
            continue;
        }
        if (left < r->lens[i]) {
            *ret_partial = true;
        } else {
            found = MAX(found, r->lens[i]);
        }
    }
    return found;
}

/*
 * Masks in place; returns how many bytes from the front are settled. Occurrences may overlap: each byte of each one is
 * masked, so a mask reaches at least to where the farthest one that has begun ends.
 */
static size_t mask(struct redact *r, char *data, size_t len, bool end)
{
    cleanup_free char *was = xmemdup(data, MAX(len, 1u));
    size_t until = MIN(r->reach, len);

    r->reach -= until;
    for (size_t i = 0; i < len; i++) {
        bool partial = false;
        size_t found = look(r, was + i, len - i, &partial);

        if (partial && !end) {
            r->reach += until > i ? until - i : 0;
            explicit_bzero(was, len);
            return i;
        }
        if (found > 0) {
            r->n_found++;
            until = MAX(until, i + found);
        }
        if (i < until) {
            data[i] = '*';
        }
    }
    explicit_bzero(was, len);
    return len;
}

int redact_next(struct redact *r, const void *data, size_t len, bool end, struct buf *out)
{
    size_t settled;
    int ret;

    if (r->n == 0) {
        return buf_add(out, data, len);
    }
    ret = buf_add(&r->kept, data, len);
    if (ret < 0 || r->kept.len == 0) {
        return ret;
    }
    settled = mask(r, r->kept.data, r->kept.len, end);
    ret = buf_add(out, r->kept.data, settled);
    if (ret == 0) {
        explicit_bzero(r->kept.data, settled);
        buf_consume(&r->kept, settled);
    }
    return ret;
}

void redact_text(struct redact *r, char *data, size_t len)
{
    size_t reach = r->reach; /* of the stream, which may be in the middle of a mask */

    if (r->n > 0 && len > 0) {
        r->reach = 0;
        mask(r, data, len, /* end */ true);
        r->reach = reach;
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/multipart.h"

#include <string.h>
#include <strings.h>

/* Room for a whole head that is not over, a delimiter, and what is fed on top. */
#define PENDING_MAX (MULTIPART_HEAD_MAX + MULTIPART_FEED_MAX + 256u)

/* --- parameters: ; name=value or ; name="value" --- */

struct param {
    const char *name; /* borrowed */
    size_t name_len;
    const char *value; /* borrowed: between the quotation marks */
    size_t value_len;
};

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t')) {
        p++;
    }
    return p;
}

/* The value from p on; NULL: it is malformed. */
static const char *take_value(const char *p, const char *end, struct param *ret)
{
    const char *close;

    if (p < end && *p == '"') {
        ret->value = p + 1;
        /* WHATWG clients escape a quotation mark as %22; others as \". */
        for (close = p + 1; close < end && *close != '"'; close++) {
            close += *close == '\\' && close + 1 < end ? 1 : 0;
        }
        if (close >= end) {
            return NULL;
        }
        ret->value_len = (size_t)(close - ret->value);
        return close + 1;
    }
    ret->value = p;
    while (p < end && *p != ';' && *p != ' ' && *p != '\t') {
        p++;
    }
    ret->value_len = (size_t)(p - ret->value);
    return p;
}

/* 1: a parameter, *at behind it; 0: there is none; -EPROTO. */
static int next_param(const char **at, const char *end, struct param *ret)
{
    const char *p = skip_space(*at, end);

    if (p == end) {
        return 0;
    }
    if (*p != ';') {
        return -EPROTO;
    }
    p = skip_space(p + 1, end);
    if (p == end) {
        *at = p;
        return 0;
    }
    ret->name = p;
    while (p < end && *p != '=' && *p != ';') {
        p++;
    }
    ret->name_len = (size_t)(p - ret->name);
    if (p == end || *p != '=') {
        return -EPROTO;
    }
    p = take_value(p + 1, end, ret);
    if (!p) {
        return -EPROTO;
    }
    *at = p;
    return 1;
}

static bool param_is(const struct param *p, const char *name)
{
    return p->name_len == strlen(name) && strncasecmp(p->name, name, p->name_len) == 0;
}

/* --- the content type --- */

static bool boundary_fine(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)s[i] <= 0x20 || (unsigned char)s[i] >= 0x7f) {
            return false;
        }
    }
    return len >= 1 && len <= MULTIPART_BOUNDARY_MAX;
}

int multipart_init(struct multipart *m, const char *content_type)
{
    static const char type[] = "multipart/form-data";
    const char *at;
    const char *end;
    struct param p;

    ASSERT(m);
    if (!content_type || strncasecmp(content_type, type, strlen(type)) != 0) {
        return -EINVAL;
    }
    at = content_type + strlen(type);
    end = at + strlen(at);
    while (next_param(&at, end, &p) == 1) {
        if (!param_is(&p, "boundary")) {
            continue;
        }
        if (!boundary_fine(p.value, p.value_len)) {
            return -EINVAL;
        }
        *m = (struct multipart){.pending = BUF_INIT(PENDING_MAX)};
        memcpy(m->delimiter, "\r\n--", 4);
        memcpy(m->delimiter + 4, p.value, p.value_len);
        m->delimiter_len = 4 + p.value_len;
        /* A form may begin with its first delimiter, without the line's end before it. */
        return buf_add(&m->pending, "\r\n", 2);
    }
    return -EINVAL;
}

void multipart_done(struct multipart *m)
{
    buf_done(&m->pending);
}

/* --- the stream --- */

static void drop_given(struct multipart *m)
{
    buf_consume(&m->pending, m->given);
    m->given = 0;
}

void multipart_feed(struct multipart *m, const void *data, size_t len)
{
    int r;

    ASSERT(len <= MULTIPART_FEED_MAX);
    drop_given(m);
    if (m->state == MULTIPART_DONE) {
        return;
    }
    r = buf_add(&m->pending, data, len);
    ASSERT(r == 0); /* multipart_next() leaves no more than a head that is not over */
}

/* Where the delimiter begins, or how much of pending certainly does not belong to one. */
static bool find_delimiter(const struct multipart *m, size_t *ret_at)
{
    const char *found =
        m->pending.len ? memmem(m->pending.data, m->pending.len, m->delimiter, m->delimiter_len)
                       : NULL;

    if (found) {
        *ret_at = (size_t)(found - m->pending.data);
        return true;
    }
    *ret_at = m->pending.len >= m->delimiter_len ? m->pending.len - m->delimiter_len + 1 : 0;
    return false;
}

/*
 * What stands behind a delimiter at `at`: "--" ends the form, CR LF begins a part. 1: taken; 0: not there yet.
 */
static int pass_delimiter(struct multipart *m, size_t at)
{
    const char *p = m->pending.data + at + m->delimiter_len;
    size_t len = m->pending.len - at - m->delimiter_len;
    size_t space = 0;

    while (space < len && (p[space] == ' ' || p[space] == '\t')) { /* "transport padding" */
        space++;
    }
    if (space > MULTIPART_BOUNDARY_MAX) {
        return -EPROTO;
    }
    if (len - space < 2) {
        return 0;
    }
    if (space == 0 && p[0] == '-' && p[1] == '-') {
        m->state = MULTIPART_DONE;
        buf_reset(&m->pending);
        return 1;
    }
    if (p[space] != '\r' || p[space + 1] != '\n') {
        return -EPROTO;
    }
    m->state = MULTIPART_HEAD;
    /* The last CR LF stays: a head without any field is just one more. */
    buf_consume(&m->pending, at + m->delimiter_len + space);
    return 1;
}

static int next_preamble(struct multipart *m, struct multipart_event *ret)
{
    size_t at = 0;
    int r;

    if (!find_delimiter(m, &at)) {
        buf_consume(&m->pending, at);
        return 0;
    }
    r = pass_delimiter(m, at);
    if (r != 1) {
        return r;
    }
    return multipart_next(m, ret);
}

/* Undoes the escapes; false: it is too long. */
static bool copy_text(const struct param *p, char *ret, size_t max)
{
    size_t n = 0;

    for (size_t i = 0; i < p->value_len; i++) {
        char c = p->value[i];
        const char *rest = p->value + i + 1;
        size_t left = p->value_len - i - 1;

        if (c == '%' && left >= 2 && memcmp(rest, "22", 2) == 0) {
            c = '"';
            i += 2;
        } else if (c == '%' && left >= 2 && strncasecmp(rest, "0D", 2) == 0) {
            c = '\r';
            i += 2;
        } else if (c == '%' && left >= 2 && strncasecmp(rest, "0A", 2) == 0) {
            c = '\n';
            i += 2;
        } else if (c == '\\' && left >= 1 && (*rest == '"' || *rest == '\\')) {
            c = *rest;
            i++;
        }
        if (n == max || c == '\0') {
            return false;
        }
        ret[n++] = c;
    }
    ret[n] = '\0';
    return true;
}

/* Content-Disposition: form-data; name="file"; filename="a" */
static int read_disposition(const char *at, const char *end, struct multipart_event *ret)
{
    static const char form_data[] = "form-data";
    struct param p;
    int r;

    at = skip_space(at, end);
    if ((size_t)(end - at) < strlen(form_data) ||
        strncasecmp(at, form_data, strlen(form_data)) != 0) {
        return -EPROTO;
    }
    at += strlen(form_data);
    while ((r = next_param(&at, end, &p)) == 1) {
        if (param_is(&p, "name")) {
            if (!copy_text(&p, ret->name, MULTIPART_NAME_MAX)) {
                return -EPROTO;
            }
        } else if (param_is(&p, "filename")) {
            if (!copy_text(&p, ret->filename, MULTIPART_FILENAME_MAX)) {
                return -EPROTO;
            }
            ret->has_filename = true;
        }
    }
    return r;
}

/* The lines of a head, its first CR LF and its last two left out. */
static int read_head(const char *at, const char *end, struct multipart_event *ret)
{
    static const char field[] = "content-disposition:";
    bool seen = false;

    while (at < end) {
        const char *eol = memmem(at, (size_t)(end - at), "\r\n", 2);
        const char *line_end = eol ? eol : end;

        if ((size_t)(line_end - at) >= strlen(field) &&
            strncasecmp(at, field, strlen(field)) == 0) {
            int r = seen ? -EPROTO : read_disposition(at + strlen(field), line_end, ret);

            if (r < 0) {
                return r;
            }
            seen = true;
        }
        at = eol ? eol + 2 : end;
    }
    return seen ? 0 : -EPROTO;
}

static int next_head(struct multipart *m, struct multipart_event *ret)
{
    const char *end = memmem(m->pending.data, m->pending.len, "\r\n\r\n", 4);
    size_t len;
    int r;

    if (!end) {
        return m->pending.len > MULTIPART_HEAD_MAX ? -EPROTO : 0;
    }
    len = (size_t)(end - m->pending.data);
    if (len > MULTIPART_HEAD_MAX) {
        return -EPROTO;
    }
    ret->type = MULTIPART_EVENT_BEGIN;
    r = len > 2 ? read_head(m->pending.data + 2, end, ret) : -EPROTO;
    if (r < 0) {
        return r;
    }
    m->state = MULTIPART_BODY;
    buf_consume(&m->pending, len + 4);
    return 1;
}

static int next_body(struct multipart *m, struct multipart_event *ret)
{
    size_t at = 0;
    bool found = find_delimiter(m, &at);
    int r;

    if (at > 0) {
        *ret = (struct multipart_event){
            .type = MULTIPART_EVENT_DATA, .data = m->pending.data, .len = at};
        m->given = at;
        return 1;
    }
    if (!found) {
        return 0;
    }
    r = pass_delimiter(m, 0);
    ret->type = MULTIPART_EVENT_END;
    return r;
}

int multipart_next(struct multipart *m, struct multipart_event *ret)
{
    ASSERT(m && ret);
    drop_given(m);
    ret->name[0] = ret->filename[0] = '\0';
    ret->has_filename = false;
    switch (m->state) {
    case MULTIPART_PREAMBLE:
        return next_preamble(m, ret);
    case MULTIPART_HEAD:
        return next_head(m, ret);
    case MULTIPART_BODY:
        return next_body(m, ret);
    case MULTIPART_DONE:
        break;
    }
    if (m->told) {
        return 0;
    }
    m->told = true;
    ret->type = MULTIPART_EVENT_DONE;
    return 1;
}

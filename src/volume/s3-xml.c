/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/s3-xml.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define NAME_MAX_LEN 40u

static const char *find(const struct s3_xml *x, const char *needle)
{
    return x->len ? memmem(x->at, x->len, needle, strlen(needle)) : NULL;
}

static void skip_to(struct s3_xml *x, const char *to)
{
    x->len -= (size_t)(to - x->at);
    x->at = to;
}

bool s3_xml_next(struct s3_xml *x, const char *name, struct s3_xml *ret)
{
    char open[NAME_MAX_LEN + 4];
    char close[NAME_MAX_LEN + 4];
    const char *begin;
    const char *end;

    ASSERT(strlen(name) <= NAME_MAX_LEN);
    snprintf(open, sizeof(open), "<%s>", name);
    snprintf(close, sizeof(close), "</%s>", name);
    begin = find(x, open);
    if (!begin) {
        return false;
    }
    begin += strlen(open);
    skip_to(x, begin);
    end = find(x, close);
    if (!end) {
        return false;
    }
    *ret = (struct s3_xml){begin, (size_t)(end - begin)};
    skip_to(x, end + strlen(close));
    return true;
}

static const struct {
    const char *entity;
    char byte;
} entities[] = {
    {"&amp;", '&'},   {"&lt;", '<'},  {"&gt;", '>'},   {"&quot;", '"'},
    {"&apos;", '\''}, {"&#34;", '"'}, {"&#39;", '\''},
};

/* One character of text; *len and *at move on. -EBADMSG. */
static int decode_one(const char **at, size_t *len, char *ret)
{
    if (**at != '&') {
        if (**at == '<' || **at == '\0') {
            return -EBADMSG;
        }
        *ret = **at;
        (*at)++;
        (*len)--;
        return 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(entities); i++) {
        size_t n = strlen(entities[i].entity);

        if (*len >= n && memcmp(*at, entities[i].entity, n) == 0) {
            *ret = entities[i].byte;
            *at += n;
            *len -= n;
            return 0;
        }
    }
    return -EBADMSG;
}

int s3_xml_text(struct s3_xml within, const char *name, char *ret, size_t size)
{
    struct s3_xml text;
    size_t n = 0;

    if (!s3_xml_next(&within, name, &text)) {
        return -ENOENT;
    }
    while (text.len > 0) {
        char c;

        if (n + 1 >= size) {
            return -ENAMETOOLONG;
        }
        if (decode_one(&text.at, &text.len, &c) < 0) {
            return -EBADMSG;
        }
        ret[n++] = c;
    }
    ret[n] = '\0';
    return 0;
}

int s3_xml_time(const char *text, uint64_t *ret_ms)
{
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    uint64_t ms = 0;
    time_t t;

    if (!end) {
        return -EBADMSG;
    }
    if (*end == '.') {
        unsigned digits = 0;

        for (end++; *end >= '0' && *end <= '9'; end++, digits++) {
            ms = digits < 3 ? ms * 10 + (uint64_t)(*end - '0') : ms;
        }
        for (; digits < 3; digits++) {
            ms *= 10;
        }
    }
    t = timegm(&tm);
    if (!str_eq(end, "Z") || t < 0) {
        return -EBADMSG;
    }
    *ret_ms = (uint64_t)t * 1000 + ms;
    return 0;
}

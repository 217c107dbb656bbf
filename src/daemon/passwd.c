/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/passwd.h"

#include <string.h>

#define FIELDS_MAX 7
/* The id that means "no id" to system calls. */
#define ID_MAX_VALID (UINT32_MAX - 1)

struct field {
    const char *data; /* borrowed: the text */
    size_t len;
};

/* The next line's fields; *n is how many (a line with more is cut off at FIELDS_MAX). False at the end. */
static bool next_line(const char **text, size_t *len, struct field fields[static FIELDS_MAX],
                      size_t *n)
{
    const char *line = *text;
    const char *end;
    size_t line_len;

    if (*len == 0) {
        return false;
    }
    end = memchr(line, '\n', *len);
    line_len = end ? (size_t)(end - line) : *len;
    *len -= line_len + (end ? 1 : 0);
    *text = line + line_len + (end ? 1 : 0);
    *n = 0;
    if (memchr(line, '\0', line_len)) {
        return true; /* no line at all */
    }
    while (*n < FIELDS_MAX) {
        const char *colon = memchr(line, ':', line_len);
        size_t field_len = colon ? (size_t)(colon - line) : line_len;

        fields[(*n)++] = (struct field){line, field_len};
        if (!colon) {
            break;
        }
        line += field_len + 1;
        line_len -= field_len + 1;
    }
    return true;
}

static bool field_is(struct field f, const char *s)
{
    return f.len == strlen(s) && memcmp(f.data, s, f.len) == 0;
}

static bool field_id(struct field f, uint32_t *ret)
{
    char text[12];
    uint64_t n;

    if (f.len == 0 || f.len >= sizeof(text)) {
        return false;
    }
    memcpy(text, f.data, f.len);
    text[f.len] = '\0';
    if (str_to_u64(text, ID_MAX_VALID, &n) < 0) {
        return false;
    }
    *ret = (uint32_t)n;
    return true;
}

/* A path from the file, or the fallback when it is none or does not fit. */
static void field_path(struct field f, const char *fallback, char *ret, size_t size)
{
    bool fine = f.len > 0 && f.len < size && f.data[0] == '/';
    const char *from = fine ? f.data : fallback;
    size_t n = fine ? f.len : strlen(fallback);

    memcpy(ret, from, n);
    ret[n] = '\0';
}

static bool passwd_line(const struct field *f, size_t n, struct workload_user *ret)
{
    struct workload_user u = {0};

    if (n < 6 || f[0].len == 0 || f[0].len >= sizeof(u.name) || !field_id(f[2], &u.uid) ||
        !field_id(f[3], &u.gid)) {
        return false;
    }
    memcpy(u.name, f[0].data, f[0].len);
    field_path(f[5], "/", u.home, sizeof(u.home));
    field_path(n > 6 ? f[6] : (struct field){0}, "/bin/sh", u.shell, sizeof(u.shell));
    u.groups[0] = u.gid;
    u.n_groups = 1;
    *ret = u;
    return true;
}

int passwd_find_name(const char *text, size_t len, const char *name, struct workload_user *ret)
{
    struct field f[FIELDS_MAX];
    size_t n = 0;

    while (next_line(&text, &len, f, &n)) {
        if (n > 0 && field_is(f[0], name) && passwd_line(f, n, ret)) {
            return 0;
        }
    }
    return -ENOENT;
}

int passwd_find_uid(const char *text, size_t len, uid_t uid, struct workload_user *ret)
{
    struct field f[FIELDS_MAX];
    struct workload_user u;
    size_t n = 0;

    while (next_line(&text, &len, f, &n)) {
        if (passwd_line(f, n, &u) && u.uid == uid) {
            *ret = u;
            return 0;
        }
    }
    return -ENOENT;
}

static bool is_member(struct field members, const char *name)
{
    while (members.len > 0) {
        const char *comma = memchr(members.data, ',', members.len);
        size_t n = comma ? (size_t)(comma - members.data) : members.len;

        if (field_is((struct field){members.data, n}, name)) {
            return true;
        }
        n += comma ? 1 : 0;
        members = (struct field){members.data + n, members.len - n};
    }
    return false;
}

static bool has_group(const struct workload_user *u, gid_t gid)
{
    for (size_t i = 0; i < u->n_groups; i++) {
        if (u->groups[i] == gid) {
            return true;
        }
    }
    return false;
}

void group_collect(const char *text, size_t len, struct workload_user *u)
{
    struct field f[FIELDS_MAX];
    size_t n = 0;
    gid_t gid;

    while (u->n_groups < WORKLOAD_GROUPS_MAX && next_line(&text, &len, f, &n)) {
        if (n >= 4 && field_id(f[2], &gid) && is_member(f[3], u->name) && !has_group(u, gid)) {
            u->groups[u->n_groups++] = gid;
        }
    }
}

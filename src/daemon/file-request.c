/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/file-request.h"

#include "base/base64.h"
#include "base/json.h"
#include "daemon/file-more.h"

#include <stdio.h>
#include <string.h>

#define NAME_FIELD_MAX 255u
#define CURSOR_VERSION '1'

void file_request_done(struct file_request *req)
{
    free(req->user);
    free(req->path);
    free(req->to);
    free(req->target);
    free(req->owner);
    free(req->group);
    free(req->cursor);
    free(req->metadata);
    *req = (struct file_request){.mode = -1};
}

int file_mode_parse(const char *text, int *ret)
{
    int mode = 0;

    if (!*text) {
        return -EINVAL;
    }
    for (size_t i = 0; text[i]; i++) {
        if (text[i] < '0' || text[i] > '7' || i >= 8) {
            return -EINVAL;
        }
        mode = mode * 8 + (text[i] - '0');
    }
    if (mode > 07777) {
        return -EINVAL;
    }
    *ret = mode;
    return 0;
}

/* A path or link text: not empty, not too long. */
static int take_path(const char *value, const char *field, char **ret, struct err *e)
{
    if (str_empty(value)) {
        return err_field(e, -EINVAL, "missing_field", field, "'%s' is missing: give a path", field);
    }
    if (strlen(value) > FILE_PATH_MAX) {
        return err_field(e, -ENAMETOOLONG, "name_too_long", field, "'%s' is longer than %u bytes",
                         field, FILE_PATH_MAX);
    }
    *ret = xstrdup(value);
    return 0;
}

static int take_name(const char *value, const char *field, char **ret, struct err *e)
{
    if (!value) {
        return 0;
    }
    if (strlen(value) > NAME_FIELD_MAX) {
        return err_field(e, -EINVAL, "invalid_field", field, "'%s' is longer than %u bytes", field,
                         NAME_FIELD_MAX);
    }
    *ret = *value ? xstrdup(value) : NULL;
    return 0;
}

static int bad_mode(struct err *e, const char *allowed)
{
    return err_field(e, -EINVAL, "invalid_field", "mode", "'mode' must be %s", allowed);
}

/* ---- queries ---- */

struct query {
    file_query_fn *get;
    const void *arg;
};

static int query_count(const struct query *q, const char *name, unsigned max, unsigned *ret,
                       struct err *e)
{
    const char *text = q->get(q->arg, name);
    uint64_t value;

    if (!text) {
        return 0;
    }
    if (str_to_u64(text, max, &value) < 0 || value == 0) {
        return err_field(e, -EINVAL, "out_of_range", name, "'%s' must be a number from 1 to %u",
                         name, max);
    }
    *ret = (unsigned)value;
    return 0;
}

static int query_flag(const struct query *q, const char *name, bool *ret, struct err *e)
{
    const char *text = q->get(q->arg, name);

    if (!text) {
        return 0;
    }
    if (!*text || str_eq(text, "1") || str_eq(text, "true")) {
        *ret = true;
    } else if (str_eq(text, "0") || str_eq(text, "false")) {
        *ret = false;
    } else {
        return err_field(e, -EINVAL, "invalid_field", name, "'%s' must be 1 or 0", name);
    }
    return 0;
}

static int query_metadata(const struct query *q, struct file_request *req, struct err *e)
{
    const char *text = q->get(q->arg, "metadata");
    int r;

    if (!text) {
        return 0;
    }
    if (strlen(text) > FILE_METADATA_TEXT_MAX) {
        return err_field(e, -EINVAL, "invalid_field", "metadata", "'metadata' is too long");
    }
    r = file_metadata_check(text, e);
    if (r == 0) {
        req->metadata = xstrdup(text);
    }
    return r;
}

static int query_write(const struct query *q, struct file_request *req, struct err *e)
{
    const char *mode = q->get(q->arg, "mode");

    if (mode && (file_mode_parse(mode, &req->mode) < 0 || req->mode > 0777)) {
        return bad_mode(
            e, "octal permission bits up to 0777; an upload cannot be setuid, setgid or sticky");
    }
    return query_metadata(q, req, e);
}

static int query_list(const struct query *q, struct file_request *req, struct err *e)
{
    const char *cursor = q->get(q->arg, "cursor");
    int r = query_count(q, "depth", FILE_LIST_DEPTH_MAX, &req->depth, e);

    if (r == 0) {
        r = query_count(q, "limit", FILE_LIST_LIMIT_MAX, &req->limit, e);
    }
    if (r == 0 && !str_empty(cursor) && file_cursor_parse(cursor, &req->cursor) < 0) {
        r = err_field(e, -EINVAL, "invalid_cursor", "cursor",
                      "'cursor' is not one that a list gave: start again without it");
    }
    return r < 0 ? r : query_flag(q, "more", &req->more, e);
}

static int query_op(const struct query *q, struct file_request *req, struct err *e)
{
    switch (req->op) {
    case FILE_OP_WRITE:
        return query_write(q, req, e);
    case FILE_OP_LIST:
        return query_list(q, req, e);
    case FILE_OP_STAT:
        return query_flag(q, "more", &req->more, e);
    case FILE_OP_WATCH:
        return query_flag(q, "recursive", &req->recursive, e);
    default:
        return 0;
    }
}

int file_request_from_query(enum file_op op, file_query_fn *get, const void *arg,
                            struct file_request *ret, struct err *e)
{
    const struct query q = {.get = get, .arg = arg};
    cleanup_file_request struct file_request req = {
        .op = op, .mode = -1, .depth = 1, .limit = FILE_LIST_LIMIT_DEFAULT};
    int r = take_path(get(arg, "path"), "path", &req.path, e);

    if (r == 0) {
        r = take_name(get(arg, "user"), "user", &req.user, e);
    }
    if (r == 0) {
        r = query_op(&q, &req, e);
    }
    if (r < 0) {
        return r;
    }
    *ret = req;
    req = (struct file_request){.mode = -1};
    return 0;
}

/* ---- JSON bodies ---- */

static const struct json_field mkdir_fields[] = {
    {"path", JSON_FIELD_STRING, 0},    {"path_base64", JSON_FIELD_STRING, 0},
    {"user", JSON_FIELD_STRING, 0},    {"mode", JSON_FIELD_STRING, 0},
    {"recursive", JSON_FIELD_BOOL, 0},
};
static const struct json_field move_fields[] = {
    {"path", JSON_FIELD_STRING, 0},      {"path_base64", JSON_FIELD_STRING, 0},
    {"user", JSON_FIELD_STRING, 0},      {"to", JSON_FIELD_STRING, 0},
    {"to_base64", JSON_FIELD_STRING, 0}, {"overwrite", JSON_FIELD_BOOL, 0},
};
static const struct json_field remove_fields[] = {
    {"path", JSON_FIELD_STRING, 0},
    {"path_base64", JSON_FIELD_STRING, 0},
    {"user", JSON_FIELD_STRING, 0},
    {"recursive", JSON_FIELD_BOOL, 0},
};
static const struct json_field chmod_fields[] = {
    {"path", JSON_FIELD_STRING, 0},
    {"path_base64", JSON_FIELD_STRING, 0},
    {"user", JSON_FIELD_STRING, 0},
    {"mode", JSON_FIELD_STRING, JSON_REQUIRED},
};
static const struct json_field chown_fields[] = {
    {"path", JSON_FIELD_STRING, 0},  {"path_base64", JSON_FIELD_STRING, 0},
    {"user", JSON_FIELD_STRING, 0},  {"owner", JSON_FIELD_STRING, 0},
    {"group", JSON_FIELD_STRING, 0},
};
static const struct json_field symlink_fields[] = {
    {"path", JSON_FIELD_STRING, 0},          {"path_base64", JSON_FIELD_STRING, 0},
    {"user", JSON_FIELD_STRING, 0},          {"target", JSON_FIELD_STRING, 0},
    {"target_base64", JSON_FIELD_STRING, 0},
};

#define FIELDS(f) \
    { \
        f, ARRAY_SIZE(f) \
    }
static const struct {
    const struct json_field *fields;
    size_t n;
} bodies[FILE_OP_COUNT_] = {
    [FILE_OP_MKDIR] = FIELDS(mkdir_fields),   [FILE_OP_MOVE] = FIELDS(move_fields),
    [FILE_OP_REMOVE] = FIELDS(remove_fields), [FILE_OP_CHMOD] = FIELDS(chmod_fields),
    [FILE_OP_CHOWN] = FIELDS(chown_fields),   [FILE_OP_SYMLINK] = FIELDS(symlink_fields),
};

/* A string member without NUL, or its _base64 twin. */
static int json_path(json_t *body, const char *field, char **ret, struct err *e)
{
    cleanup_buf struct buf decoded = BUF_INIT(FILE_PATH_MAX + 3);
    char twin[32];
    const char *plain = json_get_string(body, field, NULL);
    const char *coded;

    snprintf(twin, sizeof(twin), "%s_base64", field);
    coded = json_get_string(body, twin, NULL);
    if (plain && coded) {
        return err_field(e, -EINVAL, "invalid_field", twin, "give '%s' or '%s', not both", field,
                         twin);
    }
    if (!coded) {
        if (plain && strlen(plain) != json_string_length(json_object_get(body, field))) {
            return err_field(e, -EINVAL, "invalid_field", field, "'%s' must not hold a NUL", field);
        }
        return take_path(plain, field, ret, e);
    }
    if (base64_decode(coded, strlen(coded), &decoded) < 0 ||
        strlen(buf_str(&decoded)) != decoded.len) {
        return err_field(e, -EINVAL, "invalid_field", twin,
                         "'%s' must be base64 of at most %u bytes without NUL", twin,
                         FILE_PATH_MAX);
    }
    return take_path(buf_str(&decoded), field, ret, e);
}

static int json_mode(json_t *body, struct file_request *req, struct err *e)
{
    const char *mode = json_get_string(body, "mode", NULL);

    if (!mode) {
        return 0;
    }
    if (file_mode_parse(mode, &req->mode) < 0) {
        return bad_mode(e, "a string of octal permission bits such as \"0755\"");
    }
    if (req->op == FILE_OP_MKDIR && req->mode > 01777) {
        return bad_mode(e, "octal permission bits up to 1777 for a new directory");
    }
    return 0;
}

static int json_op(json_t *body, struct file_request *req, struct err *e)
{
    int r;

    switch (req->op) {
    case FILE_OP_MKDIR:
        req->recursive = json_get_bool(body, "recursive", true);
        return json_mode(body, req, e);
    case FILE_OP_CHMOD:
        return json_mode(body, req, e);
    case FILE_OP_MOVE:
        req->overwrite = json_get_bool(body, "overwrite", true);
        return json_path(body, "to", &req->to, e);
    case FILE_OP_REMOVE:
        req->recursive = json_get_bool(body, "recursive", false);
        return 0;
    case FILE_OP_CHOWN:
        r = take_name(json_get_string(body, "owner", NULL), "owner", &req->owner, e);
        if (r == 0) {
            r = take_name(json_get_string(body, "group", NULL), "group", &req->group, e);
        }
        if (r == 0 && !req->owner && !req->group) {
            r = err_field(e, -EINVAL, "missing_field", "owner", "give 'owner', 'group' or both");
        }
        return r;
    default:
        return json_path(body, "target", &req->target, e);
    }
}

int file_request_from_json(enum file_op op, json_t *body, struct file_request *ret, struct err *e)
{
    cleanup_file_request struct file_request req = {.op = op, .mode = -1};
    int r;

    ASSERT(op < FILE_OP_COUNT_ && bodies[op].fields);
    r = json_check_object(body, bodies[op].fields, bodies[op].n, e);
    if (r == 0) {
        r = json_path(body, "path", &req.path, e);
    }
    if (r == 0) {
        r = take_name(json_get_string(body, "user", NULL), "user", &req.user, e);
    }
    if (r == 0) {
        r = json_op(body, &req, e);
    }
    if (r < 0) {
        return r;
    }
    *ret = req;
    req = (struct file_request){.mode = -1};
    return 0;
}

/* ---- to the worker ---- */

#define N_TEXTS 8

struct packed {
    uint32_t op;
    int32_t mode;
    uint32_t flags;
    uint32_t depth;
    uint32_t limit;
    uint32_t range_kind;
    uint64_t first;
    uint64_t last;
    uint32_t sizes[N_TEXTS]; /* with NUL; 0: NULL */
    uint32_t zero;
};

static void texts_of(struct file_request *req, char **ret[static N_TEXTS])
{
    char **all[N_TEXTS] = {&req->user,  &req->path,  &req->to,     &req->target,
                           &req->owner, &req->group, &req->cursor, &req->metadata};

    memcpy(ret, all, sizeof(all));
}

int file_request_pack(const struct file_request *req, struct buf *b)
{
    struct file_request copy = *req;
    struct packed p = {
        .op = req->op,
        .mode = req->mode,
        .flags = (req->recursive ? 1u : 0) | (req->overwrite ? 2u : 0) | (req->more ? 4u : 0),
        .depth = req->depth,
        .limit = req->limit,
        .range_kind = req->range.kind,
        .first = req->range.first,
        .last = req->range.last,
    };
    char **texts[N_TEXTS];
    int r;

    texts_of(&copy, texts);
    for (size_t i = 0; i < N_TEXTS; i++) {
        p.sizes[i] = *texts[i] ? (uint32_t)strlen(*texts[i]) + 1 : 0;
    }
    r = buf_add(b, &p, sizeof(p));
    for (size_t i = 0; r == 0 && i < N_TEXTS; i++) {
        r = p.sizes[i] > 0 ? buf_add(b, *texts[i], p.sizes[i]) : 0;
    }
    return r;
}

int file_request_unpack(const void *data, size_t len, struct file_request *ret)
{
    cleanup_file_request struct file_request req = {.mode = -1};
    const char *at = (const char *)data + sizeof(struct packed);
    struct packed p;
    char **texts[N_TEXTS];

    if (len < sizeof(p)) {
        return -EPROTO;
    }
    memcpy(&p, data, sizeof(p));
    len -= sizeof(p);
    texts_of(&req, texts);
    for (size_t i = 0; i < N_TEXTS; i++) {
        if (p.sizes[i] > len || (p.sizes[i] > 0 && at[p.sizes[i] - 1] != '\0')) {
            return -EPROTO;
        }
        *texts[i] = p.sizes[i] > 0 ? xstrdup(at) : NULL;
        at += p.sizes[i];
        len -= p.sizes[i];
    }
    if (len != 0 || p.op >= FILE_OP_COUNT_ || p.range_kind > FILE_RANGE_TAIL || !req.path) {
        return -EPROTO;
    }
    req.op = (enum file_op)p.op;
    req.mode = p.mode;
    req.recursive = p.flags & 1;
    req.overwrite = p.flags & 2;
    req.more = p.flags & 4;
    req.depth = p.depth;
    req.limit = p.limit;
    req.range = (struct file_range){(enum file_range_kind)p.range_kind, p.first, p.last};
    *ret = req;
    req = (struct file_request){.mode = -1};
    return 0;
}

/* ---- ranges and cursors ---- */

static bool take_digits(const char **text, uint64_t *ret)
{
    uint64_t value = 0;
    const char *p = *text;

    while (*p >= '0' && *p <= '9') {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value)) {
            return false;
        }
        p++;
    }
    if (p == *text) {
        return false;
    }
    *text = p;
    *ret = value;
    return true;
}

void file_range_parse(const char *header, struct file_range *ret)
{
    struct file_range range = {0};
    const char *p = header;

    *ret = (struct file_range){.kind = FILE_RANGE_ALL};
    if (!p || !str_starts(p, "bytes=")) {
        return;
    }
    p += strlen("bytes=");
    if (*p == '-') {
        p++;
        range.kind = FILE_RANGE_TAIL;
        if (!take_digits(&p, &range.last)) {
            return;
        }
    } else {
        if (!take_digits(&p, &range.first) || *p++ != '-') {
            return;
        }
        range.kind = *p ? FILE_RANGE_BETWEEN : FILE_RANGE_FROM;
        if (*p && (!take_digits(&p, &range.last) || range.last < range.first)) {
            return;
        }
    }
    if (!*p) {
        *ret = range;
    }
}

int file_range_apply(const struct file_range *range, uint64_t size, uint64_t *ret_start,
                     uint64_t *ret_len)
{
    uint64_t start = 0;
    uint64_t end = size; /* one past the last byte */

    switch (range->kind) {
    case FILE_RANGE_ALL:
        *ret_start = 0;
        *ret_len = size;
        return 0;
    case FILE_RANGE_TAIL:
        start = range->last < size ? size - range->last : 0;
        break;
    case FILE_RANGE_BETWEEN:
        end = range->last < size ? range->last + 1 : size;
        start = range->first;
        break;
    case FILE_RANGE_FROM:
        start = range->first;
        break;
    }
    if (start >= end) {
        return -ERANGE;
    }
    *ret_start = start;
    *ret_len = end - start;
    return 0;
}

char *file_cursor_print(const char *relative)
{
    cleanup_buf struct buf raw = BUF_INIT(FILE_PATH_MAX + 1);
    cleanup_buf struct buf token = BUF_INIT(FILE_CURSOR_MAX);
    int r = buf_printf(&raw, "%c%s", CURSOR_VERSION, relative);

    if (r == 0) {
        r = base64_encode(raw.data, raw.len, &token);
    }
    ASSERT(r == 0);
    for (size_t i = 0; i < token.len; i++) { /* as it stands in a query */
        char c = token.data[i];

        token.data[i] = c == '+' ? '-' : c == '/' ? '_' : c == '=' ? '.' : c;
    }
    return buf_take(&token);
}

/* Components that are names: not empty, not "." or "..", not too long. */
static bool relative_ok(const char *relative)
{
    const char *p = relative;

    for (;;) {
        size_t len = strcspn(p, "/");

        if (len == 0 || len > 255 || (p[0] == '.' && (len == 1 || (len == 2 && p[1] == '.')))) {
            return false;
        }
        if (!p[len]) {
            return true;
        }
        p += len + 1;
    }
}

int file_cursor_parse(const char *token, char **ret)
{
    cleanup_buf struct buf raw = BUF_INIT(FILE_PATH_MAX + 3);
    cleanup_free char *text = NULL;
    size_t len = strlen(token);

    if (len > FILE_CURSOR_MAX) {
        return -EINVAL;
    }
    text = xstrdup(token);
    for (size_t i = 0; i < len; i++) {
        char c = text[i];

        if (c == '+' || c == '/' || c == '=') {
            return -EINVAL;
        }
        text[i] = c == '-' ? '+' : c == '_' ? '/' : c == '.' ? '=' : c;
    }
    if (base64_decode(text, len, &raw) < 0 || raw.len < 2 || raw.len > FILE_PATH_MAX + 1 ||
        strlen(raw.data) != raw.len || raw.data[0] != CURSOR_VERSION ||
        !relative_ok(raw.data + 1)) {
        return -EINVAL;
    }
    *ret = xstrdup(raw.data + 1);
    return 0;
}

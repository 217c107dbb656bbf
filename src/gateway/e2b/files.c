/* SPDX-License-Identifier: Apache-2.0 */

/*
 * /files: whole files out, and in as the body itself or as the parts of a form. Both are streamed through; each file that comes
 * in is written by one PUT to our daemon, which puts it in place when it is complete. So a cut upload leaves no
 * half of a file, and of a form the files before the cut.
 */
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/clock.h"
#include "gateway/e2b/inside.h"
#include "gateway/e2b/upload.h"
#include "wire/multipart.h"
#include "wire/url.h"

#define PIECE (64u * 1024)
#define FORM_FILES_MAX 10000
#define METADATA_PREFIX "X-Metadata-"

/* --- who and what --- */

static const char *query(const struct inside *in, const char *name)
{
    const char *value = http_query_get(in->req, name);

    return value ? value : "";
}

/* The user of the query counts; SDKs send the other one, too. */
static int take_user(struct inside *in, struct err *e)
{
    const char *name = query(in, "username");

    if (name[0] && str_copy(in->user, sizeof(in->user), name) < 0) {
        return err_set(e, -EKEYREJECTED, "unauthorized", "error looking up user '%.100s'", name);
    }
    return inside_check_user(in->user, e);
}

/* X-Metadata-KEY: VALUE, for every file of the request; the daemon checks them. NULL: none. */
static json_t *metadata_of(const struct inside *in)
{
    const struct http_headers *all = http_request_headers(in->req);
    json_t *map = NULL;

    for (size_t i = 0; i < all->n; i++) {
        const char *name = all->v[i].name;
        char key[256];
        size_t n = 0;

        if (strncasecmp(name, METADATA_PREFIX, strlen(METADATA_PREFIX)) != 0) {
            continue;
        }
        for (name += strlen(METADATA_PREFIX); *name && n < sizeof(key) - 1; name++) {
            key[n++] = *name >= 'A' && *name <= 'Z' ? (char)(*name - 'A' + 'a') : *name;
        }
        key[n] = '\0';
        map = map ? map : json_object();
        if (*name || json_object_set_new(map, key, json_string(all->v[i].value)) < 0) {
            json_object_set_new(map, "", json_true()); /* too long, or not UTF-8: to be refused */
        }
    }
    return map;
}

/* What went wrong with a path, in the words that clients look for. */
static int explain(struct inside *in, const char *path, struct err *e)
{
    cleanup_free char *absolute = NULL;
    int code = e->code;

    if (str_eq(e->reason, "user_not_found")) {
        return err_set(e, -EKEYREJECTED, "unauthorized",
                       "error looking up user '%s': user: unknown user %s", in->user, in->user);
    }
    if (code != -ENOENT && code != -EISDIR) {
        return code;
    }
    absolute = inside_absolute(in, path);
    return code == -ENOENT
               ? err_set(e, code, "not_found", "path '%.300s' does not exist", absolute)
               : err_set(e, code, "is_a_directory", "path '%.300s' is a directory", absolute);
}

/* --- signatures --- */

static void sign(const char *text, struct buf *ret)
{
    unsigned char digest[32];
    unsigned n = 0;
    int ok = EVP_Digest(text, strlen(text), digest, &n, EVP_sha256(), NULL);

    ASSERT(ok == 1 && n == sizeof(digest));
    ASSERT(buf_add_str(ret, "v1_") == 0 && base64_encode(digest, n, ret) == 0);
    while (ret->len > 0 && ret->data[ret->len - 1] == '=') {
        ret->data[--ret->len] = '\0';
    }
}

int e2b_signature_check(struct http_request *req, const char *token, struct err *e)
{
    const char *given = http_query_get(req, "signature");
    const char *expiration = http_query_get(req, "signature_expiration");
    const char *path = http_query_get(req, "path");
    const char *user = http_query_get(req, "username");
    bool writes = str_eq(http_request_method(req), "POST");
    cleanup_buf struct buf want = BUF_INIT(64);
    cleanup_free char *text =
        xasprintf("%s:%s:%s:%s%s%s", path ? path : "", writes ? "write" : "read", user ? user : "",
                  token, expiration ? ":" : "", expiration ? expiration : "");
    uint64_t end_s = 0;

    if (!given) {
        return err_set(e, -EKEYREJECTED, "unauthorized", "missing signature query parameter");
    }
    sign(text, &want);
    if (strlen(given) != want.len || !bytes_equal_constant_time(given, want.data, want.len)) {
        return err_set(e, -EKEYREJECTED, "unauthorized", "invalid signature");
    }
    if (expiration && (str_to_u64(expiration, INT64_MAX / 1000, &end_s) < 0 ||
                       (int64_t)end_s * 1000 < (int64_t)clock_wall_ms())) {
        return err_set(e, -EKEYREJECTED, "signature_expired", "signature is already expired");
    }
    return 0;
}

/* --- out --- */

static void reply_head(struct inside *in, struct http_call *call, const char *path)
{
    static const char *const passed[] = {"Accept-Ranges", "Content-Range"};
    cleanup_buf struct buf disposition = BUF_INIT(32u * 1024);
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;

    for (size_t i = 0; i < ARRAY_SIZE(passed); i++) {
        const char *value = http_call_header(call, passed[i]);

        if (value) {
            http_reply_header(in->req, passed[i], value);
        }
    }
    if (buf_add_str(&disposition, "inline; filename*=utf-8''") == 0 &&
        url_encode(&disposition, name, strlen(name), 0) == 0) {
        http_reply_header(in->req, "Content-Disposition", buf_str(&disposition));
    }
    http_reply_header(in->req, "Vary", "Accept-Encoding");
    guest_reply_headers(in->req);
}

static int pump_out(struct inside *in, struct http_call *call, struct err *e)
{
    cleanup_free char *piece = xmalloc(PIECE);
    ssize_t n;
    int r = 0;

    while (r == 0 && (n = http_call_read(call, piece, PIECE, e)) != 0) {
        r = n < 0 ? (int)n : http_write(in->req, piece, (size_t)n, e);
    }
    if (r < 0) {
        http_reply_abort(in->req);
        return r;
    }
    return http_end(in->req, e);
}

int e2b_files_get(struct inside *in, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_free char *path = NULL;
    cleanup_free char *target = NULL;
    struct guest_call_opts opts = {.method = "GET"};
    struct err why = {0};
    int r = take_user(in, e);

    if (r == 0) {
        r = inside_path(in, query(in, "path"), &path, e);
    }
    if (r < 0) {
        return r;
    }
    target = inside_target(in, "/files", "path", path, "user", in->user[0] ? in->user : NULL, NULL);
    opts.target = target;
    opts.range = http_request_header(in->req, "Range");
    r = inside_call(in, &opts, &call, &why);
    if (r == 0) {
        r = http_call_head(call, &why);
    }
    if (r == 0) {
        r = http_call_check(call, &why);
    }
    if (r < 0) {
        r = explain(in, path, &why);
        if (e) {
            *e = why;
        }
        return r;
    }
    reply_head(in, call, path);
    r = http_reply_begin(in->req, http_call_status(call), "application/octet-stream",
                         http_call_length(call), e);
    return r < 0 ? r : pump_out(in, call, e);
}

/* --- in --- */

/* Each file's end takes the guest a while, for it goes to the disk; of many small ones several may do so at once. */
#define WAITING_MAX 16

struct uploads {
    struct inside *in;      /* borrowed */
    json_t *metadata;       /* owned: of every file; NULL: none */
    struct upload *current; /* owned; NULL: between files, or a part that is no file */
    struct upload
        *waiting[WAITING_MAX]; /* owned: sent, in their order; their answers are not read yet */
    size_t n_waiting;
    json_t *done; /* owned: what has been written, as clients are told */
};

static void uploads_done(struct uploads *u)
{
    upload_free(u->current);
    for (size_t i = 0; i < u->n_waiting; i++) {
        upload_free(u->waiting[i]);
    }
    json_decref(u->metadata);
    json_decref(u->done);
}

static int begin_file(struct uploads *u, const char *text, struct err *e)
{
    cleanup_free char *path = NULL;
    int r = inside_path(u->in, text, &path, e);

    if (r == 0 && json_array_size(u->done) + u->n_waiting >= FORM_FILES_MAX) {
        r = err_set(e, -EINVAL, "too_many_files", "a form may hold at most %d files",
                    FORM_FILES_MAX);
    }
    return r < 0 ? r : upload_new(u->in, path, u->metadata, &u->current, e);
}

static bool is_there(const struct uploads *u, json_t *entry)
{
    json_t *other;
    size_t i;

    json_array_foreach(u->done, i, other)
    {
        if (str_eq(json_get_string(other, "path", ""), json_get_string(entry, "path", ""))) {
            return true;
        }
    }
    return false;
}

/* Reads the answer for the file that waits longest. */
static int finish_file(struct uploads *u, struct err *e)
{
    CLEANUP(upload_freep) struct upload *oldest = u->waiting[0];
    cleanup_json json_t *entry = NULL;
    struct err why = {0};
    int r;

    ASSERT(u->n_waiting > 0);
    u->n_waiting--;
    memmove(u->waiting, u->waiting + 1, u->n_waiting * sizeof(u->waiting[0]));
    r = upload_finish(oldest, &entry, &why);
    if (r < 0) {
        r = explain(u->in, upload_path(oldest), &why);
        if (e) {
            *e = why;
        }
        return r;
    }
    if (is_there(u, entry)) {
        return err_set(e, -EINVAL, "duplicate_file",
                       "you cannot upload multiple files to the same path '%s'",
                       json_get_string(entry, "path", ""));
    }
    json_array_append(u->done, entry);
    return 0;
}

static int end_file(struct uploads *u, struct err *e)
{
    int r = upload_end(u->current, e);

    if (r == 0 && u->n_waiting == WAITING_MAX) {
        r = finish_file(u, e);
    }
    if (r == 0) {
        u->waiting[u->n_waiting++] = TAKE_PTR(u->current);
    }
    return r;
}

static int finish_all(struct uploads *u, struct err *e)
{
    int r = 0;

    while (r == 0 && u->n_waiting > 0) {
        r = finish_file(u, e);
    }
    return r;
}

static int take_event(struct uploads *u, const struct multipart_event *ev, struct err *e)
{
    const char *path = http_query_get(u->in->req, "path");

    switch (ev->type) {
    case MULTIPART_EVENT_BEGIN:
        if (!str_eq(ev->name, "file")) {
            return 0;
        }
        if (str_empty(path) && !ev->filename[0]) {
            return err_field(e, -EINVAL, "missing_field", "path",
                             "a file without a name needs 'path' in the query");
        }
        return begin_file(u, str_empty(path) ? ev->filename : path, e);
    case MULTIPART_EVENT_DATA:
        return u->current ? upload_write(u->current, ev->data, ev->len, e) : 0;
    case MULTIPART_EVENT_END:
        return u->current ? end_file(u, e) : 0;
    case MULTIPART_EVENT_DONE:
        break;
    }
    return 0;
}

static int take_form_piece(struct uploads *u, struct multipart *m, bool *ret_over, struct err *e)
{
    struct multipart_event *ev = xnew(struct multipart_event); /* too large for a thread's stack */
    int r;

    while ((r = multipart_next(m, ev)) == 1) {
        *ret_over = ev->type == MULTIPART_EVENT_DONE;
        r = take_event(u, ev, e);
        if (r < 0) {
            free(ev);
            return r;
        }
    }
    free(ev);
    return r < 0 ? err_set(e, -EINVAL, "invalid_form", "the body is no multipart form") : 0;
}

static int take_form(struct uploads *u, struct multipart *m, struct err *e)
{
    cleanup_free char *piece = xmalloc(PIECE);
    bool over = false;
    ssize_t n;
    int r = 0;

    while (r == 0 && (n = http_body_read(u->in->req, piece, PIECE, e)) != 0) {
        if (n < 0) {
            return (int)n;
        }
        multipart_feed(m, piece, (size_t)n);
        r = take_form_piece(u, m, &over, e);
    }
    if (r == 0 && !over) {
        return err_set(e, -EINVAL, "invalid_form", "the form ends before its last delimiter");
    }
    return r;
}

static int take_body(struct uploads *u, struct err *e)
{
    const char *path = http_query_get(u->in->req, "path");
    cleanup_free char *piece = xmalloc(PIECE);
    ssize_t n;
    int r;

    if (str_empty(path)) {
        return err_field(e, -EINVAL, "missing_field", "path", "'path' is missing in the query");
    }
    r = begin_file(u, path, e);
    while (r == 0 && (n = http_body_read(u->in->req, piece, PIECE, e)) != 0) {
        r = n < 0 ? (int)n : upload_write(u->current, piece, (size_t)n, e);
    }
    return r < 0 ? r : end_file(u, e);
}

static int take_any(struct uploads *u, struct err *e)
{
    const char *type = http_request_header(u->in->req, "Content-Type");
    struct multipart m;
    int r;

    if (type && strncasecmp(type, "application/octet-stream", 24) == 0) {
        return take_body(u, e);
    }
    if (multipart_init(&m, type) < 0) {
        return err_set(e, -EINVAL, "invalid_content_type",
                       "files come as multipart/form-data or application/octet-stream");
    }
    r = take_form(u, &m, e);
    multipart_done(&m);
    return r;
}

int e2b_files_post(struct inside *in, struct err *e)
{
    CLEANUP(uploads_done) struct uploads u = {.in = in, .done = json_array()};
    int r = take_user(in, e);

    http_body_limit(in->req, UINT64_MAX);
    u.metadata = metadata_of(in);
    if (r == 0) {
        r = take_any(&u, e);
    }
    if (r == 0) {
        r = finish_all(&u, e);
    }
    return r < 0 ? r : e2b_reply_json_take(in->req, 200, TAKE_PTR(u.done), e);
}

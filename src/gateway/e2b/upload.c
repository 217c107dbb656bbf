/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/e2b/upload.h"

#include <string.h>
#include <strings.h>
#include <zlib.h>

#define ANSWER_MAX (64u * 1024)
/* What one step of unpacking gives: a small body may become a large file, never a large buffer. */
#define UNPACKED (64u * 1024)
/* The daemon's FILE_METADATA_TEXT_MAX; it checks what is in it. */
#define METADATA_TEXT_MAX (16u * 1024)

struct upload {
    struct http_call *call; /* owned */
    char *path;             /* owned */
    json_t *metadata;       /* owned; NULL: none */
    bool refused;           /* the daemon takes no more: its answer says why */
    bool gzip;
    bool unpacked;      /* to the end of the gzip member */
    z_stream z;         /* when gzip */
    unsigned char *out; /* owned; when gzip */
};

static bool says_gzip(const struct http_request *req)
{
    const char *encoding = http_request_header(req, "Content-Encoding");

    return encoding && (strcasecmp(encoding, "gzip") == 0 || strcasecmp(encoding, "x-gzip") == 0);
}

static int check_encoding(const struct http_request *req, struct err *e)
{
    const char *encoding = http_request_header(req, "Content-Encoding");

    if (!encoding || says_gzip(req) || strcasecmp(encoding, "identity") == 0) {
        return 0;
    }
    return err_set(e, -EINVAL, "invalid_encoding", "the only Content-Encoding taken is gzip");
}

int upload_new(struct inside *in, const char *path, json_t *metadata, struct upload **ret,
               struct err *e)
{
    CLEANUP(upload_freep) struct upload *u = xnew(struct upload);
    cleanup_free char *text = metadata ? json_text(metadata) : NULL;
    cleanup_free char *target = NULL;
    struct guest_call_opts opts = {
        .method = "PUT",
        .content_type = "application/octet-stream",
        .body_len = HTTP_BODY_STREAM,
    };
    int r = check_encoding(in->req, e);

    if (r == 0 && text && strlen(text) > METADATA_TEXT_MAX) {
        r = err_field(e, -EINVAL, "invalid_field", "metadata", "the metadata is too long");
    }
    if (r < 0) {
        return r;
    }
    target = inside_target(in, "/files", "path", path, "user", in->user[0] ? in->user : NULL,
                           "metadata", text, NULL);
    opts.target = target;
    u->path = xstrdup(path);
    u->metadata = json_incref(metadata);
    if (says_gzip(in->req)) {
        u->gzip = true;
        u->out = xmalloc(UNPACKED);
        ASSERT(inflateInit2(&u->z, 15 + 16 /* gzip */) == Z_OK); /* only memory could fail */
    }
    r = inside_call(in, &opts, &u->call, e);
    if (r == 0) {
        *ret = TAKE_PTR(u);
    }
    return r;
}

void upload_free(struct upload *u)
{
    if (!u) {
        return;
    }
    if (u->gzip) {
        inflateEnd(&u->z);
    }
    http_call_free(u->call);
    json_decref(u->metadata);
    free(u->path);
    free(u->out);
    free(u);
}

const char *upload_path(const struct upload *u)
{
    return u->path;
}

static int write_plain(struct upload *u, const void *data, size_t len, struct err *e)
{
    struct err why = {0};
    int r = u->refused || len == 0 ? 0 : http_call_write(u->call, data, len, &why);

    if (r == -EPIPE || r == -ECONNRESET) {
        u->refused = true;
        return 0;
    }
    if (r < 0 && e) {
        *e = why;
    }
    return r;
}

static int not_gzip(struct err *e)
{
    return err_set(e, -EINVAL, "invalid_gzip", "the body is not gzip, or it is cut");
}

static int write_gzip(struct upload *u, const void *data, size_t len, struct err *e)
{
    int r = 0;

    u->z.next_in = (Bytef *)(uintptr_t)data; /* it is only read */
    u->z.avail_in = (uInt)len;
    while (r == 0 && (u->z.avail_in > 0 || u->z.avail_out == 0)) {
        int step;

        if (u->unpacked) { /* another member may follow */
            if (inflateReset(&u->z) != Z_OK) {
                return not_gzip(e);
            }
            u->unpacked = false;
        }
        u->z.next_out = u->out;
        u->z.avail_out = UNPACKED;
        step = inflate(&u->z, Z_NO_FLUSH);
        if (step == Z_BUF_ERROR) {
            break; /* it needs more */
        }
        if (step != Z_OK && step != Z_STREAM_END) {
            return not_gzip(e);
        }
        u->unpacked = step == Z_STREAM_END;
        r = write_plain(u, u->out, UNPACKED - u->z.avail_out, e);
        if (u->unpacked && u->z.avail_in == 0) {
            break;
        }
    }
    return r;
}

int upload_write(struct upload *u, const void *data, size_t len, struct err *e)
{
    ASSERT(u && u->call && len <= UINT32_MAX);
    return u->gzip ? write_gzip(u, data, len, e) : write_plain(u, data, len, e);
}

int upload_end(struct upload *u, struct err *e)
{
    struct err why = {0};
    int r;

    if (u->gzip && !u->unpacked) {
        return not_gzip(e);
    }
    r = u->refused ? 0 : http_call_end(u->call, &why);
    if (r < 0 && r != -EPIPE && r != -ECONNRESET) { /* else its answer says why */
        if (e) {
            *e = why;
        }
        return r;
    }
    return 0;
}

int upload_finish(struct upload *u, json_t **ret, struct err *e)
{
    cleanup_free char *text = NULL;
    cleanup_json json_t *entry = NULL;
    size_t len = 0;
    int r = http_call_head(u->call, e);

    if (r == 0) {
        r = http_call_check(u->call, e);
    }
    if (r == 0) {
        r = http_call_all(u->call, ANSWER_MAX, &text, &len, e);
    }
    if (r < 0) {
        return r;
    }
    if (json_parse_untrusted(text, len, &entry, NULL) < 0) {
        return err_set(e, -EPROTO, "bad_answer", "the sandbox's daemon sent what is no JSON");
    }
    *ret = json_pack("{s:s, s:s, s:s}", "name", json_get_string(entry, "name", ""), "path",
                     json_get_string(entry, "path", ""), "type", "file");
    if (u->metadata) {
        json_object_set(*ret, "metadata", u->metadata);
    }
    return 0;
}

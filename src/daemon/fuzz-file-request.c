/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queries and bodies of file requests. The first byte chooses the operation; the rest is the body,
 * or the query's values by name: "name=value" ended by NUL.
 */
#include "base/json.h"
#include "daemon/file-request.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const char *text; /* ends with NUL */
    size_t len;
};

static const char *input_get(const void *arg, const char *name)
{
    const struct input *in = arg;
    size_t n = strlen(name);

    for (size_t at = 0; at < in->len; at += strlen(in->text + at) + 1) {
        if (strncmp(in->text + at, name, n) == 0 && in->text[at + n] == '=') {
            return in->text + at + n + 1;
        }
    }
    return NULL;
}

static void check(const struct file_request *req)
{
    uint64_t start = 0;
    uint64_t len = 0;

    ASSERT(req->path && req->path[0] && strlen(req->path) <= FILE_PATH_MAX);
    ASSERT(req->mode >= -1 && req->mode <= 07777);
    ASSERT(req->op != FILE_OP_WRITE || req->mode <= 0777);
    ASSERT(req->op != FILE_OP_LIST || (req->depth >= 1 && req->depth <= FILE_LIST_DEPTH_MAX &&
                                       req->limit >= 1 && req->limit <= FILE_LIST_LIMIT_MAX));
    ASSERT(req->op != FILE_OP_MOVE || (req->to && req->to[0]));
    ASSERT(req->op != FILE_OP_SYMLINK || (req->target && req->target[0]));
    ASSERT(req->op != FILE_OP_CHMOD || req->mode >= 0);
    ASSERT(req->op != FILE_OP_CHOWN || req->owner || req->group);
    if (file_range_apply(&req->range, 1000, &start, &len) == 0) {
        ASSERT(start <= 1000 && len <= 1000 - start);
    }
}

/* What the worker gets is what was asked. */
static void round_trip(const struct file_request *req)
{
    cleanup_file_request struct file_request again = {.mode = -1};
    cleanup_buf struct buf one = BUF_INIT(FILE_PACKET_MAX);
    cleanup_buf struct buf two = BUF_INIT(FILE_PACKET_MAX);

    ASSERT(file_request_pack(req, &one) == 0);
    ASSERT(file_request_unpack(one.data, one.len, &again) == 0);
    ASSERT(file_request_pack(&again, &two) == 0);
    ASSERT(one.len == two.len && memcmp(one.data, two.data, one.len) == 0);
    ASSERT(str_eq(req->path, again.path) && req->op == again.op && req->mode == again.mode);
}

static int parse(enum file_op op, struct input *in, struct file_request *req, struct err *e)
{
    cleanup_json json_t *body = NULL;
    int r;

    if (op < FILE_OP_MKDIR) {
        r = file_request_from_query(op, input_get, in, req, e);
        if (r == 0) {
            file_range_parse(input_get(in, "range"), &req->range);
        }
        return r;
    }
    r = json_parse_object(in->text, in->len, &body, e);
    return r < 0 ? r : file_request_from_json(op, body, req, e);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_file_request struct file_request req = {.mode = -1};
    cleanup_free char *text = xmalloc(size + 1);
    struct input in = {.text = text, .len = size > 0 ? size - 1 : 0};
    struct err e = {0};
    int r;

    if (size == 0) {
        return 0;
    }
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    r = parse((enum file_op)(data[0] % FILE_OP_COUNT_), &in, &req, &e);
    if (r < 0) {
        ASSERT(e.code == r && e.msg[0] && !req.path);
        return 0;
    }
    check(&req);
    round_trip(&req);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/e2b/rpc.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define UNARY_TYPE "application/json"
#define STREAM_TYPE "application/connect+json"
/* E2B's own; clients of the SDK ask for 50. */
#define KEEPALIVE_S_DEFAULT 90
#define KEEPALIVE_S_MAX 3600
#define TIMEOUT_MS_MAX (366ull * 24 * 3600 * 1000)

enum rpc_shape {
    RPC_UNARY,
    RPC_SERVER_STREAM,
    RPC_CLIENT_STREAM,
};

static const struct rpc_method {
    const char *path;
    enum rpc_shape shape;
    int (*run)(struct inside *in, json_t *body, struct err *e);
} methods[] = {
    {"/process.Process/Start", RPC_SERVER_STREAM, e2b_process_start},
    {"/process.Process/Connect", RPC_SERVER_STREAM, e2b_process_connect},
    {"/process.Process/List", RPC_UNARY, e2b_process_list},
    {"/process.Process/SendInput", RPC_UNARY, e2b_process_send_input},
    {"/process.Process/SendSignal", RPC_UNARY, e2b_process_send_signal},
    {"/process.Process/CloseStdin", RPC_UNARY, e2b_process_close_stdin},
    {"/process.Process/Update", RPC_UNARY, e2b_process_update},
    {"/process.Process/StreamInput", RPC_CLIENT_STREAM, e2b_process_stream_input},
    {"/filesystem.Filesystem/Stat", RPC_UNARY, e2b_fs_stat},
    {"/filesystem.Filesystem/ListDir", RPC_UNARY, e2b_fs_list},
    {"/filesystem.Filesystem/MakeDir", RPC_UNARY, e2b_fs_make_dir},
    {"/filesystem.Filesystem/Move", RPC_UNARY, e2b_fs_move},
    {"/filesystem.Filesystem/Remove", RPC_UNARY, e2b_fs_remove},
    {"/filesystem.Filesystem/WatchDir", RPC_SERVER_STREAM, e2b_fs_watch},
    {"/filesystem.Filesystem/CreateWatcher", RPC_UNARY, e2b_fs_create_watcher},
    {"/filesystem.Filesystem/GetWatcherEvents", RPC_UNARY, e2b_fs_watcher_events},
    {"/filesystem.Filesystem/RemoveWatcher", RPC_UNARY, e2b_fs_remove_watcher},
};

static const struct rpc_method *find_method(const char *path)
{
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        if (str_eq(methods[i].path, path)) {
            return &methods[i];
        }
    }
    return NULL;
}

const char *rpc_path(size_t i)
{
    return i < ARRAY_SIZE(methods) ? methods[i].path : NULL;
}

bool rpc_is_path(const char *path)
{
    return str_starts(path, "/process.Process/") || str_starts(path, "/filesystem.Filesystem/");
}

enum inside_kind rpc_kind(const struct http_request *req)
{
    const struct rpc_method *m = find_method(http_request_path(req));

    return m && m->shape != RPC_UNARY ? INSIDE_STREAM : INSIDE_UNARY;
}

/* --- requests --- */

static bool has_type(const struct http_request *req, const char *want)
{
    const char *type = http_request_header(req, "Content-Type");
    size_t len = type ? strcspn(type, "; ") : 0;

    return len == strlen(want) && strncmp(type, want, len) == 0;
}

static int parse_message(const char *text, size_t len, json_t **ret, struct err *e)
{
    struct err why = {0};

    if (len == 0) {
        *ret = json_object();
        return 0;
    }
    return json_parse_untrusted(text, len, ret, &why) < 0
               ? err_set(e, -EINVAL, "invalid_json", "%s", why.msg)
               : 0;
}

/* The one message of a request: bare, or in one envelope. */
static int read_message(struct http_request *req, bool enveloped, json_t **ret, struct err *e)
{
    struct connect_envelope env = {0};
    cleanup_free char *text = NULL;
    size_t len = 0;
    size_t used = 0;
    int r = http_body_all(req, RPC_MESSAGE_MAX + CONNECT_HEAD_LEN, &text, &len, e);

    if (r < 0 || !enveloped) {
        return r < 0 ? r : parse_message(text, len, ret, e);
    }
    r = connect_parse(text, len, RPC_MESSAGE_MAX, &env, &used);
    if (r < 0 || used != len || env.flags != 0) {
        return err_set(e, -EINVAL, "invalid_envelope",
                       "the request must be one envelope that is not compressed");
    }
    return parse_message(env.payload, env.len, ret, e);
}

int rpc_handle(struct inside *in, struct err *e)
{
    const struct rpc_method *m = find_method(http_request_path(in->req));
    cleanup_json json_t *message = NULL;
    int r = 0;

    if (!m || !str_eq(http_request_method(in->req), "POST")) {
        return err_set(e, -ENOENT, "not_found", "there is no such method");
    }
    if (!has_type(in->req, m->shape == RPC_UNARY ? UNARY_TYPE : STREAM_TYPE)) {
        return http_reply_empty(in->req, 415, e);
    }
    http_body_limit(in->req, RPC_MESSAGE_MAX + CONNECT_HEAD_LEN);
    if (m->shape != RPC_CLIENT_STREAM) {
        r = read_message(in->req, m->shape == RPC_SERVER_STREAM, &message, e);
    }
    return r < 0 ? r : m->run(in, message, e);
}

json_t *rpc_field(json_t *message, const char *camel, const char *snake)
{
    json_t *value = json_object_get(message, camel);

    if (!value && snake) {
        value = json_object_get(message, snake);
    }
    return json_is_null(value) ? NULL : value;
}

const char *rpc_string(json_t *message, const char *camel, const char *snake)
{
    const char *text = json_string_value(rpc_field(message, camel, snake));

    return text ? text : "";
}

bool rpc_bool(json_t *message, const char *camel, const char *snake, bool fallback)
{
    json_t *value = rpc_field(message, camel, snake);

    return json_is_boolean(value) ? json_is_true(value) : fallback;
}

uint64_t rpc_uint(json_t *message, const char *name)
{
    json_t *value = json_object_get(message, name);
    uint64_t number = 0;

    if (json_is_integer(value) && json_integer_value(value) > 0) {
        return (uint64_t)json_integer_value(value);
    }
    return json_is_string(value) && str_to_u64(json_string_value(value), UINT64_MAX, &number) == 0
               ? number
               : 0;
}

static uint64_t number_of(const struct http_request *req, const char *name, uint64_t max,
                          uint64_t fallback)
{
    const char *text = http_request_header(req, name);
    uint64_t value = 0;

    return text && str_to_u64(text, max, &value) == 0 ? value : fallback;
}

struct rpc_times rpc_times_of(const struct http_request *req)
{
    uint64_t keepalive_s =
        number_of(req, "Keepalive-Ping-Interval", KEEPALIVE_S_MAX, KEEPALIVE_S_DEFAULT);

    return (struct rpc_times){
        .timeout_ms = number_of(req, "Connect-Timeout-Ms", TIMEOUT_MS_MAX, 0),
        .keepalive_ms = MAX(keepalive_s, (uint64_t)1) * 1000,
    };
}

/* --- answers --- */

int rpc_reply_take(struct inside *in, json_t *message, struct err *e)
{
    return e2b_reply_json_take(in->req, 200, message, e);
}

int rpc_begin(struct inside *in, struct err *e)
{
    int r = http_reply_begin(in->req, 200, STREAM_TYPE, -1, e);

    return r < 0 ? r : http_flush(in->req, e);
}

static int send_envelope(struct inside *in, unsigned flags, json_t *message, struct err *e)
{
    cleanup_buf struct buf out = BUF_INIT(RPC_MESSAGE_MAX);
    size_t at = 0;
    int r = connect_begin(&out, &at);

    if (r == 0) {
        r = json_write(message, &out);
    }
    if (r < 0) {
        return err_wrap(e, r, "writing a message");
    }
    connect_finish(&out, at, flags);
    return http_write(in->req, out.data, out.len, e);
}

int rpc_send_take(struct inside *in, json_t *message_take, struct err *e)
{
    cleanup_json json_t *message = message_take;

    ASSERT(message);
    return send_envelope(in, 0, message, e);
}

int rpc_end(struct inside *in, const struct err *why, struct err *e)
{
    cleanup_json json_t *end =
        why ? json_pack("{s:{s:s, s:o}}", "error", "code", connect_code_name(rpc_code(why)),
                        "message", e2b_text(why->msg))
            : json_object();
    int r;

    ASSERT(end);
    r = send_envelope(in, CONNECT_END_STREAM, end, e);
    return r < 0 ? r : http_end(in->req, e);
}

/* --- errors --- */

enum connect_code rpc_code(const struct err *why)
{
    static const struct {
        int code;
        enum connect_code word;
    } codes[] = {
        {EINVAL, CONNECT_INVALID_ARGUMENT},
        {E2BIG, CONNECT_RESOURCE_EXHAUSTED},
        {ENAMETOOLONG, CONNECT_INVALID_ARGUMENT},
        {ENOTDIR, CONNECT_INVALID_ARGUMENT},
        {EISDIR, CONNECT_INVALID_ARGUMENT},
        {ENOENT, CONNECT_NOT_FOUND},
        {EEXIST, CONNECT_ALREADY_EXISTS},
        {EACCES, CONNECT_PERMISSION_DENIED},
        {EPERM, CONNECT_PERMISSION_DENIED},
        {EROFS, CONNECT_PERMISSION_DENIED},
        {EKEYREJECTED, CONNECT_UNAUTHENTICATED},
        {EUSERS, CONNECT_RESOURCE_EXHAUSTED},
        {EDQUOT, CONNECT_RESOURCE_EXHAUSTED},
        {ENOSPC, CONNECT_RESOURCE_EXHAUSTED},
        {ETIMEDOUT, CONNECT_DEADLINE_EXCEEDED},
        {ESTALE, CONNECT_FAILED_PRECONDITION},
        {ECANCELED, CONNECT_CANCELED},
        {EHOSTDOWN, CONNECT_UNAVAILABLE},
        {EOPNOTSUPP, CONNECT_UNIMPLEMENTED},
    };

    if (str_eq(why->reason, "user_not_found")) {
        return CONNECT_UNAUTHENTICATED;
    }
    /* An answer of the daemon keeps its reason, not its errno: 409 stands for more than one. */
    if (err_http_status(why) == 409 && !str_eq(err_reason(why), "already_exists")) {
        return CONNECT_FAILED_PRECONDITION;
    }
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
        if (codes[i].code == -why->code) {
            return codes[i].word;
        }
    }
    return CONNECT_INTERNAL;
}

int rpc_reply_error(struct inside *in, const struct err *why, struct err *e)
{
    enum connect_code code = rpc_code(why);
    int r;

    /* Who asks has not got in: that is told by the status, also of a stream. */
    if (in->kind == INSIDE_STREAM && code != CONNECT_UNAUTHENTICATED) {
        r = rpc_begin(in, e);
        return r < 0 ? r : rpc_end(in, why, e);
    }
    return e2b_reply_json_take(
        in->req, connect_code_status(code),
        json_pack("{s:s, s:o}", "code", connect_code_name(code), "message", e2b_text(why->msg)), e);
}

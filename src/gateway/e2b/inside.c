/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/e2b/inside.h"

#include <stdarg.h>
#include <string.h>

#include "wire/url.h"

/* A path, a cursor and metadata, each with every byte escaped. */
#define TARGET_MAX (128u * 1024)
/* PATH_MAX with its NUL; the daemon's FILE_PATH_MAX. */
#define PATH_MAX_LEN 4095u

char *inside_target(const struct inside *in, const char *path, ...)
{
    cleanup_buf struct buf target = BUF_INIT(TARGET_MAX);
    const char *name;
    va_list ap;
    int r = buf_printf(&target, "/v1/sandboxes/%s/guest%s", in->sb.id, path);

    va_start(ap, path);
    while ((name = va_arg(ap, const char *))) {
        const char *value = va_arg(ap, const char *);

        if (value && r == 0) {
            r = url_add_query(&target, name, value);
        }
    }
    va_end(ap);
    ASSERT(r == 0); /* whoever calls bounds what comes from outside */
    return buf_take(&target);
}

int inside_call(struct inside *in, const struct guest_call_opts *opts, struct http_call **ret,
                struct err *e)
{
    struct pollfd watch = live_pollfd(in->live);
    struct guest_call_opts mine = *opts;

    mine.watch = &watch;
    return guest_call(in->req, &mine, ret, e);
}

static int read_answer(struct http_call *call, json_t **ret, struct err *e)
{
    cleanup_free char *text = NULL;
    size_t len = 0;
    int r = http_call_all(call, INSIDE_ANSWER_MAX, &text, &len, e);

    if (r < 0) {
        return r;
    }
    *ret = NULL;
    if (len == 0) {
        return 0;
    }
    /* A guest wrote it. */
    return json_parse_untrusted(text, len, ret, NULL) < 0
               ? err_set(e, -EPROTO, "bad_answer", "the sandbox's daemon sent what is no JSON")
               : 0;
}

int inside_json(struct inside *in, const struct inside_ask *ask, json_t **ret, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_free char *text = ask->body ? json_text(ask->body) : NULL;
    struct guest_call_opts opts = {
        .method = ask->method,
        .target = ask->target,
        .content_type = text ? "application/json" : NULL,
        .body = text,
        .body_len = text ? (int64_t)strlen(text) : 0,
    };
    json_t *answer = NULL;
    int r = inside_call(in, &opts, &call, e);

    if (r == 0) {
        r = http_call_head(call, e);
    }
    if (r == 0) {
        r = http_call_check(call, e);
    }
    if (r == 0) {
        r = read_answer(call, &answer, e);
    }
    if (r < 0) {
        return r;
    }
    if (ask->ret_status) {
        *ask->ret_status = http_call_status(call);
    }
    if (ret) {
        *ret = answer;
    } else {
        json_decref(answer);
    }
    return 0;
}

int inside_check_user(const char *name, struct err *e)
{
    for (const char *p = name; *p; p++) {
        if (*p <= 0x20 || *p >= 0x7f) {
            return err_set(e, -EKEYREJECTED, "unauthorized", "invalid username: '%s'", name);
        }
    }
    return 0;
}

int inside_path(const struct inside *in, const char *text, char **ret, struct err *e)
{
    if (strlen(text) > PATH_MAX_LEN) {
        return err_field(e, -EINVAL, "invalid_field", "path", "a path may have at most %u bytes",
                         PATH_MAX_LEN);
    }
    if (text[0] != '~') {
        bool from_workdir = in->box.workdir[0] && text[0] && text[0] != '/';

        *ret = from_workdir ? xasprintf("%s/%s", in->box.workdir, text)
                            : xstrdup(text[0] ? text : ".");
        return 0;
    }
    if (text[1] != '\0' && text[1] != '/') {
        return err_field(e, -EINVAL, "invalid_field", "path",
                         "the homes of other users cannot be named with '~'");
    }
    text += strspn(text + 1, "/") + 1;
    *ret = xstrdup(text[0] ? text : ".");
    return 0;
}

char *inside_absolute(struct inside *in, const char *path)
{
    cleanup_free char *target = NULL;
    cleanup_json json_t *entry = NULL;
    const char *home;

    if (path[0] == '/') {
        return xstrdup(path);
    }
    target =
        inside_target(in, "/files/stat", "path", ".", "user", in->user[0] ? in->user : NULL, NULL);
    if (inside_json(in, &(struct inside_ask){.method = "GET", .target = target}, &entry, NULL) <
        0) {
        return xstrdup(path); /* it is for a sentence only */
    }
    home = json_get_string(entry, "path", "");
    return str_eq(path, ".") ? xstrdup(home) : xasprintf("%s/%s", home, path);
}

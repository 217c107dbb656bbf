/* SPDX-License-Identifier: Apache-2.0 */

/* filesystem.Filesystem, but for watching (watch.c). */
#include <stdio.h>
#include <string.h>

#include "gateway/e2b/entry.h"
#include "gateway/e2b/rpc.h"

/* Entries of one answer; a directory of more is listed with a smaller depth, or by our own API in pages. */
#define LIST_MAX 50000
/* Of their names and paths: what a guest makes us keep for one request. */
#define LIST_BYTES_MAX (16u << 20)
/* A cursor names one path; longer ones are none of our daemon's. */
#define CURSOR_MAX 8192
#define DEPTH_MAX 100

static const char *user_of(const struct inside *in)
{
    return in->user[0] ? in->user : NULL;
}

/* The message's path for the daemon; the caller frees. */
static int path_of(const struct inside *in, json_t *message, const char *field, char **ret,
                   struct err *e)
{
    return inside_path(in, rpc_string(message, field, NULL), ret, e);
}

static int ask_entry(struct inside *in, const char *path, json_t **ret, struct err *e)
{
    cleanup_free char *target =
        inside_target(in, "/files/stat", "path", path, "user", user_of(in), "more", "1", NULL);

    return inside_json(in, &(struct inside_ask){.method = "GET", .target = target}, ret, e);
}

int fs_entry(struct inside *in, const char *path, json_t **ret, struct err *e)
{
    cleanup_json json_t *entry = NULL;
    int r = ask_entry(in, path, &entry, e);

    if (r == 0) {
        *ret = e2b_entry(entry);
        if (!*ret) {
            return err_set(e, -EPROTO, "bad_answer", "the name cannot be shown: it is not UTF-8");
        }
    }
    return r;
}

/* "file not found: lstat /home/user/x: no such file or directory" */
static int explain_missing(struct inside *in, const char *path, int r, struct err *e)
{
    cleanup_free char *absolute = NULL;

    if (r != -ENOENT || !e || str_eq(e->reason, "user_not_found")) {
        return r;
    }
    absolute = inside_absolute(in, path);
    return err_set(e, r, "not_found", "file not found: lstat %.300s: no such file or directory",
                   absolute);
}

int e2b_fs_stat(struct inside *in, json_t *body, struct err *e)
{
    cleanup_free char *path = NULL;
    json_t *entry = NULL;
    int r = path_of(in, body, "path", &path, e);

    if (r == 0) {
        r = explain_missing(in, path, fs_entry(in, path, &entry, e), e);
    }
    return r < 0 ? r : rpc_reply_take(in, json_pack("{s:o}", "entry", entry), e);
}

/* --- ListDir --- */

struct listed {
    json_t *entries; /* borrowed: the answer's */
    size_t bytes;
};

static int add_page(json_t *page, struct listed *l, struct err *e)
{
    json_t *entry;
    size_t i;

    json_array_foreach(json_object_get(page, "entries"), i, entry)
    {
        json_t *shown = e2b_entry(entry);

        if (!shown) {
            continue;
        }
        l->bytes +=
            strlen(json_get_string(shown, "name", "")) + strlen(json_get_string(shown, "path", ""));
        json_array_append_new(l->entries, shown);
        if (json_array_size(l->entries) > LIST_MAX || l->bytes > LIST_BYTES_MAX) {
            return err_set(e, -EUSERS, "too_many_entries",
                           "there are more than %d entries: list with a smaller depth", LIST_MAX);
        }
    }
    return 0;
}

/* *cursor is replaced by that of the next page; NULL: it was the last. */
static int list_page(struct inside *in, const char *path, const char *depth, char **cursor,
                     struct listed *l, struct err *e)
{
    cleanup_free char *target =
        inside_target(in, "/files/list", "path", path, "user", user_of(in), "depth", depth, "limit",
                      "1000", "more", "1", "cursor", *cursor, NULL);
    cleanup_json json_t *page = NULL;
    const char *next;
    int r = inside_json(in, &(struct inside_ask){.method = "GET", .target = target}, &page, e);

    if (r == 0) {
        r = add_page(page, l, e);
    }
    next = json_get_string(page, "next_cursor", NULL);
    if (r == 0 && next && strlen(next) > CURSOR_MAX) {
        r = err_set(e, -EPROTO, "bad_answer", "the sandbox's daemon sent what is no cursor");
    }
    free(*cursor);
    *cursor = r == 0 && next ? xstrdup(next) : NULL;
    return r;
}

static int list_pages(struct inside *in, const char *path, uint64_t depth, json_t *entries,
                      struct err *e)
{
    struct listed l = {.entries = entries};
    cleanup_free char *cursor = NULL;
    char depth_text[24];
    int r;

    snprintf(depth_text, sizeof(depth_text), "%llu",
             (unsigned long long)MIN(MAX(depth, (uint64_t)1), (uint64_t)DEPTH_MAX));
    do {
        r = list_page(in, path, depth_text, &cursor, &l, e);
    } while (r == 0 && cursor);
    return r;
}

int e2b_fs_list(struct inside *in, json_t *body, struct err *e)
{
    cleanup_json json_t *entries = json_array();
    cleanup_free char *path = NULL;
    int r = path_of(in, body, "path", &path, e);

    if (r == 0) {
        r = list_pages(in, path, rpc_uint(body, "depth"), entries, e);
        r = explain_missing(in, path, r, e);
    }
    return r < 0 ? r : rpc_reply_take(in, json_pack("{s:O}", "entries", entries), e);
}

/* --- changes --- */

static int post(struct inside *in, const char *action, json_t *body_take, int *ret_status,
                json_t **ret, struct err *e)
{
    cleanup_json json_t *body = body_take;
    cleanup_free char *path = xasprintf("/files/%s", action);
    cleanup_free char *target = inside_target(in, path, NULL);

    if (in->user[0]) {
        json_object_set_new(body, "user", json_string(in->user));
    }
    return inside_json(
        in,
        &(struct inside_ask){
            .method = "POST", .target = target, .body = body, .ret_status = ret_status},
        ret, e);
}

static int reply_entry(struct inside *in, json_t *entry, struct err *e)
{
    json_t *shown = e2b_entry(entry);

    return shown ? rpc_reply_take(in, json_pack("{s:o}", "entry", shown), e)
                 : err_set(e, -EPROTO, "bad_answer", "the sandbox's daemon sent what is no entry");
}

int e2b_fs_make_dir(struct inside *in, json_t *body, struct err *e)
{
    cleanup_free char *path = NULL;
    cleanup_json json_t *entry = NULL;
    int status = 0;
    int r = path_of(in, body, "path", &path, e);

    if (r < 0) {
        return r;
    }
    r = post(in, "mkdir", json_pack("{s:s, s:b}", "path", path, "recursive", 1), &status, &entry,
             e);
    if (r == -EEXIST || r == -ENOTDIR) {
        cleanup_free char *absolute = inside_absolute(in, path);

        return err_set(e, -EINVAL, "not_a_directory",
                       "path already exists but it is not a directory: %.300s", absolute);
    }
    if (r == 0 && status != 201) {
        return err_set(e, -EEXIST, "already_exists", "directory already exists: %.300s",
                       json_get_string(entry, "path", ""));
    }
    return r < 0 ? r : reply_entry(in, entry, e);
}

int e2b_fs_move(struct inside *in, json_t *body, struct err *e)
{
    cleanup_free char *from = NULL;
    cleanup_free char *to = NULL;
    cleanup_json json_t *entry = NULL;
    int r = path_of(in, body, "source", &from, e);

    if (r == 0) {
        r = path_of(in, body, "destination", &to, e);
    }
    if (r < 0) {
        return r;
    }
    r = post(in, "move", json_pack("{s:s, s:s, s:b}", "path", from, "to", to, "overwrite", 1), NULL,
             &entry, e);
    return r < 0 ? explain_missing(in, from, r, e) : reply_entry(in, entry, e);
}

/* What is not there is removed as was wished. */
int e2b_fs_remove(struct inside *in, json_t *body, struct err *e)
{
    cleanup_free char *path = NULL;
    int r = path_of(in, body, "path", &path, e);

    if (r < 0) {
        return r;
    }
    r = post(in, "remove", json_pack("{s:s, s:b}", "path", path, "recursive", 1), NULL, NULL, e);
    if (r == -ENOENT && !str_eq(e->reason, "user_not_found")) {
        r = 0;
    }
    return r < 0 ? r : rpc_reply_take(in, json_object(), e);
}

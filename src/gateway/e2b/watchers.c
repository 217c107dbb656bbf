/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/e2b/watchers.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "gateway/e2b/change.h"
#include "gateway/e2b/entry.h"
#include "gateway/e2b/rpc.h"

#define LINES_MAX (256u * 1024)
/* From the request to the line that says "from here on nothing is missed". */
#define READY_MS 20000

struct watcher {
    char id[ID_SIZE];
    char sandbox[ID_SIZE];
    bool entries;           /* events tell about the file, too */
    struct http_call *call; /* owned */
    int stop_fd;            /* owned: the thread ends when it is ready */
    pthread_t thread;
    struct buf lines; /* owned; the thread's */

    pthread_mutex_t mutex; /* guards what follows */
    json_t *events;        /* owned: array of {"name","type","path"?}, oldest first */
    uint64_t used_ns;
    bool ended; /* nothing more comes */
    bool lost;  /* events were lost */

    struct watcher *next; /* guarded by the table's mutex */
    unsigned n_users;     /* guarded by the table's mutex: requests at work with it */
};

struct watchers {
    pthread_mutex_t mutex;
    pthread_cond_t unused; /* somebody has let go of one */
    struct watcher *first; /* owned, and so are the others */
    unsigned n;
};

struct watchers *watchers_new(void)
{
    struct watchers *ws = xnew(struct watchers);

    pthread_mutex_init(&ws->mutex, NULL);
    pthread_cond_init(&ws->unused, NULL);
    return ws;
}

/* --- one --- */

static void watcher_free(struct watcher *w)
{
    http_call_free(w->call);
    fd_close(w->stop_fd);
    buf_done(&w->lines);
    json_decref(w->events);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

/* With its thread, when that was started. */
static void watcher_end(struct watcher *w)
{
    IGNORE_RESULT(eventfd_write(w->stop_fd, 1)); /* a counter of 0 takes 1 */
    pthread_join(w->thread, NULL);
    watcher_free(w);
}

/* -EIO: more was lost than told, or would be. */
static int keep(struct watcher *w, json_t *line)
{
    struct fs_change changes[FS_CHANGES_MAX];
    int n = fs_changes_of(line, changes, /* e */ NULL);

    pthread_mutex_lock(&w->mutex);
    if (n > 0 && json_array_size(w->events) + (size_t)n > WATCHER_EVENTS_MAX) {
        n = -EIO;
    }
    w->lost = w->lost || n < 0;
    for (int i = 0; i < n; i++) {
        json_t *event = fs_change_event(&changes[i]);

        if (w->entries && changes[i].path) {
            json_object_set_new(event, "path", json_string(changes[i].path));
        }
        json_array_append_new(w->events, event);
    }
    pthread_mutex_unlock(&w->mutex);
    return MIN(n, 0);
}

/* 1: the line that says ready was among them. */
static int take_lines(struct watcher *w)
{
    int ready = 0;
    int r = 0;
    char *end;

    while (r == 0 && w->lines.len > 0 && (end = memchr(w->lines.data, '\n', w->lines.len))) {
        size_t len = (size_t)(end - w->lines.data);
        cleanup_json json_t *line = NULL;

        if (json_parse_untrusted(w->lines.data, len, &line, NULL) < 0) {
            return -EPROTO;
        }
        ready = ready || fs_change_is_ready(line);
        r = keep(w, line);
        buf_consume(&w->lines, len + 1);
    }
    return r < 0 ? r : ready;
}

/* 1: ready; 0: something else came; -ENODATA: the end. */
static int read_some(struct watcher *w)
{
    char data[16384];
    ssize_t n = http_call_read(w->call, data, sizeof(data), /* e */ NULL);
    int r;

    if (n <= 0) {
        return n < 0 ? (int)n : -ENODATA;
    }
    r = buf_add(&w->lines, data, (size_t)n);
    return r < 0 ? r : take_lines(w);
}

static void *collect(void *arg)
{
    struct watcher *w = arg;

    while (read_some(w) >= 0) {
    }
    pthread_mutex_lock(&w->mutex);
    w->ended = true;
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

/* Its stream, read up to the line that says ready. */
static int open_stream(struct inside *in, const char *path, bool recursive, struct watcher *w,
                       struct err *e)
{
    cleanup_free char *target =
        inside_target(in, "/files/watch", "path", path, "user", in->user[0] ? in->user : NULL,
                      "recursive", recursive ? "1" : NULL, NULL);
    struct pollfd stop = {.fd = w->stop_fd, .events = POLLIN};
    struct guest_call_opts opts = {.method = "GET", .target = target, .watch = &stop};
    int r = guest_call(in->req, &opts, &w->call, e);

    if (r < 0) {
        return r;
    }
    http_call_deadline(w->call, deadline_in_ms(READY_MS));
    r = http_call_head(w->call, e);
    if (r == 0) {
        r = http_call_check(w->call, e);
    }
    if (r < 0) {
        return r;
    }
    while ((r = read_some(w)) == 0) {
    }
    if (r < 0) {
        return err_set(e, -EIO, "watch_failed", "the watch could not be begun");
    }
    http_call_deadline(w->call, 0);
    return 0;
}

static int watcher_new(struct inside *in, json_t *body, const char *path, struct watcher **ret,
                       struct err *e)
{
    struct watcher *w = xnew(struct watcher);
    int r;

    id_new(ID_WATCHER, w->id);
    snprintf(w->sandbox, sizeof(w->sandbox), "%s", in->sb.id);
    w->entries = rpc_bool(body, "includeEntry", "include_entry", false);
    w->lines = BUF_INIT(LINES_MAX);
    w->events = json_array();
    w->used_ns = clock_now_ns();
    pthread_mutex_init(&w->mutex, NULL);
    w->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = w->stop_fd < 0 ? err_wrap(e, -errno, "making an event")
                       : open_stream(in, path, rpc_bool(body, "recursive", NULL, false), w, e);
    if (r == 0) {
        r = pthread_create(&w->thread, NULL, collect, w);
        r = r != 0 ? err_wrap(e, -r, "starting a thread") : 0;
    }
    if (r < 0) {
        watcher_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

/* --- the table --- */

static void unlink_one(struct watchers *ws, struct watcher **at)
{
    *at = (*at)->next;
    ws->n--;
}

void watchers_free(struct watchers *ws)
{
    if (!ws) {
        return;
    }
    while (ws->first) {
        struct watcher *w = ws->first;

        ASSERT(w->n_users == 0);
        unlink_one(ws, &ws->first);
        watcher_end(w);
    }
    pthread_cond_destroy(&ws->unused);
    pthread_mutex_destroy(&ws->mutex);
    free(ws);
}

static bool is_idle(struct watcher *w)
{
    bool idle;

    pthread_mutex_lock(&w->mutex);
    idle = w->ended || clock_now_ns() - w->used_ns > (uint64_t)WATCHER_IDLE_MS * NS_PER_MS;
    pthread_mutex_unlock(&w->mutex);
    return idle && w->n_users == 0;
}

/* Takes one that nobody needs out of the table; NULL: there is none. */
static struct watcher *take_idle(struct watchers *ws)
{
    struct watcher *found = NULL;

    pthread_mutex_lock(&ws->mutex);
    for (struct watcher **at = &ws->first; *at; at = &(*at)->next) {
        if (is_idle(*at)) {
            found = *at;
            unlink_one(ws, at);
            break;
        }
    }
    pthread_mutex_unlock(&ws->mutex);
    return found;
}

static int add(struct watchers *ws, struct watcher *w, struct err *e)
{
    unsigned of_sandbox = 0;
    bool full;

    pthread_mutex_lock(&ws->mutex);
    for (const struct watcher *other = ws->first; other; other = other->next) {
        of_sandbox += str_eq(other->sandbox, w->sandbox);
    }
    full = ws->n >= WATCHERS_MAX || of_sandbox >= WATCHERS_OF_SANDBOX_MAX;
    if (!full) {
        w->next = ws->first;
        ws->first = w;
        ws->n++;
    }
    pthread_mutex_unlock(&ws->mutex);
    return full
               ? err_set(e, -EUSERS, "too_many_watchers", "there are too many watchers: remove one")
               : 0;
}

static int not_found(const char *id, struct err *e)
{
    return err_set(e, -ENOENT, "not_found", "watcher with id %.40s not found", id);
}

/* The one of this sandbox with that id; take: out of the table, for nobody else to find. Under the lock. */
static struct watcher *look_up(struct watchers *ws, const struct inside *in, const char *id,
                               bool take)
{
    for (struct watcher **at = &ws->first; *at; at = &(*at)->next) {
        struct watcher *w = *at;

        if (str_eq(w->id, id) && str_eq(w->sandbox, in->sb.id)) {
            if (take) {
                unlink_one(ws, at);
            }
            return w;
        }
    }
    return NULL;
}

/* A request's hold on a watcher: not_found. With take, nobody else holds it any more. */
static int hold(struct inside *in, const char *id, bool take, struct watcher **ret, struct err *e)
{
    struct watchers *ws = gateway_of(in->req)->e2b->watchers;
    struct watcher *w;

    pthread_mutex_lock(&ws->mutex);
    w = look_up(ws, in, id, take);
    if (!w) {
        pthread_mutex_unlock(&ws->mutex);
        return not_found(id, e);
    }
    w->n_users++;
    while (take && w->n_users > 1) {
        pthread_cond_wait(&ws->unused, &ws->mutex);
    }
    pthread_mutex_unlock(&ws->mutex);
    *ret = w;
    return 0;
}

static void let_go(struct watchers *ws, struct watcher *w)
{
    pthread_mutex_lock(&ws->mutex);
    w->n_users--;
    pthread_cond_broadcast(&ws->unused);
    pthread_mutex_unlock(&ws->mutex);
}

/* --- calls --- */

int e2b_fs_create_watcher(struct inside *in, json_t *body, struct err *e)
{
    struct watchers *ws = gateway_of(in->req)->e2b->watchers;
    cleanup_free char *path = NULL;
    struct watcher *w = NULL;
    int r = inside_path(in, rpc_string(body, "path", NULL), &path, e);

    if (r == 0) {
        r = fs_check_directory(in, path, e);
    }
    while (r == 0 && (w = take_idle(ws))) {
        watcher_end(w);
    }
    if (r == 0) {
        r = watcher_new(in, body, path, &w, e);
    }
    if (r < 0) {
        return r;
    }
    r = add(ws, w, e);
    if (r < 0) {
        watcher_end(w);
        return r;
    }
    return rpc_reply_take(in, json_pack("{s:s}", "watcherId", w->id), e);
}

/* What has come since the last time; *ret_ended: nothing more will. */
static json_t *take_events(struct watcher *w, bool *ret_ended, bool *ret_lost)
{
    json_t *events;

    pthread_mutex_lock(&w->mutex);
    events = w->events;
    w->events = json_array();
    w->used_ns = clock_now_ns();
    *ret_ended = w->ended;
    *ret_lost = w->lost;
    pthread_mutex_unlock(&w->mutex);
    return events;
}

/* What the files are by now; what is gone is told without its entry. */
static void add_entries(struct inside *in, json_t *events)
{
    json_t *event;
    size_t i;

    json_array_foreach(events, i, event)
    {
        const char *path = json_get_string(event, "path", NULL);
        json_t *entry = NULL;

        if (path && fs_entry(in, path, &entry, NULL) == 0) {
            json_object_set_new(event, "entry", entry);
        }
        json_object_del(event, "path");
    }
}

int e2b_fs_watcher_events(struct inside *in, json_t *body, struct err *e)
{
    struct watchers *ws = gateway_of(in->req)->e2b->watchers;
    const char *id = rpc_string(body, "watcherId", "watcher_id");
    cleanup_json json_t *events = NULL;
    struct watcher *w = NULL;
    bool ended;
    bool lost;
    int r = hold(in, id, /* take */ false, &w, e);

    if (r < 0) {
        return r;
    }
    events = take_events(w, &ended, &lost);
    add_entries(in, events);
    let_go(ws, w);
    if (json_array_size(events) == 0 && lost) {
        return err_set(e, -EIO, "events_lost",
                       "there were more events than could be kept: watch again");
    }
    if (json_array_size(events) == 0 && ended) {
        return not_found(id, e);
    }
    return rpc_reply_take(in, json_pack("{s:O}", "events", events), e);
}

int e2b_fs_remove_watcher(struct inside *in, json_t *body, struct err *e)
{
    struct watcher *w = NULL;
    int r = hold(in, rpc_string(body, "watcherId", "watcher_id"), /* take */ true, &w, e);

    if (r < 0) {
        return r;
    }
    watcher_end(w);
    return rpc_reply_take(in, json_object(), e);
}

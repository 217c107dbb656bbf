/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/state.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "daemon/machine.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>

#define OPERATION_MS 60000
#define FREEZE_DEFAULT_MS 10000
#define FREEZE_MAX_MS 60000

struct state *state_of(const struct request *req)
{
    return module_state(request_daemon(req), &state_module);
}

static void on_close(struct request *req)
{
    struct state *st = request_state(req);

    if (st->req == req) {
        st->req = NULL;
    }
}

bool state_begin(struct state *st, struct request *req, const char *op)
{
    static const struct request_callbacks callbacks = {.on_close = on_close};
    struct err e = {0};

    if (st->op) {
        err_set(&e, -EBUSY, "busy", "'%s' has not ended yet", st->op);
        request_reply_error(req, &e);
        return false;
    }
    st->op = op;
    st->req = req;
    request_set_state(req, st, &callbacks);
    return true;
}

void state_finish(struct state *st, const struct err *e, json_t *json_take)
{
    struct request *req = TAKE_PTR(st->req);

    if (e &&
        err_http_status(e) >= 500) { /* the rest are mistakes of whoever asked, and are told so */
        log_warn(NULL, "%s: %s", st->op, e->msg);
    }
    st->op = NULL;
    if (!req) {
        json_decref(json_take);
    } else if (e) {
        request_reply_error(req, e);
    } else if (json_take) {
        request_reply_json(req, 200, json_take);
    } else {
        request_reply_empty(req, 204);
    }
}

void state_help(struct state *st, const char *what, helper_fn *fn, helper_done_fn *done)
{
    state_help_then(st, what, fn, done, /* after */ NULL);
}

void state_help_then(struct state *st, const char *what, helper_fn *fn, helper_done_fn *done,
                     void (*after)(void *arg))
{
    struct helper_spec spec = {
        .what = what,
        .fn = fn,
        .fn_arg = st,
        .done = done,
        .done_arg = st,
        .after = after,
        .deadline_ns = deadline_in_ms(OPERATION_MS),
    };
    struct err e = {0};

    if (helper_start(st->daemon, &spec, &st->helper, &e) < 0) {
        done(st, e.code, &e, 0);
    }
}

/* ---- sync, freeze, thaw ---- */

static int open_root(const struct state *st, int *ret, struct err *e)
{
    int fd = fs_open_beneath(workload_root(st->daemon->workload), ".", O_RDONLY | O_DIRECTORY, 0);

    if (fd < 0) {
        return err_wrap(e, fd, "opening the root of the disk");
    }
    *ret = fd;
    return 0;
}

static int sync_child(void *arg, struct err *e)
{
    cleanup_close int fd = FD_NONE;
    int r = open_root(arg, &fd, e);

    if (r < 0) {
        return r;
    }
    return syncfs(fd) < 0 ? err_wrap(e, -errno, "writing everything to the disk") : 0;
}

static int freeze_child(void *arg, struct err *e)
{
    cleanup_close int fd = FD_NONE;
    int r = open_root(arg, &fd, e);

    if (r < 0) {
        return r;
    }
    return ioctl(fd, FIFREEZE, 0) < 0 ? err_wrap(e, -errno, "freezing the file system") : 0;
}

static int thaw_child(void *arg, struct err *e)
{
    cleanup_close int fd = FD_NONE;
    int r = open_root(arg, &fd, e);

    if (r < 0) {
        return r;
    }
    return ioctl(fd, FITHAW, 0) < 0 && errno != EINVAL /* is not frozen */
               ? err_wrap(e, -errno, "thawing the file system")
               : 0;
}

static void on_done(void *arg, int r, const struct err *e, pid_t pid)
{
    struct state *st = arg;

    (void)pid;
    st->helper = NULL;
    state_finish(st, r < 0 ? e : NULL, /* json */ NULL);
}

static void on_thawed(void *arg, int r, const struct err *e, pid_t pid)
{
    struct state *st = arg;

    if (r == 0) {
        st->frozen = false;
        loop_timer_set(st->thaw, DEADLINE_NEVER);
    }
    on_done(arg, r, e, pid);
}

/* A freeze that nobody ended. */
static void on_thaw_due(void *arg)
{
    struct state *st = arg;

    if (st->op) {
        loop_timer_set(st->thaw, deadline_in_ms(100));
        return;
    }
    log_warn(NULL, "the file system was left frozen, thawing it");
    st->op = "thaw";
    st->req = NULL;
    state_help(st, "thawing", thaw_child, on_thawed);
}

static void sync_post(struct request *req)
{
    struct state *st = state_of(req);

    if (state_begin(st, req, "sync")) {
        state_help(st, "syncing", sync_child, on_done);
    }
}

static void freeze_post(struct request *req)
{
    static const struct json_field fields[] = {{"max_ms", JSON_FIELD_INT, 0}};
    const struct json_bounds bounds = {1, FREEZE_MAX_MS, FREEZE_DEFAULT_MS};
    struct state *st = state_of(req);
    struct err e = {0};
    int64_t max_ms = 0;

    if (!state_begin(st, req, "freeze")) {
        return;
    }
    if (json_check_object(request_json(req), fields, ARRAY_SIZE(fields), &e) < 0 ||
        json_get_bounded(request_json(req), "max_ms", bounds, &max_ms, &e) < 0) {
        state_finish(st, &e, /* json */ NULL);
        return;
    }
    if (st->daemon->test) { /* never the host's file system */
        err_set(&e, -EOPNOTSUPP, "not_supported", "a folder cannot be frozen");
        state_finish(st, &e, /* json */ NULL);
        return;
    }
    /* Set before, so that it holds whatever becomes of the helper. */
    st->frozen = true;
    loop_timer_set(st->thaw, deadline_in_ms((uint64_t)max_ms));
    state_help(st, "freezing", freeze_child, on_done);
}

static void thaw_post(struct request *req)
{
    struct state *st = state_of(req);

    if (!state_begin(st, req, "thaw")) {
        return;
    }
    if (!st->frozen) {
        state_finish(st, /* e */ NULL, /* json */ NULL);
        return;
    }
    state_help(st, "thawing", thaw_child, on_thawed);
}

/* ---- health and figures ---- */

static void health_get(struct request *req)
{
    char boot_id[37];

    machine_boot_id(boot_id);
    request_reply_json(req, 200,
                       json_pack("{s:b,s:s,s:s,s:b}", "ok", 1, "version", SPACE_VERSION, "boot_id",
                                 boot_id, "ready",
                                 (int)workload_ready(request_daemon(req)->workload)));
}

static void add_disk(const struct workload *w, json_t *obj)
{
    struct statfs fs;

    if (workload_ready(w) && fstatfs(workload_root(w), &fs) == 0) {
        json_int_t block = (json_int_t)fs.f_bsize;

        json_object_set_new(
            obj, "disk",
            json_pack("{s:I,s:I,s:I,s:I,s:I}", "total_bytes", (json_int_t)fs.f_blocks * block,
                      "free_bytes", (json_int_t)fs.f_bfree * block, "available_bytes",
                      (json_int_t)fs.f_bavail * block, "files", (json_int_t)fs.f_files,
                      "free_files", (json_int_t)fs.f_ffree));
    }
}

static void add_processes(const struct workload *w, json_t *obj)
{
    cleanup_buf struct buf text = BUF_INIT(64);
    uint64_t n;

    if (workload_cgroup(w) >= 0 && fs_read_file(workload_cgroup(w), "pids.current", &text) == 0 &&
        text.len > 0) {
        text.data[text.len - 1] = '\0'; /* the line's end */
        if (str_to_u64(text.data, INT64_MAX, &n) == 0) {
            json_object_set_new(obj, "processes", json_integer((json_int_t)n));
        }
    }
}

static void metrics_get(struct request *req)
{
    struct daemon *d = request_daemon(req);
    uint64_t idle_ms = (clock_now_ns() - d->activity.last_ns) / NS_PER_MS;
    json_t *obj = json_object();

    machine_metrics(obj);
    add_disk(d->workload, obj);
    add_processes(d->workload, obj);
    json_object_set_new(
        obj, "activity",
        json_pack("{s:I,s:I,s:I,s:i}", "last_activity_ms", (json_int_t)(clock_wall_ms() - idle_ms),
                  "idle_ms", (json_int_t)idle_ms, "requests", (json_int_t)d->activity.n_requests,
                  "connections", (int)d->activity.n_open));
    modules_metrics(d, obj);
    request_reply_json(req, 200, obj);
}

/* ---- the module ---- */

static int state_init(struct daemon *d, void **ret_state, struct err *e)
{
    struct state *st = xnew(struct state);

    (void)e;
    st->daemon = d;
    st->timer = loop_add_timer(d->loop, setup_teardown_tick, st);
    st->thaw = loop_add_timer(d->loop, on_thaw_due, st);
    *ret_state = st;
    return 0;
}

static void state_done(struct daemon *d, void *state)
{
    struct state *st = state;

    (void)d;
    if (st->helper) {
        helper_cancel(st->helper);
    }
    loop_timer_free(st->timer);
    loop_timer_free(st->thaw);
    setup_spec_done(&st->spec);
    free(st);
}

static const struct route state_routes[] = {
    {"GET", "/health", ROUTE_QUIET, health_get},
    {"GET", "/metrics", ROUTE_QUIET, metrics_get},
    {"POST", "/setup", ROUTE_QUIET | ROUTE_BODY_JSON, setup_post},
    {"POST", "/teardown", ROUTE_QUIET, setup_teardown_post},
    {"POST", "/identity", ROUTE_QUIET | ROUTE_BODY_JSON, setup_identity_post},
    {"POST", "/sync", ROUTE_QUIET | ROUTE_NEEDS_WORKLOAD, sync_post},
    {"POST", "/freeze", ROUTE_QUIET | ROUTE_NEEDS_WORKLOAD | ROUTE_BODY_JSON, freeze_post},
    {"POST", "/thaw", ROUTE_QUIET | ROUTE_NEEDS_WORKLOAD, thaw_post},
};

const struct module state_module = {
    .name = "state",
    .routes = state_routes,
    .n_routes = ARRAY_SIZE(state_routes),
    .init = state_init,
    .done = state_done,
};

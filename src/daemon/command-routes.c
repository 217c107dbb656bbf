/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/command-routes.h"

#include "base/clock.h"
#include "base/json.h"
#include "daemon/command-json.h"
#include "daemon/module.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>

/* An hour: whoever waits longer asks again. */
#define WAIT_MAX_MS 3600000u
/* A piece of the list: one command is at most COMMAND_SHOWN_MAX of arguments and a path, in up to six bytes each. */
#define LIST_PIECE_MAX ((size_t)256 * 1024)

struct commands *commands_of(struct request *req)
{
    return module_state(request_daemon(req), &command_module);
}

struct command *command_of(struct request *req)
{
    struct command *c = command_find(commands_of(req), request_capture(req, 0));
    struct err e = {0};

    if (!c) {
        err_set(&e, -ENOENT, "command_not_found", "there is no command '%.40s'",
                request_capture(req, 0));
        request_reply_error(req, &e);
    }
    return c;
}

/* ---- one answer that waits for something of the command ---- */

struct waiter {
    struct command_listener l;
    struct request *req;      /* borrowed: until on_close */
    struct loop_timer *timer; /* owned; NULL: waits for ever */
    bool answered;
};

static void waiter_close(struct request *req)
{
    struct waiter *w = request_state(req);

    command_unlisten(&w->l);
    loop_timer_free(w->timer);
    free(w);
}

static void waiter_new(struct request *req, struct command *c,
                       void (*fn)(struct command_listener *l))
{
    static const struct request_callbacks callbacks = {.on_close = waiter_close};
    struct waiter *w = xnew(struct waiter);

    w->req = req;
    w->l.fn = fn;
    w->l.arg = w;
    request_set_state(req, w, &callbacks);
    command_listen(c, &w->l);
    fn(&w->l); /* it may be so already */
}

static void on_started(struct command_listener *l)
{
    struct waiter *w = l->arg;
    struct err e = {0};
    int r = w->answered ? -EINPROGRESS : command_started(l->command, &e);

    if (r == -EINPROGRESS) {
        return;
    }
    w->answered = true;
    if (r < 0) {
        request_reply_error(w->req, &e);
    } else {
        request_reply_json(w->req, 201, command_json(l->command));
    }
}

static void on_ended(struct command_listener *l)
{
    struct waiter *w = l->arg;

    if (!w->answered && command_ended(l->command)) {
        w->answered = true;
        request_reply_json(w->req, 200, command_json(l->command));
    }
}

static void on_waited(void *arg)
{
    struct waiter *w = arg;

    if (!w->answered) {
        w->answered = true;
        request_reply_json(w->req, 200, command_json(w->l.command));
    }
}

static void on_gone(struct command_listener *l)
{
    struct waiter *w = l->arg;

    if (!w->answered && command_gone(l->command)) {
        w->answered = true;
        request_reply_empty(w->req, 204);
    }
}

/* ---- handlers ---- */

/* The node has named it already when it took a snapshot before it. Clients cannot: their headers end at the node. */
static int read_given_id(const struct request *req, struct command_spec *spec, struct err *e)
{
    const char *id = request_header(req, "x-space-command");

    if (id && !id_valid(ID_COMMAND, id)) {
        return err_set(e, -EINVAL, "invalid_header", "'x-space-command' is not a command's id");
    }
    return id ? str_copy(spec->id, sizeof(spec->id), id) : 0;
}

static void post_command(struct request *req)
{
    cleanup_command_spec struct command_spec spec = {0};
    struct command *c = NULL;
    struct follow_options options = {.start = true, .follow = true};
    struct err e = {0};
    bool stream = false;
    int r = request_query_bool(req, "stream", &stream, &e);

    if (r == 0) {
        r = request_query_bool(req, "kill_on_disconnect", &options.kill_on_disconnect, &e);
    }
    if (r == 0) {
        r = command_spec_parse(request_json(req), &spec, &e);
    }
    if (r == 0) {
        r = read_given_id(req, &spec, &e);
    }
    if (r == 0) {
        r = command_start(commands_of(req), &spec, &c, &e);
    }
    if (r < 0) {
        request_reply_error(req, &e);
    } else if (stream) {
        command_follow(req, c, &options);
    } else {
        waiter_new(req, c, on_started);
    }
}

static void get_command(struct request *req)
{
    struct command *c = command_of(req);
    struct err e = {0};
    uint64_t wait_ms = 0;

    if (!c) {
        return;
    }
    if (request_query_u64(req, "wait_ms", 0, WAIT_MAX_MS, &wait_ms, &e) < 0) {
        request_reply_error(req, &e);
        return;
    }
    if (wait_ms == 0) {
        request_reply_json(req, 200, command_json(c));
        return;
    }
    waiter_new(req, c, on_ended);
    if (!command_ended(c)) {
        struct waiter *w = request_state(req);

        w->timer = loop_add_timer(request_daemon(req)->loop, on_waited, w);
        loop_timer_set(w->timer, deadline_in_ms(wait_ms));
    }
}

static void get_output(struct request *req)
{
    struct command *c = command_of(req);
    struct follow_options options = {0};
    struct command_view view;
    bool terminal = false;
    struct err e = {0};
    int r;

    if (!c) {
        return;
    }
    command_view(c, &view);
    r = request_query_u64(req, "offset", 0, UINT64_MAX, &options.offset, &e);
    if (r == 0) {
        r = request_query_bool(req, "follow", &options.follow, &e);
    }
    if (r == 0) {
        r = request_query_bool(req, "kill_on_disconnect", &options.kill_on_disconnect, &e);
    }
    if (r == 0) {
        r = request_query_bool(req, "pty", &terminal, &e);
    }
    if (r == 0 && terminal && !view.pty) {
        r = command_no_terminal(&e);
    }
    if (r == 0 && options.offset > view.output_bytes) {
        r = err_field(&e, -ERANGE, "offset_out_of_range", "offset",
                      "'offset' is past the end: there are %llu bytes",
                      (unsigned long long)view.output_bytes);
    }
    if (r < 0) {
        request_reply_error(req, &e);
        return;
    }
    command_follow(req, c, &options);
}

static void post_signal(struct request *req)
{
    static const struct json_field fields[] = {
        {"signal", JSON_FIELD_ANY, JSON_REQUIRED},
        {"tree", JSON_FIELD_BOOL, 0},
    };
    struct command *c = command_of(req);
    json_t *body = request_json(req);
    struct err e = {0};
    int signo = 0;
    int r;

    if (!c) {
        return;
    }
    r = json_check_object(body, fields, ARRAY_SIZE(fields), &e);
    if (r == 0) {
        r = signal_parse(json_object_get(body, "signal"), &signo, &e);
    }
    if (r == 0) {
        r = command_signal(c, signo, json_get_bool(body, "tree", false), &e);
    }
    if (r < 0) {
        request_reply_error(req, &e);
    } else {
        request_reply_empty(req, 204);
    }
}

static void post_resize(struct request *req)
{
    struct command *c = command_of(req);
    struct pty_size size;
    struct err e = {0};
    int r;

    if (!c) {
        return;
    }
    r = pty_size_parse(request_json(req), &size, &e);
    if (r == 0) {
        r = command_resize(c, size, &e);
    }
    if (r < 0) {
        request_reply_error(req, &e);
    } else {
        request_reply_empty(req, 204);
    }
}

static void delete_command(struct request *req)
{
    struct command *c = command_of(req);

    if (c) {
        waiter_new(req, c, on_gone);
        command_delete(c);
    }
}

/* ---- the list: written piece by piece, it may be longer than what one answer holds at once ---- */

struct list {
    struct commands *t; /* borrowed: the module's */
    struct buf text;    /* what has not been taken by the answer */
    uint64_t serial;    /* of the last command in it */
    bool complete;
};

static void list_add(struct list *list, struct command *c)
{
    cleanup_json json_t *object = command_json(c);
    struct command_view view;
    int r;

    command_view(c, &view);
    r = list->serial > 0 ? buf_add_str(&list->text, ",") : 0;
    if (r == 0) {
        r = json_write(object, &list->text);
    }
    ASSERT(r == 0); /* LIST_PIECE_MAX holds several */
    list->serial = view.serial;
}

static void list_write(struct request *req)
{
    struct list *list = request_state(req);
    struct command *c;
    int r = 0;

    do {
        while (!list->complete && list->text.len < LIST_PIECE_MAX / 2) {
            c = command_after(list->t, list->serial);
            if (c) {
                list_add(list, c);
            } else {
                list->complete = true;
                r = buf_add_str(&list->text, "]}");
            }
        }
        ASSERT(r == 0);
        buf_consume(&list->text, request_write(req, list->text.data, list->text.len));
    } while (!list->complete && list->text.len == 0);
    if (list->text.len == 0) {
        request_end(req);
    }
}

static void list_close(struct request *req)
{
    struct list *list = request_state(req);

    buf_done(&list->text);
    free(list);
}

static void get_commands(struct request *req)
{
    static const struct request_callbacks callbacks = {.on_writable = list_write,
                                                       .on_close = list_close};
    struct list *list = xnew(struct list);
    int r;

    list->t = commands_of(req);
    list->text = BUF_INIT(LIST_PIECE_MAX);
    r = buf_add_str(&list->text, "{\"commands\":[");
    ASSERT(r == 0);
    request_set_state(req, list, &callbacks);
    request_begin(req, 200, "application/json", /* headers */ NULL, 0);
    list_write(req);
}

/* ---- the module ---- */

/* Descriptors for what the table may hold; children get usual limits again (command-spawn.c). */
static void raise_descriptor_limit(void)
{
    struct rlimit files = {.rlim_cur = 65536, .rlim_max = 524288};

    if (setrlimit(RLIMIT_NOFILE, &files) < 0 && getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max; /* a test as a plain user */
        IGNORE_RESULT(setrlimit(RLIMIT_NOFILE, &files));
    }
}

static int commands_init(struct daemon *d, void **ret_state, struct err *e)
{
    struct commands_config config = {
        .loop = d->loop,
        .children = d->children,
        .workload = d->workload,
        .cgroup_base_fd = workload_cgroup(d->workload),
        .limits = command_limits_default,
    };

    (void)e;
    raise_descriptor_limit();
    *ret_state = commands_new(&config);
    return 0;
}

static void commands_teardown(struct daemon *d, void *state)
{
    (void)d;
    commands_delete_all(state);
}

static void commands_metrics(struct daemon *d, void *state, json_t *obj)
{
    struct commands_figures figures;

    (void)d;
    commands_figures(state, &figures);
    json_object_set_new(obj, "commands",
                        json_pack("{s:I,s:I,s:I,s:I,s:s}", "active", (json_int_t)figures.n_running,
                                  "alive", (json_int_t)figures.n_alive, "remembered",
                                  (json_int_t)figures.n_remembered, "output_bytes",
                                  (json_int_t)figures.output_bytes, "kill", figures.cgroups));
}

static void commands_done(struct daemon *d, void *state)
{
    (void)d;
    commands_free(state);
}

static const struct route routes[] = {
    {"POST", "/commands", ROUTE_BODY_JSON | ROUTE_NEEDS_WORKLOAD, post_command},
    {"GET", "/commands", 0, get_commands},
    {"GET", "/commands/{id}", 0, get_command},
    {"DELETE", "/commands/{id}", 0, delete_command},
    {"GET", "/commands/{id}/output", 0, get_output},
    {"POST", "/commands/{id}/stdin", 0, command_post_stdin},
    {"POST", "/commands/{id}/signal", ROUTE_BODY_JSON, post_signal},
    {"POST", "/commands/{id}/resize", ROUTE_BODY_JSON, post_resize},
};

const struct module command_module = {
    .name = "commands",
    .routes = routes,
    .n_routes = ARRAY_SIZE(routes),
    .init = commands_init,
    .teardown = commands_teardown,
    .metrics = commands_metrics,
    .done = commands_done,
};

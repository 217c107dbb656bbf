/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/template/builder.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "gateway/e2b/box.h"
#include "gateway/frames.h"
#include "http/client.h"
#include "wire/url.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Between two pieces of an upload, or until a command's head is there. */
#define CALL_MS 120000
/* A command object: its argv is bounded by the daemon. */
#define COMMAND_MAX (4u << 20)

static struct pollfd watch_of(const struct builder *b)
{
    return (struct pollfd){.fd = b->world->stop_fd, .events = POLLIN};
}

/* --- its life --- */

/* E2B's lists are not to show it. */
static char *hidden(void)
{
    const struct e2b_box box = {.secure = true, .killed = true};

    return e2b_box_text(&box);
}

static json_t *metadata_of(const struct builder *b)
{
    return json_pack("{s:s}", SANDBOX_METADATA_BUILD, b->world->build);
}

static void keep_user(void *ctx, const char *data, size_t len, bool is_error)
{
    struct builder *b = ctx;
    size_t have = strlen(b->default_user);
    size_t n = MIN(len, sizeof(b->default_user) - 1 - have);

    if (!is_error) {
        memcpy(b->default_user + have, data, n);
        b->default_user[have + n] = '\0';
    }
}

/* Who acts there, and which shell there is. */
static int look(struct builder *b, struct err *e)
{
    static const char *const argv[] = {"/bin/sh", "-c",
                                       "id -un; if [ -x /bin/bash ]; then exit 7; fi", NULL};
    const struct builder_command command = {
        .argv = argv, .timeout_ms = CALL_MS, .output = keep_user, .ctx = b};
    int status = 0;
    int r;

    b->default_user[0] = '\0';
    r = builder_run(b, &command, &status, e);
    b->default_user[strcspn(b->default_user, "\n")] = '\0';
    b->shell_is_bash = status == 7;
    if (r == 0 && (!b->default_user[0] || (status != 0 && status != 7))) {
        return err_set(e, -EPROTO, "bad_base", "the base's shell and 'id' do not work");
    }
    return r;
}

/* It stays there: nobody moves a sandbox that is being built in. */
static int find_node(struct builder *b, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    int r = control_get(b->world->control, b->world->actor, b->id, &sb, e);

    if (r == 0) {
        b->node = fleet_client(b->world->fleet, sb.node);
    }
    return r;
}

static int made(struct builder *b, int r, struct control_answer *answer, struct err *e)
{
    if (r == 0) {
        r = control_answer_id(answer, b->id, e);
        free(TAKE_PTR(answer->body));
    }
    if (r == 0) {
        r = find_node(b, e);
        r = r < 0 ? r : look(b, e);
        if (r < 0) {
            builder_remove(b);
        }
    }
    return r;
}

int builder_make(struct builder *b, const char *node_template, const struct shape *shape,
                 struct err *e)
{
    cleanup_json json_t *body =
        json_pack("{s:s, s:i, s:i, s:i, s:i, s:o}", "template", node_template, "vcpus",
                  (int)shape->vcpus, "memory_mib", (int)shape->memory_mib, "disk_mib",
                  (int)shape->disk_mib, "timeout_s", 0, "metadata", metadata_of(b));
    cleanup_sandbox_spec struct sandbox_spec spec = {0};
    struct pollfd watch = watch_of(b);
    const struct control_create what = {.spec = &spec, .watch = &watch};
    struct control_answer answer = {0};
    int r = sandbox_spec_from_json(body, &spec, e);

    if (r < 0) {
        return r;
    }
    free(spec.network);
    spec.network = xstrdup(BUILDER_NETWORK);
    spec.surface = hidden();
    r = control_create(b->world->control, b->world->actor, &what, &answer, e);
    return made(b, r, &answer, e);
}

int builder_set_network(struct builder *b, const char *network, struct err *e)
{
    cleanup_sandbox_patch struct sandbox_patch patch = {.network = xstrdup(network)};
    cleanup_sandbox struct sandbox sb = {0};

    return control_patch(b->world->control, b->world->actor, b->id, &patch, &sb, e);
}

int builder_fork(struct builder *b, const char *sandbox, const char *snapshot, struct err *e)
{
    cleanup_json json_t *body = json_pack("{s:s, s:i, s:o}", "snapshot", snapshot, "timeout_s", 0,
                                          "metadata", metadata_of(b));
    cleanup_sandbox_fork struct sandbox_fork fork = {0};
    struct pollfd watch = watch_of(b);
    const struct control_create what = {.fork = &fork, .watch = &watch};
    struct control_answer answer = {0};
    int r = sandbox_fork_from_json(body, &fork, e);

    if (r < 0) {
        return r;
    }
    fork.surface = hidden();
    r = control_fork(b->world->control, b->world->actor, sandbox, &what, &answer, e);
    r = made(b, r, &answer, e);
    if (r == 0) {
        r = builder_set_network(b, BUILDER_NETWORK, e);
        if (r < 0) {
            builder_remove(b);
        }
    }
    return r;
}

int builder_snapshot(struct builder *b, bool full, char ret[static ID_SIZE], struct err *e)
{
    cleanup_json json_t *body =
        json_pack("{s:s, s:b, s:s}", "kind", full ? "full" : "disk", "keep", 1, "name", "template");
    cleanup_json json_t *answer = NULL;
    struct pollfd watch = watch_of(b);
    const struct control_ask ask = {.method = "POST",
                                    .rest = "/snapshots",
                                    .body = body,
                                    .action = "snapshot.create",
                                    .watch = &watch};
    const char *id;
    int r = control_ask(b->world->control, b->world->actor, b->id, &ask, &answer, e);

    if (r < 0) {
        return r;
    }
    id = json_get_string(answer, "id", "");
    if (!id_valid(ID_SNAPSHOT, id)) {
        return err_set(e, -EPROTO, "bad_answer", "the node's answer cannot be used");
    }
    snprintf(ret, ID_SIZE, "%s", id);
    return 0;
}

int builder_cut_off(struct builder *b, struct err *e)
{
    return builder_set_network(b, "{\"preset\":\"none\"}", e);
}

int builder_restart(struct builder *b, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    int r = control_stop(b->world->control, b->world->actor, b->id, &sb, e);

    if (r == 0) {
        sandbox_done(&sb);
        r = control_start(b->world->control, b->world->actor, b->id, &sb, e);
    }
    return r < 0 ? r : look(b, e);
}

int builder_rest(struct builder *b, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};

    return control_stop(b->world->control, b->world->actor, b->id, &sb, e);
}

void builder_remove(struct builder *b)
{
    struct err e = {0};
    bool done;

    if (b->id[0] && control_delete(b->world->control, b->world->actor, b->id, &done, &e) < 0 &&
        e.code != -ENOENT) {
        log_warn(&(struct log_ctx){.sandbox = b->id}, "a build leaves its sandbox: %s", e.msg);
    }
    b->id[0] = '\0';
}

/* --- commands --- */

struct following {
    const struct builder_command *command;
    json_t *end; /* owned: the command at its end */
};

/* 1: that was the last one. */
static int take_frame(void *ctx, const struct frame *frame, struct err *e)
{
    struct following *f = ctx;

    switch (frame->type) {
    case FRAME_STDOUT:
    case FRAME_STDERR:
        if (f->command->output) {
            f->command->output(f->command->ctx, frame->payload, frame->len,
                               frame->type == FRAME_STDERR);
        }
        return 0;
    case FRAME_END:
        return json_parse_untrusted(frame->payload, frame->len, &f->end, NULL) < 0 ? frames_bad(e)
                                                                                   : 1;
    case FRAME_ERROR:
        return frames_error(frame, e);
    case FRAME_START:
    case FRAME_GAP:
    case FRAME_PTY:
    case FRAME_KEEPALIVE:
        return 0;
    }
    return frames_bad(e);
}

static json_t *command_body(const struct builder_command *c)
{
    json_t *argv = json_array();
    json_t *body = json_pack("{s:o}", "argv", argv);

    for (size_t i = 0; c->argv[i]; i++) {
        json_array_append_new(argv, json_string(c->argv[i]));
    }
    if (c->env) {
        json_object_set(body, "env", (json_t *)(uintptr_t)c->env);
    }
    if (!str_empty(c->user)) {
        json_object_set_new(body, "user", json_string(c->user));
    }
    if (!str_empty(c->cwd)) {
        json_object_set_new(body, "cwd", json_string(c->cwd));
    }
    if (c->timeout_ms > 0) {
        json_object_set_new(body, "timeout_ms", json_integer(c->timeout_ms));
    }
    return body;
}

static int send_command(struct builder *b, const struct builder_command *c, struct http_call **ret,
                        struct err *e)
{
    cleanup_json json_t *body = command_body(c);
    cleanup_free char *text = json_text(body);
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/guest/commands%s", b->id,
                                          c->detached ? "" : "?stream=1&kill_on_disconnect=1");
    struct pollfd watch = watch_of(b);
    const struct http_call_opts opts = {.method = "POST",
                                        .target = target,
                                        .content_type = "application/json",
                                        .body_length = (int64_t)strlen(text),
                                        .watch = &watch};
    int r = http_call_new(node_client_http(b->node), &opts, ret, e);

    if (r == 0) {
        r = http_call_write(*ret, text, strlen(text), e);
    }
    if (r == 0) {
        r = http_call_end(*ret, e);
    }
    if (r == 0) {
        r = http_call_head(*ret, e);
    }
    return r < 0 ? r : http_call_check(*ret, e);
}

/* As a shell would say it. */
static int status_of(json_t *end, struct err *e)
{
    const char *why = json_get_string(end, "error", NULL);
    json_t *code = json_object_get(end, "exit_code");

    if (why) {
        return err_set(e, -EINVAL, "command_failed", "it did not start: %.200s", why);
    }
    if (json_get_bool(end, "timed_out", false)) {
        return err_set(e, -ETIMEDOUT, "command_timeout", "it took too long and was ended");
    }
    if (json_is_integer(code)) {
        return (int)(json_integer_value(code) & 0xff);
    }
    return json_get_bool(end, "oom_killed", false) ? 137 : 128;
}

static int note_started(struct builder *b, struct http_call *call, struct err *e)
{
    cleanup_free char *text = NULL;
    cleanup_json json_t *object = NULL;
    const char *id;
    size_t len = 0;
    int r = http_call_all(call, COMMAND_MAX, &text, &len, e);

    if (r == 0) {
        r = json_parse_untrusted(text, len, &object, e);
    }
    if (r < 0) {
        return r;
    }
    id = json_get_string(object, "id", "");
    if (!id_valid(ID_COMMAND, id)) {
        return frames_bad(e);
    }
    snprintf(b->started, sizeof(b->started), "%s", id);
    return 0;
}

/* GET of something about the command that was started. */
static int ask_started(struct builder *b, const char *rest, struct http_call **ret, struct err *e)
{
    cleanup_free char *target =
        xasprintf("/v1/sandboxes/%s/guest/commands/%s%s", b->id, b->started, rest);
    struct pollfd watch = watch_of(b);
    const struct http_call_opts opts = {
        .target = target, .watch = &watch, .deadline_ns = deadline_in_ms(CALL_MS)};
    int r = http_call_new(node_client_http(b->node), &opts, ret, e);

    if (r == 0) {
        r = http_call_head(*ret, e);
    }
    return r < 0 ? r : http_call_check(*ret, e);
}

int builder_check_started(struct builder *b, builder_output_fn *output, void *ctx, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    CLEANUP(http_call_freep) struct http_call *said = NULL;
    const struct builder_command command = {.output = output, .ctx = ctx};
    struct following f = {.command = &command};
    cleanup_free char *text = NULL;
    cleanup_json json_t *object = NULL;
    size_t len = 0;
    int r = ask_started(b, "", &call, e);

    if (r == 0) {
        r = http_call_all(call, COMMAND_MAX, &text, &len, e);
    }
    if (r == 0) {
        r = json_parse_untrusted(text, len, &object, e);
    }
    if (r < 0 || json_get_int(object, "ended_at_ms", 0) == 0) {
        return r;
    }
    r = status_of(object, e);
    if (r <= 0) {
        return r;
    }
    len = (size_t)r;
    r = ask_started(b, "/output", &said, e);
    r = r < 0 ? r : frames_follow(said, take_frame, &f, e);
    json_decref(f.end);
    return r < 0 ? r
                 : err_set(e, -ECHILD, "start_failed", "the start command exited with %zu", len);
}

int builder_run(struct builder *b, const struct builder_command *command, int *ret_exit,
                struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct following f = {.command = command};
    int r = send_command(b, command, &call, e);

    if (r < 0) {
        return r;
    }
    if (command->detached) {
        *ret_exit = 0;
        return note_started(b, call, e);
    }
    r = frames_follow(call, take_frame, &f, e);
    if (r == 0) {
        r = status_of(f.end, e);
    }
    json_decref(f.end);
    if (r < 0) {
        return r;
    }
    *ret_exit = r;
    return 0;
}

/* --- files --- */

static int send_file(struct http_call *call, int fd, struct err *e)
{
    cleanup_free char *data = xmalloc(1u << 18);
    int r = 0;

    while (r == 0) {
        ssize_t n = fs_read_full(fd, data, 1u << 18);

        if (n <= 0) {
            return n < 0 ? err_wrap(e, (int)n, "reading an uploaded file") : 0;
        }
        http_call_deadline(call, deadline_in_ms(CALL_MS));
        r = http_call_write(call, data, (size_t)n, e);
    }
    return r;
}

int builder_upload(struct builder *b, int fd, const char *path, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_buf struct buf target = BUF_INIT(8 * TEMPLATE_PATH_MAX);
    struct pollfd watch = watch_of(b);
    struct http_call_opts opts = {.method = "PUT",
                                  .content_type = "application/octet-stream",
                                  .deadline_ns = deadline_in_ms(CALL_MS),
                                  .watch = &watch};
    struct stat st;
    int r = buf_printf(&target, "/v1/sandboxes/%s/guest/files", b->id);

    if (r == 0) {
        r = url_add_query(&target, "path", path);
    }
    if (r == 0) {
        r = url_add_query(&target, "user", "root");
    }
    if (r == 0 && fstat(fd, &st) < 0) {
        r = -errno;
    }
    if (r < 0) {
        return err_wrap(e, r, "sending a file into the sandbox");
    }
    opts.target = buf_str(&target);
    opts.body_length = (int64_t)st.st_size;
    r = http_call_new(node_client_http(b->node), &opts, &call, e);
    if (r == 0) {
        r = send_file(call, fd, e);
    }
    if (r == 0) {
        r = http_call_end(call, e);
    }
    if (r == 0) {
        r = http_call_head(call, e);
    }
    return r < 0 ? r : http_call_check(call, e);
}

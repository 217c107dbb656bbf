/* SPDX-License-Identifier: Apache-2.0 */

/* How long a sandbox lives, and what it does meanwhile: timeout, pause, connect, kill. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/e2b/private.h"

#define TIMEOUT_S_DEFAULT 300
/* Something else is under way with the sandbox: clients wait a minute at most. */
#define SETTLE_MS 45000
#define SETTLE_LOOK_MS 50

static const struct json_bounds timeout_bounds = {1, SANDBOX_TIMEOUT_S_MAX, TIMEOUT_S_DEFAULT};

static struct control *control_of(const struct http_request *req)
{
    return gateway_of(req)->control;
}

static int set_timeout(struct http_request *req, struct sandbox *sb, int64_t timeout_s,
                       struct err *e)
{
    const struct sandbox_patch patch = {.has_timeout = true, .timeout_s = timeout_s};

    return control_patch(control_of(req), actor_of(req), sb->id, &patch, sb, e);
}

/* Never earlier than it would have been. */
static int extend(struct http_request *req, struct sandbox *sb, int64_t timeout_s, struct err *e)
{
    int64_t end_ms = control_now_ms(control_of(req)) + timeout_s * 1000;

    return sb->end_at_ms == 0 || sb->end_at_ms >= end_ms ? 0 : set_timeout(req, sb, timeout_s, e);
}

static int want_running(const struct sandbox *sb, struct err *e)
{
    const char *state = e2b_box_state(sb);

    return state && str_eq(state, "running")
               ? 0
               : err_set(e, -ENOENT, "sandbox_not_found",
                         "Sandbox \"%s\" is not running: connect to it first", sb->id);
}

int e2b_timeout_handler(struct http_request *req, struct err *e)
{
    const struct json_bounds bounds = {INT32_MIN, SANDBOX_TIMEOUT_S_MAX, -1};
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *body = NULL;
    struct e2b_box box;
    int64_t timeout_s = 0;
    int r = e2b_find(req, &sb, &box, e);

    if (r == 0) {
        r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    }
    if (r == 0 && !json_object_get(body, "timeout")) {
        return err_field(e, -EINVAL, "missing_field", "timeout", "'timeout' is missing");
    }
    if (r == 0) {
        r = e2b_int(body, "timeout", bounds, &timeout_s, e);
    }
    if (r == 0) {
        r = want_running(&sb, e);
    }
    if (r == 0) { /* our 0 says never; theirs says now */
        r = set_timeout(req, &sb, MAX(timeout_s, (int64_t)1), e);
    }
    return r < 0 ? r : http_reply_empty(req, 204, e);
}

int e2b_refresh_handler(struct http_request *req, struct err *e)
{
    const struct json_bounds bounds = {0, 3600, 15};
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *body = NULL;
    struct e2b_box box;
    int64_t duration_s = 0;
    int r = e2b_find(req, &sb, &box, e);

    if (r == 0) {
        r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    }
    if (r == 0) {
        r = e2b_int(body, "duration", bounds, &duration_s, e);
    }
    if (r == 0) {
        r = want_running(&sb, e);
    }
    if (r == 0) {
        r = extend(req, &sb, duration_s, e);
    }
    return r < 0 ? r : http_reply_empty(req, 204, e);
}

/* --- connect --- */

struct connecting {
    int64_t timeout_s;
    bool memory; /* false: its processes are not wanted back */
};

/* Waits until nothing is under way. */
static int settle(struct http_request *req, struct sandbox *sb, struct err *e)
{
    uint64_t deadline_ns = deadline_in_ms(SETTLE_MS);
    struct pollfd client = http_client_pollfd(req);
    cleanup_free char *id = xstrdup(sb->id);

    while (sandbox_state_is_transient(sb->observed)) {
        int r;

        if (deadline_passed(deadline_ns)) {
            return err_set(e, -ESTALE, "conflict", "the sandbox is %s: try again",
                           sandbox_state_name(sb->observed));
        }
        if (poll(&client, 1, SETTLE_LOOK_MS) > 0) {
            return err_set(e, -ECANCELED, "client_gone", "the client has gone");
        }
        sandbox_done(sb);
        r = control_get(control_of(req), actor_of(req), id, sb, e);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

/* Its time stands still while it is paused, so the new one counts from the moment it goes on. */
static int wake(struct http_request *req, struct sandbox *sb, const struct connecting *how,
                struct err *e)
{
    cleanup_free char *id = xstrdup(sb->id);
    int r = set_timeout(req, sb, how->timeout_s, e);

    return r < 0 ? r : control_resume(control_of(req), actor_of(req), id, sb, e);
}

static int start(struct http_request *req, struct sandbox *sb, const struct connecting *how,
                 struct err *e)
{
    cleanup_free char *id = xstrdup(sb->id);
    int r = control_start(control_of(req), actor_of(req), id, sb, e);

    return r < 0 ? r : set_timeout(req, sb, how->timeout_s, e);
}

/* Only its disk is wanted: its machine is let go, and another one starts from the disk. */
static int reboot(struct http_request *req, struct sandbox *sb, const struct connecting *how,
                  struct err *e)
{
    cleanup_free char *id = xstrdup(sb->id);
    int r = set_timeout(req, sb, 0, e);

    if (r == 0) {
        r = control_stop(control_of(req), actor_of(req), id, sb, e);
    }
    return r < 0 ? r : start(req, sb, how, e);
}

static int connect_it(struct http_request *req, struct sandbox *sb, const struct connecting *how,
                      struct err *e)
{
    int r = settle(req, sb, e);

    if (r < 0) {
        return r;
    }
    switch (sb->observed) {
    case SANDBOX_STATE_RUNNING:
        r = extend(req, sb, how->timeout_s, e);
        return r < 0 ? r : e2b_reply_sandbox(req, 200, sb, e);
    case SANDBOX_STATE_PAUSED:
        r = how->memory ? wake(req, sb, how, e) : reboot(req, sb, how, e);
        break;
    case SANDBOX_STATE_SUSPENDED:
        r = wake(req, sb, how, e);
        break;
    case SANDBOX_STATE_STOPPED:
    case SANDBOX_STATE_FAILED:
        r = start(req, sb, how, e);
        break;
    default:
        r = err_set(e, -ESTALE, "conflict", "a sandbox that is %s cannot be connected to",
                    sandbox_state_name(sb->observed));
        break;
    }
    return r < 0 ? r : e2b_reply_sandbox(req, 201, sb, e);
}

static int read_connecting(json_t *body, struct connecting *ret, struct err *e)
{
    int r = e2b_int(body, "timeout", timeout_bounds, &ret->timeout_s, e);

    return r < 0 ? r : e2b_bool(body, "memory", true, &ret->memory, e);
}

static int connect_asked(struct http_request *req, bool needs_timeout, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *body = NULL;
    struct connecting how = {0};
    struct e2b_box box;
    int r = e2b_find(req, &sb, &box, e);

    if (r == 0) {
        r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    }
    if (r == 0 && needs_timeout && !json_object_get(body, "timeout")) {
        return err_field(e, -EINVAL, "missing_field", "timeout", "'timeout' is missing");
    }
    if (r == 0) {
        r = read_connecting(body, &how, e);
    }
    return r < 0 ? r : connect_it(req, &sb, &how, e);
}

int e2b_connect_handler(struct http_request *req, struct err *e)
{
    return connect_asked(req, /* needs_timeout */ false, e);
}

int e2b_connect_v1_handler(struct http_request *req, struct err *e)
{
    return connect_asked(req, /* needs_timeout */ true, e);
}

/* The oldest way, which is no use for a running one and may change what happens at the end. */
int e2b_resume_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *body = NULL;
    struct sandbox_patch patch = {.has_at_end = true};
    struct connecting how = {0};
    struct e2b_box box;
    bool pause = false;
    int r = e2b_find(req, &sb, &box, e);

    if (r == 0) {
        r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    }
    if (r == 0) {
        r = read_connecting(body, &how, e);
    }
    if (r == 0) {
        r = e2b_bool(body, "autoPause", false, &pause, e);
    }
    if (r == 0 && sb.observed == SANDBOX_STATE_RUNNING) {
        return err_set(e, -ESTALE, "conflict", "Sandbox \"%s\" is already running", sb.id);
    }
    if (r == 0 && json_object_get(body, "autoPause")) {
        patch.at_end = !pause            ? SANDBOX_AT_END_DELETE
                       : box.auto_resume ? SANDBOX_AT_END_SLEEP
                                         : SANDBOX_AT_END_PAUSE;
        r = control_patch(control_of(req), actor_of(req), sb.id, &patch, &sb, e);
    }
    return r < 0 ? r : connect_it(req, &sb, &how, e);
}

/* --- pause and kill --- */

/* Only the disk is kept. Its time must not run out meanwhile: it gets a new one when it is connected to. */
static int stop(struct http_request *req, struct sandbox *sb, struct err *e)
{
    cleanup_free char *id = xstrdup(sb->id);
    int r = set_timeout(req, sb, 0, e);

    return r < 0 ? r : control_stop(control_of(req), actor_of(req), id, sb, e);
}

int e2b_pause_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *body = NULL;
    struct control_pause how = {.durable = true};
    cleanup_free char *id = NULL;
    struct e2b_box box;
    bool memory = true;
    int r = e2b_find(req, &sb, &box, e);

    if (r == 0) {
        r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    }
    if (r == 0) {
        r = e2b_bool(body, "memory", true, &memory, e);
    }
    if (r < 0) {
        return r;
    }
    if (sb.observed != SANDBOX_STATE_RUNNING) {
        return err_set(e, -ESTALE, "conflict",
                       "Error pausing sandbox - sandbox '%s' is already paused", sb.id);
    }
    how.wakes = box.auto_resume;
    id = xstrdup(sb.id);
    r = memory ? control_pause(control_of(req), actor_of(req), id, &how, &sb, e)
               : stop(req, &sb, e);
    if (r < 0) {
        return r;
    }
    e2b_cut(gateway_of(req)->e2b, sb.id);
    return http_reply_empty(req, 204, e);
}

static int found_one(void *ctx, const struct snapshot_row *row)
{
    (void)row;
    *(bool *)ctx = true;
    return 0;
}

/* Snapshots outlive what they are of: it stays, stopped and unseen, as long as there is one. */
static int hide(struct http_request *req, struct sandbox *sb, struct e2b_box *box, struct err *e)
{
    cleanup_free char *id = xstrdup(sb->id);
    cleanup_sandbox_patch struct sandbox_patch patch = {.has_timeout = true};
    struct err why = {0};
    int r;

    box->killed = true;
    patch.surface = e2b_box_text(box);
    r = control_patch(control_of(req), actor_of(req), id, &patch, sb, e);
    if (r < 0 || sb->observed == SANDBOX_STATE_STOPPED || sb->observed == SANDBOX_STATE_FAILED) {
        return r;
    }
    r = control_stop(control_of(req), actor_of(req), id, sb, &why);
    if (r == -ENOENT || (r < 0 && str_eq(why.reason, "sandbox_deleted"))) {
        return 0; /* its last snapshot was deleted meanwhile, and it went with that */
    }
    if (r < 0 && e) {
        *e = why;
    }
    return r;
}

int e2b_kill_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    struct snapshot_query q = {.project = actor_of(req)->project, .limit = 1};
    cleanup_free char *id = NULL;
    struct e2b_box box;
    bool snapshots = false;
    bool done = false;
    int r = e2b_find(req, &sb, &box, e);

    id = xstrdup(sb.id);
    q.sandbox = id;
    if (r == 0) {
        r = db_snapshot_list(gateway_of(req)->db, &q, found_one, &snapshots, e);
    }
    if (r < 0) {
        return r;
    }
    r = snapshots ? hide(req, &sb, &box, e)
                  : control_delete(control_of(req), actor_of(req), id, &done, e);
    if (r < 0) {
        return r;
    }
    e2b_cut(gateway_of(req)->e2b, id); /* now its health says that it is gone */
    if (box.rules) {
        e2b_rules_drop(req, id);
    }
    return http_reply_empty(req, 204, e);
}

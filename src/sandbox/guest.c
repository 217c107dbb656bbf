/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/guest.h"

#include "base/base64.h"
#include "base/clock.h"
#include "base/id.h"

#include <string.h>

#define ENTROPY_BYTES 64

static int read_body(struct channel_stream *s, uint64_t deadline_ns, struct buf *body,
                     struct err *e)
{
    for (;;) {
        char chunk[16384];
        ssize_t n = channel_stream_read(s, chunk, sizeof(chunk), deadline_ns, e);

        if (n <= 0) {
            return (int)n;
        }
        if (buf_add(body, chunk, (size_t)n) < 0) {
            return err_set(e, -EPROTO, "guest_protocol", "the guest's answer is too long");
        }
    }
}

static int guest_error(int status, const struct buf *body, struct err *e)
{
    cleanup_json json_t *root = NULL;
    json_t *error;

    if (json_parse_untrusted(buf_str(body), body->len, &root, NULL) < 0) {
        return err_set(e, -EPROTO, "guest_protocol", "the guest answered %d", status);
    }
    error = json_object_get(root, "error");
    return err_from_http(e, status, json_get_string(error, "code", NULL),
                         json_get_string(error, "message", NULL));
}

static int send_request(struct channel *ch, const struct guest_call *call,
                        struct channel_stream **ret, struct err *e)
{
    static const struct channel_header json_type = {"content-type", "application/json"};
    cleanup_free char *text = call->body ? json_text(call->body) : NULL;
    CLEANUP(channel_stream_freep) struct channel_stream *s = NULL;
    const struct channel_request request = {
        .method = call->method,
        .target = call->target,
        .headers = &json_type,
        .n_headers = text ? 1 : 0,
        .has_body = text != NULL,
    };
    int r = channel_request(ch, &request, call->deadline_ns, &s, e);

    if (r == 0 && text) {
        r = channel_stream_write(s, text, strlen(text), call->deadline_ns, e);
        if (r == 0) {
            channel_stream_finish(s);
        }
    }
    if (r == 0) {
        *ret = TAKE_PTR(s);
    }
    return r;
}

int guest_call(struct channel *ch, const struct guest_call *call, json_t **ret, struct err *e)
{
    CLEANUP(channel_stream_freep) struct channel_stream *s = NULL;
    cleanup_buf struct buf body = BUF_INIT(GUEST_ANSWER_MAX);
    const struct channel_head *head = NULL;
    int r = send_request(ch, call, &s, e);

    if (r == 0) {
        r = channel_stream_read_head(s, call->deadline_ns, &head, e);
    }
    if (r == 0) {
        r = read_body(s, call->deadline_ns, &body, e);
    }
    if (r < 0) {
        return err_wrap(e, r, "guest %s %s", call->method, call->target);
    }
    if (head->status >= 400) {
        return guest_error(head->status, &body, e);
    }
    return ret ? json_parse_untrusted(buf_str(&body), body.len, ret, e) : 0;
}

/* What every guest needs when it begins to run: the time, and randomness that nobody else has. */
static json_t *fresh_body(void)
{
    cleanup_buf struct buf entropy = BUF_INIT(4 * ENTROPY_BYTES);
    uint8_t raw[ENTROPY_BYTES];
    json_t *body;

    random_bytes(raw, sizeof(raw));
    ASSERT(base64_encode(raw, sizeof(raw), &entropy) == 0);
    explicit_bzero(raw, sizeof(raw));
    body = json_pack("{s:I, s:s}", "epoch_ns", (json_int_t)clock_wall_ns(), "entropy_base64",
                     buf_str(&entropy));
    ASSERT(body);
    return body;
}

static void set_string(json_t *body, const char *name, const char *value)
{
    if (value) {
        json_object_set_new(body, name, json_string(value));
    }
}

static json_t *setup_body(const struct guest_setup *setup)
{
    json_t *body = fresh_body();
    json_t *disk =
        json_pack("{s:s, s:s, s:I, s:b}", "device", "/dev/vda", "fstype", setup->fstype,
                  "size_bytes", (json_int_t)setup->disk_bytes, "fresh", (int)setup->fresh);

    ASSERT(disk);
    set_string(body, "hostname", setup->hostname);
    set_string(body, "machine_id", setup->machine_id);
    set_string(body, "default_user", setup->default_user);
    set_string(body, "authority", setup->authority);
    set_string(body, "ssh_host_key", setup->ssh_host_key);
    json_object_set_new(body, "rehearse", json_boolean(setup->rehearse));
    json_object_set_new(body, "disk", disk);
    json_object_set_new(body, "env", setup->env ? json_deep_copy(setup->env) : json_object());
    return body;
}

/* A guest that was stored by a version that did not know of the host key refuses it, before it has done anything. */
static int call_old_too(struct channel *ch, const struct guest_call *call, json_t *body,
                        struct err *e)
{
    struct err why = {0};
    int r = guest_call(ch, call, NULL, &why);

    if (r == -EINVAL && json_object_del(body, "ssh_host_key") == 0) {
        why = (struct err){0};
        r = guest_call(ch, call, NULL, &why);
    }
    if (r < 0 && e) {
        *e = why;
    }
    return r;
}

int guest_identity(struct channel *ch, const struct guest_identity *who, uint64_t deadline_ns,
                   struct err *e)
{
    cleanup_json json_t *body = fresh_body();

    set_string(body, "hostname", who->hostname);
    set_string(body, "machine_id", who->machine_id);
    set_string(body, "authority", who->authority);
    set_string(body, "ssh_host_key", who->ssh_host_key);
    if (who->env) {
        json_object_set_new(body, "env", json_deep_copy(who->env));
    }
    return call_old_too(ch, &(struct guest_call){"POST", "/identity", body, deadline_ns}, body, e);
}

int guest_setup(struct channel *ch, const struct guest_setup *setup, uint64_t deadline_ns,
                struct err *e)
{
    cleanup_json json_t *body = setup_body(setup);

    return call_old_too(ch, &(struct guest_call){"POST", "/setup", body, deadline_ns}, body, e);
}

int guest_try_command(struct channel *ch, uint64_t deadline_ns, struct err *e)
{
    cleanup_json json_t *command =
        json_pack("{s:[s,s,s], s:i}", "argv", "/bin/sh", "-c", "ls / >/dev/null; cat </dev/null",
                  "timeout_ms", 20000);
    cleanup_json json_t *started = NULL;
    cleanup_free char *target = NULL;
    cleanup_free char *wait = NULL;
    int r = guest_call(ch, &(struct guest_call){"POST", "/commands", command, deadline_ns},
                       &started, e);

    if (r < 0) {
        return r;
    }
    target = xasprintf("/commands/%.40s", json_get_string(started, "id", ""));
    wait = xasprintf("%s?wait_ms=20000", target);
    r = guest_call(ch, &(struct guest_call){"GET", wait, NULL, deadline_ns}, NULL, e);
    return r < 0
               ? r
               : guest_call(ch, &(struct guest_call){"DELETE", target, NULL, deadline_ns}, NULL, e);
}

int guest_rehearse(struct channel *ch, const struct guest_setup *setup, uint64_t deadline_ns,
                   struct err *e)
{
    int r = guest_setup(ch, setup, deadline_ns, e);

    if (r == 0) {
        r = guest_try_command(ch, deadline_ns, e);
    }
    if (r == 0) {
        r = guest_call(ch, &(struct guest_call){"POST", "/teardown", NULL, deadline_ns}, NULL, e);
    }
    return r;
}

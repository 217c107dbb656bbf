/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/client.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/sock.h"
#include "ipc/seqpacket.h"

#include <poll.h>
#include <string.h>

#define LOOK_MS 250

static json_t *request_of(const struct volume_call *call, int *fds, size_t *ret_n)
{
    json_t *request = json_pack("{s:s}", "op", call->op);
    json_t *files = json_array();

    *ret_n = 0;
    for (size_t i = 0; i < call->n_files; i++) {
        const struct archive_file *f = &call->files[i];

        fds[(*ret_n)++] = f->fd;
        if (f->base_fd >= 0) {
            fds[(*ret_n)++] = f->base_fd;
        }
        json_array_append_new(files,
                              json_pack("{s:s, s:b}", "name", f->name, "base", f->base_fd >= 0));
    }
    if (call->n_files > 0) {
        json_object_set(request, "files", files);
    }
    json_decref(files);
    if (log_request()->id[0]) {
        json_object_set_new(request, "request", json_string(log_request()->id));
    }
    if (call->organisation) {
        json_object_set_new(request, "organisation", json_string(call->organisation));
    }
    if (call->sandbox) {
        json_object_set_new(request, "sandbox", json_string(call->sandbox));
    }
    return request;
}

static int unavailable(int r, struct err *e)
{
    if (r == -ETIMEDOUT) {
        return err_set(e, r, "volume_manager_unavailable",
                       "the volume manager did not finish in time");
    }
    return err_set(e, -EHOSTDOWN, "volume_manager_unavailable",
                   "the volume manager cannot be reached: %s", strerror(-r));
}

/* Until the answer is there, the deadline, or nobody wants it any more. */
static int wait_for_answer(int fd, const struct volume_call *call, struct err *e)
{
    int r;

    do {
        uint64_t look_ns = deadline_in_ms(LOOK_MS);

        if (call->gone && call->gone(call->arg)) {
            return err_set(e, -ECANCELED, "sandbox_deleted", "the sandbox was deleted meanwhile");
        }
        r = sock_wait(fd, POLLIN, MIN(look_ns, call->deadline_ns));
    } while (r == -ETIMEDOUT && !deadline_passed(call->deadline_ns));
    return r < 0 ? unavailable(r, e) : 0;
}

static int exchange(const char *socket_path, const struct volume_call *call, struct buf *answer,
                    struct err *e)
{
    int fds[2 * MANIFEST_FILES_MAX];
    cleanup_fds struct seqpacket_fds in = {.max = 0};
    cleanup_buf struct buf text = BUF_INIT(VOLUME_PACKET_MAX);
    cleanup_close int fd = FD_NONE;
    cleanup_json json_t *request = NULL;
    size_t n_fds = 0;
    void *room = NULL;
    ssize_t n;
    int r;

    ASSERT(call->n_files <= MANIFEST_FILES_MAX);
    request = request_of(call, fds, &n_fds);
    r = json_write(request, &text);
    if (r < 0) {
        return err_set(e, r, "invalid_request", "too much for the volume manager");
    }
    fd = sock_connect_unix(socket_path, SOCK_SEQPACKET, NULL);
    if (fd < 0) {
        return unavailable(fd, e);
    }
    r = seqpacket_send(fd, text.data, text.len, fds, n_fds, call->deadline_ns);
    if (r == 0) {
        r = buf_reserve(answer, VOLUME_PACKET_MAX, &room);
    }
    if (r < 0) {
        return unavailable(r, e);
    }
    r = wait_for_answer(fd, call, e);
    if (r < 0) {
        return r;
    }
    n = seqpacket_recv(fd, room, VOLUME_PACKET_MAX, &in, call->deadline_ns);
    if (n < 0) {
        return unavailable((int)n, e);
    }
    buf_commit(answer, (size_t)n);
    return 0;
}

int volume_call(const char *socket_path, const struct volume_call *call, json_t **ret,
                struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(VOLUME_PACKET_MAX);
    cleanup_json json_t *answer = NULL;
    json_t *error;
    int r = exchange(socket_path, call, &text, e);

    if (r == 0) {
        r = json_parse_object(buf_str(&text), text.len, &answer, e);
    }
    if (r < 0) {
        return r;
    }
    error = json_object_get(answer, "error");
    if (error) {
        int64_t code = json_get_int(error, "errno", EIO);

        return err_set(e, code > 0 && code < 4096 ? -(int)code : -EIO,
                       json_get_string(error, "code", ""), "%s",
                       json_get_string(error, "message", "the volume manager refused"));
    }
    if (ret) {
        *ret = TAKE_PTR(answer);
    }
    return 0;
}

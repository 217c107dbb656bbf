/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/service.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "base/sock.h"
#include "ipc/seqpacket.h"
#include "volume/client.h"
#include "volume/collect.h"
#include "volume/turns.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define REPLY_TIMEOUT_MS 5000
/* Who hung up is noticed within a chunk or a request to the store. */
#define TURN_WAIT_MS 60000

/* One request. Handlers set answer, or return a negative errno with its sentence. */
struct command {
    struct archive *archive; /* borrowed */
    json_t *body;            /* borrowed */
    struct archive_job job;
    struct archive_file files[MANIFEST_FILES_MAX];
    json_t *answer; /* owned */
};

static json_t *result_to_json(const struct archive_result *r)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:i}", "created_at_ms",
                     (json_int_t)r->created_at_ms, "chunks", (json_int_t)r->stats.chunks,
                     "plain_bytes", (json_int_t)r->stats.plain_bytes, "stored_bytes",
                     (json_int_t)r->stats.stored_bytes, "uploaded_bytes",
                     (json_int_t)r->stats.uploaded_bytes, "images", (int)r->images);
}

static int run_store(struct command *cmd, struct err *e)
{
    struct archive_result result = {0};
    int r = archive_store(cmd->archive, &cmd->job, &result, e);

    cmd->answer = r < 0 ? NULL : result_to_json(&result);
    return r;
}

static int run_fetch(struct command *cmd, struct err *e)
{
    struct archive_result result = {0};
    int r = archive_fetch(cmd->archive, &cmd->job, &result, e);

    cmd->answer = r < 0 ? NULL : result_to_json(&result);
    return r;
}

static int run_age(struct command *cmd, struct err *e)
{
    uint64_t ms = 0;
    int r = archive_age(cmd->archive, cmd->job.organisation, cmd->job.sandbox, &ms, e);

    cmd->answer = r < 0 ? NULL : json_pack("{s:I}", "modified_ms", (json_int_t)ms);
    return r;
}

static int run_forget(struct command *cmd, struct err *e)
{
    return archive_forget(cmd->archive, cmd->job.organisation, cmd->job.sandbox, e);
}

static int run_ping(struct command *cmd, struct err *e)
{
    (void)e;
    cmd->answer = json_pack("{s:s, s:s}", "store", archive_store_name(cmd->archive), "keys",
                            archive_keys_name(cmd->archive));
    return 0;
}

static int run_metrics(struct command *cmd, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(VOLUME_PACKET_MAX / 2);
    int r = metric_print_all(&text);

    cmd->answer = r < 0 ? NULL : json_pack("{s:s}", "text", buf_str(&text));
    return r < 0 ? err_wrap(e, r, "printing the metrics") : 0;
}

static int run_rotate(struct command *cmd, struct err *e)
{
    uint64_t n = 0;
    int r = archive_rotate(cmd->archive, cmd->job.organisation, &n, e);

    cmd->answer = r < 0 ? NULL : json_pack("{s:I}", "keys", (json_int_t)n);
    return r;
}

static int run_shred(struct command *cmd, struct err *e)
{
    return archive_shred(cmd->archive, cmd->job.organisation, e);
}

static int run_collect(struct command *cmd, struct err *e)
{
    struct collect_result result = {0};
    int r = collect(cmd->archive, &result, e);

    cmd->answer = r < 0 ? NULL
                        : json_pack("{s:I, s:I, s:I, s:I}", "objects", (json_int_t)result.objects,
                                    "condemned", (json_int_t)result.condemned, "removed",
                                    (json_int_t)result.removed, "removed_bytes",
                                    (json_int_t)result.removed_bytes);
    return r;
}

#define WANTS_ORGANISATION (1u << 0)
#define WANTS_SANDBOX (1u << 1)
#define WANTS_FILES (1u << 2)
#define OF_ROOT (1u << 3)
#define CHANGES_SANDBOX (1u << 4)

static const struct {
    const char *op;
    unsigned flags;
    int (*run)(struct command *cmd, struct err *e);
} commands[] = {
    {"store", WANTS_ORGANISATION | WANTS_SANDBOX | WANTS_FILES | CHANGES_SANDBOX, run_store},
    {"fetch", WANTS_ORGANISATION | WANTS_SANDBOX | WANTS_FILES, run_fetch},
    {"age", WANTS_ORGANISATION | WANTS_SANDBOX, run_age},
    {"forget", WANTS_ORGANISATION | WANTS_SANDBOX | CHANGES_SANDBOX, run_forget},
    {"ping", 0, run_ping},
    {"metrics", 0, run_metrics},
    {"rotate", WANTS_ORGANISATION | OF_ROOT, run_rotate},
    {"shred", WANTS_ORGANISATION | OF_ROOT, run_shred},
    {"collect", OF_ROOT, run_collect},
};

/* What is counted of them; "metrics" itself is not worth it. */
static const char *const job_labels[] = {"store",  "fetch", "age",     "forget",
                                         "rotate", "shred", "collect", "other"};
static struct metric jobs = {
    .name = "space_volume_job_seconds",
    .help = "What the volume manager was asked for, by operation and outcome.",
    .type = METRIC_HISTOGRAM,
    .labels = {{"operation", job_labels, ARRAY_SIZE(job_labels)}, METRIC_OUTCOMES},
    .quiet = true,
};

void service_metrics_register(void)
{
    metric_register(&jobs);
    store_metrics_register();
    kms_metrics_register();
}

/* Which descriptor is which. */
static int read_files(struct command *cmd, const struct seqpacket_fds *fds, struct err *e)
{
    json_t *files = json_object_get(cmd->body, "files");
    size_t next = 0;

    if (json_array_size(files) == 0 || json_array_size(files) > MANIFEST_FILES_MAX) {
        return err_set(e, -EINVAL, "invalid_field", "'files' must be an array of 1 to %u",
                       MANIFEST_FILES_MAX);
    }
    for (size_t i = 0; i < json_array_size(files); i++) {
        json_t *entry = json_array_get(files, i);
        struct archive_file *f = &cmd->files[i];
        size_t wanted = json_get_bool(entry, "base", false) ? 2 : 1;

        if (!json_is_object(entry) || json_get_string(entry, "name", "")[0] == '\0' ||
            str_copy(f->name, sizeof(f->name), json_get_string(entry, "name", "")) < 0 ||
            fds->n - next < wanted) {
            return err_set(e, -EINVAL, "invalid_field", "file %zu has no name or no descriptor", i);
        }
        f->fd = fds->fd[next];
        f->base_fd = wanted == 2 ? fds->fd[next + 1] : FD_NONE;
        next += wanted;
    }
    cmd->job.files = cmd->files;
    cmd->job.n_files = json_array_size(files);
    return next == fds->n ? 0 : err_set(e, -EINVAL, "invalid_field", "too many descriptors");
}

static int run_in_turn(struct command *cmd, unsigned flags,
                       int (*run)(struct command *cmd, struct err *e), struct err *e)
{
    struct turn turn;
    int r;

    if (!(flags & CHANGES_SANDBOX)) {
        return run(cmd, e);
    }
    r = turn_take(&turn, cmd->job.sandbox, deadline_in_ms(TURN_WAIT_MS), e);
    if (r < 0) {
        return r;
    }
    r = run(cmd, e);
    turn_give(&turn);
    return r;
}

static int run_command(struct command *cmd, const struct seqpacket_fds *fds, uid_t uid,
                       struct err *e)
{
    const char *op = json_get_string(cmd->body, "op", "");

    cmd->job.organisation = json_get_string(cmd->body, "organisation", "");
    cmd->job.sandbox = json_get_string(cmd->body, "sandbox", "");
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        unsigned flags = commands[i].flags;
        int r;

        if (!str_eq(commands[i].op, op)) {
            continue;
        }
        if ((flags & OF_ROOT) && uid != 0) {
            return err_set(e, -EPERM, NULL, "only root may do that");
        }
        if (((flags & WANTS_ORGANISATION) && !id_valid(ID_ORGANISATION, cmd->job.organisation)) ||
            ((flags & WANTS_SANDBOX) && !id_valid(ID_SANDBOX, cmd->job.sandbox))) {
            return err_set(e, -EINVAL, "invalid_field", "an id in the request is no id");
        }
        r = flags & WANTS_FILES ? read_files(cmd, fds, e) : 0;
        return r < 0 ? r : run_in_turn(cmd, flags, commands[i].run, e);
    }
    return err_set(e, -EINVAL, "invalid_request", "there is no operation '%.40s'", op);
}

static json_t *error_answer(const struct err *e)
{
    json_t *answer = json_error_object(e);

    json_object_set_new(json_object_get(answer, "error"), "errno", json_integer(-e->code));
    return answer;
}

static void log_command(const struct command *cmd, int r, const struct err *e)
{
    const char *op = json_get_string(cmd->body, "op", "");
    struct log_ctx log = {.sandbox = cmd->job.sandbox};

    if (r < 0 && r != -ECANCELED && r != -ENOENT) {
        log_warn(&log, "%s: %s", op, e->msg);
    } else {
        log_debug(&log, "%s: %s", op, r < 0 ? e->msg : "done");
    }
}

/* ---- connections ---- */

struct connection {
    const struct service *service; /* borrowed */
    int fd;                        /* owned */
    uid_t uid;
};

static unsigned n_clients;

/* 0: go on; else the connection is to be closed. */
static int serve(const struct connection *c, char *packet)
{
    cleanup_fds struct seqpacket_fds in = {.max = 2 * MANIFEST_FILES_MAX};
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *answer = NULL;
    cleanup_buf struct buf text = BUF_INIT(VOLUME_PACKET_MAX);
    struct command cmd = {.archive = c->service->archive, .job = {.watch_fd = c->fd}};
    struct err e = {0};
    ssize_t n = seqpacket_recv(c->fd, packet, VOLUME_PACKET_MAX, &in, DEADLINE_NEVER);
    struct log_request request = {0};
    uint64_t begun_ns;
    int r;

    if (n < 0) {
        return (int)n;
    }
    if (json_parse_object(packet, (size_t)n, &body, &e) < 0) {
        log_error(NULL, "closing a connection: %s", e.msg);
        return -EPROTO;
    }
    cmd.body = body;
    log_request_identify(&request, json_get_string(body, "request", NULL));
    log_request_set(&request); /* or none: the thread serves one after the other */
    begun_ns = clock_now_ns();
    r = run_command(&cmd, &in, c->uid, &e);
    metric_observe(&jobs,
                   METRIC_AT(metric_index(&jobs, 0, json_get_string(body, "op", "")),
                             metric_outcome(MIN(r, 0))),
                   clock_now_ns() - begun_ns);
    log_command(&cmd, r, &e);
    answer = r < 0 ? error_answer(&e) : cmd.answer ? cmd.answer : json_object();
    r = json_write(answer, &text);
    return r < 0 ? r
                 : seqpacket_send(c->fd, text.data, text.len, NULL, 0,
                                  deadline_in_ms(REPLY_TIMEOUT_MS));
}

static void *connection_main(void *arg)
{
    struct connection *c = arg;
    char *packet = xmalloc(VOLUME_PACKET_MAX);

    while (serve(c, packet) == 0) {
    }
    free(packet);
    fd_close(c->fd);
    free(c);
    __atomic_sub_fetch(&n_clients, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void start(const struct service *service, int fd_take, uid_t uid)
{
    struct connection *c = xnew(struct connection);
    pthread_t thread;

    *c = (struct connection){service, fd_take, uid};
    __atomic_add_fetch(&n_clients, 1, __ATOMIC_RELAXED);
    if (pthread_create(&thread, NULL, connection_main, c) != 0) {
        log_error(NULL, "refusing a connection: no thread for it");
        __atomic_sub_fetch(&n_clients, 1, __ATOMIC_RELAXED);
        fd_close(c->fd);
        free(c);
        return;
    }
    pthread_detach(thread);
}

static void accept_client(const struct service *service)
{
    cleanup_close int fd = FD_NONE;
    struct peer peer;

    if (seqpacket_accept(service->listen_fd, &fd) < 0) {
        return;
    }
    if (sock_peer(fd, &peer) < 0 || (peer.uid != service->peer_uid && peer.uid != 0)) {
        log_warn(NULL, "refusing a connection of user %u (process %d)", peer.uid, peer.pid);
        return;
    }
    if (__atomic_load_n(&n_clients, __ATOMIC_RELAXED) >= SERVICE_CLIENTS_MAX) {
        log_warn(NULL, "refusing a connection: %u are open", SERVICE_CLIENTS_MAX);
        return;
    }
    start(service, TAKE_FD(fd), peer.uid);
}

int service_run(struct service *service, struct err *e)
{
    struct pollfd polls[2] = {{.fd = service->listen_fd, .events = POLLIN},
                              {.fd = service->signal_fd, .events = POLLIN}};

    for (;;) {
        if (poll(polls, ARRAY_SIZE(polls), -1) < 0 && errno != EINTR) {
            return err_wrap(e, -errno, "waiting for requests");
        }
        if (polls[1].revents) {
            return 0;
        }
        if (polls[0].revents) {
            accept_client(service);
        }
    }
}

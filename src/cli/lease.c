/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/lease.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"

struct lease {
    struct http_client *client; /* owned */
    char *target;               /* owned */
    int stop_fd;                /* owned */
    pthread_t thread;
    bool running;
};

static int lease_renew(const struct lease *l)
{
    const struct pollfd watch = {.fd = l->stop_fd, .events = POLLIN};
    cleanup_json json_t *body = json_pack("{s:i}", "timeout_s", (int)LEASE_S);
    struct err e = {0};

    return http_client_json(
        l->client,
        &(struct http_json_opts){.method = "PATCH",
                                 .target = l->target,
                                 .body = body,
                                 .watch = &watch,
                                 .deadline_ns = deadline_in_ms(LEASE_RETRY_MS / 2)},
        /* ret */ NULL, &e);
}

static void *lease_main(void *arg)
{
    const struct lease *l = arg;
    struct pollfd p = {.fd = l->stop_fd, .events = POLLIN};
    uint64_t next_ns = deadline_in_ms(LEASE_RENEW_MS);

    for (;;) {
        int r = poll(&p, 1, deadline_poll_ms(next_ns));

        if (r > 0) {
            return NULL;
        }
        if (deadline_passed(next_ns)) {
            /* A service that is restarting answers a little later; the lease is long enough for many tries. */
            next_ns = deadline_in_ms(lease_renew(l) == 0 ? LEASE_RENEW_MS : LEASE_RETRY_MS);
        }
    }
}

int lease_start(const struct cli *cli, const char *sandbox, struct lease **ret, struct err *e)
{
    CLEANUP(lease_stopp) struct lease *l = xnew(struct lease);
    int r;

    l->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->stop_fd < 0) {
        return err_wrap(e, -errno, "keeping the sandbox");
    }
    l->target = xasprintf("/v1/sandboxes/%s", sandbox);
    r = cli_client(cli, &l->client, e);
    if (r < 0) {
        return r;
    }
    r = -pthread_create(&l->thread, /* attr */ NULL, lease_main, l);
    if (r < 0) {
        return err_wrap(e, r, "keeping the sandbox");
    }
    l->running = true;
    *ret = TAKE_PTR(l);
    return 0;
}

void lease_stop(struct lease *l)
{
    uint64_t one = 1;

    if (!l) {
        return;
    }
    if (l->running) {
        if (write(l->stop_fd, &one, sizeof(one)) < 0) {
            /* An eventfd that takes no more is readable already. */
            ASSERT(errno == EAGAIN);
        }
        pthread_join(l->thread, /* ret */ NULL);
    }
    http_client_free(l->client);
    fd_close(l->stop_fd);
    free(l->target);
    free(l);
}

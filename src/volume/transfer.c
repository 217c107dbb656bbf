/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/transfer-internal.h"

#include <poll.h>
#include <stdio.h>

void transfer_chunk_key(const char *organisation, const char *name,
                        char ret[static STORE_KEY_MAX + 1])
{
    snprintf(ret, STORE_KEY_MAX + 1, "%s/chunks/%s", organisation, name);
}

void crew_init(struct crew *crew, const struct transfer *t)
{
    *crew = (struct crew){.t = t};
    ASSERT(pthread_mutex_init(&crew->lock, NULL) == 0);
    ASSERT(pthread_cond_init(&crew->changed, NULL) == 0);
}

void crew_done(struct crew *crew)
{
    pthread_cond_destroy(&crew->changed);
    pthread_mutex_destroy(&crew->lock);
}

void crew_start(struct crew *crew, void *(*main)(void *), void *arg)
{
    unsigned wanted = crew->t->threads ? crew->t->threads : TRANSFER_THREADS;

    wanted = MIN(wanted, TRANSFER_THREADS_MAX);
    while (crew->n_threads < wanted) {
        ASSERT(pthread_create(&crew->threads[crew->n_threads], NULL, main, arg) == 0);
        crew->n_threads++;
    }
}

void crew_join(struct crew *crew)
{
    for (unsigned i = 0; i < crew->n_threads; i++) {
        pthread_join(crew->threads[i], NULL);
    }
    crew->n_threads = 0;
}

void crew_fail(struct crew *crew, int r, const struct err *why)
{
    ASSERT(r < 0);
    pthread_mutex_lock(&crew->lock);
    if (crew->error == 0) {
        crew->error = r;
        crew->why = *why;
    }
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
}

int transfer_watch(const struct transfer *t, struct err *e)
{
    struct pollfd p = {.fd = t->watch_fd, .events = POLLRDHUP};

    if (t->watch_fd >= 0 && poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR))) {
        return err_set(e, -ECANCELED, "client_gone", "who asked for the transfer has gone");
    }
    return 0;
}

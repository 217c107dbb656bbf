/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/e2b/live.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

struct live {
    struct live_set *set; /* borrowed: lives longer */
    char sandbox[ID_SIZE];
    int event_fd; /* owned: counts once it is cut */
    int watch_fd; /* owned: epoll over the above and the client */
    atomic_bool cut;
    struct live *next;
    struct live *prev;
};

struct live_set {
    pthread_mutex_t mutex; /* guards the list */
    struct live *first;    /* borrowed: each belongs to its request */
};

struct live_set *live_set_new(void)
{
    struct live_set *set = xnew(struct live_set);

    pthread_mutex_init(&set->mutex, NULL);
    return set;
}

void live_set_free(struct live_set *set)
{
    if (set) {
        ASSERT(!set->first);
        pthread_mutex_destroy(&set->mutex);
        free(set);
    }
}

static int watch(struct live *l, const struct pollfd *client)
{
    struct epoll_event ev = {.events = EPOLLIN};

    l->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->watch_fd = epoll_create1(EPOLL_CLOEXEC);
    if (l->event_fd < 0 || l->watch_fd < 0 ||
        epoll_ctl(l->watch_fd, EPOLL_CTL_ADD, l->event_fd, &ev) < 0) {
        return -errno;
    }
    ev.events = (uint32_t)client->events; /* poll and epoll share these bits on Linux */
    return epoll_ctl(l->watch_fd, EPOLL_CTL_ADD, client->fd, &ev) < 0 ? -errno : 0;
}

static void live_free(struct live *l)
{
    fd_close(l->event_fd);
    fd_close(l->watch_fd);
    free(l);
}

int live_enter(struct live_set *set, struct http_request *req, const char *sandbox,
               struct live **ret, struct err *e)
{
    struct live *l = xnew(struct live);
    struct pollfd client = http_client_pollfd(req);
    int r;

    ASSERT(set && sandbox && ret);
    l->set = set;
    l->event_fd = FD_NONE;
    l->watch_fd = FD_NONE;
    snprintf(l->sandbox, sizeof(l->sandbox), "%s", sandbox);
    r = watch(l, &client);
    if (r < 0) {
        live_free(l);
        return err_wrap(e, r, "watching the client");
    }
    pthread_mutex_lock(&set->mutex);
    l->next = set->first;
    if (l->next) {
        l->next->prev = l;
    }
    set->first = l;
    pthread_mutex_unlock(&set->mutex);
    *ret = l;
    return 0;
}

void live_leave(struct live *l)
{
    pthread_mutex_lock(&l->set->mutex);
    if (l->prev) {
        l->prev->next = l->next;
    } else {
        l->set->first = l->next;
    }
    if (l->next) {
        l->next->prev = l->prev;
    }
    pthread_mutex_unlock(&l->set->mutex);
    live_free(l);
}

struct pollfd live_pollfd(const struct live *l)
{
    return (struct pollfd){.fd = l->watch_fd, .events = POLLIN};
}

bool live_is_cut(const struct live *l)
{
    return atomic_load(&l->cut);
}

void live_cut(struct live_set *set, const char *sandbox)
{
    pthread_mutex_lock(&set->mutex);
    for (struct live *l = set->first; l; l = l->next) {
        if (str_eq(l->sandbox, sandbox)) {
            atomic_store(&l->cut, true);
            IGNORE_RESULT(eventfd_write(l->event_fd, 1)); /* a counter that is full wakes, too */
        }
    }
    pthread_mutex_unlock(&set->mutex);
}

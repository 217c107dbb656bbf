/* SPDX-License-Identifier: Apache-2.0 */
#include "network/hold.h"

#include "base/clock.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct hold {
    struct hold *next; /* of its island */
    struct hold_place place;
    struct ask_what what; /* its strings are owned */
    int event_fd;         /* owned: there is an answer */
    enum netpolicy_action answer;
    int refs; /* atomic: the waiting thread and the worker */
};

static void unref(struct hold *h)
{
    if (__atomic_sub_fetch(&h->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        fd_close(h->event_fd);
        free((char *)(uintptr_t)h->what.name);
        free((char *)(uintptr_t)h->what.method);
        free((char *)(uintptr_t)h->what.path);
        free(h);
    }
}

/* The worker is done with it. */
static void finish(struct hold *h, enum netpolicy_action answer)
{
    h->answer = answer;
    IGNORE_RESULT(eventfd_write(h->event_fd, 1)); /* the first and only one */
    unref(h);
}

static void begin(void *arg)
{
    struct hold *h = arg;
    struct island *island = h->place.island_of(h->place.arg);
    enum netpolicy_action answer = island ? island_ask(island, &h->what) : NETPOLICY_DENY;

    if (answer == NETPOLICY_ASK) {
        h->next = island->holds;
        island->holds = h;
    } else {
        finish(h, answer);
    }
}

enum netpolicy_action hold_wait(const struct hold_place *place, const struct ask_what *what,
                                int stop_fd)
{
    struct hold *h;
    struct pollfd p[2] = {{.events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
    enum netpolicy_action answer = NETPOLICY_DENY;
    int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

    if (event_fd < 0 || strlen(what->path) > HOLD_PATH_MAX) {
        fd_close(event_fd);
        return NETPOLICY_DENY;
    }
    h = xnew(struct hold);
    h->place = *place;
    h->what = *what;
    h->what.name = what->name ? xstrdup(what->name) : NULL;
    h->what.method = xstrdup(what->method);
    h->what.path = xstrdup(what->path);
    h->event_fd = p[0].fd = event_fd;
    h->refs = 2;
    worker_post(place->worker, begin, h);
    while (poll(p, 2, -1) < 0 && errno == EINTR) {
    }
    if (p[0].revents) {
        answer = h->answer;
    }
    unref(h);
    return answer;
}

void hold_asks_changed(struct island *island)
{
    struct hold *list = island->holds;

    island->holds = NULL;
    while (list) {
        struct hold *h = list;
        enum netpolicy_action answer = island_ask(island, &h->what);

        list = h->next;
        if (answer == NETPOLICY_ASK) {
            h->next = island->holds;
            island->holds = h;
        } else {
            finish(h, answer);
        }
    }
}

void hold_end_all(struct island *island)
{
    while (island->holds) {
        struct hold *h = island->holds;

        island->holds = h->next;
        finish(h, NETPOLICY_DENY);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/network.h"

#include "base/clock.h"
#include "base/log.h"
#include "ipc/netgate.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Between tries to reach a gateway that is not there; it is back within a second where it is supervised. */
#define RETRY_MS 250
/* Often enough that a stop of the service need not be woken for. */
#define WATCH_MS 500

struct network {
    struct node *node; /* borrowed */
    pthread_t thread;
    struct netgate *watched; /* owned: a connection of its own, which only says when it ends */
    bool stopping;           /* atomic */
};

/* What is to be handed over, read under the resident's lock. */
struct wish {
    bool has_machine;
    char machine[ID_SIZE];
    const struct netpolicy *policy; /* owned: a reference; NULL: none */
};

static void wish_read(struct resident *res, struct wish *ret)
{
    pthread_mutex_lock(&res->lock);
    ret->has_machine = res->record.has_machine && !res->gone;
    memcpy(ret->machine, res->record.machine.id, sizeof(ret->machine));
    ret->policy = res->record.network ? netpolicy_ref(res->record.network) : NULL;
    pthread_mutex_unlock(&res->lock);
}

static bool wish_is_open(const struct wish *wish)
{
    return wish->has_machine && wish->policy && !netpolicy_is_closed(wish->policy);
}

const struct netpolicy *network_policy(struct resident *res)
{
    struct wish wish;

    wish_read(res, &wish);
    return wish.policy ? wish.policy : netpolicy_none();
}

static int hand_over(struct resident *res, const struct wish *wish, struct err *e)
{
    struct node *node = res->node;
    cleanup_close int tcp_fd = FD_NONE;
    cleanup_close int dns_fd = FD_NONE;
    int fds[2];
    int r = priv_machine_socket(node->host.priv, wish->machine, PRIV_SOCKET_TCP, &tcp_fd, e);

    if (r == 0) {
        r = priv_machine_socket(node->host.priv, wish->machine, PRIV_SOCKET_DNS, &dns_fd, e);
    }
    if (r < 0) {
        return r;
    }
    fds[0] = tcp_fd;
    fds[1] = dns_fd;
    return netgate_call_take(node->netgate,
                             json_pack("{s:s, s:s, s:s, s:s, s:s, s:O}", "op", "attach", "sandbox",
                                       res->record.id, "machine", wish->machine, "project",
                                       res->record.project, "organisation", res->record.org,
                                       "policy", netpolicy_json(wish->policy)),
                             fds, ARRAY_SIZE(fds), NULL, e);
}

static void take_back(struct resident *res, const char *machine)
{
    struct err e = {0};

    if (netgate_call_take(res->node->netgate,
                          json_pack("{s:s, s:s, s:s}", "op", "detach", "sandbox", res->record.id,
                                    "machine", machine),
                          NULL, 0, NULL, &e) < 0) {
        log_debug(&(struct log_ctx){.sandbox = res->record.id}, "%s", e.msg);
    }
}

static bool same_machine(struct resident *res, const char *machine)
{
    struct wish now;

    wish_read(res, &now);
    netpolicy_unref(now.policy);
    return now.has_machine && str_eq(now.machine, machine);
}

void network_attach(struct resident *res)
{
    const struct log_ctx log = {.sandbox = res->record.id};
    struct err e = {0};
    struct wish wish;

    wish_read(res, &wish);
    if (wish_is_open(&wish)) {
        if (hand_over(res, &wish, &e) < 0) {
            log_warn(&log, "no network yet, retrying: %s", e.msg);
            __atomic_store_n(&res->node->network_dirty, true, __ATOMIC_RELAXED);
        } else if (!same_machine(res, wish.machine)) {
            take_back(res, wish.machine); /* it has ended meanwhile */
        }
    }
    netpolicy_unref(wish.policy);
}

void network_detach(struct resident *res)
{
    struct wish wish;

    wish_read(res, &wish);
    if (wish_is_open(&wish)) {
        take_back(res, wish.machine);
    }
    netpolicy_unref(wish.policy);
}

int network_set_policy(struct resident *res, const struct netpolicy *policy, struct err *e)
{
    const struct netpolicy *before;
    struct wish old;
    int r;

    wish_read(res, &old);
    pthread_mutex_lock(&res->lock);
    before = res->record.network;
    res->record.network = netpolicy_ref(policy);
    r = record_write(res->node->records_fd, &res->record, RECORD_SURVIVES_HOST);
    pthread_mutex_unlock(&res->lock);
    netpolicy_unref(before);
    if (wish_is_open(&old) && netpolicy_is_closed(policy)) {
        take_back(res, old.machine);
    } else {
        network_attach(res);
    }
    netpolicy_unref(old.policy);
    return r < 0 ? err_wrap(e, r, "writing the record") : 0;
}

int network_ask_take(struct resident *res, const char *op, json_t *extra, json_t **ret,
                     struct err *e)
{
    json_t *request = extra ? extra : json_object();

    json_object_set_new(request, "op", json_string(op));
    json_object_set_new(request, "sandbox", json_string(res->record.id));
    return netgate_call_take(res->node->netgate, request, NULL, 0, ret, e);
}

/* ---- the watch ---- */

static void go_through_all(struct network *n)
{
    json_t *ids = json_array();
    struct err e = {0};

    for (struct resident *res = resident_next_take(n->node, NULL); res;
         res = resident_next_take(n->node, res)) {
        struct wish wish;

        wish_read(res, &wish);
        if (wish_is_open(&wish)) {
            json_array_append_new(ids, json_string(res->record.id));
            network_attach(res);
        }
        netpolicy_unref(wish.policy);
    }
    if (netgate_call_take(n->node->netgate, json_pack("{s:s, s:o}", "op", "keep", "sandboxes", ids),
                          NULL, 0, NULL, &e) < 0) {
        __atomic_store_n(&n->node->network_dirty, true, __ATOMIC_RELAXED);
    }
}

static void *watch(void *arg)
{
    const struct timespec pause = {.tv_nsec = RETRY_MS * (long)NS_PER_MS};
    struct network *n = arg;
    bool there = false;

    while (!__atomic_load_n(&n->stopping, __ATOMIC_RELAXED)) {
        struct err e = {0};
        int r = netgate_watch(n->watched, deadline_in_ms(there ? WATCH_MS : 0), &e);
        bool dirty = __atomic_exchange_n(&n->node->network_dirty, false, __ATOMIC_RELAXED);

        if (r == -ETIMEDOUT && (!there || dirty)) {
            if (!there) {
                log_info(NULL, "the network gateway is there");
            }
            there = true;
            go_through_all(n);
        } else if (r != -ETIMEDOUT) {
            if (there) {
                log_warn(NULL, "the network gateway is gone, waiting for it");
            }
            there = false;
            nanosleep(&pause, NULL); /* banned: nothing to wait on before it listens */
        }
    }
    return NULL;
}

struct network *network_start(struct node *node)
{
    struct network *n = xnew(struct network);
    cleanup_free char *path = xasprintf("%s/" NETGATE_SOCKET, node->run_dir);

    n->node = node;
    n->watched = netgate_new(path);
    ASSERT(pthread_create(&n->thread, NULL, watch, n) == 0);
    return n;
}

void network_stop(struct network *n)
{
    if (n) {
        __atomic_store_n(&n->stopping, true, __ATOMIC_RELAXED);
        pthread_join(n->thread, NULL);
        netgate_free(n->watched);
        free(n);
    }
}

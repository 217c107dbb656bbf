/* SPDX-License-Identifier: Apache-2.0 */
/* The lease as the sandbox manager keeps it, with a node manager that is a thread of this test and knows only leases. */
#include "base/clock.h"
#include "base/fs.h"
#include "base/sock.h"
#include "base/test.h"
#include "ipc/seqpacket.h"
#include "sandbox/tenure.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOON_MS 20000

struct world {
    char dir[40];
    int listen_fd; /* owned */
    pthread_t thread;
    bool known; /* atomic, like the next one: what the node manager remembers */
    uint64_t until_ns;
    struct node node;
    struct tenure *tenure; /* owned */
};

static int32_t judge(struct world *w, const struct priv_lease *l)
{
    if (!(l->flags & PRIV_LEASE_IF_UNKNOWN)) {
        __atomic_store_n(&w->until_ns, l->until_ns, __ATOMIC_RELAXED);
    } else if (!__atomic_load_n(&w->known, __ATOMIC_RELAXED)) {
        __atomic_store_n(&w->until_ns, 1, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&w->known, true, __ATOMIC_RELAXED);
    return w->until_ns > 0 && clock_boot_ns() >= w->until_ns;
}

static void *node_manager(void *arg)
{
    struct world *w = arg;
    int fd;

    while ((fd = accept4(w->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        for (;;) {
            char packet[sizeof(struct priv_header) + PRIV_BODY_MAX];
            cleanup_fds struct seqpacket_fds in = {.max = 1};
            struct priv_reply reply = {.magic = PRIV_MAGIC};
            struct priv_lease lease;
            ssize_t n = seqpacket_recv(fd, packet, sizeof(packet), &in, DEADLINE_NEVER);

            if (n != (ssize_t)(sizeof(struct priv_header) + sizeof(lease))) {
                break;
            }
            memcpy(&lease, packet + sizeof(struct priv_header), sizeof(lease));
            reply.code = judge(w, &lease);
            ASSERT(seqpacket_send(fd, &reply, sizeof(reply), NULL, 0, deadline_in_ms(SOON_MS)) ==
                   0);
        }
        close(fd);
    }
    return NULL;
}

static void open_tenure(struct world *w)
{
    ASSERT(tenure_open(&w->node, &w->tenure, NULL) == 0);
}

static void world_init(struct world *w)
{
    cleanup_free char *socket = NULL;

    *w = (struct world){0};
    snprintf(w->dir, sizeof(w->dir), "/tmp/space-tenure-XXXXXX");
    ASSERT(mkdtemp(w->dir));
    socket = xasprintf("%s/socket", w->dir);
    w->listen_fd = sock_listen_unix(socket, SOCK_SEQPACKET, 0600, NULL);
    ASSERT(w->listen_fd >= 0);
    ASSERT(pthread_create(&w->thread, NULL, node_manager, w) == 0);
    w->node.pool_fd = fs_open(w->dir, O_RDONLY | O_DIRECTORY, 0);
    w->node.host.priv = priv_client_new(socket);
    open_tenure(w);
}

static void world_done(struct world *w)
{
    cleanup_close int tmp_fd = fs_open("/tmp", O_RDONLY | O_DIRECTORY, 0);

    tenure_close(w->tenure);
    priv_client_free(w->node.host.priv);
    shutdown(w->listen_fd, SHUT_RDWR);
    pthread_join(w->thread, NULL);
    fd_close(w->listen_fd);
    fd_close(w->node.pool_fd);
    IGNORE_RESULT(fs_remove_tree(tmp_fd, w->dir + strlen("/tmp/"))); /* only rubbish stays */
}
#define WORLD(w_) \
    CLEANUP(world_done) struct world w_; \
    world_init(&w_)

static void restart(struct world *w)
{
    tenure_close(w->tenure);
    open_tenure(w);
}

/* As a gateway does it: with the stamp that the node tells. */
static int grant(struct world *w, int64_t for_ms)
{
    cleanup_json json_t *said = tenure_json(w->tenure);
    struct lease_grant g = {.stamp_ms = json_get_int(said, "stamp_ms", -1), .for_ms = for_ms};

    snprintf(g.epoch, sizeof(g.epoch), "%s", json_get_string(said, "epoch", ""));
    return tenure_grant(w->tenure, &g, NULL);
}

static bool becomes_fenced(struct world *w)
{
    uint64_t deadline_ns = deadline_in_ms(SOON_MS);

    while (!tenure_fenced(w->tenure) && !deadline_passed(deadline_ns)) {
        sched_yield();
    }
    return tenure_fenced(w->tenure);
}

static void a_node_of_its_own_is_never_fenced(void)
{
    WORLD(w);
    cleanup_json json_t *said = tenure_json(w.tenure);

    CHECK(!json_get_bool(said, "leased", true) && !json_get_bool(said, "fenced", true));
    CHECK(!w.known); /* nobody has told the node manager anything */
    restart(&w);
    CHECK(!tenure_fenced(w.tenure));
    CHECK(!tenure_fenced(NULL));
}

static void a_lease_ends_by_itself_and_can_be_renewed(void)
{
    WORLD(w);

    CHECK_INT(grant(&w, 50), 0);
    CHECK(becomes_fenced(&w));
    CHECK_INT(grant(&w, lease_node_ms()), 0);
    CHECK(!tenure_fenced(w.tenure));
    CHECK_INT(grant(&w, 50), 0); /* overtaken by a longer one */
    CHECK(!tenure_fenced(w.tenure));
}

static void after_a_start_it_stands_still_unless_its_lease_goes_on(void)
{
    WORLD(w);

    CHECK_INT(grant(&w, lease_node_ms()), 0);
    restart(&w);
    CHECK(!tenure_fenced(w.tenure)); /* the node manager knows */
    __atomic_store_n(&w.known, false, __ATOMIC_RELAXED);
    restart(&w); /* the host was started: nobody knows */
    CHECK(tenure_fenced(w.tenure));
    CHECK_INT(grant(&w, lease_node_ms()), 0);
    CHECK(!tenure_fenced(w.tenure));
}

static void what_was_granted_before_a_start_is_over(void)
{
    WORLD(w);
    cleanup_json json_t *said = tenure_json(w.tenure);
    struct lease_grant g = {.stamp_ms = json_get_int(said, "stamp_ms", -1), .for_ms = 1000};
    struct err e = {0};

    snprintf(g.epoch, sizeof(g.epoch), "%s", json_get_string(said, "epoch", ""));
    restart(&w);
    CHECK_INT(tenure_grant(w.tenure, &g, &e), -ESTALE);
    CHECK_STR(e.reason, "lease_stale");
    CHECK(!w.known); /* and it is not leased by that */
}

static void a_node_that_leaves_goes_on(void)
{
    WORLD(w);

    CHECK_INT(grant(&w, 10), 0);
    CHECK(becomes_fenced(&w));
    CHECK_INT(tenure_end(w.tenure, NULL), 0);
    CHECK(!tenure_fenced(w.tenure));
    CHECK_INT(tenure_end(w.tenure, NULL), 0);
    __atomic_store_n(&w.known, false, __ATOMIC_RELAXED);
    restart(&w);
    CHECK(!tenure_fenced(w.tenure));
}

TEST_MAIN(T(a_node_of_its_own_is_never_fenced), T(a_lease_ends_by_itself_and_can_be_renewed),
          T(after_a_start_it_stands_still_unless_its_lease_goes_on),
          T(what_was_granted_before_a_start_is_over), T(a_node_that_leaves_goes_on))

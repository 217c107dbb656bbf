/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Leases of nodes, between a gateway, its database and nodes that are fake. Time is the test's: rounds are told what the
 * monotonic clock says, and leases in the database are made short where one has to end.
 */
#include "control/keeper.h"
#include "model/lease.h"
#include "nodes.h"

#include <stdio.h>
#include <string.h>

struct kept {
    struct nodes t;
    struct keeper *keeper; /* owned */
    uint64_t now_ms;
};

/* A member as an operator adds it: nothing is known of it. */
static void add(struct kept *k, int i)
{
    struct node_row row = {.leased = true};

    snprintf(row.name, sizeof(row.name), "%s", nodes_names[i]);
    snprintf(row.address, sizeof(row.address), "unix:%s", k->t.socket[i]);
    ASSERT(db_node_put(k->t.w.db, &row, NULL) == 0);
    ASSERT(control_read_nodes(k->t.w.control, NULL) == 0);
}

static void kept_init(struct kept *k)
{
    nodes_init(&k->t);
    k->now_ms = 1000000;
    for (int i = 0; i < NODES; i++) {
        add(k, i);
    }
    k->keeper = keeper_new(k->t.w.control, /* fresh_ms */ 0); /* the database's clock is not ours */
}

static void kept_done(struct kept *k)
{
    keeper_free(k->keeper);
    nodes_done(&k->t);
}
#define KEPT(k_) \
    CLEANUP(kept_done) struct kept k_ = {0}; \
    kept_init(&k_)

static void row_of(struct kept *k, int i, struct node_row *ret)
{
    ASSERT(db_node_get(k->t.w.db, nodes_names[i], ret, NULL) == 0);
}

/* One round, that much later. */
static void later(struct kept *k, uint64_t ms)
{
    k->now_ms += ms;
    CHECK_INT(keeper_round(k->keeper, k->now_ms, NULL), 0);
    keeper_settle(k->keeper);
    ASSERT(control_read_nodes(k->t.w.control, NULL) == 0);
}

static bool is_lost(struct kept *k, int i)
{
    cleanup_node_row struct node_row row = {0};

    row_of(k, i, &row);
    return row.lost;
}

/* What the database has of its lease ends in a moment. */
static void shorten(struct kept *k, int i)
{
    cleanup_node_row struct node_row row = {0};
    uint64_t deadline_ns = deadline_in_ms(TEST_MS);

    row_of(k, i, &row);
    ASSERT(db_node_renew(k->t.w.db, &row, 1, NULL) == 0);
    do {
        node_row_done(&row);
        row_of(k, i, &row);
    } while (row.left_ms >= 0 && !deadline_passed(deadline_ns));
    ASSERT(row.left_ms < 0);
}

/* It cannot be reached until its lease is over. */
static void vanish(struct kept *k, int i)
{
    fake_node_silence(k->t.node[i], true);
    fake_node_fence(k->t.node[i]); /* by its own clock, before anybody may say that it is lost */
    shorten(k, i);
    later(k, LEASE_RENEW_MS);
    CHECK(!is_lost(k, i)); /* our own clock has not seen enough yet */
    later(k, LEASE_MS);
    CHECK(is_lost(k, i));
}

static void what_nodes_tell_is_written_and_they_are_granted(void)
{
    KEPT(k);
    cleanup_node_row struct node_row row = {0};

    later(&k, 0);
    row_of(&k, 1, &row);
    CHECK(row.id[0] && row.told && strstr(row.told, "tcg") && !strstr(row.told, "epoch"));
    CHECK_INT(row.capacity.vcpus, 4);
    CHECK_INT(row.capacity.memory_mib, 1000);
    CHECK_INT(row.capacity.warm, 3);
    CHECK_INT(row.renewals, 1);
    CHECK(row.left_ms > LEASE_MS / 2 && row.left_ms <= LEASE_MS);
    for (int i = 0; i < NODES; i++) {
        CHECK_INT(fake_node_grants(k.t.node[i]), 1);
    }
    later(&k, 1000); /* not due */
    CHECK_INT(fake_node_grants(k.t.node[1]), 1);
}

static void what_another_gateway_has_heard_is_not_asked_again(void)
{
    KEPT(k);
    CLEANUP(keeper_freep) struct keeper *other = keeper_new(k.t.w.control, KEEPER_FRESH_MS);

    later(&k, 0);
    CHECK_INT(keeper_round(other, k.now_ms, NULL), 0);
    keeper_settle(other);
    CHECK_INT(fake_node_grants(k.t.node[1]), 1);
}

static void a_node_that_is_not_leased_tells_but_is_granted_nothing(void)
{
    KEPT(k);
    cleanup_node_row struct node_row row = {0};

    row_of(&k, 2, &row);
    row.leased = false;
    ASSERT(db_node_put(k.t.w.db, &row, NULL) == 0);
    later(&k, 0);
    node_row_done(&row);
    row_of(&k, 2, &row);
    CHECK(row.told_ago_ms >= 0);
    CHECK_INT(fake_node_grants(k.t.node[2]), 0);
    fake_node_silence(k.t.node[2], true);
    later(&k, LEASE_RENEW_MS);
    later(&k, 2 * LEASE_MS);
    CHECK(!is_lost(&k, 2));
}

static void another_node_under_a_known_name_is_not_kept(void)
{
    KEPT(k);
    cleanup_node_row struct node_row row = {0};

    row_of(&k, 1, &row);
    snprintf(row.id, sizeof(row.id), "somebody else");
    ASSERT(db_node_put(k.t.w.db, &row, NULL) == 0);
    later(&k, 0);
    CHECK_INT(fake_node_grants(k.t.node[1]), 0);
    CHECK_INT(fake_node_grants(k.t.node[2]), 1);
}

static void check_metrics(struct kept *k, const char *want)
{
    cleanup_answer struct answer a = alice(&k->t.w, "GET", "/metrics", NULL);

    CHECK_INT(a.status, 200);
    CHECK(a.text && strstr(a.text, want));
}

static void a_silent_node_is_lost_once_both_clocks_say_so(void)
{
    KEPT(k);

    later(&k, 0);
    check_metrics(&k, "space_nodes{health=\"alive\"} 3\n");
    vanish(&k, 1);
    CHECK(!is_lost(&k, 0) && !is_lost(&k, 2));
    check_metrics(&k, "space_nodes{health=\"lost\"} 1\n");
}

static void a_renewal_by_another_gateway_keeps_it_alive(void)
{
    KEPT(k);
    cleanup_node_row struct node_row row = {0};

    later(&k, 0);
    fake_node_silence(k.t.node[1], true); /* for this gateway */
    shorten(&k, 1);
    later(&k, LEASE_RENEW_MS);
    row_of(&k, 1, &row);
    ASSERT(db_node_renew(k.t.w.db, &row, LEASE_MS, NULL) == 0);
    later(&k, LEASE_MS);
    CHECK(!is_lost(&k, 1));
}

static void one_that_was_never_heard_of_is_not_lost(void)
{
    KEPT(k);

    fake_node_silence(k.t.node[1], true);
    later(&k, 0);
    later(&k, LEASE_RENEW_MS);
    later(&k, 10 * LEASE_MS);
    CHECK(!is_lost(&k, 1));
}

/* The whole circle: what it ran goes on elsewhere, and it runs nothing before it has given that up. */
static void a_lost_node_comes_back_without_what_is_elsewhere(void)
{
    KEPT(k);
    char id[ID_SIZE];
    char never[ID_SIZE];
    unsigned grants;

    later(&k, 0);
    nodes_tell(&k.t, 0, true, SCHEDULE_ACTIVE);
    nodes_tell(&k.t, 1, true, SCHEDULE_ACTIVE);
    world_make(&k.t.w, ALICE, id);
    world_make(&k.t.w, ALICE, never);
    CHECK_INT(nodes_post(&k.t, id, "/suspend", NULL), 200); /* so that it is stored */
    CHECK_INT(nodes_post(&k.t, id, "/resume", NULL), 200);
    CHECK_INT(nodes_where(&k.t, id), 0);
    vanish(&k, 0);
    nodes_tell(&k.t, 1, true, SCHEDULE_ACTIVE);
    fake_node_fault(k.t.node[0], FAKE_LIST, FAKE_ERROR);
    ASSERT(control_evacuate(k.t.w.control, NULL) == 0);
    CHECK_INT(nodes_row(&k.t, id), 1);
    CHECK(fake_node_has(k.t.node[1], id) &&
          fake_node_has(k.t.node[0], id)); /* which stands still */

    grants = fake_node_grants(k.t.node[0]);
    fake_node_silence(k.t.node[0], false);
    later(&k, LEASE_RENEW_MS); /* it says what it is, not what it has: nobody grants it anything */
    CHECK(is_lost(&k, 0));
    CHECK_INT(fake_node_grants(k.t.node[0]), grants);
    fake_node_fault(k.t.node[0], FAKE_LIST, FAKE_FINE);
    fake_node_fault(k.t.node[0], FAKE_DELETE, FAKE_ERROR);
    later(&k, LEASE_RENEW_MS); /* nor as long as it still has what is elsewhere */
    CHECK(is_lost(&k, 0));
    CHECK_INT(fake_node_grants(k.t.node[0]), grants);
    fake_node_fault(k.t.node[0], FAKE_DELETE, FAKE_FINE);
    later(&k, LEASE_RENEW_MS);
    CHECK(!is_lost(&k, 0));
    CHECK(!fake_node_has(k.t.node[0], id) && fake_node_has(k.t.node[0], never));
    CHECK(fake_store_has(id));
    CHECK_INT(fake_node_grants(k.t.node[0]), grants); /* it is granted by who has looked again */
    later(&k, LEASE_RENEW_MS);
    CHECK_INT(fake_node_grants(k.t.node[0]), grants + 1);
}

/* Its row never was lost: all gateways were away, say. */
static void a_fenced_node_is_granted_after_a_look_at_what_it_has(void)
{
    KEPT(k);

    later(&k, 0);
    fake_node_fence(k.t.node[2]);
    fake_node_set(k.t.node[2], "s0000000000000000001", "running");
    fake_node_fault(k.t.node[2], FAKE_DELETE, FAKE_ERROR);
    later(&k, LEASE_RENEW_MS);
    CHECK_INT(fake_node_grants(k.t.node[2]), 1);
    fake_node_fault(k.t.node[2], FAKE_DELETE, FAKE_FINE);
    later(&k, LEASE_RENEW_MS);
    CHECK_INT(fake_node_grants(k.t.node[2]), 2);
    CHECK(!fake_node_has(k.t.node[2], "s0000000000000000001"));
}

TEST_MAIN(T(what_nodes_tell_is_written_and_they_are_granted),
          T(what_another_gateway_has_heard_is_not_asked_again),
          T(a_node_that_is_not_leased_tells_but_is_granted_nothing),
          T(another_node_under_a_known_name_is_not_kept),
          T(a_silent_node_is_lost_once_both_clocks_say_so),
          T(a_renewal_by_another_gateway_keeps_it_alive),
          T(one_that_was_never_heard_of_is_not_lost),
          T(a_lost_node_comes_back_without_what_is_elsewhere),
          T(a_fenced_node_is_granted_after_a_look_at_what_it_has))

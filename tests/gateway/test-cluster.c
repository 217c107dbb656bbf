/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Random histories of a cluster: one or, over a database that can be shared, two gateways, three nodes that are cut off, stand
 * still, are lost and come back, answers that get lost, gateways that die; and requests of clients all the while, two at a time.
 *
 * After each step nothing runs twice. In the end, when all are back and have settled: what was acknowledged is there, once, where
 * its row says; what was deleted is nowhere; nothing is left over.
 *
 * A history follows from its seed but for how two requests at once fall. TEST_SEED=N plays one, TEST_SEEDS=N that many from 1 on.
 */
#include "control/keeper.h"
#include "model/lease.h"
#include "nodes.h"

#include <stdio.h>
#include <string.h>

#define STEPS 120
#define KNOWN_MAX 64
#define SETTLE_ROUNDS 12

struct known {
    char id[ID_SIZE];
    bool deleting; /* asked for; may or may not have been done */
    bool deleted;  /* acknowledged */
};

enum condition {
    WELL,
    CUT,
    GONE
};

struct cluster {
    struct nodes t; /* with the first gateway */
    struct world second;
    bool two;
    struct keeper *keeper[2]; /* owned */
    uint64_t now_ms;
    enum condition condition[NODES];
    struct known known[KNOWN_MAX];
    size_t n_known;
    unsigned seed;
    unsigned state;
    unsigned step;
};

static unsigned chance(struct cluster *k, unsigned below)
{
    k->state = k->state * 1103515245u + 12345u;
    return (k->state >> 16) % below;
}

static struct world *gateway(struct cluster *k, unsigned i)
{
    return i == 1 && k->two ? &k->second : &k->t.w;
}

static struct world *any_gateway(struct cluster *k)
{
    return gateway(k, chance(k, 2));
}

/* ---- coming and going ---- */

static void read_nodes(struct cluster *k)
{
    for (unsigned i = 0; i < (k->two ? 2u : 1u); i++) {
        ASSERT(control_read_nodes(gateway(k, i)->control, NULL) == 0);
    }
}

static void keepers_start(struct cluster *k)
{
    for (unsigned i = 0; i < (k->two ? 2u : 1u); i++) {
        k->keeper[i] = keeper_new(gateway(k, i)->control, /* fresh_ms */ 0);
    }
}

static void keepers_stop(struct cluster *k)
{
    for (unsigned i = 0; i < 2; i++) {
        keeper_free(TAKE_PTR(k->keeper[i]));
    }
}

static void cluster_init(struct cluster *k, unsigned seed)
{
    *k = (struct cluster){.seed = seed, .state = seed * 2654435761u, .now_ms = 1000000};
    nodes_init(&k->t);
    k->two = world_can_share();
    if (k->two) {
        world_init_second(&k->second, &k->t.w);
    }
    for (int i = 0; i < NODES; i++) {
        struct node_row row = {.leased = true};

        snprintf(row.name, sizeof(row.name), "%s", nodes_names[i]);
        snprintf(row.address, sizeof(row.address), "unix:%s", k->t.socket[i]);
        ASSERT(db_node_put(k->t.w.db, &row, NULL) == 0);
    }
    read_nodes(k);
    keepers_start(k);
}

static void cluster_done(struct cluster *k)
{
    keepers_stop(k);
    if (k->two) {
        world_done(&k->second);
    }
    nodes_done(&k->t);
}

static void keep(struct cluster *k, uint64_t ms)
{
    k->now_ms += ms;
    for (unsigned i = 0; i < (k->two ? 2u : 1u); i++) {
        CHECK_INT(keeper_round(k->keeper[i], k->now_ms, NULL), 0);
        keeper_settle(k->keeper[i]);
    }
    read_nodes(k);
}

static void set_faults(struct cluster *k, int i, enum fake_fault fault)
{
    for (int op = 0; op < FAKE_OP_COUNT_; op++) {
        fake_node_fault(k->t.node[i], (enum fake_op)op, fault);
    }
    fake_node_silence(k->t.node[i], fault == FAKE_CUT);
}

/* Its machines go on: its lease does. */
static void cut(struct cluster *k, int i)
{
    set_faults(k, i, FAKE_CUT);
    k->condition[i] = k->condition[i] == GONE ? GONE : CUT;
}

/* For longer than its lease, by its own clock at first. */
static void vanish(struct cluster *k, int i)
{
    cleanup_node_row struct node_row row = {0};
    uint64_t deadline_ns = deadline_in_ms(TEST_MS);

    cut(k, i);
    fake_node_fence(k->t.node[i]);
    k->condition[i] = GONE;
    ASSERT(db_node_get(k->t.w.db, nodes_names[i], &row, NULL) == 0);
    if (row.lost || row.renewals == 0) {
        return;
    }
    ASSERT(db_node_renew(k->t.w.db, &row, 1, NULL) == 0); /* no test waits for a minute */
    do {
        node_row_done(&row);
        ASSERT(db_node_get(k->t.w.db, nodes_names[i], &row, NULL) == 0);
    } while (row.left_ms >= 0 && !deadline_passed(deadline_ns));
}

static void come_back(struct cluster *k, int i)
{
    set_faults(k, i, FAKE_FINE);
    k->condition[i] = WELL;
}

static void restart_gateways(struct cluster *k)
{
    keepers_stop(k);
    world_restart_gateway(&k->t.w);
    if (k->two) {
        world_restart_gateway(&k->second);
    }
    read_nodes(k);
    keepers_start(k);
}

/* ---- clients ---- */

static struct known *any_known(struct cluster *k)
{
    return k->n_known > 0 ? &k->known[chance(k, (unsigned)k->n_known)] : NULL;
}

struct asked {
    struct running running;
    struct known *about; /* NULL: a creation */
    bool deletes;
    char target[200];
};

/* False: there is nothing to ask for. */
static bool begin(struct cluster *k, struct asked *r)
{
    static const char *const verbs[] = {"suspend", "resume", "pause", "stop", "start"};
    struct world *w = any_gateway(k);
    unsigned what = chance(k, 10);
    struct ask ask = {.method = "POST", .target = r->target, .key = w->keys[ALICE]};

    *r = (struct asked){.about = what < 2 ? NULL : any_known(k)};
    if (!r->about) {
        if (k->n_known == KNOWN_MAX) {
            return false;
        }
        snprintf(r->target, sizeof(r->target), "/v1/sandboxes");
        ask.body = "{\"template\":\"tiny\"}";
    } else if (what == 2) {
        snprintf(r->target, sizeof(r->target), "/v1/sandboxes/%s", r->about->id);
        ask.method = "DELETE";
        r->deletes = r->about->deleting = true;
    } else {
        snprintf(r->target, sizeof(r->target), "/v1/sandboxes/%s/%s", r->about->id,
                 verbs[chance(k, ARRAY_SIZE(verbs))]);
    }
    ask_start(&r->running, w, &ask);
    return true;
}

static void finish(struct cluster *k, struct asked *r)
{
    struct answer *a = &r->running.answer;

    ask_join(&r->running);
    if (!r->about && a->status == 201 && k->n_known < KNOWN_MAX) {
        snprintf(k->known[k->n_known++].id, ID_SIZE, "%s", json_get_string(a->json, "id", ""));
    } else if (r->deletes && a->status == 204) {
        r->about->deleted = true;
    }
    answer_done(a);
}

static void requests(struct cluster *k)
{
    struct asked r[2];
    bool begun[2];

    for (int i = 0; i < 2; i++) {
        begun[i] = begin(k, &r[i]);
    }
    for (int i = 0; i < 2; i++) {
        if (begun[i]) {
            finish(k, &r[i]);
        }
    }
}

/* ---- what happens ---- */

static bool another_is_well(const struct cluster *k, int i)
{
    for (int j = 0; j < NODES; j++) {
        if (j != i && k->condition[j] == WELL) {
            return true;
        }
    }
    return false;
}

static void something_of_a_node(struct cluster *k)
{
    static const enum fake_fault faults[] = {FAKE_ERROR, FAKE_CUT, FAKE_LOST, FAKE_FINE};
    int i = (int)chance(k, NODES);

    switch (chance(k, 6)) {
    case 0:
        if (another_is_well(k, i)) {
            cut(k, i);
        }
        break;
    case 1:
        if (another_is_well(k, i)) {
            vanish(k, i);
        }
        break;
    case 2:
    case 3:
        come_back(k, i);
        break;
    default:
        if (k->condition[i] == WELL) {
            fake_node_fault(k->t.node[i], (enum fake_op)chance(k, FAKE_OP_COUNT_),
                            faults[chance(k, ARRAY_SIZE(faults))]);
        }
    }
}

static void want(struct cluster *k)
{
    static const enum node_wanted wanted[] = {NODE_READY, NODE_READY, NODE_CORDONED, NODE_DRAINING};

    ASSERT(db_node_want(k->t.w.db, nodes_names[chance(k, NODES)],
                        wanted[chance(k, ARRAY_SIZE(wanted))], NULL) == 0);
}

static void something(struct cluster *k)
{
    switch (chance(k, 12)) {
    case 0:
    case 1:
    case 2:
        something_of_a_node(k);
        break;
    case 3:
        keep(k, LEASE_RENEW_MS);
        break;
    case 4:
        keep(k, LEASE_RENEW_MS);
        keep(k, LEASE_MS);
        break;
    case 5:
    case 6:
        ASSERT(control_evacuate(any_gateway(k)->control, NULL) == 0);
        break;
    case 7:
        IGNORE_RESULT(control_reconcile(any_gateway(k)->control, NULL)); /* some may not answer */
        break;
    case 8:
        want(k);
        break;
    case 9:
        if (chance(k, 4) == 0) {
            restart_gateways(k);
        }
        break;
    default:
        break;
    }
}

/* ---- what must be so ---- */

static void say(const struct cluster *k, const char *id, const char *what)
{
    TEST_FAIL("seed %u, step %u: %s %s", k->seed, k->step, id, what);
}

static int count_running(struct cluster *k, const char *id)
{
    int n = 0;

    for (int i = 0; i < NODES; i++) {
        n += fake_node_runs(k->t.node[i], id);
    }
    return n;
}

static void nothing_runs_twice(struct cluster *k)
{
    for (size_t i = 0; i < k->n_known; i++) {
        if (count_running(k, k->known[i].id) > 1) {
            say(k, k->known[i].id, "runs twice");
        }
    }
}

static int node_of(const char *name)
{
    for (int i = 0; i < NODES; i++) {
        if (str_eq(name, nodes_names[i])) {
            return i;
        }
    }
    return -1;
}

static void check_row(struct cluster *k, const struct sandbox *sb)
{
    int at = node_of(sb->node);
    bool suspended = sb->observed == SANDBOX_STATE_SUSPENDED;

    switch (sb->observed) {
    case SANDBOX_STATE_RUNNING:
    case SANDBOX_STATE_PAUSED:
    case SANDBOX_STATE_STOPPED:
    case SANDBOX_STATE_SUSPENDED:
        break;
    default:
        TEST_FAIL("seed %u: %s on '%s': %s", k->seed, sb->id, sb->node, sb->reason);
        printf("# on '%s': %s\n", sb->node, sb->reason);
        say(k, sb->id, sandbox_state_name(sb->observed));
        return;
    }
    if (suspended && !fake_store_has(sb->id)) {
        say(k, sb->id, "is suspended, and nothing is stored");
    }
    for (int i = 0; i < NODES; i++) {
        if (fake_node_has(k->t.node[i], sb->id) != (i == at && !suspended)) {
            say(k, sb->id, i == at && !suspended ? "is not where it should be" : "is left over");
        }
    }
}

static int check_one(void *ctx, const struct sandbox *sb)
{
    check_row(ctx, sb);
    return 0;
}

static void check_left(void *ctx, const char *id)
{
    struct cluster *k = ctx;
    cleanup_sandbox struct sandbox sb = {0};

    if (db_sandbox_get(k->t.w.db, id, NULL, &sb, NULL) == -ENOENT) {
        say(k, id, "is on a node, and no row knows it");
    }
}

static void all_is_right(struct cluster *k)
{
    const struct sandbox_query all = {0};

    CHECK_INT(db_sandbox_list(k->t.w.db, &all, check_one, k, NULL), 0);
    for (int i = 0; i < NODES; i++) {
        fake_node_each(k->t.node[i], check_left, k);
    }
    for (size_t i = 0; i < k->n_known; i++) {
        cleanup_sandbox struct sandbox sb = {0};
        const struct known *x = &k->known[i];
        int r = db_sandbox_get(k->t.w.db, x->id, NULL, &sb, NULL);

        if (x->deleted && (r != -ENOENT || fake_store_has(x->id))) {
            say(k, x->id, "was deleted, and is there");
        } else if (!x->deleting && r != 0) {
            say(k, x->id, "was acknowledged, and is not there");
        }
    }
}

static void settle(struct cluster *k)
{
    for (int i = 0; i < NODES; i++) {
        come_back(k, i);
        ASSERT(db_node_want(k->t.w.db, nodes_names[i], NODE_READY, NULL) == 0);
    }
    restart_gateways(k); /* what was to be tried again in a minute is tried now */
    for (int i = 0; i < SETTLE_ROUNDS; i++) {
        keep(k, LEASE_RENEW_MS);
        for (unsigned j = 0; j < (k->two ? 2u : 1u); j++) {
            CHECK_INT(control_reconcile(gateway(k, j)->control, NULL), 0);
            CHECK_INT(control_evacuate(gateway(k, j)->control, NULL), 0);
        }
    }
}

static void play(unsigned seed)
{
    CLEANUP(cluster_done) struct cluster k;

    cluster_init(&k, seed);
    keep(&k, 0);
    for (k.step = 1; k.step <= STEPS; k.step++) {
        something(&k);
        requests(&k);
        nothing_runs_twice(&k);
    }
    settle(&k);
    nothing_runs_twice(&k);
    all_is_right(&k);
}

static void random_histories(void)
{
    const char *one = getenv("TEST_SEED");
    const char *many = getenv("TEST_SEEDS");
    uint64_t n = 4;

    if (one) {
        ASSERT(str_to_u64(one, UINT32_MAX, &n) == 0);
        play((unsigned)n);
        return;
    }
    ASSERT(!many || str_to_u64(many, 100000, &n) == 0);
    for (unsigned seed = 1; seed <= n; seed++) {
        play(seed);
    }
}

TEST_MAIN(T(random_histories))

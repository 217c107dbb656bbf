/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The reconciler's thread: what it does when. Alone it goes by its own clock. Gateways that share a database take
 * turns instead: what is due is a row there (db_turn_take()), taken by one of them at a time, so that ten gateways ask
 * the node as often as one, and any of them can die.
 */
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "control/keeper.h"
#include "control/private.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define TICK_MS 1000  /* how late the end of a life may be noticed */
#define PASS_MS 10000 /* between passes when nobody asks for one */
#define NODES_MS 3000 /* between readings of what nodes there are */
#define PRUNE_MS 3600000
#define OPERATION_KEEP_MS (24ll * 3600 * 1000)
#define AUDIT_KEEP_MS (90ll * 24 * 3600 * 1000)
/* Who takes a turn and dies keeps the others from it for so long. */
#define TURN_LEASE_MS 30000

#define TURN_ENDS "ends"
#define TURN_PRUNE "prune"
#define TURN_NODE "node/"

static void prune(struct control *c)
{
    struct err e = {0};

    if (db_operation_prune(c->db, control_now_ms(c) - OPERATION_KEEP_MS, &e) < 0 ||
        db_audit_prune(c->db, control_now_ms(c) - AUDIT_KEEP_MS, &e) < 0) {
        log_warn(NULL, "cannot forget old operations and audit events, retrying later: %s", e.msg);
    }
}

/* --- what has to be done --- */

struct rhythm {
    uint64_t next_pass_ns; /* 0 at first: a pass at once finishes what an earlier process left */
    uint64_t next_prune_ns;
    bool expire_fails;
    uint64_t next_nodes_ns;
    bool nodes_fail;
    bool turns_added;
    bool turns_fail;
};

static void expire(struct control *c, struct rhythm *rh)
{
    struct err e = {0};
    bool failed = control_expire(c, &e) < 0;

    if (failed && !rh->expire_fails) {
        log_error(NULL, "no sandbox can be ended in time until this is repaired: %s", e.msg);
    }
    rh->expire_fails = failed;
}

static void read_nodes(struct control *c, struct rhythm *rh)
{
    struct err e = {0};
    bool failed;

    if (!deadline_passed(rh->next_nodes_ns)) {
        return;
    }
    failed = control_read_nodes(c, &e) < 0;
    if (failed && !rh->nodes_fail) {
        log_error(NULL, "cannot read which nodes there are, going on with those known: %s", e.msg);
    }
    rh->nodes_fail = failed;
    rh->turns_added = rh->turns_added && !fleet_changed(c->fleet);
    rh->next_nodes_ns = deadline_in_ms(NODES_MS);
}

static void work_alone(struct control *c, struct rhythm *rh, bool kicked)
{
    if (kicked || deadline_passed(rh->next_pass_ns)) {
        IGNORE_RESULT(control_reconcile(c, /* e */ NULL)); /* it logs and counts by itself */
        rh->next_pass_ns = deadline_in_ms(PASS_MS);
    }
    expire(c, rh);
    if (deadline_passed(rh->next_prune_ns)) {
        prune(c);
        rh->next_prune_ns = deadline_in_ms(PRUNE_MS);
    }
}

/* --- in turn with others --- */

struct turns {
    struct db *db;
    struct err *e;
};

static int add_node_turn(void *ctx, struct node_client *client)
{
    struct turns *t = ctx;
    char name[DB_TURN_SIZE];

    snprintf(name, sizeof(name), TURN_NODE "%s", node_client_name(client));
    return db_turn_add(t->db, name, t->e);
}

/* Those of nodes are added whenever the nodes have been read: there may be new ones. */
static int add_turns(struct control *c, struct rhythm *rh, struct err *e)
{
    struct turns t = {.db = c->db, .e = e};
    int r;

    if (rh->turns_added) {
        return 0;
    }
    r = fleet_each(c->fleet, add_node_turn, &t);
    if (r == 0) {
        r = db_turn_add(c->db, TURN_ENDS, e);
    }
    if (r == 0) {
        r = db_turn_add(c->db, TURN_PRUNE, e);
    }
    rh->turns_added = r == 0;
    return r;
}

/* Returns in how many ms it is due again. */
static int64_t do_turn(struct control *c, struct rhythm *rh, const char *name)
{
    if (str_starts(name, TURN_NODE)) {
        const char *node = name + strlen(TURN_NODE);
        int r;

        if (!fleet_knows(c->fleet, node)) { /* it is new, and another gateway's pass is as good */
            return NODES_MS;
        }
        r = control_reconcile_node(c, node, /* e */ NULL);

        IGNORE_RESULT(db_say(c->db, r < 0 ? "pass bad" : "pass ok", /* e */ NULL)); /* next time */
        return PASS_MS;
    }
    if (str_eq(name, TURN_ENDS)) {
        expire(c, rh);
        return TICK_MS;
    }
    prune(c);
    return PRUNE_MS;
}

/* Takes turns until none is due; *ret_next_ms: when the next one may be. */
static int take_turns(struct control *c, struct rhythm *rh, bool kicked, int64_t *ret_next_ms,
                      struct err *e)
{
    char name[DB_TURN_SIZE];
    int r = add_turns(c, rh, e);

    if (r == 0 && kicked) {
        r = db_turn_hurry(c->db, TURN_NODE, e);
    }
    while (r >= 0) {
        r = db_turn_take(c->db, c->owner, TURN_LEASE_MS, name, ret_next_ms, e);
        if (r <= 0) {
            break;
        }
        r = db_turn_done(c->db, name, c->owner, do_turn(c, rh, name), e);
    }
    return r;
}

/* Returns how long there is nothing to do, unless somebody says so. */
static uint64_t work_in_turn(struct control *c, struct rhythm *rh, bool kicked)
{
    struct err e = {0};
    int64_t next_ms = TICK_MS;
    bool failed = take_turns(c, rh, kicked, &next_ms, &e) < 0;

    if (failed && !rh->turns_fail) {
        log_error(NULL, "cannot take turns with other gateways, retrying: %s", e.msg);
    } else if (!failed && rh->turns_fail) {
        log_info(NULL, "taking turns with other gateways again");
    }
    rh->turns_fail = failed;
    if (failed && kicked) {
        control_kick(c); /* what was asked for has not been done */
    }
    return failed ? TICK_MS : (uint64_t)MIN(MAX(next_ms, (int64_t)50), (int64_t)NODES_MS);
}

/* --- the thread --- */

/* Sleeps that long, less when there is something to do. False: stop. */
static bool wait_for(struct control *c, uint64_t ms, bool *ret_kicked)
{
    uint64_t until_ns = deadline_in_ms(ms);
    bool stop;

    pthread_mutex_lock(&c->mutex);
    while (!c->stop && !c->kicked && !c->due) {
        if (cond_wait_until(&c->wake, &c->mutex, until_ns) < 0) {
            break;
        }
    }
    *ret_kicked = c->kicked;
    c->kicked = false;
    c->due = false;
    stop = c->stop;
    pthread_mutex_unlock(&c->mutex);
    return !stop;
}

static void *reconciler(void *ctx)
{
    struct control *c = ctx;
    struct rhythm rh = {0};
    uint64_t pause_ms = TICK_MS;
    bool kicked = false;

    do {
        read_nodes(c, &rh);
        if (c->share) {
            pause_ms = work_in_turn(c, &rh, kicked);
        } else {
            work_alone(c, &rh, kicked);
        }
    } while (wait_for(c, pause_ms, &kicked));
    return NULL;
}

void control_start_reconciler(struct control *c)
{
    int r;

    ASSERT(c && !c->running);
    c->stop = false;
    r = pthread_create(&c->thread, NULL, reconciler, c);
    ASSERT(r == 0); /* like memory: restart is the way out */
    c->evacuation = evacuation_start(c);
    c->keeper = keeper_new(c, KEEPER_FRESH_MS);
    keeper_start(c->keeper);
    c->running = true;
}

void control_stop_reconciler(struct control *c)
{
    ASSERT(c && c->running);
    pthread_mutex_lock(&c->mutex);
    c->stop = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->mutex);
    pthread_join(c->thread, NULL);
    evacuation_stop(c->evacuation);
    keeper_free(c->keeper);
    c->running = false;
}

void control_kick(struct control *c)
{
    pthread_mutex_lock(&c->mutex);
    c->kicked = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->mutex);
}

struct control_health control_health(struct control *c)
{
    struct control_health health;

    pthread_mutex_lock(&c->mutex);
    health = c->health;
    pthread_mutex_unlock(&c->mutex);
    return health;
}

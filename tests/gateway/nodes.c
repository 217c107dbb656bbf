/* SPDX-License-Identifier: Apache-2.0 */
#include "nodes.h"

#include <stdio.h>

const char *const nodes_names[NODES] = {"local", "node-b", "node-c"};

/* As a node would say it; those further down have less room. */
void nodes_tell(struct nodes *t, int i, bool alive, enum schedule_wanted wanted)
{
    cleanup_free char *url = xasprintf("unix:%s", t->socket[i]);
    cleanup_json json_t *told =
        json_pack("{s:i, s:i, s:i, s:I, s:i, s:{s:i}, s:s, s:s, s:[ss]}", "cpus", 8, "memory_mib",
                  10000, "memory_free_mib", 9000 - i * 1000, "pool_free_bytes", (json_int_t)1 << 40,
                  "sandboxes", 0, "limits", "sandboxes_max", 1000, "accel", "tcg", "vmm_version",
                  "10.0", "templates", "tiny", "debian");

    ASSERT(told);
    ASSERT(
        fleet_put(
            t->w.fleet,
            &(struct fleet_news){
                .name = nodes_names[i], .url = url, .wanted = wanted, .alive = alive, .told = told},
            NULL) == 0);
}

void nodes_init(struct nodes *t)
{
    world_init(&t->w);
    t->node[0] = t->w.node;
    t->socket[0] = xstrdup(t->w.socket);
    for (int i = 0; i < NODES; i++) {
        if (i > 0) {
            t->socket[i] = xasprintf("%s/%s", t->w.dir, nodes_names[i]);
            t->node[i] = fake_node_start(t->socket[i]);
        }
        nodes_tell(t, i, /* alive */ true, SCHEDULE_ACTIVE);
    }
}

void nodes_done(struct nodes *t)
{
    for (int i = 1; i < NODES; i++) {
        if (t->node[i]) {
            fake_node_stop(t->node[i]);
        }
    }
    for (int i = 0; i < NODES; i++) {
        free(t->socket[i]);
    }
    world_done(&t->w);
}

int nodes_where(struct nodes *t, const char *id)
{
    int found = -1;

    for (int i = 0; i < NODES; i++) {
        if (t->node[i] && fake_node_has(t->node[i], id)) {
            CHECK_INT(found, -1); /* never on two */
            found = i;
        }
    }
    return found;
}

/* The row's node. */
int nodes_row(struct nodes *t, const char *id)
{
    cleanup_sandbox struct sandbox sb = {0};

    ASSERT(db_sandbox_get(t->w.db, id, NULL, &sb, NULL) == 0);
    for (int i = 0; i < NODES; i++) {
        if (str_eq(sb.node, nodes_names[i])) {
            return i;
        }
    }
    return -1;
}

int nodes_post(struct nodes *t, const char *id, const char *what, const char *body)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s%s", id, what);
    cleanup_answer struct answer a = alice(&t->w, "POST", target, body);

    return a.status;
}

void nodes_state(struct nodes *t, const char *id, const char *want)
{
    char state[24];

    world_state(&t->w, id, state);
    CHECK_STR(state, want);
}

/* As members of the control plane would find it. */
void nodes_lose(struct nodes *t, int i)
{
    struct node_row row = {.leased = true, .generation = 1};
    cleanup_node_row struct node_row now = {0};
    uint64_t deadline_ns = deadline_in_ms(TEST_MS);
    int64_t generation;
    int r = 0;

    snprintf(row.name, sizeof(row.name), "%s", nodes_names[i]);
    snprintf(row.id, sizeof(row.id), "id of %s", nodes_names[i]);
    snprintf(row.address, sizeof(row.address), "unix:%s", t->socket[i]);
    ASSERT(db_node_put(t->w.db, &row, NULL) == 0);
    ASSERT(db_node_renew(t->w.db, &row, 1, NULL) == 0);
    ASSERT(db_node_get(t->w.db, nodes_names[i], &now, NULL) == 0);
    while (r == 0 && !deadline_passed(deadline_ns)) {
        r = db_node_lose(t->w.db, nodes_names[i], now.renewals, &generation, NULL);
    }
    ASSERT(r == 1);
    nodes_tell(t, i, /* alive */ false, SCHEDULE_ACTIVE);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* What the database says of nodes, into the fleet. */
#include "control/private.h"
#include "database/nodes.h"

#include <string.h>

#define ROWS_MAX SCHEDULE_NODES_MAX

struct reading {
    struct node_row *rows; /* owned, and so are their strings */
    size_t n;
};

static void reading_done(struct reading *rd)
{
    for (size_t i = 0; i < rd->n; i++) {
        node_row_done(&rd->rows[i]);
    }
    free(rd->rows);
}

static int keep_row(void *ctx, const struct node_row *row)
{
    struct reading *rd = ctx;

    if (rd->n < ROWS_MAX && row->wanted != NODE_REMOVED) {
        struct node_row *mine = &rd->rows[rd->n++];

        *mine = *row;
        mine->told = row->told ? xstrdup(row->told) : NULL;
    }
    return 0;
}

/* The words are the node's, the numbers the row's: they may be newer. */
static json_t *told_of(const struct node_row *row)
{
    const struct node_capacity *cap = &row->capacity;
    json_t *told = NULL;

    if (row->told_ago_ms < 0 || str_empty(row->told) ||
        json_parse_object(row->told, strlen(row->told), &told, NULL) < 0) {
        return NULL;
    }
    json_object_set_new(told, "cpus", json_integer(cap->vcpus));
    json_object_set_new(told, "memory_mib", json_integer(cap->memory_mib));
    json_object_set_new(told, "memory_free_mib", json_integer(cap->memory_free_mib));
    json_object_set_new(told, "pool_free_bytes", json_integer(cap->pool_free_bytes));
    json_object_set_new(told, "sandboxes", json_integer(cap->sandboxes));
    return told;
}

static enum schedule_wanted wanted_of(const struct node_row *row)
{
    return row->wanted == NODE_READY      ? SCHEDULE_ACTIVE
           : row->wanted == NODE_DRAINING ? SCHEDULE_DRAINING
                                          : SCHEDULE_CORDONED;
}

static int learn(struct control *c, const struct node_row *row, struct err *e)
{
    cleanup_json json_t *told = told_of(row);
    const struct fleet_news news = {
        .name = row->name,
        .url = row->address,
        .wanted = wanted_of(row),
        .alive = !row->lost && (!row->leased || row->left_ms > 0),
        .told = told,
    };

    return fleet_put(c->fleet, &news, e);
}

int control_read_nodes(struct control *c, struct err *e)
{
    CLEANUP(reading_done) struct reading rd = {0};
    cleanup_free const char **names = xnew_n(const char *, ROWS_MAX);
    bool empties = false;
    int worst = 0;
    int r;

    ASSERT(c);
    rd.rows = xnew_n(struct node_row, ROWS_MAX);
    r = db_node_list(c->db, keep_row, &rd, e);
    if (r < 0) {
        return err_wrap(e, r, "reading the nodes");
    }
    for (size_t i = 0; i < rd.n; i++) {
        names[i] = rd.rows[i].name;
        empties = empties || rd.rows[i].lost || rd.rows[i].wanted == NODE_DRAINING;
        r = learn(c, &rd.rows[i], e);
        worst = r < 0 ? r : worst; /* the others are as good as before */
    }
    fleet_keep(c->fleet, names, rd.n);
    __atomic_store_n(&c->empties, empties, __ATOMIC_RELAXED);
    return worst;
}

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Is the node that we reach the one that the other gateways mean by its name? Two nodes with one name would each be
 * taken for having lost what the other one runs, so that nothing is done before this is known.
 */
#include "base/clock.h"
#include "control/private.h"

#include <stdio.h>

#define LOOK_MS 5000
#define IDENTITY_SIZE 128

int control_check_node(struct control *c, struct err *e)
{
    const char *name = fleet_home(c->fleet);
    struct node_call call = {.deadline_ns = deadline_in_ms(LOOK_MS)};
    cleanup_json json_t *node = NULL;
    char said[IDENTITY_SIZE];
    char agreed[IDENTITY_SIZE];
    char key[64];
    int r;

    if (!c->share || __atomic_load_n(&c->node_known, __ATOMIC_RELAXED)) {
        return 0;
    }
    r = node_client_get(fleet_client(c->fleet, name), "/v1/node", &call, &node, e);
    if (r < 0) {
        return r;
    }
    snprintf(said, sizeof(said), "%s", json_get_string(node, "id", ""));
    if (!said[0]) {
        return err_set(e, -EPROTO, "bad_answer",
                       "the node does not say which one it is: upgrade it");
    }
    snprintf(agreed, sizeof(agreed), "%s", said);
    snprintf(key, sizeof(key), "node %s", name);
    r = db_secret_agree(c->db, key, agreed, sizeof(agreed), e);
    if (r < 0) {
        return r;
    }
    if (!str_eq(agreed, said)) {
        return err_set(e, -ENOTUNIQ, "other_node",
                       "the other gateways of this database have another node '%s': all of them "
                       "need the same one (--node)",
                       name);
    }
    __atomic_store_n(&c->node_known, true, __ATOMIC_RELAXED);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */

/* What organisations and projects let their sandboxes reach, and how these learn of it. */
#include "base/clock.h"
#include "base/log.h"
#include "control/private.h"

#include <stdio.h>
#include <string.h>

int control_read_outer(struct control *c, const struct control_actor *actor, struct sandbox *sb,
                       struct err *e)
{
    const char *ids[NETPOLICY_SANDBOX] = {
        [NETPOLICY_ORGANISATION] = actor->organisation, [NETPOLICY_PROJECT] = sb->project};

    for (unsigned level = 0; level < NETPOLICY_SANDBOX; level++) {
        char *text = NULL;
        int r = db_network_get(c->db, (enum netpolicy_level)level, ids[level], &text, e);

        if (r < 0) {
            return r;
        }
        free(sb->network_outer[level]);
        sb->network_outer[level] = text;
    }
    return 0;
}

struct id_list {
    char (*ids)[ID_SIZE]; /* owned */
    size_t n;
    size_t room;
};

static void id_list_done(struct id_list *list)
{
    free(list->ids);
}

static void add_id(struct id_list *list, const char *id)
{
    if (list->n == list->room) {
        list->room = MAX(2 * list->room, (size_t)16);
        list->ids = xrealloc(list->ids, list->room * sizeof(*list->ids));
    }
    snprintf(list->ids[list->n++], ID_SIZE, "%s", id);
}

static int add_sandbox(void *ctx, const struct sandbox *sb)
{
    if (sb->desired != SANDBOX_STATE_DELETED && sb->observed != SANDBOX_STATE_SUSPENDED) {
        add_id(ctx, sb->id);
    }
    return 0;
}

static int add_project(void *ctx, const struct project *p)
{
    add_id(ctx, p->id);
    return 0;
}

/* The row is read by who holds the sandbox: of two who change a level at once the later one's word stays. */
static int tell(struct control *c, const char *id, struct err *e)
{
    CLEANUP(busy_leavep) struct busy_hold *hold = busy_try_enter(c->busy, id);
    struct node_call call = {.deadline_ns = deadline_in_ms(CONTROL_UNDO_MS)};
    cleanup_sandbox struct sandbox sb = {0};
    int r;

    if (!hold) {
        return err_set(e, -EBUSY, "busy", "somebody works on it");
    }
    r = db_sandbox_get(c->db, id, /* project */ NULL, &sb, e);
    return r < 0 ? r : node_client_set_network(control_node(c, &sb), &sb, &call, e);
}

static int tell_project(struct control *c, const char *project, size_t *later, struct err *e)
{
    CLEANUP(id_list_done) struct id_list list = {0};
    const struct sandbox_query q = {.project = project};
    int r = db_sandbox_list(c->db, &q, add_sandbox, &list, e);

    for (size_t i = 0; i < list.n && r == 0; i++) {
        const struct log_ctx log = {.sandbox = list.ids[i]};
        struct err why = {0};
        int told = tell(c, list.ids[i], &why);

        if (told < 0 && told != -ENOENT) { /* what the node does not have has nothing open */
            log_info(&log, "cannot tell the node the new network policy, retrying later: %s",
                     why.msg);
            ++*later;
        }
    }
    return r;
}

int control_set_network(struct control *c, const struct control_actor *actor, const char *project,
                        const char *text, size_t *ret_later, struct err *e)
{
    CLEANUP(id_list_done) struct id_list projects = {0};
    enum netpolicy_level level = project ? NETPOLICY_PROJECT : NETPOLICY_ORGANISATION;
    const char *id = project ? project : actor->organisation;
    size_t later = 0;
    int r;

    ASSERT(c && actor && text && ret_later);
    r = db_network_set(c->db, level, id, text, e);
    if (r == 0) {
        control_audit(c, actor, "network.change", id, netpolicy_level_name(level));
        if (project) {
            add_id(&projects, project);
        } else {
            r = db_project_list(c->db, actor->organisation, add_project, &projects, e);
        }
    }
    for (size_t i = 0; i < projects.n && r == 0; i++) {
        r = tell_project(c, projects.ids[i], &later, e);
    }
    if (later > 0 || r < 0) {
        control_kick(c);
    }
    *ret_later = later;
    return r;
}

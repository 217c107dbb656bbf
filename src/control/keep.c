/* SPDX-License-Identifier: Apache-2.0 */
#include "control/keep.h"

#include "base/clock.h"
#include "base/log.h"
#include "control/private.h"
#include "model/lease.h"

#include <stdio.h>
#include <string.h>

/* Well below what makes a lease end. */
#define ASK_MS 5000

static int ask(struct control *c, const struct node_row *row, json_t **ret, struct err *e)
{
    struct node_call call = {.deadline_ns = deadline_in_ms(ASK_MS)};
    int r = node_client_get(fleet_client(c->fleet, row->name), "/v1/node", &call, ret, e);
    const char *id;

    if (r < 0) {
        return call.why[0] ? err_set(e, r, NULL, "it does not answer: %s", call.why) : r;
    }
    id = json_get_string(*ret, "id", "");
    if (!id[0] || strlen(id) >= NODE_ID_SIZE) {
        return err_set(e, -EBADMSG, NULL, "it does not say which node it is");
    }
    if (row->id[0] && !str_eq(row->id, id)) {
        return err_set(
            e, -ENOTUNIQ, "other_node",
            "another node answers at %s: %s, not %s; 'space node rm' forgets the old one",
            row->address, id, row->id);
    }
    return 0;
}

static int64_t count_warm(const json_t *list)
{
    int64_t sum = 0;
    json_t *entry;
    size_t i;

    json_array_foreach(list, i, entry)
    {
        sum += MIN(MAX(json_get_int(entry, "ready", 0), (int64_t)0), (int64_t)INT32_MAX);
    }
    return sum;
}

/* Without what is for one moment or too much: a list that does not fit counts as empty. */
static char *told_text(json_t *told)
{
    static const char *const lists[] = {"lease", "warm", "templates"};
    char *text = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        IGNORE_RESULT(json_object_del(told, lists[i])); /* it may not be there */
        free(text);
        text = json_text(told);
        if (strlen(text) <= NODE_TOLD_MAX) {
            return text;
        }
    }
    free(text);
    return xstrdup("{}");
}

/* What it says, into a row to be written; told_take loses its lease. */
static void take_told(const struct node_row *row, json_t *told, struct node_row *ret)
{
    *ret = (struct node_row){.generation = row->generation, .leased = row->leased};
    snprintf(ret->name, sizeof(ret->name), "%s", row->name);
    snprintf(ret->id, sizeof(ret->id), "%s", json_get_string(told, "id", ""));
    ret->capacity = (struct node_capacity){
        .vcpus = json_get_int(told, "cpus", 0),
        .memory_mib = json_get_int(told, "memory_mib", 0),
        .memory_free_mib = json_get_int(told, "memory_free_mib", 0),
        .pool_bytes = json_get_int(told, "pool_size_bytes", 0),
        .pool_free_bytes = json_get_int(told, "pool_free_bytes", 0),
        .sandboxes = json_get_int(told, "sandboxes", 0),
        .warm = count_warm(json_object_get(told, "warm")),
    };
    ret->told = told_text(told);
}

/* The stamp is the node's, from its answer. */
static int grant(struct control *c, const struct node_row *row, json_t *lease, struct err *e)
{
    struct node_call call = {.deadline_ns = deadline_in_ms(ASK_MS)};
    cleanup_json json_t *body = json_pack(
        "{s:s, s:I, s:I}", "epoch", json_get_string(lease, "epoch", ""), "stamp_ms",
        (json_int_t)json_get_int(lease, "stamp_ms", 0), "for_ms", (json_int_t)lease_node_ms());

    return node_client_put(fleet_client(c->fleet, row->name), "/v1/node/lease", body, &call, e);
}

static int leave_what_is_elsewhere(struct control *c, const char *name, struct err *e)
{
    int r = control_clear_node(c, name, e);

    return r == 1 ? err_set(e, -EAGAIN, NULL, "it has to leave sandboxes that are elsewhere first")
                  : r;
}

static int take_back(struct control *c, const struct node_row *row, struct err *e)
{
    int r = leave_what_is_elsewhere(c, row->name, e);

    r = r < 0 ? r : db_node_back(c->db, row->name, row->generation, e);
    if (r == 0) {
        log_info(NULL, "node '%s' is back", row->name);
    }
    return r == -ESTALE ? 0 : r; /* another gateway has done it */
}

static int renew(struct control *c, const struct node_row *row, json_t *told, struct err *e)
{
    cleanup_json json_t *lease = json_incref(json_object_get(told, "lease"));
    cleanup_node_row struct node_row said = {0};
    int r = 0;

    if (row->leased && json_get_bool(lease, "fenced", false)) {
        r = leave_what_is_elsewhere(c, row->name, e);
    }
    if (r < 0) {
        return r;
    }
    fleet_told(c->fleet, row->name, told);
    take_told(row, told, &said);
    r = db_node_renew(c->db, &said, row->leased ? LEASE_MS : 0, e);
    if (r == 0 && row->leased) {
        r = grant(c, row, lease, e);
    }
    return r == -ESTALE ? 0
                        : r; /* it was lost meanwhile, or has started again: the next round sees */
}

int keep_node(struct control *c, const struct node_row *row, struct err *e)
{
    cleanup_json json_t *told = NULL;
    int r = ask(c, row, &told, e);

    if (r < 0) {
        return r;
    }
    return row->lost ? take_back(c, row, e) : renew(c, row, told, e);
}

int control_release_node(struct control *c, const char *name, struct err *e)
{
    struct node_call call = {0};
    int r = leave_what_is_elsewhere(c, name, e);

    if (r < 0) {
        return r;
    }
    call.deadline_ns = deadline_in_ms(ASK_MS);
    return node_client_forget(fleet_client(c->fleet, name), "/v1/node/lease", &call, e);
}

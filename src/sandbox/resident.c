/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/resident.h"

#include "base/clock.h"
#include "base/log.h"
#include "model/lifetime.h"

#include <stdio.h>
#include <string.h>

static void resident_free(struct resident *res)
{
    ASSERT(!res->channel);
    snapshot_free_list(res);
    machine_forget(res->machine); /* a deleted one has none any more */
    fd_close(res->disk_fd);
    record_done(&res->record);
    usage_done(&res->usage);
    pthread_mutex_destroy(&res->lock);
    pthread_mutex_destroy(&res->transfer);
    pthread_mutex_destroy(&res->op);
    free(res);
}

static struct resident *find_locked(struct node *node, const char *id)
{
    for (struct resident *r = node->residents; r; r = r->next) {
        if (str_eq(r->record.id, id)) {
            return r;
        }
    }
    return NULL;
}

struct resident *resident_find(struct node *node, const char *id)
{
    struct resident *res;

    pthread_mutex_lock(&node->lock);
    res = find_locked(node, id);
    if (res) {
        res->refs++;
    }
    pthread_mutex_unlock(&node->lock);
    return res;
}

static struct resident *resident_new(struct node *node, const struct record *rec)
{
    struct resident *res = xnew(struct resident);

    res->node = node;
    res->refs = 2; /* the list's and the caller's */
    res->record = *rec;
    json_incref(res->record.env);
    if (res->record.network) {
        res->record.network = netpolicy_ref(res->record.network);
    }
    res->disk_fd = FD_NONE;
    pthread_mutex_init(&res->op, NULL);
    pthread_mutex_init(&res->lock, NULL);
    pthread_mutex_init(&res->transfer, NULL);
    return res;
}

struct resident *resident_new_unlisted(struct node *node, const struct record *rec)
{
    struct resident *res = resident_new(node, rec);

    res->refs = 1;
    return res;
}

int resident_add(struct node *node, const struct record *rec, struct resident **ret, struct err *e)
{
    struct resident *res;
    int r = 0;

    pthread_mutex_lock(&node->lock);
    res = find_locked(node, rec->id);
    if (res) {
        res->refs++;
        r = -EEXIST;
    } else if (node->n_residents >= NODE_RESIDENTS_MAX) {
        r = -EUSERS;
    } else {
        res = resident_new(node, rec);
        res->number = ++node->last_number;
        res->next = node->residents;
        node->residents = res;
        node->n_residents++;
    }
    pthread_mutex_unlock(&node->lock);
    if (r == -EUSERS) {
        return err_set(e, r, "node_full", "this node holds %d sandboxes and takes no more",
                       NODE_RESIDENTS_MAX);
    }
    *ret = res;
    return r;
}

void resident_unref(struct resident *res)
{
    bool last;

    if (!res) {
        return;
    }
    pthread_mutex_lock(&res->node->lock);
    last = --res->refs == 0;
    pthread_mutex_unlock(&res->node->lock);
    if (last) {
        resident_free(res);
    }
}

void resident_drop(struct resident *res)
{
    struct node *node = res->node;
    bool found = false;

    pthread_mutex_lock(&node->lock);
    for (struct resident **at = &node->residents; *at && !found; at = &(*at)->next) {
        if (*at == res) {
            *at = res->next;
            res->next = NULL;
            res->dropped = true;
            node->n_residents--;
            found = true;
            break;
        }
    }
    pthread_mutex_unlock(&node->lock);
    if (found) {
        resident_unref(res);
    }
}

struct resident *resident_next_take(struct node *node, struct resident *res)
{
    struct resident *next;

    pthread_mutex_lock(&node->lock);
    next = res && !res->dropped ? res->next : node->residents;
    while (next && res && next->number >= res->number) {
        next = next->next; /* it was dropped meanwhile: on with what comes after its place */
    }
    if (next) {
        next->refs++;
    }
    pthread_mutex_unlock(&node->lock);
    resident_unref(res);
    return next;
}

void resident_free_all(struct node *node)
{
    while (node->residents) {
        struct resident *res = node->residents;

        resident_guest_shut(res);
        resident_drop(res);
    }
}

static int write_record(struct resident *res, enum record_durability durability, struct err *e)
{
    int r = record_write(res->node->records_fd, &res->record, durability);

    return r < 0 ? err_wrap(e, r, "writing the record of sandbox %s", res->record.id) : 0;
}

/* A state on the way to another: entering it is the first step of an operation, before anything has happened. */
static bool is_on_the_way(enum sandbox_state state)
{
    return state == SANDBOX_STATE_PAUSING || state == SANDBOX_STATE_RESUMING ||
           state == SANDBOX_STATE_SUSPENDING || state == SANDBOX_STATE_STOPPING;
}

int resident_set_state(struct resident *res, enum sandbox_state to, const char *reason,
                       enum record_durability durability, struct err *e)
{
    _Static_assert(sizeof(res->record.reason) >= sizeof(e->msg), "a sentence is never cut");
    const struct log_ctx ctx = {.sandbox = res->record.id};
    enum sandbox_state from;
    int r;

    pthread_mutex_lock(&res->lock);
    from = res->record.state;
    if (from != to) {
        ASSERT(sandbox_state_may_move(from, to, SANDBOX_BY_NODE) ||
               sandbox_state_may_move(from, to, SANDBOX_BY_CLIENT));
        record_enter(&res->record, to);
    }
    snprintf(res->record.reason, sizeof(res->record.reason), "%s", reason ? reason : "");
    r = write_record(res, durability, e);
    if (r < 0 && is_on_the_way(to)) {
        res->record.state = from;
    }
    pthread_mutex_unlock(&res->lock);
    if (r < 0 && is_on_the_way(to)) {
        return r;
    }
    log_info(&ctx, "%s -> %s%s%s", sandbox_state_name(from), sandbox_state_name(to),
             reason ? ": " : "", reason ? reason : "");
    return r;
}

bool resident_unwanted(void *arg)
{
    const struct resident *res = arg;

    return __atomic_load_n(&res->unwanted, __ATOMIC_RELAXED);
}

int resident_save(struct resident *res, enum record_durability durability, struct err *e)
{
    int r;

    pthread_mutex_lock(&res->lock);
    r = write_record(res, durability, e);
    pthread_mutex_unlock(&res->lock);
    return r;
}

int resident_set_policy(struct resident *res, const struct policy *policy, struct err *e)
{
    int r;

    pthread_mutex_lock(&res->lock);
    res->record.policy = *policy;
    r = write_record(res, RECORD_SURVIVES_HOST, e);
    pthread_mutex_unlock(&res->lock);
    return r;
}

int resident_set_end(struct resident *res, int64_t end_at_ms, enum sandbox_at_end at_end,
                     struct err *e)
{
    int64_t now_ms = (int64_t)clock_wall_ms();
    int64_t end = end_at_ms;
    int r;

    pthread_mutex_lock(&res->lock);
    if (end > 0 && res->record.paused_at_ms > 0) {
        end = MAX(end - (now_ms - res->record.paused_at_ms), (int64_t)1);
    }
    res->record.end_at_ms = end;
    res->record.at_end = at_end;
    r = res->gone ? err_set(e, -ENOENT, "sandbox_not_found", "the sandbox has been deleted")
                  : write_record(res, RECORD_SURVIVES_HOST, e);
    pthread_mutex_unlock(&res->lock);
    return r;
}

int64_t resident_end_at_ms(struct resident *res)
{
    int64_t end_at_ms;

    pthread_mutex_lock(&res->lock);
    end_at_ms =
        lifetime_end(res->record.end_at_ms, res->record.paused_at_ms, (int64_t)clock_wall_ms());
    pthread_mutex_unlock(&res->lock);
    return end_at_ms;
}

bool resident_visit(struct resident *res)
{
    bool wakes;

    pthread_mutex_lock(&res->lock);
    res->visits++;
    /* Running, too: who pauses it has said so before the state has changed. */
    wakes =
        res->record.wake_on_request &&
        (res->record.state == SANDBOX_STATE_RUNNING || res->record.state == SANDBOX_STATE_PAUSING ||
         res->record.state == SANDBOX_STATE_PAUSED || res->record.state == SANDBOX_STATE_RESUMING);
    pthread_mutex_unlock(&res->lock);
    return wakes;
}

void resident_leave(struct resident *res)
{
    pthread_mutex_lock(&res->lock);
    ASSERT(res->visits > 0);
    res->visits--;
    pthread_mutex_unlock(&res->lock);
}

enum sandbox_state resident_state(struct resident *res)
{
    enum sandbox_state state;

    pthread_mutex_lock(&res->lock);
    state = res->record.state;
    pthread_mutex_unlock(&res->lock);
    return state;
}

int resident_guest_begin(struct resident *res, struct channel **ret, struct err *e)
{
    int r = 0;

    pthread_mutex_lock(&res->lock);
    if (res->record.state == SANDBOX_STATE_RUNNING && res->channel) {
        *ret = channel_ref(res->channel);
    } else {
        r = err_set(e, -ESTALE, "not_running", "the sandbox is %s%s%s: start it first",
                    sandbox_state_name(res->record.state),
                    res->record.reason[0] ? ", because " : "", res->record.reason);
    }
    pthread_mutex_unlock(&res->lock);
    return r;
}

void resident_guest_end(struct channel *ch)
{
    channel_unref(ch);
}

void resident_guest_shut(struct resident *res)
{
    struct channel *ch;

    pthread_mutex_lock(&res->lock);
    ch = TAKE_PTR(res->channel);
    pthread_mutex_unlock(&res->lock);
    channel_free(ch);
}

json_t *resident_to_json(struct resident *res)
{
    json_t *out;

    pthread_mutex_lock(&res->lock);
    out = json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:s, s:I, s:I, s:s*}", "id", res->record.id,
                    "template", res->record.template_name, "state",
                    sandbox_state_name(res->record.state), "vcpus", (int)res->record.shape.vcpus,
                    "memory_mib", (int)res->record.shape.memory_mib, "disk_mib",
                    (int)res->record.shape.disk_mib, "accel", node_accel_name(res->record.accel),
                    "created_at_ms", (json_int_t)res->record.created_at_ms, "started_at_ms",
                    (json_int_t)res->record.started_at_ms, "reason",
                    res->record.reason[0] ? res->record.reason : NULL);
    ASSERT(out);
    json_object_set_new(out, "policy", policy_to_json(&res->record.policy));
    json_object_set_new(out, "network",
                        res->record.network ? json_incref(netpolicy_json(res->record.network))
                                            : json_pack("{s:s}", "preset", "none"));
    json_object_set_new(out, "at_end", json_string(sandbox_at_end_name(res->record.at_end)));
    json_object_set_new(out, "end_at_ms",
                        json_integer(lifetime_end(res->record.end_at_ms, res->record.paused_at_ms,
                                                  (int64_t)clock_wall_ms())));
    if (res->record.has_machine) {
        json_object_set_new(out, "pid", json_integer(res->record.machine.pid));
    }
    pthread_mutex_unlock(&res->lock);
    return out;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "network/gate.h"

#include <string.h>

struct slot {
    struct slot *next;     /* owned */
    struct island *island; /* owned: touched by its worker only, but for owner */
    struct worker *worker;
    char sandbox[INTERCEPT_ID_SIZE];
    char machine[INTERCEPT_ID_SIZE];
};

struct shard {
    struct gate *gate;
    struct worker *worker;   /* owned */
    struct island **islands; /* owned: the worker's own list, for ticks */
    size_t n_islands;
};

struct gate {
    struct resolver_servers servers;
    struct intercept *intercept;
    struct notifier *notifier;
    int log_dir_fd;
    struct shard shards[GATE_WORKERS_MAX];
    unsigned n_shards;
    struct slot *slots; /* owned */
    size_t n_slots;
    unsigned next_shard;
};

static bool on_tick(void *arg, uint64_t now_ns)
{
    struct shard *shard = arg;
    bool again = false;

    for (size_t i = 0; i < shard->n_islands; i++) {
        again = island_tick(shard->islands[i], now_ns) || again;
    }
    return again;
}

struct gate *gate_new(const struct gate_options *options)
{
    struct gate *gate = xnew(struct gate);

    ASSERT(options->workers > 0 && options->workers <= GATE_WORKERS_MAX);
    gate->servers = options->servers;
    gate->intercept = options->intercept;
    gate->notifier = options->notifier;
    gate->log_dir_fd = options->log_dir_fd;
    gate->n_shards = options->workers;
    for (unsigned i = 0; i < gate->n_shards; i++) {
        gate->shards[i].gate = gate;
        gate->shards[i].worker = worker_new(on_tick, &gate->shards[i]);
    }
    return gate;
}

void gate_free(struct gate *gate)
{
    if (!gate) {
        return;
    }
    gate_detach_all(gate);
    for (unsigned i = 0; i < gate->n_shards; i++) {
        worker_free(gate->shards[i].worker);
        free(gate->shards[i].islands);
    }
    free(gate);
}

static struct slot *find(struct gate *gate, const char *sandbox)
{
    for (struct slot *slot = gate->slots; slot; slot = slot->next) {
        if (str_eq(slot->sandbox, sandbox)) {
            return slot;
        }
    }
    return NULL;
}

static struct shard *shard_of(struct gate *gate, const struct slot *slot)
{
    for (unsigned i = 0; i < gate->n_shards; i++) {
        if (gate->shards[i].worker == slot->worker) {
            return &gate->shards[i];
        }
    }
    ASSERT(!"a slot's worker is one of ours");
    return NULL;
}

/* What is done in the worker's thread. */
struct work {
    struct shard *shard;
    struct slot *slot;
    const struct gate_attach *attach;
    const struct netpolicy *policy;
    uint64_t number;
    size_t limit;
    const struct island_answer *answer;
    int r;
    json_t *json;
};

static void do_attach(void *arg)
{
    struct work *work = arg;
    struct shard *shard = work->shard;
    struct island *island = work->slot->island;

    if (!island) {
        island = island_new(&(struct island_options){.owner = work->attach->owner,
                                                     .worker = shard->worker,
                                                     .intercept = shard->gate->intercept,
                                                     .notifier = shard->gate->notifier,
                                                     .servers = &shard->gate->servers,
                                                     .log_dir_fd = shard->gate->log_dir_fd});
        work->slot->island = island;
        shard->islands = xrealloc(shard->islands, (shard->n_islands + 1) * sizeof(struct island *));
        shard->islands[shard->n_islands++] = island;
    }
    if (!str_eq(work->slot->machine, work->attach->machine)) {
        conn_reset_all(island);
        memcpy(work->slot->machine, work->attach->machine, sizeof(work->slot->machine));
    }
    island_set_policy(island, work->attach->policy);
    island_listen_take(island, work->attach->fds[0], work->attach->fds[1]);
}

static void do_detach(void *arg)
{
    struct work *work = arg;
    struct shard *shard = work->shard;

    for (size_t i = 0; i < shard->n_islands; i++) {
        if (shard->islands[i] == work->slot->island) {
            shard->islands[i] = shard->islands[--shard->n_islands];
            break;
        }
    }
    island_free(work->slot->island);
}

int gate_attach_take(struct gate *gate, const struct gate_attach *attach, struct err *e)
{
    struct slot *slot = find(gate, attach->owner.sandbox);
    struct work work = {.attach = attach};

    if (!slot && gate->n_slots >= GATE_ISLANDS_MAX) {
        fd_close(attach->fds[0]);
        fd_close(attach->fds[1]);
        return err_set(e, -EMFILE, "too_many_sandboxes", "the network gateway has %u sandboxes",
                       GATE_ISLANDS_MAX);
    }
    if (!slot) {
        slot = xnew(struct slot);
        memcpy(slot->sandbox, attach->owner.sandbox, sizeof(slot->sandbox));
        slot->worker = gate->shards[gate->next_shard++ % gate->n_shards].worker;
        slot->next = gate->slots;
        gate->slots = slot;
        gate->n_slots++;
    }
    work.slot = slot;
    work.shard = shard_of(gate, slot);
    worker_call(slot->worker, do_attach, &work);
    return 0;
}

static int begin(struct gate *gate, const char *sandbox, struct work *ret, struct err *e)
{
    struct slot *slot = find(gate, sandbox);

    if (!slot) {
        return err_set(e, -ENOENT, "not_attached", "the network gateway has no sandbox '%s'",
                       sandbox);
    }
    ret->slot = slot;
    ret->shard = shard_of(gate, slot);
    return 0;
}

static void do_policy(void *arg)
{
    struct work *work = arg;

    island_set_policy(work->slot->island, work->policy);
}

int gate_set_policy(struct gate *gate, const char *sandbox, const struct netpolicy *policy,
                    struct err *e)
{
    struct work work = {.policy = policy};
    int r = begin(gate, sandbox, &work, e);

    if (r == 0) {
        worker_call(work.slot->worker, do_policy, &work);
    }
    return r;
}

void gate_detach(struct gate *gate, const char *sandbox, const char *machine)
{
    struct work work = {0};
    struct slot **at = &gate->slots;

    if (begin(gate, sandbox, &work, NULL) < 0 ||
        (machine[0] && !str_eq(machine, work.slot->machine))) {
        return;
    }
    worker_call(work.slot->worker, do_detach, &work);
    while (*at != work.slot) {
        at = &(*at)->next;
    }
    *at = work.slot->next;
    gate->n_slots--;
    free(work.slot);
}

void gate_detach_all(struct gate *gate)
{
    while (gate->slots) {
        gate_detach(gate, gate->slots->sandbox, "");
    }
}

static bool array_has(json_t *ids, const char *id)
{
    size_t i;
    json_t *item;

    json_array_foreach(ids, i, item)
    {
        if (json_is_string(item) && str_eq(json_string_value(item), id)) {
            return true;
        }
    }
    return false;
}

void gate_keep(struct gate *gate, json_t *ids)
{
    struct slot *next;

    if (gate->log_dir_fd >= 0) {
        egress_forget(gate->log_dir_fd, ids);
    }
    for (struct slot *slot = gate->slots; slot; slot = next) {
        next = slot->next;
        if (!array_has(ids, slot->sandbox)) {
            gate_detach(gate, slot->sandbox, "");
        }
    }
}

static json_t *counts_json(const struct island *island)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I}", "connections", (json_int_t)island->n_conns, "allowed",
        (json_int_t)(island->log.counts[NETPOLICY_ALLOW] + island->log.counts[NETPOLICY_INSPECT]),
        "denied", (json_int_t)island->log.counts[NETPOLICY_DENY], "over_limit",
        (json_int_t)island->n_refused, "bytes_up", (json_int_t)island->log.bytes_up, "bytes_down",
        (json_int_t)island->log.bytes_down);
}

static void do_status(void *arg)
{
    struct work *work = arg;
    struct island *island = work->slot->island;

    work->json = counts_json(island);
    json_object_set_new(work->json, "open", conn_list_json(island));
    json_object_set_new(work->json, "asks", island_asks_json(island));
}

json_t *gate_status(struct gate *gate, const char *sandbox)
{
    struct work work = {0};

    if (begin(gate, sandbox, &work, NULL) < 0) {
        return NULL;
    }
    worker_call(work.slot->worker, do_status, &work);
    return work.json;
}

static void do_log(void *arg)
{
    struct work *work = arg;

    work->json = egress_to_json(&work->slot->island->log, work->number, work->limit);
}

json_t *gate_log(struct gate *gate, const char *sandbox, uint64_t after, size_t limit)
{
    struct work work = {.number = after, .limit = limit};

    if (begin(gate, sandbox, &work, NULL) < 0) {
        return NULL;
    }
    worker_call(work.slot->worker, do_log, &work);
    return work.json;
}

static void do_propose(void *arg)
{
    struct work *work = arg;

    work->json = egress_propose(&work->slot->island->log);
}

json_t *gate_propose(struct gate *gate, const char *sandbox)
{
    struct work work = {0};

    if (begin(gate, sandbox, &work, NULL) < 0) {
        return NULL;
    }
    worker_call(work.slot->worker, do_propose, &work);
    return work.json;
}

static void do_answer(void *arg)
{
    struct work *work = arg;

    work->r = island_answer(work->slot->island, work->answer);
}

int gate_answer(struct gate *gate, const char *sandbox, const struct island_answer *answer,
                struct err *e)
{
    struct work work = {.answer = answer};
    int r = begin(gate, sandbox, &work, e);

    if (r < 0) {
        return r;
    }
    worker_call(work.slot->worker, do_answer, &work);
    return work.r < 0 ? err_set(e, work.r, "no_such_ask",
                                "nothing waits for an answer under the number %llu",
                                (unsigned long long)answer->number)
                      : 0;
}

static void do_totals(void *arg)
{
    struct work *work = arg;

    work->json = counts_json(work->slot->island);
}

json_t *gate_totals(struct gate *gate)
{
    json_t *out = json_pack("{s:I}", "sandboxes", (json_int_t)gate->n_slots);

    for (struct slot *slot = gate->slots; slot; slot = slot->next) {
        struct work work = {.slot = slot};
        const char *name;
        json_t *value;

        worker_call(slot->worker, do_totals, &work);
        json_object_foreach(work.json, name, value)
        {
            json_object_set_new(
                out, name, json_integer(json_get_int(out, name, 0) + json_integer_value(value)));
        }
        json_decref(work.json);
    }
    return out;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "network/egress.h"

#include "base/clock.h"
#include "ipc/netgate.h"
#include "network/figures.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* A policy that was proposed should be one that a person can read. */
#define PROPOSAL_MAX 256u
/* Of the entries in one answer, which has to fit into a packet of ipc/netgate.h. */
#define EGRESS_PAGE_BYTES (NETGATE_PACKET_MAX - 1024u)

void egress_entry_done(struct egress_entry *entry)
{
    free(entry->name);
    free(entry->credential);
    free(entry->method);
    free(entry->path);
    *entry = (struct egress_entry){0};
}

void egress_init(struct egress *log)
{
    *log = (struct egress){.dir_fd = FD_NONE, .fd = FD_NONE};
}

void egress_done(struct egress *log)
{
    for (size_t i = 0; log->entries && i < EGRESS_MAX; i++) {
        egress_entry_done(&log->entries[i]);
    }
    free(log->entries);
    fd_close(log->fd);
    egress_init(log);
}

uint64_t egress_add_take(struct egress *log, const struct egress_entry *entry)
{
    struct egress_entry *slot;

    if (!log->entries) {
        log->entries = xnew_n(struct egress_entry, EGRESS_MAX);
    }
    slot = &log->entries[++log->last % EGRESS_MAX];
    egress_entry_done(slot);
    *slot = *entry;
    slot->seq = log->last;
    slot->at_ms = clock_wall_ms();
    if (entry->kind != EGRESS_REQUEST) {
        log->counts[entry->action]++;
        figures_count_decision(entry);
    }
    egress_note(log, slot);
    return slot->seq;
}

void egress_restore_take(struct egress *log, const struct egress_entry *entry)
{
    struct egress_entry *slot;

    if (!log->entries) {
        log->entries = xnew_n(struct egress_entry, EGRESS_MAX);
    }
    slot = &log->entries[entry->seq % EGRESS_MAX];
    egress_entry_done(slot);
    *slot = *entry;
    log->last = MAX(log->last, entry->seq);
}

struct egress_entry *egress_find(struct egress *log, uint64_t seq)
{
    struct egress_entry *slot = log->entries ? &log->entries[seq % EGRESS_MAX] : NULL;

    return slot && seq > 0 && slot->seq == seq ? slot : NULL;
}

const char *egress_kind_name(enum egress_kind kind)
{
    static const char *const names[] = {"connection", "name", "request"};

    _Static_assert(ARRAY_SIZE(names) == EGRESS_KIND_COUNT_, "each has its name");
    return names[kind];
}

json_t *egress_entry_json(const struct egress_entry *entry)
{
    char addr[INET_ADDRSTRLEN] = "";
    json_t *out = json_object();

    json_object_set_new(out, "seq", json_integer((json_int_t)entry->seq));
    json_object_set_new(out, "at_ms", json_integer((json_int_t)entry->at_ms));
    json_object_set_new(out, "kind", json_string(egress_kind_name(entry->kind)));
    json_object_set_new(out, "host", entry->name ? json_string(entry->name) : json_null());
    if (entry->kind != EGRESS_NAME) {
        inet_ntop(AF_INET, &entry->addr, addr, sizeof(addr));
        json_object_set_new(out, "addr", json_string(addr));
        json_object_set_new(out, "port", json_integer(entry->port));
    }
    json_object_set_new(out, "action", json_string(netpolicy_action_name(entry->action)));
    json_object_set_new(out, "rule", entry->rule >= 0 ? json_integer(entry->rule) : json_null());
    json_object_set_new(out, "level", json_string(netpolicy_level_name(entry->level)));
    json_object_set_new(out, "observed", json_boolean(entry->observed));
    json_object_set_new(out, "reason", entry->why[0] ? json_string(entry->why) : json_null());
    if (entry->kind == EGRESS_CONNECTION && entry->action != NETPOLICY_DENY) {
        json_object_set_new(out, "open", json_boolean(entry->open));
        json_object_set_new(out, "bytes_up", json_integer((json_int_t)entry->bytes_up));
        json_object_set_new(out, "bytes_down", json_integer((json_int_t)entry->bytes_down));
        json_object_set_new(out, "ended_ms",
                            entry->open ? json_null() : json_integer((json_int_t)entry->ended_ms));
    }
    if (entry->requests > 0) {
        json_object_set_new(out, "requests", json_integer(entry->requests));
        json_object_set_new(out, "status", json_integer(entry->status));
    }
    if (entry->kind == EGRESS_REQUEST) {
        json_object_set_new(out, "method", json_string(entry->method));
        json_object_set_new(out, "path", json_string(entry->path));
        json_object_set_new(out, "status", json_integer(entry->status));
    }
    if (entry->credential) {
        json_object_set_new(out, "credential", json_string(entry->credential));
    }
    return out;
}

static uint64_t oldest(const struct egress *log)
{
    return log->last > EGRESS_MAX ? log->last - EGRESS_MAX + 1 : 1;
}

json_t *egress_to_json(struct egress *log, uint64_t after, size_t limit)
{
    uint64_t first = MAX(after + 1, oldest(log));
    json_t *list = json_array();
    uint64_t next = log->last;
    size_t size = 0;

    if (after == 0 && log->last >= limit) {
        first = MAX(first, log->last - limit + 1);
    }
    for (uint64_t seq = first; seq <= log->last && json_array_size(list) < limit; seq++) {
        const struct egress_entry *entry = egress_find(log, seq);
        json_t *json = entry ? egress_entry_json(entry) : NULL;

        size += json ? json_dumpb(json, NULL, 0, JSON_COMPACT) + 1 : 0;
        if (size > EGRESS_PAGE_BYTES) {
            json_decref(json);
            break;
        }
        if (json) {
            json_array_append_new(list, json);
        }
        next = seq;
    }
    return json_pack("{s:o, s:I}", "entries", list, "next", (json_int_t)next);
}

static json_t *proposed_rule(const struct egress_entry *entry)
{
    char addr[INET_ADDRSTRLEN] = "";
    char ports[8];

    snprintf(ports, sizeof(ports), "%u", entry->port);
    if (entry->name) {
        return json_pack("{s:s, s:s, s:s}", "host", entry->name, "ports", ports, "action", "allow");
    }
    inet_ntop(AF_INET, &entry->addr, addr, sizeof(addr));
    return json_pack("{s:s, s:s, s:s}", "cidr", addr, "ports", ports, "action", "allow");
}

static bool has_value(json_t *list, json_t *value)
{
    size_t i;
    json_t *item;

    json_array_foreach(list, i, item)
    {
        if (json_equal(item, value)) {
            return true;
        }
    }
    return false;
}

json_t *egress_propose(struct egress *log)
{
    json_t *rules = json_array();

    for (uint64_t seq = oldest(log); seq <= log->last && json_array_size(rules) < PROPOSAL_MAX;
         seq++) {
        const struct egress_entry *entry = egress_find(log, seq);
        cleanup_json json_t *rule = NULL;

        if (!entry || entry->kind != EGRESS_CONNECTION || entry->action == NETPOLICY_DENY) {
            continue;
        }
        rule = proposed_rule(entry);
        if (!has_value(rules, rule)) {
            json_array_append(rules, rule);
        }
    }
    return rules;
}

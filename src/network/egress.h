/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The egress log of one sandbox: each connection and each refused name, what decided, and what it moved. The
 * newest EGRESS_MAX entries are kept in memory; what is older is counted. An entry is made when it is decided
 * and completed when it ends. Never holds a byte of what was sent, but the names that the guest gave.
 */
#pragma once

#include "base/json.h"
#include "model/netpolicy.h"

#define EGRESS_MAX 1024u

enum egress_kind {
    EGRESS_CONNECTION,
    EGRESS_NAME, /* a question for a name, refused */
};

struct egress_entry {
    uint64_t seq; /* from 1, never again */
    uint64_t at_ms;
    enum egress_kind kind;
    enum netpolicy_action action;
    int rule;
    bool observed; /* it would have been denied */
    bool open;     /* still under way */
    char *name;    /* owned; NULL: none */
    struct in_addr addr;
    uint16_t port;
    const char *why; /* static: a stable word; NULL: the rule */
    uint64_t bytes_up;
    uint64_t bytes_down;
    uint64_t ended_ms;
    uint32_t requests;
    int status;
    char *credential; /* owned; NULL: none was used */
};

struct egress {
    struct egress_entry *entries; /* owned: a ring by seq */
    uint64_t last;                /* seq of the newest; 0: none */
    uint64_t counts[NETPOLICY_ACTION_COUNT_];
    uint64_t bytes_up; /* of connections that have ended */
    uint64_t bytes_down;
};

void egress_done(struct egress *log);
/* Copies *entry, but for seq and at_ms; the strings are taken over. Returns its seq. */
uint64_t egress_add_take(struct egress *log, const struct egress_entry *entry);
/* NULL: it is no longer kept. */
struct egress_entry *egress_find(struct egress *log, uint64_t seq);
/* {"entries": [...], "next": seq} with those after seq, oldest first, at most limit (the newest of them if all is asked for with after 0). */
json_t *egress_to_json(struct egress *log, uint64_t after, size_t limit);
/* The least policy that allows what is in the log: an array of rules. */
json_t *egress_propose(struct egress *log);

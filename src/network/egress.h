/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The egress log of one sandbox: each connection, each request on one that is looked into, and each refused name; what decided, and
 * what it moved. The newest EGRESS_MAX entries are kept in memory; what is older is counted. An entry is made when it is decided
 * and completed when it ends. With egress_keep() they are in a file as well, which is bounded, and are there again after the
 * process was another. Never holds a byte of what was sent, but the names that the guest gave, and methods and paths
 * (without what follows "?") of its requests.
 */
#pragma once

#include "base/json.h"
#include "model/netpolicy.h"

#define EGRESS_MAX 1024u
/* Of what a guest chose in a request. */
#define EGRESS_METHOD_MAX 24u
#define EGRESS_PATH_MAX 256u

enum egress_kind {
    EGRESS_CONNECTION,
    EGRESS_NAME,    /* a question for a name, refused */
    EGRESS_REQUEST, /* on a connection that is looked into; it is complete at once */
    EGRESS_KIND_COUNT_,
};

struct egress_entry {
    uint64_t seq; /* from 1, never again */
    uint64_t at_ms;
    enum egress_kind kind;
    enum netpolicy_action action;
    int rule;
    enum netpolicy_level level; /* whose rule */
    bool observed;              /* it would have been denied */
    bool open;                  /* still under way */
    char *name;                 /* owned; NULL: none */
    struct in_addr addr;
    uint16_t port;
    char why[24]; /* a stable word; "": the rule */
    uint64_t bytes_up;
    uint64_t bytes_down;
    uint64_t ended_ms;
    uint32_t requests;
    int status;
    char *credential; /* owned; NULL: none was used */
    char *method;     /* owned; of a request; NULL: none */
    char *path;       /* owned; the same */
};

/* Frees the strings of one that no log has taken. */
void egress_entry_done(struct egress_entry *entry);

struct egress {
    struct egress_entry *entries; /* owned: a ring by seq */
    uint64_t last;                /* seq of the newest; 0: none */
    uint64_t counts[NETPOLICY_ACTION_COUNT_];
    uint64_t bytes_up; /* of connections that have ended */
    uint64_t bytes_down;
    int dir_fd;    /* borrowed */
    int fd;        /* owned; FD_NONE: no file */
    char file[24]; /* the sandbox's id */
    size_t file_size;
};

void egress_init(struct egress *log);
void egress_done(struct egress *log);
/* Copies *entry, but for seq and at_ms; the strings are taken over. Returns its seq. */
uint64_t egress_add_take(struct egress *log, const struct egress_entry *entry);
/* NULL: it is no longer kept. */
struct egress_entry *egress_find(struct egress *log, uint64_t seq);
/* {"entries": [...], "next": seq} with those after seq, oldest first, at most limit (the newest of them if all is asked for
 * with after 0), and as many as a packet holds. */
json_t *egress_to_json(struct egress *log, uint64_t after, size_t limit);
const char *egress_kind_name(enum egress_kind kind);
/* One entry as the API has it. */
json_t *egress_entry_json(const struct egress_entry *entry);
/* Back into its place; the strings are taken over. */
void egress_restore_take(struct egress *log, const struct egress_entry *entry);
/* The least policy that allows what is in the log: an array of rules. */
json_t *egress_propose(struct egress *log);

/* ---- egress-file.c ---- */

/* Reads what the file has, before the first entry, and writes to it from then on. Without it: a warning, and memory only. */
void egress_keep(struct egress *log, int dir_fd, const char *sandbox);
/* The entry was made, or completed. */
void egress_note(struct egress *log, const struct egress_entry *entry);
/* Files of sandboxes that are not among the ids and that nobody has written to for a month. */
void egress_forget(int dir_fd, json_t *ids);

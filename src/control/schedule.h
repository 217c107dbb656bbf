/* SPDX-License-Identifier: Apache-2.0 */

/*
 * On which node? Pure: facts about nodes and a wish in, every node with its verdict out, the best first.
 *
 * A node fits when it is alive, takes sandboxes, and has room for the shape; when the template is there, or travels with what
 * is stored; when it can run the memory of what is restored, unless that may start afresh from its disk; and when no sibling is
 * there, if siblings have to be apart. Among those that fit the score decides, and the name where scores are equal.
 *
 *     can run the stored memory    4000   its processes go on
 *     siblings apart, preferred   -1000   for each sibling that is there
 *     the template is there         400   nothing has to be fetched
 *     a warm machine is there       200   200 when dressed with the template, 100 when not
 *     it was there before           150   what it needs may be there still
 *     free memory                 0-100   of what there is, in per cent; so that load spreads
 *
 * What a node says may be old: it is the node that says no in the end, and then the next one is asked. So the verdict "full"
 * saves a round trip, and a wrong "fits" costs one.
 */
#pragma once

#include "model/names.h"
#include "model/sandbox.h"

#define SCHEDULE_NODES_MAX 1024
#define SCHEDULE_TEXT_SIZE 160
#define SCHEDULE_WORD_SIZE 64
/* A guest rarely uses its vCPUs: so many of them for one of the host. */
#define SCHEDULE_VCPUS_PER_CPU 16
/* What the node keeps free itself: the same numbers as in sandbox/node.h. */
#define SCHEDULE_RESERVE_MIB 512

enum schedule_wanted {
    SCHEDULE_ACTIVE,
    SCHEDULE_CORDONED, /* keeps what it has, takes nothing new */
    SCHEDULE_DRAINING, /* on its way to having none */
};

/* Machines that wait for a request. */
struct schedule_warm {
    char template_name[TEMPLATE_NAME_SIZE]; /* they are dressed with; "": none */
    unsigned vcpus;
    unsigned memory_mib;
    unsigned n;
};

struct schedule_node {
    char name[SANDBOX_NODE_SIZE];
    enum schedule_wanted wanted;
    bool alive; /* its lease runs */
    bool known; /* it has said what follows */
    uint64_t memory_mib;
    uint64_t memory_free_mib;
    uint64_t pool_free_mib;
    unsigned cpus;
    unsigned vcpus_used;
    unsigned sandboxes;
    unsigned sandboxes_max;
    char accel[SCHEDULE_WORD_SIZE];
    char vmm[SCHEDULE_WORD_SIZE]; /* the VMM's version */
    char cpu[SCHEDULE_WORD_SIZE]; /* what a guest's memory depends on besides; "": nothing */
    const char (*templates)[TEMPLATE_NAME_SIZE]; /* borrowed for the call */
    size_t n_templates;
    const struct schedule_warm *warm; /* borrowed for the call */
    size_t n_warm;
    unsigned siblings; /* of what is wished for, that are there */
};

enum schedule_apart {
    SCHEDULE_APART_NO,
    SCHEDULE_APART_PREFERRED,
    SCHEDULE_APART_REQUIRED,
};

struct schedule_wish {
    struct shape shape;
    const char *template_name; /* borrowed for the call */
    bool stored;               /* it is in the object store, and its template as well */
    bool need_memory;          /* rather not at all than afresh from the disk */
    const char *accel; /* borrowed for the call, as the next: of the stored memory; "": not known */
    const char *vmm;
    const char *cpu;
    const char *was_on; /* borrowed for the call; "": nowhere */
    const char *avoid;  /* borrowed for the call: not this one; "": any */
    enum schedule_apart apart;
};

enum schedule_why {
    SCHEDULE_FITS,
    SCHEDULE_AVOIDED,
    SCHEDULE_DEAD,
    SCHEDULE_NOT_TAKING,
    SCHEDULE_UNKNOWN,
    SCHEDULE_NO_TEMPLATE,
    SCHEDULE_NO_MEMORY_FIT, /* it could not go on where it was */
    SCHEDULE_TOO_MANY,
    SCHEDULE_NO_CPU,
    SCHEDULE_NO_MEMORY,
    SCHEDULE_NO_POOL,
    SCHEDULE_SIBLING,
    SCHEDULE_WHY_COUNT_,
};

struct schedule_verdict {
    size_t node; /* its place in the input */
    enum schedule_why why;
    int score;                     /* of one that fits */
    bool cold;                     /* it fits, but would start afresh from the disk */
    char text[SCHEDULE_TEXT_SIZE]; /* for people */
};

/* "fits", "no_memory", ...: for programs. */
const char *schedule_why_name(enum schedule_why why);
/* ret has room for n. Returns how many fit: those come first, the best of them at 0. */
size_t schedule(const struct schedule_wish *wish, const struct schedule_node *nodes, size_t n,
                struct schedule_verdict *ret);

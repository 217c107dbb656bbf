/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All islands of the node, over a few workers, as the control socket sees them. Calls come from one thread and
 * wait until the worker has done them.
 */
#pragma once

#include "network/island.h"

#define GATE_WORKERS_MAX 16u
/* As many machines as a node may have: one for each user slot would be 65536; memory ends before that. */
#define GATE_ISLANDS_MAX 16384u

struct gate;

struct gate_options {
    unsigned workers;
    struct resolver_servers servers;
    struct intercept *intercept; /* borrowed; may be NULL */
    struct notifier *notifier;   /* borrowed; may be NULL */
    int log_dir_fd;              /* borrowed: where egress logs are kept; FD_NONE: nowhere */
};

struct gate *gate_new(const struct gate_options *options);
void gate_free(struct gate *gate);
DEFINE_CLEANUP(struct gate *, gate_free);

struct gate_attach {
    struct intercept_owner owner;
    char machine[INTERCEPT_ID_SIZE]; /* with another one than before, all connections are reset */
    const struct netpolicy *policy;
    int fds[2]; /* as priv_machine_socket() gives them: TCP, DNS */
};

/* Makes the island or takes its new sockets, which are taken over in any case. -EMFILE "too_many_sandboxes". */
MUST_CHECK int gate_attach_take(struct gate *gate, const struct gate_attach *attach, struct err *e);
/* -ENOENT "not_attached". */
MUST_CHECK int gate_set_policy(struct gate *gate, const char *sandbox,
                               const struct netpolicy *policy, struct err *e);
/* Only if it has that machine ("": whichever). */
void gate_detach(struct gate *gate, const char *sandbox, const char *machine);
void gate_detach_all(struct gate *gate);
/* Detaches all whose ids are not in the array. */
void gate_keep(struct gate *gate, json_t *ids);

/* Of one sandbox: counts, connections, asks. NULL: not attached. */
json_t *gate_status(struct gate *gate, const char *sandbox);
json_t *gate_log(struct gate *gate, const char *sandbox, uint64_t after, size_t limit);
/* The least rules for what was seen. */
json_t *gate_propose(struct gate *gate, const char *sandbox);
/* -ENOENT "not_attached", "no_such_ask". */
MUST_CHECK int gate_answer(struct gate *gate, const char *sandbox,
                           const struct island_answer *answer, struct err *e);
/* Of all together. */
json_t *gate_totals(struct gate *gate);

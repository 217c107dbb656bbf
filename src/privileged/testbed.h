/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the root tests: a node manager with folders, users' slots and a cgroup of its own, machines
 * that run the probe (probe.c), and a picture of everything on the host that a machine could leave
 * behind.
 *
 * The test program gets a mount namespace of its own, so that its picture of the mounts is not
 * disturbed. Everything is below one scratch folder; testbed_done() removes it and ends the node
 * manager and its machines.
 */
#pragma once

#include "base/proc.h"
#include "ipc/priv.h"

struct testbed {
    char *dir;                  /* owned: scratch; state/ and run/ below it */
    char *cgroup;               /* owned: name of the group of our machines */
    struct proc manager;        /* pid 0: not running */
    struct priv_client *client; /* owned */
    uint32_t slot;              /* first of the slots that this testbed may use */
};

/* NULL when this cannot work here (not root, no cgroups); *why then says it. */
struct testbed *testbed_new(const char **why);
void testbed_free(struct testbed *t);
DEFINE_CLEANUP(struct testbed *, testbed_free);

struct testbed_manager {
    bool faults;          /* the program with FAULT() points */
    const char *fault_at; /* NULL: none */
    bool fault_kill;
    const char *user;      /* NULL: root */
    const char *vmm;       /* NULL: the probe */
    const char *first_uid; /* NULL: TESTBED_FIRST_UID */
};
/* The second range: whatever SPACE is up on this host has another. */
#define TESTBED_FIRST_UID (PRIV_MACHINE_UID_BASE + PRIV_MACHINE_UIDS)

/* Starts the node manager and waits until its socket answers. */
MUST_CHECK int testbed_start(struct testbed *t, const struct testbed_manager *how);
/* Ends it with this signal and waits. Returns its wait status. */
int testbed_stop(struct testbed *t, int signo);

/* Descriptors for one machine, all as they should be. */
struct testbed_machine {
    struct priv_machine_start request;
    int fds[PRIV_FD_COUNT_]; /* owned */
    char *channel_path;      /* owned */
    char *qmp_path;          /* owned */
    struct priv_machine machine;
    int pidfd;      /* owned */
    int connection; /* owned: to the probe */
};
void testbed_machine_init(struct testbed *t, struct testbed_machine *m, const char *id,
                          uint32_t slot);
void testbed_machine_done(struct testbed_machine *m);
MUST_CHECK int testbed_machine_start(struct testbed *t, struct testbed_machine *m, struct err *e);
/*
 * Asks the probe. Returns the answer without its newline, valid until the next question; "" if it
 * died.
 */
const char *testbed_ask(struct testbed_machine *m, const char *fmt, ...) PRINTF(2, 3);
/* Waits for the VMM's end. */
bool testbed_ended(const struct testbed_machine *m, uint64_t deadline_ns);

/*
 * Cgroups, mounts, processes of our slots, the node manager's descriptors and children, files in
 * the state and run folders: one per line. Owned by the caller.
 */
char *testbed_picture(struct testbed *t);

/*
 * The content of a file below our group in a hierarchy ("memory", ...; on version 2 any), "" if
 * there is none.
 */
char *testbed_cgroup_file(struct testbed *t, const char *hierarchy, const char *machine,
                          const char *file);
bool testbed_cgroup_v2(void);

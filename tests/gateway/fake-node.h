/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A sandbox manager without machines, in this process, on a unix socket: enough of the node API to test the
 * gateway against, with faults and barriers.
 *
 * A held operation stops after the request was read; fake_node_await_held() waits until that many have
 * arrived, fake_node_release() lets them go on. A create whose client disconnects while it is held, or
 * before its answer is written, leaves no sandbox, as on the real node.
 */
#pragma once

#include "base/json.h"

enum fake_op {
    FAKE_CREATE,
    FAKE_DELETE,
    FAKE_LIST,
    FAKE_GET,
    FAKE_STOP,
    FAKE_START,
    FAKE_GUEST,
    FAKE_PAUSE,
    FAKE_RESUME,
    FAKE_ROLLBACK,
    FAKE_FORK,
    FAKE_POLICY,
    FAKE_NETWORK,
    FAKE_ASK, /* one question waits in each sandbox: number 7, with the token FAKE_ASK_TOKEN */
    FAKE_END,
    FAKE_SUSPEND,
    FAKE_RESTORE,
    FAKE_SNAPSHOT, /* all of /snapshots, /history and /trace */
    FAKE_OP_COUNT_
};

enum fake_fault {
    FAKE_FINE,
    FAKE_ERROR,    /* 503 no_capacity */
    FAKE_CUT,      /* the connection is cut without an answer */
    FAKE_HALF,     /* half an answer, then cut */
    FAKE_NONSENSE, /* 200 with JSON that is not what was asked for */
    FAKE_NOT_JSON, /* 200 with something else */
    FAKE_LOST,     /* done, but the answer is cut */
};

struct fake_node;

struct fake_node *fake_node_start(const char *socket_path);
/* At a port of 127.0.0.1 instead, with mutual TLS; *port 0: a free one, which is then there. tls is borrowed. */
struct http_tls;
struct fake_node *fake_node_start_tls(const char *socket_path, struct http_tls *tls,
                                      uint16_t *port);
/* Cuts what is still open. What it "ran" is forgotten with it. */
void fake_node_stop(struct fake_node *n);
DEFINE_CLEANUP(struct fake_node *, fake_node_stop);

void fake_node_fault(struct fake_node *n, enum fake_op op, enum fake_fault fault);
void fake_node_hold(struct fake_node *n, enum fake_op op);
void fake_node_await_held(struct fake_node *n, enum fake_op op, unsigned count);
void fake_node_release(struct fake_node *n, enum fake_op op);

/* How often an operation was asked for. */
unsigned fake_node_asked(struct fake_node *n, enum fake_op op);
/* Waits until it was asked for that often. */
void fake_node_await_asked(struct fake_node *n, enum fake_op op, unsigned count);
/* How many sandboxes were really made, ever. */
unsigned fake_node_made(struct fake_node *n);
/* How many there are. */
unsigned fake_node_count(struct fake_node *n);
bool fake_node_has(struct fake_node *n, const char *id);
/* The object store of all fake nodes. */
bool fake_store_has(const char *id);
/* It refuses memory that comes from elsewhere, and starts afresh from the disk when it may. */
void fake_node_differs(struct fake_node *n);
/* How many it has started afresh so. */
unsigned fake_node_cold(struct fake_node *n);
/* It has it, running, and is not fenced. */
bool fake_node_runs(struct fake_node *n, const char *id);
/* Calls each with the id of all it has, under its lock. */
void fake_node_each(struct fake_node *n, void (*each)(void *ctx, const char *id), void *ctx);
/* Its lease is over: what it has stands still, and nothing but deletions is done, until it is granted again. */
void fake_node_fence(struct fake_node *n);
/* How often it was granted one. */
unsigned fake_node_grants(struct fake_node *n);
/* How often it was told that it is nobody's. */
unsigned fake_node_lease_ends(struct fake_node *n);
/* It does not say what it is and has, as one that cannot be reached. */
void fake_node_silence(struct fake_node *n, bool silent);
/* Behind the gateway's back: makes, loses or changes one. state "" removes it. */
void fake_node_set(struct fake_node *n, const char *id, const char *state);

/* Until when the node keeps one, as it was told; -1: it has no such sandbox. */
int64_t fake_node_end_at_ms(struct fake_node *n, const char *id);
/* The policy under which the node keeps one; heap string of JSON, "" when it has none. */
char *fake_node_policy(struct fake_node *n, const char *id);
/* What the node was told that one may reach; heap string of JSON with sorted keys, "" when it was told nothing. */
char *fake_node_network(struct fake_node *n, const char *id);
#define FAKE_ASK_TOKEN "0123456789abcdef"
/* Every sandbox has this one snapshot. */
#define FAKE_SNAPSHOT_ID "n0000000000000000001"

/* What the daemon answers to the next guest requests; frames as raw bytes. Copied. */
void fake_node_guest_answer(struct fake_node *n, int status, const char *type, const void *data,
                            size_t len);
/* Cut instead of ending the answer. */
void fake_node_guest_cut(struct fake_node *n, bool cut);
/* The next guest answers go out only after that many bytes came to stdin, or their client has gone. */
void fake_node_guest_after_stdin(struct fake_node *n, size_t len);
/* The last guest request: "METHOD target\nheader: value\n...\n\nbody". Heap string. */
char *fake_node_guest_seen(struct fake_node *n);
/* All bytes that came to any stdin, in order. Heap string; waits until there are at least len. */
char *fake_node_stdin_seen(struct fake_node *n, size_t len);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the node must know about a sandbox after any crash: records/ID.json, replaced whole. Written
 * before the first resource of a sandbox is made and after each step that changes what exists. Encoding
 * and decoding are pure.
 */
#pragma once

#include "base/json.h"
#include "machine/machine.h"
#include "model/names.h"
#include "model/netpolicy.h"
#include "model/policy.h"
#include "model/sandbox-state.h"
#include "model/sandbox.h"
#include "model/shape.h"

#define RECORD_MAX (320u * 1024)
/* A whole sentence of struct err: what is cut inside a character would be no JSON. */
#define RECORD_REASON_SIZE 400
#define MACHINE_ID_SIZE 33 /* 32 hex digits, as in machine-id(5) */

struct record {
    char id[ID_SIZE];
    char template_name[TEMPLATE_NAME_SIZE];
    struct shape shape;
    json_t *env; /* owned: object of strings */
    char org[ID_SIZE];
    char project[ID_SIZE];
    char machine_id[MACHINE_ID_SIZE];
    enum sandbox_state state;
    char reason[RECORD_REASON_SIZE];
    uint64_t created_at_ms;
    uint64_t started_at_ms;
    enum qemu_accel accel;
    int64_t end_at_ms; /* its life ends then, see model/lifetime.h; 0: never */
    enum sandbox_at_end at_end;
    int64_t paused_at_ms; /* its time stands still since then; 0: it does not */
    struct policy policy;
    const struct netpolicy *network; /* owned: a reference; NULL: none, nothing may be reached */
    bool wake_on_request;            /* while paused: the next request resumes it */
    uint32_t disk_n;                 /* which subvolume is the disk: see snapshot.h */
    uint32_t last_n;                 /* the highest number ever used */
    uint32_t parent_n;               /* the snapshot that the present came after */
    char origin[ID_SIZE];            /* it was forked from this sandbox; "": it was not */
    uint32_t origin_n;               /* the snapshot there that its life began after; 0: none */
    uint64_t durable_at_ms; /* something of it may be in the object store, from then; 0: nothing */
    bool has_machine;       /* machine says which */
    struct machine_record machine;
};

void record_done(struct record *rec);
/* The node API's POST body into a new record (state creating). Errors name the field. */
MUST_CHECK int record_from_request(json_t *body, struct record *ret, struct err *e);
/* Sets the state, and with it the clock of its life time. */
void record_enter(struct record *rec, enum sandbox_state to);
/* "end_at_ms" and "at_end" of a body that says when a life ends, and how. -EINVAL with field. */
MUST_CHECK int record_end_from_json(json_t *body, int64_t *ret_end_at_ms, enum sandbox_at_end *ret,
                                    struct err *e);
/* Do both ask for the same sandbox? What an idempotent create compares. */
bool record_same_spec(const struct record *a, const struct record *b);

json_t *record_to_json(const struct record *rec);
/* -EBADMSG: not a record of ours. */
MUST_CHECK int record_from_json(json_t *root, struct record *ret);

enum record_durability {
    RECORD_SURVIVES_PROCESS, /* replaced whole; in the page cache */
    RECORD_SURVIVES_HOST,    /* and on the disk */
};
MUST_CHECK int record_write(int records_fd, const struct record *rec,
                            enum record_durability durability);
/* 0 also when there is none. */
MUST_CHECK int record_remove(int records_fd, const char *id);
/* -ENOENT; -EBADMSG: damaged. */
MUST_CHECK int record_read(int records_fd, const char *id, struct record *ret);

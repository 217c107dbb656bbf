/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit log of credentials: one line of JSON for each use, refusal and change; only ever added to, each line
 * chained to the one before it:
 *
 *     {"n":7,"at_ms":...,"event":"use",...,"prev":"HASH OF LINE 6","hash":"SHA-256 OF THIS LINE WITHOUT hash"}
 *
 * Whoever changes, removes or inserts a line breaks the chain from there on; whoever cuts the end off makes the last number
 * and hash differ from what was noted elsewhere (audit_check gives both; `space audit verify` prints them). A line that
 * a crash cut short is removed at the next start and said so in a line of its own.
 *
 * A change is on the disk (fdatasync) before it is answered; uses are written before they happen and survive a crash of
 * the process, not of the machine. Files are put aside at AUDIT_FILE_MAX and AUDIT_FILES_MAX of them are kept, so that a
 * guest cannot fill the disk with requests; the chain goes on over them.
 *
 * Rows never hold a value. What a guest chose (method, path) is cut and escaped. Thread-safe.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "credential/audit-check.h"

#define AUDIT_FILE_MAX (64u * 1024 * 1024)
#define AUDIT_LIST_MAX 1000

struct audit;

struct audit_row {
    const char
        *event; /* "use", "refuse", "add", "change", "rotate", "remove", "authority", "notify" */
    const char *organisation; /* all borrowed for the call; NULL or "": none */
    const char *project;
    const char *sandbox;
    const char *key;        /* API key of who changed something */
    const char *credential; /* name */
    const char *credential_id;
    const char *host;
    unsigned port;
    const char *method;
    const char *path;   /* without the query */
    const char *reason; /* of a refusal: a stable word */
};

/* Opens, makes or continues the log in dir. */
MUST_CHECK int audit_open(const char *dir, struct audit **ret, struct err *e);
void audit_free(struct audit *a);
DEFINE_CLEANUP(struct audit *, audit_free);

/* durable: it is on the disk when this returns. A failure must stop what was to be recorded. */
MUST_CHECK int audit_add(struct audit *a, const struct audit_row *row, bool durable, struct err *e);
/* The newest rows of the organisation (and of the project, if that is not NULL), newest first. */
MUST_CHECK int audit_list(struct audit *a, const char *organisation, const char *project,
                          size_t limit, json_t **ret, struct err *e);

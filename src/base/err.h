/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One vocabulary for failure: negative errno everywhere, and one optional object for the sentence.
 *
 * The caller owns the object, on its stack; nothing inside is allocated, so it works without memory,
 * in PID 1 and after fork, and cannot leak. A function whose failure a person or a client will read
 * takes `struct err *e` last; e may be NULL. On success e is untouched; on failure e->code is the
 * value returned. Thread rules: a struct err belongs to one thread.
 */
#pragma once

#include "base/util.h"

struct err {
    int code;        /* negative errno; 0 means no error */
    char reason[40]; /* stable word for API clients, e.g. "template_not_found"; may be empty */
    char field[40];  /* the request field to change, e.g. "memory_mib"; may be empty */
    char msg[400];   /* for people: outermost context first, no trailing full stop */
};

/* Each returns code, so that one can write `return err_set(...)`. reason may be NULL. */
int err_set(struct err *e, int code, const char *reason, const char *fmt, ...) PRINTF(4, 5);
/* As err_set, and names the request field that is to blame. */
int err_field(struct err *e, int code, const char *reason, const char *field, const char *fmt, ...)
    PRINTF(5, 6);
/*
 * Puts context before what the callee wrote ("starting machine: opening disk: Permission denied").
 * Works over callees without an error object: if they wrote no text for this code, errno's text is used.
 */
int err_wrap(struct err *e, int code, const char *fmt, ...) PRINTF(3, 4);

/* The HTTP status for an error: from its reason when the table knows it, else from its errno. */
int err_http_status(const struct err *e);
/* The stable word for an error: its reason, or a general one for its errno ("not_found", ...). */
const char *err_reason(const struct err *e);
/* The errno and reason for a status and code that a peer answered with (the inverse, for clients). */
int err_from_http(struct err *e, int status, const char *reason, const char *message);

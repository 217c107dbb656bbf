/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QMP, the line-oriented JSON protocol of QEMU's monitor (QEMU documentation, interop/qmp-spec). The VMM
 * may have been taken over by its guest, so its lines are hostile: bounded, strict, no I/O here.
 */
#pragma once

#include "base/json.h"

/* A line of QEMU is short; the largest that we ask for is under 4 KiB. */
#define QMP_LINE_MAX (64u * 1024)

enum qmp_kind {
    QMP_GREETING,
    QMP_RETURN,
    QMP_ERROR,
    QMP_EVENT
};

struct qmp_message {
    enum qmp_kind kind;
    int64_t id;     /* of a return or error; -1: none */
    char name[64];  /* event's name or error's class */
    char text[200]; /* error's description */
    json_t *value;  /* owned; return value or event data; NULL when absent */
};

void qmp_message_done(struct qmp_message *m);
/* One line without its end. -EBADMSG: not QMP. */
MUST_CHECK int qmp_parse(const char *line, size_t len, struct qmp_message *ret);
/* {"execute":name,"arguments":..,"id":id} and a line end. arguments is borrowed and may be NULL. */
MUST_CHECK int qmp_print(struct buf *b, const char *name, const json_t *arguments, int64_t id);

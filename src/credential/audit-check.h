/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the chain of the audit log back (audit.h says what it is). Without state, for whoever has the files. */
#pragma once

#include "base/err.h"

#define AUDIT_FILES_MAX 8u
#define AUDIT_LINE_MAX 4096u
#define AUDIT_HASH_SIZE 65u

struct audit_check {
    uint64_t first; /* number of the oldest line that is kept */
    uint64_t last;
    char hash[AUDIT_HASH_SIZE]; /* of the last line */
    bool intact;
    char what[160]; /* what is wrong, and in which line */
};

/* Reads every file of the log in dir. Needs no open log: also for copies. */
MUST_CHECK int audit_verify(const char *dir, struct audit_check *ret, struct err *e);
/*
 * One line without its line's end, after one with the given number and hash ("": any). 0, or -EBADMSG. Pure; fuzzed.
 */
MUST_CHECK int audit_check_line(const char *line, size_t len, uint64_t after, const char *prev,
                                uint64_t *ret_n, char ret_hash[static AUDIT_HASH_SIZE]);

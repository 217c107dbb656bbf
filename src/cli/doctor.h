/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of a machine, one function each, in one table (doctor_checks). A check only looks; it says ok, warn (SPACE works,
 * but not as well as it could) or fail (it does not), in one sentence, and for the last two what to do.
 */
#pragma once

#include "cli/cli.h"
#include "cli/host.h"

enum doctor_level {
    DOCTOR_OK,
    DOCTOR_WARN,
    DOCTOR_FAIL,
    DOCTOR_LEVEL_COUNT_
};

struct finding {
    enum doctor_level level;
    char text[320];
    char fix[320]; /* "" when ok */
};

struct doctor {
    struct host host;
    bool up; /* a supervisor lives */
    json_t *
        node; /* owned: what the sandbox manager says of this node; NULL when it does not answer us */
};

struct doctor_check {
    const char *name;
    void (*run)(const struct doctor *d, struct finding *ret);
};

extern const struct doctor_check
    doctor_host_checks[]; /* what the machine is; ends with a check without a name */
extern const struct doctor_check doctor_space_checks[]; /* what SPACE has on it */

void finding_ok(struct finding *f, const char *fmt, ...) PRINTF(2, 3);
/* fix is one sentence. */
void finding_bad(struct finding *f, enum doctor_level level, const char *fix, const char *fmt, ...)
    PRINTF(4, 5);

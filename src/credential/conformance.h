/* SPDX-License-Identifier: Apache-2.0 */
/* The same cases run against every vault; conformance.c knows none of them. */
#pragma once

#include "credential/vault.h"

/* What a back end's program gives the suite. The vault is empty at the start of each case. */
struct conformance {
    struct vault *(*open)(void); /* NULL: cannot be had here, why says so */
    bool read_only;
    /* Read only: puts a value there the back end's own way. */
    void (*plant)(const char *ref, const char *value);
    bool bytes; /* keeps any bytes, not only text */
    const char *why;
};

extern struct conformance conformance;

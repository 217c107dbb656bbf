/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that cannot be guessed: 20 characters of [a-z0-9], the first a letter that tells the kind, the
 * rest 95 random bits (19 characters of a 32-letter alphabet). They are safe in paths, host names,
 * cgroup names and URLs as they are.
 */
#pragma once

#include "base/util.h"

#define ID_LEN 20
#define ID_SIZE (ID_LEN + 1)

enum id_kind {
    ID_SANDBOX = 's',
    ID_COMMAND = 'c',
    ID_ORGANISATION = 'o',
    ID_PROJECT = 'p',
    ID_KEY = 'k',
    ID_SNAPSHOT = 'n',
    ID_REQUEST = 'r',
    ID_NODE = 'h',
    ID_TEMPLATE = 't',
    ID_MACHINE = 'm',
    ID_WATCHER = 'w',
    ID_CREDENTIAL = 'v',
    ID_BUILD = 'b',
    ID_SECRET = 'e',
};

void id_new(enum id_kind kind, char ret[static ID_SIZE]);
/* True for a well-formed id of this kind. Takes any bytes. */
bool id_valid(enum id_kind kind, const char *s);
/* Random bytes from the kernel; ends the process if there are none to be had. */
void random_bytes(void *ret, size_t len);
/* Lower-case hex; ret holds 2 * len + 1. */
void hex_encode(const void *data, size_t len, char *ret);
/* Compares in time that does not depend on the content. */
bool bytes_equal_constant_time(const void *a, const void *b, size_t len);

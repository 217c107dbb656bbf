/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the gateway is and with which key we speak to it.
 *
 * In this order: --url and --key, the variables SPACE_URL, SPACE_API_KEY and SPACE_CA_FILE, the file
 * $XDG_CONFIG_HOME/space/config.json (~/.config/space/config.json), the default address. The file is
 * {"url": "...", "key": "...", "ca_file": "..."}, mode 0600; `space up` writes root's. A key in the file is sent only to the
 * address in the file: with another --url or SPACE_URL a key must be given too, so that a key cannot be lured away.
 */
#pragma once

#include "base/err.h"

#define CONF_URL_DEFAULT "http://127.0.0.1:7777"
#define CONF_FILE_MAX 65536u

struct conf {
    char *url;            /* owned */
    char *key;            /* owned; NULL: none */
    char *ca_file;        /* owned; NULL: the system's */
    const char *key_from; /* static; for messages */
    bool exposed;         /* others may read the file */
};

/* The path of the file for this user; NULL when there is no home. Owned by the caller. */
char *conf_path(void);
/* The same for root's own home, whatever HOME says: for `space up` under sudo. */
char *conf_path_root(void);
/* url and key as given on the command line, or NULL. A file that is missing is no error; a broken one is. */
MUST_CHECK int conf_load(const char *url, const char *key, struct conf *ret, struct err *e);
void conf_done(struct conf *conf);
/* Makes the folders (0700) and replaces the file (0600). */
MUST_CHECK int conf_save(const char *path, const char *url, const char *key, struct err *e);
/* Reads one file. -ENOENT when it is not there. */
MUST_CHECK int conf_read(const char *path, struct conf *ret, struct err *e);

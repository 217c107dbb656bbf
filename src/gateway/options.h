/* SPDX-License-Identifier: Apache-2.0 */

/* The command line of space-gateway. Pure: words in, options out. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "gateway/rate.h"

struct options {
    const char *listen; /* all: static or borrowed from argv */
    const char *state_dir;
    const char *run_dir;
    const char *database;      /* NULL: SQLite in state_dir */
    const char *password_file; /* NULL: the database wants none, or has another way */
    const char *node;          /* NULL: the sandbox manager in run_dir; "none": there is none */
    const char *node_name;
    const char
        *node_cert; /* of ours, for a node elsewhere, all three; NULL: it is on this machine */
    const char *node_key;
    const char *node_ca;
    const char *node_authority;
    const char *credentials; /* NULL: the credential manager in run_dir */
    const char *console;     /* NULL: none */
    const char *domain;      /* sandboxes are addressed as PORT-ID.domain; see address.h */
    const char *tls_listen;  /* where TLS is spoken, with a certificate */
    const char *tls_cert;    /* NULL: no TLS; else both */
    const char *tls_key;
    const char *user;       /* NULL: stay who we are */
    const char *create_key; /* NULL: serve */
    const char *organisation;
    const char *project;
    const char *scope;
    const char *rate;        /* as given; NULL: not */
    const char *burst;       /* the same */
    struct rate_limit limit; /* what they say */
    bool help;
    bool version;
};

/* -EINVAL with a sentence that names the option. */
MUST_CHECK int options_parse(int argc, char **argv, struct options *ret, struct err *e);
/* The text of --help. */
MUST_CHECK int options_help(struct buf *out);

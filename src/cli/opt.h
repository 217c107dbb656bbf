/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options as tables.
 *
 * A verb names up to a few tables of `struct opt`; one row says the option's name, letter, kind, the place in
 * `struct args` it writes to, and its line of help. The same rows are read by the parser, by --help, by
 * `space help --json` and, through that, by shell completion and the test that compares with the man page. There is
 * no other place where an option exists.
 *
 * Parsing: `--name VALUE`, `--name=VALUE`, `-n VALUE`, `-nVALUE`, flags bundled (`-it`). Options and operands may
 * be mixed, `--` ends the options. A verb that runs a COMMAND has `lead` operands of its own (exec: 1, run: 0); the first
 * operand after them starts the command, and nothing from there on is ours.
 *
 * Everything in `struct args` is borrowed from argv, except the arrays that args_done() frees.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* More of one repeated option than this is a mistake of a script, not a wish. */
#define OPT_LIST_MAX 1024u
#define OPT_TABLES_MAX 4u

struct text_list {
    const char **items; /* owned array of borrowed strings */
    size_t n;
};

struct args {
    /* Every verb. */
    bool help;
    bool json;
    bool quiet;
    const char *url;
    const char *key;

    /* Services on this machine. */
    bool detach;
    bool no_wait;
    bool foreground;
    bool all;
    bool no_setup;
    const char *listen;
    const char *state_dir;
    const char *run_dir;
    const char *log_dir;
    const char *libexec_dir;
    const char *gateway_user;
    const char *sandbox_user;
    const char *credential_user;
    const char *volume_user;
    const char *network_user;
    const char *resolver;
    uint64_t pool_mib;
    bool tls;
    const char *tls_listen;
    const char *tls_cert;
    const char *tls_key;
    const char *domain;
    const char *node_listen;
    const char *node_tls;
    const char *node_authority;
    const char *token;
    const char *node_name;
    const char *database;
    const char *database_password_file;
    const char *warm;

    /* A sandbox's shape. Zero: the service's default. */
    const char *template;
    uint64_t vcpus;
    uint64_t memory_mib;
    uint64_t disk_mib;
    struct text_list env;
    struct text_list metadata;
    uint64_t timeout_s;
    uint64_t remember_s;
    bool timeout_given;
    const char *policy;
    const char *network;

    /* Through time. */
    bool disk_kind;
    bool full_kind;
    bool off;
    bool light;
    bool wake;
    bool drop_snapshots;
    bool verbose;
    const char *snapshot;
    uint64_t count;

    /* Commands. */
    bool interactive;
    bool tty;
    bool keep;
    const char *user;
    const char *cwd;
    const char *attach;
    const char *signal;
    struct text_list copy_in;
    struct text_list copy_out;

    /* Lists. */
    const char *state;
    uint64_t limit;
    bool follow;
    bool force;
    bool builders;
    bool once;
    uint64_t interval_s;
    uint64_t jobs;
    const char *address;

    /* Credentials. */
    const char *host;
    uint64_t port;
    const char *path;
    struct text_list methods;
    const char *inject;
    const char *field;
    const char *prefix;
    const char *client_id;
    const char *token_url;
    const char *token_scope;
    const char *installation;
    const char *region;
    const char *service;
    struct text_list surfaces;
    struct text_list host_keys;
    struct text_list commands;
    bool refresh;
    const char *sandbox;
    const char *vault;
    const char *ref;
    const char *value_file;
    const char *rate;
    uint64_t expires_s;

    /* Templates. */
    const char *from;
    const char *image;
    const char *registry_user;
    const char *registry_password_file;
    const char *steps;
    const char *context;
    struct text_list tags;

    /* Keys. */
    const char *name;
    const char *project;
    const char *scope;
    bool verbs_only;
    bool options_only;

    /* Operands; argv itself, so the array ends with NULL. Command: from `command` on. */
    const char **operands; /* owned array of borrowed strings */
    size_t n_operands;
    const char *const
        *command; /* borrowed from argv; NULL when the verb takes none or none was given */
    size_t n_command;
};

enum opt_kind {
    OPT_FLAG,
    OPT_TEXT,
    OPT_NUMBER, /* uint64_t, decimal */
    OPT_MIB,    /* uint64_t of MiB; "512", "512M", "2G", "1T" */
    OPT_SECONDS, /* uint64_t of seconds; "90", "90s", "5m", "2h", "3d"; sets timeout_given when it is the timeout */
    OPT_LIST, /* struct text_list, may be repeated */
    OPT_KIND_COUNT_,
};

struct opt {
    const char *name;
    const char *arg;  /* NULL for flags: what --help calls the value */
    const char *help; /* one sentence without a full stop */
    size_t offset;    /* in struct args */
    enum opt_kind kind;
    char letter; /* 0: none */
};

/* A table ends with a row without a name. */
#define OPT_END \
    { \
        .name = NULL \
    }

struct opt_set {
    const struct opt *tables[OPT_TABLES_MAX]; /* static */
    bool has_command;
    unsigned lead;    /* with has_command: operands before the command */
    unsigned min_pos; /* operands that must be there */
    unsigned max_pos; /* UINT_MAX: any number */
};

typedef bool (*opt_each_fn)(const struct opt *o, void *ctx);

/* Calls fn for each option of the set in order, until it says true; says whether it did. */
bool opt_each(const struct opt_set *set, opt_each_fn fn, void *ctx);

/* argv: without the words that named the verb, NULL at the end. On failure (-EINVAL) *args may still be released. */
MUST_CHECK int opt_parse(const struct opt_set *set, size_t argc, const char *const *argv,
                         struct args *args, struct err *e);

/* Reads one value on its own, for tests and for values inside other values. */
MUST_CHECK int opt_parse_mib(const char *text, uint64_t *ret);
MUST_CHECK int opt_parse_seconds(const char *text, uint64_t *ret);

void args_done(struct args *args);

/* A name of `names` (NULL at the end) near enough to `word` to be what was meant, or NULL. */
const char *opt_nearest(const char *word, const char *const *names);

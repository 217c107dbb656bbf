/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every verb works with, and the exchange with the gateway.
 *
 * One struct cli lives in main() for the life of the process. A verb that talks to the gateway calls cli_connect()
 * first; nothing is sent before its first request. Errors come back with a sentence that says what to do: what the gateway says is
 * passed on, and what only this side can know (nobody listens, no key, key refused) gets its advice in
 * cli_explain().
 *
 * Exit codes: enum cli_exit; `run`, `exec` and `shell` give the command's own code, and for themselves what docker
 * gives: CLI_EXIT_SPACE when SPACE failed, 126 and 127 come from the guest.
 */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "base/id.h"
#include "cli/conf.h"
#include "cli/opt.h"
#include "cli/ui.h"
#include "http/client.h"

enum cli_exit {
    CLI_EXIT_OK = 0,
    CLI_EXIT_FAILED = 1,
    CLI_EXIT_USAGE = 2,
    CLI_EXIT_SPACE = 125,
    CLI_EXIT_SIGNAL = 128, /* plus the number of the signal */
};

/* A path and query that we send. */
#define CLI_TARGET_MAX 65536u
/* A JSON document that we accept from the gateway. */
#define CLI_JSON_MAX (16u * 1024 * 1024)
/* How long one short request may take; creating waits for a machine. */
#define CLI_CALL_TIMEOUT_MS 60000u
#define CLI_CREATE_TIMEOUT_MS 300000u
/* Entries asked for at once when a list is read page by page. */
#define CLI_PAGE 500u

struct verb;

struct cli {
    struct ui ui;
    const struct args *args; /* borrowed: main() */
    const struct verb *verb; /* static */
    struct conf conf;
    struct http_client *client; /* owned; NULL before cli_connect() */
};

MUST_CHECK int cli_connect(struct cli *cli, struct err *e);
/* A client of its own with the same address and key, for another thread's connections. */
MUST_CHECK int cli_client(const struct cli *cli, struct http_client **ret, struct err *e);
void cli_done(struct cli *cli);

/* One JSON exchange. body is borrowed, may be NULL; ret may be NULL. */
MUST_CHECK int cli_call(struct cli *cli, const char *method, const char *target, const json_t *body,
                        json_t **ret, struct err *e);
/* The same with the whole set of options; opts->deadline_ns 0: the usual time. */
MUST_CHECK int cli_call_opts(struct cli *cli, const struct http_json_opts *opts, json_t **ret,
                             struct err *e);
/* Adds to an error what a person can do about it, where only this side knows. Returns e->code. */
int cli_explain(const struct cli *cli, struct err *e);

/* Reads a list page by page: `target` without limit and cursor, `member` is the array. limit 0: everything. */
MUST_CHECK int cli_list(struct cli *cli, const char *target, const char *member, uint64_t limit,
                        json_t **ret, struct err *e);

/* A sandbox's id from an id or the start of one that fits only one sandbox. */
MUST_CHECK int cli_sandbox_id(struct cli *cli, const char *text, char ret[static ID_SIZE],
                              struct err *e);
/* The same for a command of a sandbox. */
MUST_CHECK int cli_command_id(struct cli *cli, const char *sandbox, const char *text,
                              char ret[static ID_SIZE], struct err *e);

/* The same for a snapshot of a sandbox, which may also be named by its name. */
MUST_CHECK int cli_snapshot_id(struct cli *cli, const char *sandbox, const char *text,
                               char ret[static ID_SIZE], struct err *e);

/* Appends text percent-encoded for a path segment or a query value. -E2BIG. */
MUST_CHECK int cli_encode(struct buf *b, const char *text);
/* "/v1/sandboxes/ID/files/stat?path=..." and the like. path and user may be NULL. The result is owned by the caller. */
MUST_CHECK int cli_target(const char *sandbox, const char *what, const char *path, const char *user,
                          char **ret, struct err *e);

/* Prints the API's own object, indented on a terminal. */
void cli_print_json(const struct cli *cli, const json_t *value);
/* Puts every K=V of the list into the object. K alone takes the value from our own environment. */
MUST_CHECK int cli_pairs(const struct text_list *list, const char *option, json_t **ret,
                         struct err *e);
/* A JSON string, or an error that names what was not UTF-8. */
MUST_CHECK int cli_json_text(const char *text, const char *what, json_t **ret, struct err *e);

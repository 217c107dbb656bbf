/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `space mcp`: sandboxes as tools of the Model Context Protocol, version 2025-06-18, over standard input and output, one
 * JSON message a line, or over HTTP.
 *
 *     client                                space mcp
 *     initialize                      ->    its answer
 *     notifications/initialized       ->
 *     tools/list                      ->    the table of mcp-tools.c
 *     tools/call                      ->    a thread; its answer when it is done, in any order
 *     notifications/cancelled         ->    that call is given up and not answered
 *     end of input                    ->    all calls are given up; it ends with 0
 *
 * With --listen the same over HTTP ("Streamable HTTP" of that version): mcp-http.c.
 *
 * A call has the rights of the key that the command line uses, no more. What the API refuses is a result with isError,
 * for the model to read; what breaks the protocol is a JSON-RPC error, for the client.
 */
#pragma once

#include <poll.h>

#include "cli/cli.h"
#include "cli/mcp-message.h"

#define MCP_VERSION "2025-06-18"
/* Calls at work at once. */
#define MCP_CALLS_MAX 32u

#define MCP_PARAMS_MAX 8

struct mcp_param {
    const char *name; /* static; NULL ends the list */
    const char *about;
    unsigned flags; /* JSON_REQUIRED */
    unsigned type;  /* enum json_field_type */
    int64_t min;    /* of a JSON_FIELD_INT */
    int64_t max;
};

struct mcp_call {
    struct cli *cli;     /* borrowed; only what threads may share is used: client, conf */
    json_t *args;        /* borrowed; checked against the tool's parameters */
    struct pollfd watch; /* ready: given up */
    json_t *content;     /* borrowed: filled by the tool with what the model reads */
    json_t *
        structured; /* owned by the caller afterwards: the API's own object, NULL when there is none */
};

struct mcp_tool {
    const char *name; /* static, all of it */
    const char *title;
    const char *about;
    struct mcp_param params[MCP_PARAMS_MAX];
    bool read_only;
    bool destructive;
    int (*run)(struct mcp_call *c, struct err *e);
};

/* NULL: there is none. */
const struct mcp_tool *mcp_tool_find(const char *name);
/* The array of tools/list. */
json_t *mcp_tools_json(void);
/* -EINVAL with a sentence: arguments (NULL: none) do not fit. */
MUST_CHECK int mcp_tool_check(const struct mcp_tool *t, json_t *args, struct err *e);
/* The result of tools/call, an error of the API too. NULL: given up. */
json_t *mcp_tool_run(const struct mcp_tool *t, struct cli *cli, json_t *args, struct pollfd watch);

/* ---- methods (mcp-methods.c) ---- */

#define MCP_INITIALIZE "initialize"
#define MCP_CANCELLED "notifications/cancelled"
bool mcp_version_known(const char *version);
/* An answer; result is taken over. */
json_t *mcp_result_take(json_t *id, json_t *result);
/* The same of what went wrong; id NULL: it could not be read. why must be UTF-8. */
json_t *mcp_error(json_t *id, int code, const char *why);
/* A call of a tool whose arguments fit: what is left to do is to run it. */
struct mcp_asked {
    const struct mcp_tool *tool;
    json_t *args; /* borrowed from the message; NULL: none */
};
/* The answer to a request; NULL: it is a call, and in *ret. */
json_t *mcp_answer(bool *initialized, const struct mcp_message *m, struct mcp_asked *ret);

/* Serves over HTTP until a signal asks it to end. -EINVAL "usage": the address of --listen. */
MUST_CHECK int mcp_serve(struct cli *cli, struct err *e);

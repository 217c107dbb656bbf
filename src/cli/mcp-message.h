/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One message of the Model Context Protocol (JSON-RPC 2.0, protocol version 2025-06-18, "Base protocol"): a line of
 * JSON in, its parts out. Pure, fuzzed. Arrays (batches) are no messages in this version; an id is a string or a whole
 * number, never null; params is an object. Members that are not known are ignored, as the protocol wants.
 */
#pragma once

#include "base/json.h"

/* A file of some megabytes as text, or as base64 of it. */
#define MCP_LINE_MAX (16u * 1024 * 1024)

/* JSON-RPC's numbers (section 5.1 of its specification). */
enum mcp_code {
    MCP_OK = 0,
    MCP_PARSE_ERROR = -32700,
    MCP_INVALID_REQUEST = -32600,
    MCP_METHOD_NOT_FOUND = -32601,
    MCP_INVALID_PARAMS = -32602,
    MCP_BUSY = -32000, /* ours */
};

struct mcp_message {
    json_t *root; /* owned */
    json_t
        *id; /* borrowed: root; NULL: a notification, or an error that cannot be answered by id */
    const char *method; /* borrowed: root; NULL: an answer to something, which we never asked for */
    json_t *params;     /* borrowed: root; NULL: none */
};

/* Not MCP_OK: *ret still has the id if one could be read, and *ret_why says what is wrong (static). */
enum mcp_code mcp_message_parse(const void *line, size_t len, struct mcp_message *ret,
                                const char **ret_why);
void mcp_message_done(struct mcp_message *m);

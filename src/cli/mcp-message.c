/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mcp-message.h"

#include <string.h>

static enum mcp_code wrong(enum mcp_code code, const char *why, const char **ret_why)
{
    *ret_why = why;
    return code;
}

enum mcp_code mcp_message_parse(const void *line, size_t len, struct mcp_message *ret,
                                const char **ret_why)
{
    json_t *id;
    json_t *method;
    json_t *params;

    *ret = (struct mcp_message){0};
    if (json_parse_any(line, len, &ret->root, NULL) < 0) {
        ret->root = NULL;
        return wrong(MCP_PARSE_ERROR, "this is not JSON, or says something twice", ret_why);
    }
    if (!json_is_object(ret->root)) {
        return wrong(MCP_INVALID_REQUEST, "a message is one JSON object", ret_why);
    }
    id = json_object_get(ret->root, "id");
    method = json_object_get(ret->root, "method");
    params = json_object_get(ret->root, "params");
    if (json_is_string(id) || json_is_integer(id)) {
        ret->id = id;
    } else if (id) {
        return wrong(MCP_INVALID_REQUEST, "'id' must be a string or a whole number", ret_why);
    }
    if (!json_is_string(json_object_get(ret->root, "jsonrpc")) ||
        !str_eq(json_string_value(json_object_get(ret->root, "jsonrpc")), "2.0")) {
        return wrong(MCP_INVALID_REQUEST, "'jsonrpc' must be \"2.0\"", ret_why);
    }
    if (!method && (json_object_get(ret->root, "result") || json_object_get(ret->root, "error"))) {
        return MCP_OK;
    }
    if (!json_is_string(method)) {
        return wrong(MCP_INVALID_REQUEST, "'method' must be a string", ret_why);
    }
    if (params && !json_is_object(params)) {
        return wrong(MCP_INVALID_PARAMS, "'params' must be an object", ret_why);
    }
    ret->method = json_string_value(method);
    ret->params = params;
    return MCP_OK;
}

void mcp_message_done(struct mcp_message *m)
{
    json_decref(m->root);
    *m = (struct mcp_message){0};
}

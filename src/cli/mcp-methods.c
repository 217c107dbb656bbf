/* SPDX-License-Identifier: Apache-2.0 */
/* What each method of the protocol answers, however its messages come. */
#include "cli/mcp.h"

/* Versions of the protocol that a client may name; what we use of it is the same in all of them. */
static const char *const versions[] = {MCP_VERSION, "2025-03-26", "2024-11-05"};

bool mcp_version_known(const char *version)
{
    for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
        if (str_eq(versions[i], version)) {
            return true;
        }
    }
    return false;
}

json_t *mcp_result_take(json_t *id, json_t *result)
{
    json_t *answer = json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result);

    ASSERT(answer);
    return answer;
}

json_t *mcp_error(json_t *id, int code, const char *why)
{
    json_t *answer = json_pack("{s:s, s:O, s:{s:i, s:s}}", "jsonrpc", "2.0", "id",
                               id ? id : json_null(), "error", "code", code, "message", why);

    ASSERT(answer);
    return answer;
}

static json_t *on_initialize(const struct mcp_message *m, struct mcp_asked *ret)
{
    const char *wanted = m->params ? json_get_string(m->params, "protocolVersion", "") : "";

    (void)ret;
    return mcp_result_take(
        m->id,
        json_pack("{s:s, s:{s:{s:b}}, s:{s:s, s:s, s:s}, s:s}", "protocolVersion",
                  mcp_version_known(wanted) ? wanted : MCP_VERSION, "capabilities", "tools",
                  "listChanged", 0, "serverInfo", "name", "space", "title", "SPACE sandboxes",
                  "version", SPACE_VERSION, "instructions",
                  "Isolated Linux machines to run code in. Make one with 'create', use it with "
                  "'run', 'read_file' and 'write_file'; take a 'snapshot' before what may go "
                  "wrong, and 'rollback' if it does. 'delete' it when you are done."));
}

static json_t *on_ping(const struct mcp_message *m, struct mcp_asked *ret)
{
    (void)ret;
    return mcp_result_take(m->id, json_object());
}

static json_t *on_tools_list(const struct mcp_message *m, struct mcp_asked *ret)
{
    (void)ret;
    if (m->params && json_object_get(m->params, "cursor")) {
        return mcp_error(m->id, MCP_INVALID_PARAMS, "there is one page of tools, and no cursor");
    }
    return mcp_result_take(m->id, json_pack("{s:o}", "tools", mcp_tools_json()));
}

static json_t *on_tools_call(const struct mcp_message *m, struct mcp_asked *ret)
{
    json_t *args = m->params ? json_object_get(m->params, "arguments") : NULL;
    const char *name = m->params ? json_get_string(m->params, "name", NULL) : NULL;
    const struct mcp_tool *tool = name ? mcp_tool_find(name) : NULL;
    cleanup_json json_t *none = json_object();
    struct err e = {0};

    if (!tool) {
        return mcp_error(m->id, MCP_INVALID_PARAMS,
                         name ? "there is no such tool" : "'name' is missing");
    }
    if (args && !json_is_object(args)) {
        return mcp_error(m->id, MCP_INVALID_PARAMS, "'arguments' must be an object");
    }
    if (mcp_tool_check(tool, args ? args : none, &e) < 0) {
        return mcp_error(m->id, MCP_INVALID_PARAMS, e.msg);
    }
    *ret = (struct mcp_asked){tool, args};
    return NULL;
}

static const struct method {
    const char *name;
    bool early; /* also before initialize */
    json_t *(*run)(const struct mcp_message *m, struct mcp_asked *ret);
} methods[] = {
    {MCP_INITIALIZE, true, on_initialize},
    {"ping", true, on_ping},
    {"tools/list", false, on_tools_list},
    {"tools/call", false, on_tools_call},
};

json_t *mcp_answer(bool *initialized, const struct mcp_message *m, struct mcp_asked *ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        if (!str_eq(methods[i].name, m->method)) {
            continue;
        }
        if (!*initialized && !methods[i].early) {
            return mcp_error(m->id, MCP_INVALID_REQUEST, "send 'initialize' first");
        }
        *initialized = *initialized || str_eq(m->method, MCP_INITIALIZE);
        return methods[i].run(m, ret);
    }
    return mcp_error(m->id, MCP_METHOD_NOT_FOUND, "there is no such method");
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mcp-message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_message m;
    const char *why = NULL;
    enum mcp_code code = mcp_message_parse(data, size, &m, &why);

    ASSERT((code == MCP_OK) == (why == NULL));
    ASSERT(!m.id || json_is_string(m.id) || json_is_integer(m.id));
    if (code == MCP_OK) {
        ASSERT(m.root && (m.method || !m.params));
        ASSERT(!m.params || json_is_object(m.params));
    } else {
        ASSERT(!m.method);
    }
    mcp_message_done(&m);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "control/node-client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever a node answers, only valid ids in known states come through, sorted, each once. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_json json_t *json = NULL;
    cleanup_node_list struct node_list list = {0};
    struct node_sandbox one;
    struct err e = {0};

    if (json_parse_any(data, size, &json, NULL) < 0) {
        return 0;
    }
    if (node_list_from_json(json, &list, &e) < 0) {
        ASSERT(e.code < 0 && e.msg[0] && list.n == 0);
    }
    for (size_t i = 0; i < list.n; i++) {
        ASSERT(id_valid(ID_SANDBOX, list.items[i].id));
        ASSERT((unsigned)list.items[i].state < SANDBOX_STATE_COUNT_);
        ASSERT(node_list_find(&list, list.items[i].id) == &list.items[i]);
    }
    if (node_sandbox_from_json(json, &one, NULL) == 0) {
        ASSERT(id_valid(ID_SANDBOX, one.id));
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy, perhaps with outer levels, a newline, a name: what is a policy comes back equal, judges without a crash, says who has
 * decided, resolves every name that it lets a connection go to, and lets nothing through that one of its levels denies.
 */
#include "model/netpolicy.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void judge(const struct netpolicy *p, const char *name, uint16_t port)
{
    const struct netpolicy_query q = {.name = name, .addr = {0x01010101}, .port = port};
    struct netpolicy_verdict v = netpolicy_judge(p, &q);
    char text[512];

    netpolicy_explain(p, &v, text, sizeof(text));
    ASSERT(text[0] && v.action < NETPOLICY_ACTION_COUNT_);
    ASSERT(v.rule != NETPOLICY_BY_DEFAULT || v.action == NETPOLICY_DENY);
    ASSERT(v.action == NETPOLICY_DENY || v.by_addr || v.pinned || netpolicy_resolves(p, name));
    ASSERT(!netpolicy_is_closed(p) || v.action == NETPOLICY_DENY);
}

/* By itself each outer level is a policy; with "inherit" its default is no word of its own. */
static void judge_levels(const struct netpolicy *p, const char *name)
{
    struct netpolicy_query q = {.name = name, .addr = {0x01010101}, .port = 443};
    const char *level;
    json_t *object;

    for (int request = 0; request < 2; request++) {
        struct netpolicy_verdict all;

        q.method = request ? "GET" : NULL;
        q.path = "/v1/x";
        all = netpolicy_judge(p, &q);
        json_object_foreach(json_object_get(netpolicy_json(p), "outer"), level, object)
        {
            struct netpolicy *alone = NULL;
            struct netpolicy_verdict v;

            ASSERT(netpolicy_outer_from_json(object, &alone, NULL) == 0);
            v = netpolicy_judge(alone, &q);
            ASSERT(v.action != NETPOLICY_DENY || all.action == NETPOLICY_DENY ||
                   (v.rule == NETPOLICY_BY_DEFAULT &&
                    str_eq(json_get_string(object, "preset", ""), "inherit")));
            netpolicy_unref(alone);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, '\n', size);
    size_t len = end ? (size_t)(end - data) : size;
    cleanup_json json_t *object = NULL;
    struct netpolicy *p = NULL;
    struct netpolicy *again = NULL;
    char name[NETPOLICY_NAME_MAX + 1];

    if (json_parse_untrusted(data, len, &object, NULL) < 0 ||
        netpolicy_stack_from_json(object, &p, NULL) < 0) {
        return 0;
    }
    ASSERT(netpolicy_stack_from_json(netpolicy_json(p), &again, NULL) == 0);
    netpolicy_unref(again);
    if (end && netpolicy_name((const char *)end + 1, size - len - 1, name) == 0) {
        char twice[NETPOLICY_NAME_MAX + 1];

        ASSERT(netpolicy_name(name, strlen(name), twice) == 0 && str_eq(name, twice));
        for (uint16_t port = 1; port < 1024; port = (uint16_t)(port * 3 + 1)) {
            judge(p, name, port);
        }
        judge(p, name, 443);
        judge_levels(p, name);
    }
    netpolicy_unref(p);
    return 0;
}

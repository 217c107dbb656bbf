/* SPDX-License-Identifier: Apache-2.0 */
#include "model/sandbox.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A body that is accepted makes a record whose public form is JSON; a refused one has a sentence. */
static void try_create(json_t *body)
{
    cleanup_sandbox_spec struct sandbox_spec spec = {0};
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_buf struct buf out = BUF_INIT(1 << 20);
    cleanup_json json_t *shown = NULL;
    cleanup_json json_t *node = NULL;
    struct err e = {0};

    if (sandbox_spec_from_json(body, &spec, &e) < 0) {
        ASSERT(e.code < 0 && e.reason[0] && e.msg[0]);
        ASSERT(e.field[0] || json_object_get(body, "") ||
               json_object_get(json_object_get(body, "policy"), ""));
        return;
    }
    ASSERT(shape_check(&spec.shape, NULL) == 0 && template_name_valid(spec.template_name));
    sandbox_init(&sb, &spec, "p0000000000000000000", 1);
    ASSERT(sandbox_print(&sb, &out) == 0);
    ASSERT(json_parse_object(out.data, out.len, &shown, NULL) == 0);
    node = sandbox_node_spec(&sb, "o0000000000000000000");
    ASSERT(node);
}

static void try_patch(json_t *body)
{
    cleanup_sandbox_patch struct sandbox_patch patch = {0};
    struct err e = {0};

    if (sandbox_patch_from_json(body, &patch, &e) < 0) {
        ASSERT(e.code < 0 && e.reason[0] && e.msg[0]);
        return;
    }
    ASSERT(patch.has_timeout || patch.metadata || patch.has_policy);
    ASSERT(!patch.has_timeout || patch.timeout_s >= 0);
}

/* A fork that is accepted makes children that differ from their parent in what they must. */
static void try_fork(json_t *body)
{
    cleanup_sandbox_fork struct sandbox_fork fork = {0};
    struct sandbox_spec spec = {
        .shape = shape_default(), .env = xstrdup("{}"), .metadata = xstrdup("{}")};
    cleanup_sandbox struct sandbox parent = {0};
    cleanup_sandbox struct sandbox child = {0};
    struct err e = {0};

    sandbox_init(&parent, &spec, "p0000000000000000000", 1);
    sandbox_spec_done(&spec);
    if (sandbox_fork_from_json(body, &fork, &e) < 0) {
        ASSERT(e.code < 0 && e.reason[0] && e.msg[0]);
        return;
    }
    ASSERT(fork.count >= 1 && fork.count <= SANDBOX_FORK_MAX);
    ASSERT(!fork.snapshot[0] || id_valid(ID_SNAPSHOT, fork.snapshot));
    sandbox_init_fork(&child, &parent, &fork, 2);
    ASSERT(!str_eq(child.id, parent.id) && str_eq(child.parent, parent.id));
    ASSERT(child.env && child.metadata && child.timeout_s >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_json json_t *body = NULL;

    if (json_parse_object(data, size, &body, NULL) == 0) {
        try_create(body);
        try_patch(body);
        try_fork(body);
    }
    return 0;
}

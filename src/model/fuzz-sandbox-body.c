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
        ASSERT(e.code < 0 && e.reason[0] && e.msg[0] && (e.field[0] || json_object_get(body, "")));
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
    ASSERT(patch.has_timeout || patch.metadata);
    ASSERT(!patch.has_timeout || patch.timeout_s >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_json json_t *body = NULL;

    if (json_parse_object(data, size, &body, NULL) == 0) {
        try_create(body);
        try_patch(body);
    }
    return 0;
}

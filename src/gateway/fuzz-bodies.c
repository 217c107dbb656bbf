/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/bodies.h"
#include "gateway/time.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_tenants(json_t *body)
{
    struct key_body key = {0};
    struct project project = {0};
    struct err e = {0};

    if (key_body_from_json(body, &key, &e) == 0) {
        ASSERT(tenant_name_check("name", key.name, NULL) == 0);
        ASSERT((unsigned)key.scope < KEY_SCOPE_COUNT_);
    } else {
        ASSERT(e.reason[0] && e.msg[0] && (e.field[0] || json_object_get(body, "")));
    }
    if (project_body_from_json(body, &project, NULL) == 0) {
        ASSERT(tenant_name_check("name", project.name, NULL) == 0);
        ASSERT(project.max_sandboxes >= 0);
    }
    if (project_patch_from_json(body, &project, NULL) == 0) {
        ASSERT(project.max_sandboxes <= PROJECT_MAX_SANDBOXES_LIMIT);
    }
}

/* What is accepted turns into a command for the daemon that has exactly one of argv and shell. */
static void try_run(json_t *body)
{
    cleanup_run_body struct run_body run = {0};
    struct err e = {0};

    if (run_body_from_json(body, &run, &e) < 0) {
        ASSERT(e.reason[0] && e.msg[0] && (e.field[0] || json_object_get(body, "")));
        return;
    }
    ASSERT(!json_object_get(run.command, "argv") != !json_object_get(run.command, "shell"));
    ASSERT(json_is_true(json_object_get(run.command, "stdin")) == (run.input != NULL));
    ASSERT(!json_object_get(run.command, "max_output_bytes"));
    ASSERT(run.max_output_bytes >= 0 && run.max_output_bytes <= RUN_OUTPUT_MAX);
}

static void try_terminal(json_t *body)
{
    cleanup_json json_t *size = NULL;

    if (terminal_message_from_json(body, &size, NULL) == 0) {
        ASSERT(json_get_int(size, "rows", 0) > 0 && json_get_int(size, "cols", 0) > 0);
    }
}

static void try_time(json_t *body)
{
    struct pause_body pause = {0};
    const char *snapshot = NULL;
    struct err e = {0};

    if (rollback_body_from_json(body, &snapshot, &e) == 0) {
        ASSERT(id_valid(ID_SNAPSHOT, snapshot));
    } else {
        ASSERT(e.reason[0] && e.msg[0]);
    }
    if (snapshot_body_check(body, NULL) == 0) {
        ASSERT(strlen(json_get_string(body, "name", "")) <= 64);
    }
    if (snapshot_patch_check(body, NULL) == 0) {
        ASSERT(json_object_size(body) > 0);
    }
    IGNORE_RESULT(pause_body_from_json(body, &pause, NULL)); /* that it reads nothing else */
}

/* Whatever the node says, what is shown of it is JSON. */
static void try_shown(json_t *body)
{
    cleanup_buf struct buf snapshot = BUF_INIT(1 << 20);
    cleanup_buf struct buf history = BUF_INIT(1 << 20);
    json_t *shown = NULL;

    if (snapshot_print(body, &snapshot) == 0) {
        ASSERT(json_parse_object(snapshot.data, snapshot.len, &shown, NULL) == 0);
        json_decref(shown);
    }
    if (history_print(json_object_get(body, "history"), &history) == 0) {
        ASSERT(json_parse_any(history.data, history.len, &shown, NULL) == 0);
        json_decref(shown);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_json json_t *body = NULL;

    if (json_parse_object(data, size, &body, NULL) == 0) {
        try_tenants(body);
        try_run(body);
        try_terminal(body);
        try_time(body);
        try_shown(body);
    }
    return 0;
}

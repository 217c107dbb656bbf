/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/bodies.h"

#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "model/names.h"

int key_body_from_json(json_t *body, struct key_body *ret, struct err *e)
{
    static const struct json_field fields[] = {
        {"name", JSON_FIELD_STRING, JSON_NULLABLE},
        {"project", JSON_FIELD_STRING, JSON_NULLABLE},
        {"scope", JSON_FIELD_STRING, JSON_NULLABLE},
    };
    struct key_body key = {.scope = KEY_SCOPE_PROJECT};
    const char *name;
    const char *project;
    int r;

    ASSERT(ret);
    r = json_check_object(body, fields, ARRAY_SIZE(fields), e);
    if (r < 0) {
        return r;
    }
    name = json_get_string(body, "name", "unnamed");
    project = json_get_string(body, "project", "");
    r = tenant_name_check("name", name, e);
    if (r == 0 && project[0]) {
        r = tenant_name_check("project", project, e);
    }
    if (r < 0) {
        return r;
    }
    if (!key_scope_parse(json_get_string(body, "scope", "project"), &key.scope)) {
        return err_field(e, -EINVAL, "unknown_scope", "scope",
                         "scope must be 'project' or 'organisation'");
    }
    snprintf(key.name, sizeof(key.name), "%s", name);
    snprintf(key.project, sizeof(key.project), "%s", project);
    *ret = key;
    return 0;
}

static const struct json_bounds quota_bounds = {0, PROJECT_MAX_SANDBOXES_LIMIT,
                                                PROJECT_MAX_SANDBOXES_DEFAULT};

int project_body_from_json(json_t *body, struct project *ret, struct err *e)
{
    static const struct json_field fields[] = {
        {"name", JSON_FIELD_STRING, JSON_REQUIRED},
        {"max_sandboxes", JSON_FIELD_INT, 0},
    };
    const char *name;
    int64_t max = 0;
    int r;

    ASSERT(ret);
    r = json_check_object(body, fields, ARRAY_SIZE(fields), e);
    if (r < 0) {
        return r;
    }
    name = json_get_string(body, "name", "");
    r = tenant_name_check("name", name, e);
    if (r == 0 && id_valid(ID_PROJECT, name)) { /* or it would hide the project with that id */
        r = err_field(e, -EINVAL, "invalid_name", "name", "name must not look like an id");
    }
    if (r == 0) {
        r = json_get_bounded(body, "max_sandboxes", quota_bounds, &max, e);
    }
    if (r < 0) {
        return r;
    }
    snprintf(ret->name, sizeof(ret->name), "%s", name);
    ret->max_sandboxes = max;
    return 0;
}

int project_patch_from_json(json_t *body, struct project *ret, struct err *e)
{
    static const struct json_field fields[] = {{"max_sandboxes", JSON_FIELD_INT, JSON_REQUIRED}};
    int r;

    ASSERT(ret);
    r = json_check_object(body, fields, ARRAY_SIZE(fields), e);
    return r < 0 ? r
                 : json_get_bounded(body, "max_sandboxes", quota_bounds, &ret->max_sandboxes, e);
}

void run_body_done(struct run_body *run)
{
    json_decref(run->command);
    free(run->input);
    *run = (struct run_body){0};
}

static int read_input(json_t *body, struct run_body *run, struct err *e)
{
    json_t *text = json_object_get(body, "stdin");
    json_t *encoded = json_object_get(body, "stdin_base64");
    cleanup_buf struct buf bytes = BUF_INIT(1u << 20);

    if (json_is_null(text)) {
        text = NULL;
    }
    if (json_is_null(encoded)) {
        encoded = NULL;
    }
    if (text && encoded) {
        return err_field(e, -EINVAL, "conflicting_fields", "stdin_base64",
                         "give stdin or stdin_base64, not both");
    }
    if (text) {
        run->input_len = json_string_length(text);
        run->input = xmemdup(json_string_value(text), run->input_len + 1);
    }
    if (encoded) {
        if (base64_decode(json_string_value(encoded), json_string_length(encoded), &bytes) < 0) {
            return err_field(e, -EINVAL, "invalid_base64", "stdin_base64",
                             "stdin_base64 is not base64");
        }
        run->input_len = bytes.len;
        run->input = buf_take(&bytes);
    }
    return 0;
}

int run_body_from_json(json_t *body, struct run_body *ret, struct err *e)
{
    static const struct json_field fields[] = {
        {"argv", JSON_FIELD_ARRAY, JSON_NULLABLE},
        {"shell", JSON_FIELD_STRING, JSON_NULLABLE},
        {"env", JSON_FIELD_STRING_MAP, JSON_NULLABLE},
        {"cwd", JSON_FIELD_STRING, JSON_NULLABLE},
        {"user", JSON_FIELD_STRING, JSON_NULLABLE},
        {"timeout_ms", JSON_FIELD_INT, JSON_NULLABLE},
        {"tag", JSON_FIELD_STRING, JSON_NULLABLE},
        {"stdin", JSON_FIELD_STRING, JSON_NULLABLE},
        {"stdin_base64", JSON_FIELD_STRING, JSON_NULLABLE},
        {"max_output_bytes", JSON_FIELD_INT, JSON_NULLABLE},
    };
    static const char *const passed[] = {"argv", "shell",      "env", "cwd",
                                         "user", "timeout_ms", "tag"};
    static const struct json_bounds output_bounds = {0, RUN_OUTPUT_MAX, RUN_OUTPUT_DEFAULT};
    cleanup_run_body struct run_body run = {0};
    int r;

    ASSERT(ret);
    r = json_check_object(body, fields, ARRAY_SIZE(fields), e);
    if (r == 0) {
        r = json_get_bounded(body, "max_output_bytes", output_bounds, &run.max_output_bytes, e);
    }
    if (r == 0) {
        r = read_input(body, &run, e);
    }
    if (r < 0) {
        return r;
    }
    run.command = json_object();
    for (size_t i = 0; i < ARRAY_SIZE(passed); i++) {
        json_t *value = json_object_get(body, passed[i]);

        if (value && !json_is_null(value)) {
            json_object_set(run.command, passed[i], value);
        }
    }
    if (!json_object_get(run.command, "argv") == !json_object_get(run.command, "shell")) {
        return err_field(e, -EINVAL, "missing_field", "argv",
                         "give either argv, a list of strings, or shell, a line for /bin/sh");
    }
    json_object_set_new(run.command, "stdin", json_boolean(run.input != NULL));
    *ret = run;
    run = (struct run_body){0};
    return 0;
}

int terminal_message_from_json(json_t *message, json_t **ret, struct err *e)
{
    static const struct json_field fields[] = {{"resize", JSON_FIELD_OBJECT, JSON_REQUIRED}};
    static const struct json_field size_fields[] = {
        {"rows", JSON_FIELD_INT, JSON_REQUIRED},
        {"cols", JSON_FIELD_INT, JSON_REQUIRED},
    };
    static const struct json_bounds bounds = {1, 10000, 1};
    json_t *size;
    int64_t rows = 0;
    int64_t cols = 0;
    int r;

    ASSERT(ret);
    r = json_check_object(message, fields, ARRAY_SIZE(fields), e);
    if (r < 0) {
        return r;
    }
    size = json_object_get(message, "resize");
    r = json_check_object(size, size_fields, ARRAY_SIZE(size_fields), e);
    if (r == 0) {
        r = json_get_bounded(size, "rows", bounds, &rows, e);
    }
    if (r == 0) {
        r = json_get_bounded(size, "cols", bounds, &cols, e);
    }
    if (r == 0) {
        *ret = json_pack("{s:I, s:I}", "rows", (json_int_t)rows, "cols", (json_int_t)cols);
        ASSERT(*ret);
    }
    return r;
}

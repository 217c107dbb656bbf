/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/qmp.h"

#include <stdio.h>

void qmp_message_done(struct qmp_message *m)
{
    json_decref(m->value);
    m->value = NULL;
}

static void copy_text(char *dst, size_t size, const char *src)
{
    snprintf(dst, size, "%s", src ? src : "");
}

static int fill(json_t *root, struct qmp_message *m)
{
    json_t *error = json_object_get(root, "error");
    const char *event = json_string_value(json_object_get(root, "event"));

    m->id = json_get_int(root, "id", -1);
    if (event) {
        m->kind = QMP_EVENT;
        copy_text(m->name, sizeof(m->name), event);
        m->value = json_incref(json_object_get(root, "data"));
        return 0;
    }
    if (json_is_object(error)) {
        m->kind = QMP_ERROR;
        copy_text(m->name, sizeof(m->name), json_get_string(error, "class", "GenericError"));
        copy_text(m->text, sizeof(m->text), json_get_string(error, "desc", "no description"));
        return 0;
    }
    if (json_object_get(root, "return")) {
        m->kind = QMP_RETURN;
        m->value = json_incref(json_object_get(root, "return"));
        return 0;
    }
    if (json_is_object(json_object_get(root, "QMP"))) {
        m->kind = QMP_GREETING;
        return 0;
    }
    return -EBADMSG;
}

int qmp_parse(const char *line, size_t len, struct qmp_message *ret)
{
    cleanup_json json_t *root = NULL;
    struct qmp_message m = {.id = -1};
    int r;

    if (len > QMP_LINE_MAX || json_parse_untrusted(line, len, &root, NULL) < 0) {
        return -EBADMSG;
    }
    r = fill(root, &m);
    if (r == 0) {
        *ret = m;
    }
    return r;
}

int qmp_print(struct buf *b, const char *name, const json_t *arguments, int64_t id)
{
    cleanup_json json_t *root = json_pack("{s:s, s:I}", "execute", name, "id", (json_int_t)id);
    int r;

    ASSERT(root);
    if (arguments && json_object_set_new(root, "arguments", json_deep_copy(arguments)) < 0) {
        return -EINVAL;
    }
    r = json_write(root, b);
    return r < 0 ? r : buf_add_str(b, "\n");
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "model/tenant.h"

#include <string.h>

static const char *const scope_names[KEY_SCOPE_COUNT_] = {
    [KEY_SCOPE_PROJECT] = "project",
    [KEY_SCOPE_ORGANISATION] = "organisation",
    [KEY_SCOPE_OPERATOR] = "operator",
};

const char *key_scope_name(enum key_scope scope)
{
    ASSERT((unsigned)scope < KEY_SCOPE_COUNT_);
    return scope_names[scope];
}

bool key_scope_parse(const char *word, enum key_scope *ret)
{
    ASSERT(word && ret);

    for (unsigned i = 0; i < KEY_SCOPE_COUNT_; i++) {
        if (str_eq(scope_names[i], word)) {
            *ret = (enum key_scope)i;
            return true;
        }
    }
    return false;
}

bool key_text_valid(const char *text)
{
    ASSERT(text);
    return str_starts(text, "e2b_") && strlen(text) == KEY_TEXT_LEN &&
           strspn(text + 4, "0123456789abcdef") == KEY_HEX_LEN;
}

int tenant_name_check(const char *field, const char *name, struct err *e)
{
    size_t len;

    ASSERT(field && name);

    len = strlen(name);
    if (len == 0 || len > TENANT_NAME_MAX) {
        return err_field(e, -EINVAL, "invalid_name", field, "%s must have 1 to %d bytes", field,
                         TENANT_NAME_MAX);
    }
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];

        if (c < 0x20 || c == 0x7f) {
            return err_field(e, -EINVAL, "invalid_name", field,
                             "%s must not hold control characters", field);
        }
    }
    if (name[0] == ' ' || name[len - 1] == ' ') {
        return err_field(e, -EINVAL, "invalid_name", field, "%s must not begin or end with a space",
                         field);
    }
    return 0;
}

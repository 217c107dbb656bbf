/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/vault.h"

#include <ctype.h>
#include <string.h>

bool vault_ref_valid(const char *ref)
{
    size_t len = strlen(ref);
    const char *segment = ref;

    if (len == 0 || len > VAULT_REF_MAX) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (!isalnum((unsigned char)ref[i]) && !strchr("-_./#", ref[i])) {
            return false;
        }
    }
    for (;;) {
        size_t n = strcspn(segment, "/#");

        if (n == 0 || (n == 1 && segment[0] == '.') || (n == 2 && strncmp(segment, "..", 2) == 0)) {
            return false;
        }
        if (segment[n] == '\0') {
            return true;
        }
        /* Nothing but a field's name follows the mark. */
        if (segment[n] == '#' && strpbrk(segment + n + 1, "/#")) {
            return false;
        }
        segment += n + 1;
    }
}

static int check_ref(const char *ref, struct err *e)
{
    return vault_ref_valid(ref)
               ? 0
               : err_field(e, -EINVAL, "invalid_field", "ref",
                           "a reference has letters, digits, '-', '_', '.', '/' and '#', and no "
                           "empty or dot segments");
}

int vault_get(struct vault *v, const char *ref, struct secret *ret, struct err *e)
{
    int r = check_ref(ref, e);

    return r < 0 ? r : v->driver->get(v, ref, ret, e);
}

int vault_put(struct vault *v, const char *ref, const struct secret *value, struct err *e)
{
    int r = check_ref(ref, e);

    if (r == 0 && !v->driver->put) {
        r = err_set(e, -EROFS, "vault_read_only", "the vault '%s' cannot be written to",
                    v->driver->name);
    }
    return r < 0 ? r : v->driver->put(v, ref, value, e);
}

int vault_remove(struct vault *v, const char *ref, struct err *e)
{
    int r = check_ref(ref, e);

    if (r == 0 && !v->driver->remove) {
        r = err_set(e, -EROFS, "vault_read_only", "the vault '%s' cannot be written to",
                    v->driver->name);
    }
    return r < 0 ? r : v->driver->remove(v, ref, e);
}

void vault_free(struct vault *v)
{
    if (v) {
        v->driver->free(v);
    }
}

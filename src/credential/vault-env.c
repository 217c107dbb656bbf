/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/vault.h"

#include <ctype.h>
#include <string.h>

struct vault_env {
    struct vault base;
    char *prefix; /* owned */
};

static int env_get(struct vault *v, const char *ref, struct secret *ret, struct err *e)
{
    const struct vault_env *env = (const struct vault_env *)v;
    cleanup_free char *name = xasprintf("%s_%s", env->prefix, ref);
    const char *value;
    int r;

    for (char *s = name; *s; s++) {
        *s = isalnum((unsigned char)*s) ? (char)toupper((unsigned char)*s) : '_';
    }
    value = secure_getenv(name);
    if (!value) {
        return err_set(e, -ENOENT, "no_value", "there is no variable '%s'", name);
    }
    r = secret_init(ret, value, strlen(value));
    return r < 0 ? err_wrap(e, r, "reading the variable '%s'", name) : 0;
}

static void env_free(struct vault *v)
{
    free(((struct vault_env *)v)->prefix);
    free(v);
}

static const struct vault_driver env_driver = {.name = "env", .get = env_get, .free = env_free};

struct vault *vault_env_new(const char *prefix)
{
    struct vault_env *v = xnew(struct vault_env);

    v->base.driver = &env_driver;
    v->prefix = xstrdup(prefix);
    return &v->base;
}

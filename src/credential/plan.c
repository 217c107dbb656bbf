/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "credential/secret.h"
#include "wire/http1.h"

static const char *const kind_names[INJECTION_KIND_COUNT_] = {
    [INJECTION_HEADER] = "header",           [INJECTION_QUERY] = "query",
    [INJECTION_COOKIE] = "cookie",           [INJECTION_BODY] = "body",
    [INJECTION_PLACEHOLDER] = "placeholder", [INJECTION_SIGV4] = "sigv4",
};

void plan_done(struct plan *plan)
{
    for (size_t i = 0; i < plan->n; i++) {
        free(plan->v[i].name);
        secret_free(plan->v[i].value);
    }
    for (size_t i = 0; i < plan->n_secrets; i++) {
        secret_free(plan->secrets[i]);
    }
    explicit_bzero(plan, sizeof(*plan));
}

int plan_add(struct plan *plan, const struct injection *what)
{
    struct injection *in = &plan->v[plan->n];

    ASSERT(what->name && what->value);
    if (plan->n == PLAN_INJECTIONS_MAX || strlen(what->value) > PLAN_VALUE_MAX) {
        return -E2BIG;
    }
    *in = *what;
    in->name = xstrdup(what->name);
    in->value = xstrdup(what->value);
    plan->n++;
    return 0;
}

int plan_hide(struct plan *plan, const char *secret)
{
    for (size_t i = 0; i < plan->n_secrets; i++) {
        if (str_eq(plan->secrets[i], secret)) {
            return 0;
        }
    }
    if (plan->n_secrets == PLAN_SECRETS_MAX || strlen(secret) > PLAN_VALUE_MAX) {
        return -E2BIG;
    }
    plan->secrets[plan->n_secrets++] = xstrdup(secret);
    return 0;
}

bool plan_has(const struct plan *plan, enum injection_kind kind)
{
    for (size_t i = 0; i < plan->n; i++) {
        if (plan->v[i].kind == kind) {
            return true;
        }
    }
    return false;
}

static json_t *injection_json(const struct injection *in)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:s}", "kind", kind_names[in->kind], "credential",
                             in->credential, "name", in->name, "value", in->value);
    char hex[2 * PLAN_KEY_SIZE + 1];

    ASSERT(json);
    if (in->kind == INJECTION_PLACEHOLDER) {
        json_object_set_new(json, "in", json_integer((json_int_t)in->surfaces));
    }
    if (in->kind == INJECTION_SIGV4) {
        hex_encode(in->key, sizeof(in->key), hex);
        json_object_set_new(json, "key", json_string(hex));
        json_object_set_new(json, "date", json_string(in->scope.date));
        json_object_set_new(json, "region", json_string(in->scope.region));
        json_object_set_new(json, "service", json_string(in->scope.service));
        explicit_bzero(hex, sizeof(hex));
    }
    return json;
}

json_t *plan_json(const struct plan *plan)
{
    json_t *injections = json_array();
    json_t *secrets = json_array();

    for (size_t i = 0; i < plan->n; i++) {
        json_array_append_new(injections, injection_json(&plan->v[i]));
    }
    for (size_t i = 0; i < plan->n_secrets; i++) {
        json_array_append_new(secrets, json_string(plan->secrets[i]));
    }
    return json_pack("{s:o, s:o}", "injections", injections, "secrets", secrets);
}

static int read_key(const char *hex, unsigned char ret[static PLAN_KEY_SIZE])
{
    static const char digits[] = "0123456789abcdef";

    if (strlen(hex) != 2 * PLAN_KEY_SIZE || strspn(hex, digits) != 2 * PLAN_KEY_SIZE) {
        return -EPROTO;
    }
    for (size_t i = 0; i < PLAN_KEY_SIZE; i++) {
        ret[i] = (unsigned char)((strchr(digits, hex[2 * i]) - digits) * 16 +
                                 (strchr(digits, hex[2 * i + 1]) - digits));
    }
    return 0;
}

static int injection_from_json(json_t *json, struct plan *plan)
{
    const char *kind = json_get_string(json, "kind", "");
    /* plan_add() copies; it only reads. */
    struct injection in = {.surfaces = (unsigned)json_get_int(json, "in", 0)};
    cleanup_free char *name = xstrdup(json_get_string(json, "name", ""));
    cleanup_secret_free char *value = xstrdup(json_get_string(json, "value", ""));
    int r = 0;

    while (in.kind < INJECTION_KIND_COUNT_ && !str_eq(kind, kind_names[in.kind])) {
        in.kind++;
    }
    if (in.kind == INJECTION_KIND_COUNT_ ||
        str_copy(in.credential, sizeof(in.credential), json_get_string(json, "credential", "")) <
            0 ||
        str_copy(in.scope.date, sizeof(in.scope.date), json_get_string(json, "date", "")) < 0 ||
        str_copy(in.scope.region, sizeof(in.scope.region), json_get_string(json, "region", "")) <
            0 ||
        str_copy(in.scope.service, sizeof(in.scope.service), json_get_string(json, "service", "")) <
            0) {
        return -EPROTO;
    }
    if (in.kind == INJECTION_HEADER &&
        (!http1_is_token(name, strlen(name)) || !http1_is_value(value, strlen(value)))) {
        return -EPROTO;
    }
    if (in.kind == INJECTION_SIGV4) {
        r = read_key(json_get_string(json, "key", ""), in.key);
    }
    in.name = name;
    in.value = value;
    r = r < 0 ? r : plan_add(plan, &in);
    explicit_bzero(in.key, sizeof(in.key));
    return r < 0 ? -EPROTO : 0;
}

int plan_from_json(json_t *json, struct plan *ret, struct err *e)
{
    cleanup_plan struct plan plan = {0};
    json_t *injections = json_object_get(json, "injections");
    json_t *secrets = json_object_get(json, "secrets");
    int r = json_is_array(injections) && json_is_array(secrets) ? 0 : -EPROTO;

    for (size_t i = 0; i < json_array_size(injections) && r == 0; i++) {
        r = injection_from_json(json_array_get(injections, i), &plan);
    }
    for (size_t i = 0; i < json_array_size(secrets) && r == 0; i++) {
        const char *text = json_string_value(json_array_get(secrets, i));

        r = text ? plan_hide(&plan, text) : -EPROTO;
    }
    if (r < 0) {
        return err_set(e, -EPROTO, NULL, "the credential manager's answer is no plan");
    }
    *ret = plan;
    plan = (struct plan){0};
    return 0;
}

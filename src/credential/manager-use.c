/* SPDX-License-Identifier: Apache-2.0 */
/* From a request to the plan of what is put into it. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/metric.h"
#include "credential/manager.h"
#include "credential/sigv4.h"

static struct audit_row row_of(const struct manager_use *use, const char *event,
                               const struct credential *c)
{
    return (struct audit_row){
        .event = event,
        .organisation = use->q.organisation,
        .project = use->q.project,
        .sandbox = use->q.sandbox,
        .credential = c->name,
        .credential_id = c->id,
        .host = use->q.host,
        .port = use->q.port,
        .method = use->q.method,
        .path = use->q.path,
    };
}

static int refused(struct manager *m, const struct manager_use *use, const struct credential *c,
                   const struct err *why)
{
    struct audit_row row = row_of(use, "refuse", c);
    struct err e = {0};

    row.reason = err_reason(why);
    if (audit_add(m->audit, &row, /* durable */ false, &e) < 0) {
        log_error(NULL, "a refusal is not recorded: %s", e.msg);
    }
    return why->code;
}

/* ---- values ---- */

/* A server may give a new refresh token each time: the old one is worth nothing from then on. */
static int keep_refresh(struct manager *m, const struct credential *c, const struct secret *refresh,
                        struct err *e)
{
    struct vault *v = NULL;

    for (size_t i = 0; i < m->n_vaults; i++) {
        v = str_eq(m->vaults[i]->driver->name, c->vault) ? m->vaults[i] : v;
    }
    if (!refresh->p || !c->inject.refresh || !v) {
        return 0;
    }
    return vault_put(v, c->ref, refresh, e);
}

/* What is kept for it, as it is. */
static int kept_value(struct manager *m, const struct credential *c, struct secret *ret,
                      struct err *e)
{
    struct vault *v = NULL;
    int r;

    if (str_eq(c->vault, MANAGER_VAULT_SECRET)) {
        r = manager_secret_value(m, c, ret, e);
        return r == -ENOENT ? err_set(e, -EHOSTDOWN, "secret_not_found",
                                      "the secret '%.60s' of the credential '%s' is not there",
                                      c->ref, c->name)
                            : r;
    }
    for (size_t i = 0; i < m->n_vaults; i++) {
        v = str_eq(m->vaults[i]->driver->name, c->vault) ? m->vaults[i] : v;
    }
    if (!v) {
        return err_set(e, -EHOSTDOWN, "vault_unavailable",
                       "the vault '%s' of the credential '%s' is not set up", c->vault, c->name);
    }
    r = vault_get(v, c->ref, ret, e);
    return r == -ENOENT ? err_set(e, -EHOSTDOWN, "vault_unavailable",
                                  "the value of the credential '%s' is not in its vault", c->name)
                        : r;
}

int manager_value_of(struct manager *m, const struct credential *c, struct secret *ret,
                     struct err *e)
{
    cleanup_secret struct secret kept = {0};
    cleanup_secret struct secret refresh = {0};
    int r = kept_value(m, c, &kept, e);

    r = r < 0 ? r : credential_value_valid(c, kept.p, kept.len, e);
    if (r < 0) {
        return r;
    }
    if (c->inject.type != CREDENTIAL_OAUTH2 && c->inject.type != CREDENTIAL_GITHUB_APP) {
        *ret = kept;
        kept = (struct secret){0};
        return 0;
    }
    r = tokens_get(m->tokens, c, &kept, ret, &refresh, e);
    r = r < 0 ? r : keep_refresh(m, c, &refresh, e);
    if (r < 0) {
        secret_done(ret);
    }
    return r;
}

/* ---- injections ---- */

static int add_header(struct plan *plan, struct injection *in, const char *name, const char *prefix,
                      const char *value)
{
    cleanup_secret_free char *text = xasprintf("%s%s", prefix, value);
    cleanup_free char *field = xstrdup(name);

    in->kind = INJECTION_HEADER;
    in->name = field;
    in->value = text;
    return plan_add(plan, in);
}

static int add_basic(struct plan *plan, struct injection *in, const char *user, const char *value)
{
    cleanup_secret_buf struct buf plain = BUF_INIT(PLAN_VALUE_MAX);
    cleanup_secret_buf struct buf text = BUF_INIT(PLAN_VALUE_MAX);
    int r = buf_printf(&plain, "%s:%s", user, value);

    r = r < 0 ? r : base64_encode(plain.data, plain.len, &text);
    r = r < 0 ? r : add_header(plan, in, "Authorization", "Basic ", buf_str(&text));
    /* The whole of it is as good as the secret. */
    return r < 0 ? r : plan_hide(plan, buf_str(&text));
}

static int add_named(struct plan *plan, struct injection *in, const struct credential *c,
                     const char *value)
{
    static const enum injection_kind kinds[CREDENTIAL_TYPE_COUNT_] = {
        [CREDENTIAL_QUERY] = INJECTION_QUERY,
        [CREDENTIAL_COOKIE] = INJECTION_COOKIE,
        [CREDENTIAL_BODY] = INJECTION_BODY,
        [CREDENTIAL_PLACEHOLDER] = INJECTION_PLACEHOLDER,
    };
    cleanup_free char *name =
        xstrdup(c->inject.type == CREDENTIAL_PLACEHOLDER ? c->name : c->inject.name);
    cleanup_secret_free char *text = xstrdup(value);

    in->kind = kinds[c->inject.type];
    in->surfaces = c->inject.surfaces;
    in->name = name;
    in->value = text;
    return plan_add(plan, in);
}

static int add_sigv4(struct plan *plan, struct injection *in, const struct manager_use *use,
                     const struct credential *c, const char *value, struct err *e)
{
    time_t now = (time_t)(clock_wall_ms() / 1000);
    cleanup_free char *id = xstrdup(c->inject.client_id);
    cleanup_free char *none = xstrdup("");
    struct tm tm;
    int r;

    in->kind = INJECTION_SIGV4;
    in->scope = use->sign;
    if (str_copy(in->scope.region, sizeof(in->scope.region),
                 c->inject.region[0] ? c->inject.region : use->sign.region) < 0 ||
        str_copy(in->scope.service, sizeof(in->scope.service),
                 c->inject.service[0] ? c->inject.service : use->sign.service) < 0 ||
        !in->scope.region[0] || !in->scope.service[0]) {
        return err_set(e, -EINVAL, "no_signing_scope",
                       "neither the credential '%s' nor the request says for which region and "
                       "service to sign",
                       c->name);
    }
    gmtime_r(&now, &tm);
    strftime(in->scope.date, sizeof(in->scope.date), "%Y%m%d", &tm);
    sigv4_key(value, &in->scope, in->key);
    in->name = id;
    in->value = none;
    r = plan_add(plan, in);
    explicit_bzero(in->key, sizeof(in->key));
    return r;
}

static int add_injection(struct plan *plan, const struct manager_use *use,
                         const struct credential *c, const char *value, struct err *e)
{
    struct injection in = {0};
    int r;

    snprintf(in.credential, sizeof(in.credential), "%s", c->name);
    switch (c->inject.type) {
    case CREDENTIAL_BEARER:
    case CREDENTIAL_OAUTH2:
        r = add_header(plan, &in, "Authorization", "Bearer ", value);
        break;
    case CREDENTIAL_HEADER:
        r = add_header(plan, &in, c->inject.name, c->inject.prefix, value);
        break;
    case CREDENTIAL_BASIC:
        r = add_basic(plan, &in, c->inject.user, value);
        break;
    case CREDENTIAL_GITHUB_APP:
        /* git takes it as a password, the API as either. */
        r = add_basic(plan, &in, "x-access-token", value);
        break;
    case CREDENTIAL_SIGV4:
        /* The secret itself goes nowhere: there is nothing to hide in the answer. */
        return add_sigv4(plan, &in, use, c, value, e);
    default:
        r = add_named(plan, &in, c, value);
    }
    r = r < 0 ? r : plan_hide(plan, value);
    return r < 0 ? err_set(e, -E2BIG, "too_many_credentials",
                           "more credentials than one request can carry")
                 : 0;
}

/* ---- one request ---- */

static bool names_it(const struct manager_use *use, const char *name)
{
    for (size_t i = 0; i < use->n_names; i++) {
        if (str_eq(use->names[i], name)) {
            return true;
        }
    }
    return false;
}

/*
 * Nobody asked for it: a placeholder that is in neither head nor, as far as we know, body; a field of a body that requests of
 * this method do not have.
 */
static bool is_idle(const struct manager_use *use, const struct credential *c)
{
    const char *method = use->q.method;

    if (c->inject.type == CREDENTIAL_BODY) {
        return str_eq(method, "GET") || str_eq(method, "HEAD") || str_eq(method, "OPTIONS");
    }
    return c->inject.type == CREDENTIAL_PLACEHOLDER && !names_it(use, c->name) &&
           !(c->inject.surfaces & CREDENTIAL_IN_BODY);
}

static int use_one(struct manager *m, const struct manager_use *use, const struct credential *c,
                   struct plan *plan, struct err *e)
{
    cleanup_secret struct secret value = {0};
    struct audit_row row = row_of(use, "use", c);
    int r = 0;

    if (c->expires_at_ms && c->expires_at_ms <= (int64_t)clock_wall_ms()) {
        r = err_set(e, -EACCES, "credential_expired", "the credential '%s' has expired", c->name);
    }
    r = r < 0 ? r : store_take_use(m->store, c, e);
    r = r < 0 ? r : manager_value_of(m, c, &value, e);
    r = r < 0 ? r : add_injection(plan, use, c, value.p, e);
    if (r < 0) {
        return refused(m, use, c, e);
    }
    return audit_add(m->audit, &row, /* durable */ false, e);
}

/* A placeholder that the request has, but not for this target: it stays as it is, and somebody should know. */
static void note_strays(struct manager *m, const struct manager_use *use,
                        const struct credential *chosen, size_t n)
{
    const struct err why = {.code = -EACCES, .reason = "placeholder_elsewhere"};

    for (size_t i = 0; i < use->n_names; i++) {
        struct credential c;
        bool is_chosen = false;

        for (size_t j = 0; j < n; j++) {
            is_chosen = is_chosen || str_eq(chosen[j].name, use->names[i]);
        }
        if (!is_chosen && store_named(m->store, &use->q, use->names[i], &c) == 0) {
            IGNORE_RESULT(refused(m, use, &c, &why)); /* the request itself goes on */
        }
    }
}

static struct metric uses = {
    .name = "space_credential_use_seconds",
    .help =
        "Requests that credentials were put into, or not, by outcome; vaults and tokens included.",
    .type = METRIC_HISTOGRAM,
    .labels = {METRIC_OUTCOMES},
    .quiet = true,
};
static struct metric injected = {
    .name = "space_credential_injections_total",
    .help = "Values that were put into requests.",
    .type = METRIC_COUNTER,
};

void manager_metrics_register(void)
{
    metric_register(&uses);
    metric_register(&injected);
}

static int use_all(struct manager *m, const struct manager_use *use, struct plan *ret,
                   struct err *e)
{
    cleanup_plan struct plan plan = {0};
    struct credential *chosen = NULL;
    struct err why = {0};
    size_t n = store_choose(m->store, &use->q, &chosen);
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        if (!is_idle(use, &chosen[i])) {
            r = use_one(m, use, &chosen[i], &plan, &why);
        }
    }
    if (r == 0) {
        note_strays(m, use, chosen, n);
        *ret = plan;
        plan = (struct plan){0};
    } else if (e) {
        *e = why;
    }
    free(chosen);
    return r;
}

int manager_use(struct manager *m, const struct manager_use *use, struct plan *ret, struct err *e)
{
    uint64_t begun_ns = clock_now_ns();
    int r = use_all(m, use, ret, e);

    metric_observe(&uses, METRIC_AT(metric_outcome(r)), clock_now_ns() - begun_ns);
    metric_add(&injected, METRIC_ONLY, r < 0 ? 0 : (int64_t)ret->n);
    return r;
}

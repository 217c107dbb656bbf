/* SPDX-License-Identifier: Apache-2.0 */

/* The object, and changes of one row by compare-and-set. */
#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "control/private.h"

#include <stdio.h>
#include <time.h>

static int64_t real_now_ms(void *ctx)
{
    (void)ctx;
    return (int64_t)clock_wall_ms();
}

struct control *control_new(const struct control_opts *opts)
{
    struct control *c = xnew(struct control);

    ASSERT(opts && opts->db && opts->fleet);

    c->db = opts->db;
    c->fleet = opts->fleet;
    c->now_ms = opts->now_ms ? opts->now_ms : real_now_ms;
    c->now_ctx = opts->now_ctx;
    c->busy = busy_new();
    c->resumes = flights_new();
    id_new(ID_REQUEST, c->owner);
    cond_init(&c->wake);
    pthread_mutex_init(&c->mutex, NULL);
    return c;
}

void control_free(struct control *c)
{
    if (!c) {
        return;
    }
    ASSERT(!c->running);
    share_stop(c->share);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->mutex);
    busy_free(c->busy);
    flights_free(c->resumes);
    free(c->later);
    free(c);
}

static void on_due(void *ctx)
{
    struct control *c = ctx;

    pthread_mutex_lock(&c->mutex);
    c->due = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->mutex);
}

static void on_passed(void *ctx, bool fine)
{
    control_count_passed(ctx, fine);
}

int control_share(struct control *c, struct err *e)
{
    const struct share_opts opts = {
        .db = c->db,
        .busy = c->busy,
        .owner = c->owner,
        .ctx = c,
        .due = on_due,
        .passed = on_passed,
    };

    ASSERT(c && !c->share);
    return db_shared(c->db) ? share_start(&opts, &c->share, e) : 0;
}

unsigned control_gateways(const struct control *c)
{
    return c->share ? share_alive(c->share) : 1;
}

void control_on_still(struct control *c, control_still_fn *fn, void *ctx)
{
    ASSERT(c && !c->running);
    c->still = fn;
    c->still_ctx = ctx;
}

struct fleet *control_fleet(const struct control *c)
{
    return c->fleet;
}

const char *control_owner(const struct control *c)
{
    return c->owner;
}

int64_t control_now_ms(const struct control *c)
{
    return c->now_ms(c->now_ctx);
}

int control_not_found(struct err *e)
{
    return err_set(e, -ENOENT, "sandbox_not_found",
                   "there is no such sandbox in your project; GET /v1/sandboxes lists them");
}

struct audit_event control_event(const struct control *c, const struct control_actor *actor,
                                 const struct sandbox *sb, const char *action, const char *detail)
{
    struct audit_event ev = {.at_ms = control_now_ms(c)};

    id_new(ID_REQUEST, ev.id);
    snprintf(ev.project, sizeof(ev.project), "%s", sb ? sb->project : actor ? actor->project : "");
    snprintf(ev.key, sizeof(ev.key), "%s", actor ? actor->key : "");
    snprintf(ev.action, sizeof(ev.action), "%s", action);
    snprintf(ev.target, sizeof(ev.target), "%s", sb ? sb->id : "");
    snprintf(ev.detail, sizeof(ev.detail), "%s", detail ? detail : "");
    return ev;
}

void control_audit(struct control *c, const struct control_actor *actor, const char *action,
                   const char *target, const char *detail)
{
    struct audit_event ev = control_event(c, actor, NULL, action, detail);
    struct err e = {0};

    snprintf(ev.target, sizeof(ev.target), "%s", target ? target : "");
    if (db_audit_add(c->db, &ev, &e) < 0) {
        log_error(NULL, "cannot write the audit event %s of '%s': %s", action, ev.target, e.msg);
    }
}

int control_get(struct control *c, const struct control_actor *actor, const char *id,
                struct sandbox *ret, struct err *e)
{
    int r;

    ASSERT(c && actor && id && ret);

    if (!id_valid(ID_SANDBOX, id)) {
        return control_not_found(e);
    }
    r = db_sandbox_get(c->db, id, actor->project, ret, e);
    return r == -ENOENT ? control_not_found(e) : r;
}

static int change_once(struct control *c, const struct control_change *change, struct sandbox *ret,
                       struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    struct audit_event ev;
    struct db_beside beside = {.operation = change->operation, .relaxed = change->relaxed};
    int r;

    r = db_sandbox_get(c->db, change->id, change->project, &sb, e);
    if (r < 0) {
        return r == -ENOENT ? control_not_found(e) : r;
    }
    r = change->decide(c, change->ctx, &sb, e);
    if (r < 0) {
        return r;
    }
    if (r == 1) {
        sb.changed_at_ms = control_now_ms(c);
        if (change->action) {
            ev = control_event(c, change->actor, &sb, change->action, sb.reason);
            beside.audit = &ev;
        }
        r = db_sandbox_update(c->db, &sb, &beside, e);
        if (r < 0) {
            return r == -ENOENT ? control_not_found(e) : r;
        }
    }
    if (ret) {
        sandbox_done(ret);
        *ret = sb;
        sb = (struct sandbox){0};
    }
    return 0;
}

int control_change(struct control *c, const struct control_change *change, struct sandbox *ret,
                   struct err *e)
{
    int r = -ESTALE;

    ASSERT(c && change && change->id && change->decide);

    for (int i = 0; i < CONTROL_CAS_TRIES && r == -ESTALE; i++) {
        r = change_once(c, change, ret, e);
        /* A decision may itself be -ESTALE with a reason of its own: that one is for the client. */
        if (r == -ESTALE && e && !str_eq(e->reason, "conflict")) {
            break;
        }
    }
    return r;
}

int control_remove_row(struct control *c, const char *id, const struct operation *operation,
                       const char *detail, struct err *e)
{
    int r = -ESTALE;

    for (int i = 0; i < CONTROL_CAS_TRIES && r == -ESTALE; i++) {
        cleanup_sandbox struct sandbox sb = {0};
        struct audit_event ev;

        r = db_sandbox_get(c->db, id, /* project */ NULL, &sb, e);
        if (r == 0) {
            ev = control_event(c, /* actor */ NULL, &sb, "sandbox.removed", detail);
            r = db_sandbox_delete(c->db, &sb,
                                  &(struct db_beside){.operation = operation, .audit = &ev}, e);
        }
    }
    return r == -ENOENT ? 0 : r;
}

static int decide_deleted(struct control *c, void *ctx, struct sandbox *sb, struct err *e)
{
    (void)c;
    (void)ctx;
    (void)e;
    if (sb->desired == SANDBOX_STATE_DELETED) {
        return 0;
    }
    sb->desired = SANDBOX_STATE_DELETED;
    return 1;
}

int control_mark_deleted(struct control *c, const struct control_actor *actor, const char *id,
                         const char *action, struct err *e)
{
    struct control_change change = {
        .id = id,
        .project = actor ? actor->project : NULL,
        .decide = decide_deleted,
        .actor = actor,
        .action = action,
    };

    return control_change(c, &change, /* ret */ NULL, e);
}

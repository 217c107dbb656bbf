/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/template/set.h"

#include "base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

struct job {
    struct job *next;
    struct builds *builds;  /* borrowed */
    struct build_wish wish; /* owned */
    struct build_log *log;  /* owned */
    int stop_fd;            /* owned */
    bool ended;             /* guarded by the lock of builds; the thread returns in a moment */
    pthread_t thread;
};

struct builds {
    struct builds_opts opts;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct job *jobs;
    bool closing;
};

void build_wish_done(struct build_wish *wish)
{
    template_recipe_done(&wish->recipe);
    build_base_done(&wish->base);
    build_row_done(&wish->row);
}

static void job_free(struct job *job)
{
    build_wish_done(&job->wish);
    build_log_free(job->log);
    fd_close(job->stop_fd);
    free(job);
}

struct builds *builds_new(const struct builds_opts *opts)
{
    struct builds *b = xnew(struct builds);

    b->opts = *opts;
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->changed, NULL);
    return b;
}

/* Those that have ended leave the list and are joined. With the lock. */
static void reap(struct builds *b)
{
    for (struct job **at = &b->jobs; *at;) {
        struct job *job = *at;

        if (!job->ended) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        pthread_join(job->thread, NULL); /* it has nothing more to do than to return */
        job_free(job);
    }
}

static void call_off(struct job *job)
{
    IGNORE_RESULT(eventfd_write(job->stop_fd, 1)); /* a counter that cannot be full */
}

void builds_free(struct builds *b)
{
    if (!b) {
        return;
    }
    pthread_mutex_lock(&b->lock);
    b->closing = true;
    for (struct job *job = b->jobs; job; job = job->next) {
        call_off(job);
    }
    while (b->jobs) {
        reap(b);
        if (b->jobs) {
            pthread_cond_wait(&b->changed, &b->lock);
        }
    }
    pthread_mutex_unlock(&b->lock);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

/* --- what stays for its layers, and what goes --- */

static void remove_sandbox(struct builds *b, const struct control_actor *actor, const char *sandbox)
{
    const struct builder_world world = {.control = b->opts.control, .actor = actor};
    struct builder builder = {.world = &world};
    struct err e = {0};

    if (db_layer_forget_sandbox(b->opts.db, actor->project, sandbox, &e) < 0) {
        log_warn(&(struct log_ctx){.sandbox = sandbox}, "old layers stay: %s", e.msg);
        return;
    }
    snprintf(builder.id, sizeof(builder.id), "%s", sandbox);
    builder_remove(&builder);
}

#define SANDBOXES_MAX 4096

struct sandboxes {
    char (*ids)[ID_SIZE]; /* owned */
    size_t n;
    const char *only; /* of these; NULL: all */
};

static int keep_sandbox(void *ctx, const struct build_row *row)
{
    struct sandboxes *s = ctx;

    if (row->sandbox[0] && s->n < SANDBOXES_MAX && (!s->only || str_eq(row->sandbox, s->only))) {
        memcpy(s->ids[s->n++], row->sandbox, ID_SIZE);
    }
    return 0;
}

/* Builds of other templates may have ended with a layer of this one's. */
static bool still_named(struct builds *b, const char *project, const char *sandbox)
{
    char(*ids)[ID_SIZE] = xcalloc(SANDBOXES_MAX, ID_SIZE);
    struct sandboxes found = {.ids = ids, .only = sandbox};
    int r = db_build_list(b->opts.db, project, NULL, keep_sandbox, &found, NULL);

    free(ids);
    return r < 0 || found.n > 0;
}

static void sweep(struct builds *b, const struct control_actor *actor)
{
    int64_t before_ms = control_now_ms(b->opts.control) - BUILDS_CACHE_AGE_MS;
    char sandbox[ID_SIZE];

    while (db_layer_stale(b->opts.db, actor->project, before_ms, BUILDS_CACHE_SANDBOXES, sandbox,
                          NULL) == 0) {
        remove_sandbox(b, actor, sandbox);
    }
}

/* --- one build --- */

#define BUILD_HOLD_SIZE (6 + ID_SIZE)

/* Where gateways share a database, who builds holds this; who gets it knows that nobody builds. As db_hold_take(). */
static int hold(struct builds *b, const char *id, char name[static BUILD_HOLD_SIZE], struct err *e)
{
    snprintf(name, BUILD_HOLD_SIZE, "build %s", id);
    return db_hold_take(b->opts.db, name, control_owner(b->opts.control), e);
}

static void let_go(struct job *job)
{
    struct builds *b = job->builds;
    char name[BUILD_HOLD_SIZE];

    snprintf(name, sizeof(name), "build %s", job->wish.row.id);
    if (db_shared(b->opts.db) &&
        db_hold_give(b->opts.db, name, control_owner(b->opts.control), NULL) < 0) {
        log_warn(NULL, "the hold of build %s stays until this service ends", job->wish.row.id);
    }
}

static json_t *reason_of(struct job *job, const struct err *why)
{
    json_t *tail = build_log_tail(job->log, 50);
    const char *step = json_get_string(json_array_get(tail, 0), "step", "base");
    json_t *reason =
        json_pack("{s:s, s:s, s:o}", "message", why->msg, "step", step, "logEntries", tail);

    return reason ? reason : json_pack("{s:s}", "message", "the build failed");
}

/* The tags that were asked for stand in the row's config since the build was begun. */
static size_t tags_of(const json_t *config, const char *ret[static TEMPLATE_TAGS_MAX])
{
    json_t *tag;
    size_t i;
    size_t n = 0;

    json_array_foreach(json_object_get(config, "tags"), i, tag)
    {
        if (json_is_string(tag) && n < TEMPLATE_TAGS_MAX) {
            ret[n++] = json_string_value(tag);
        }
    }
    if (n == 0) {
        ret[n++] = TEMPLATE_DEFAULT_TAG;
    }
    return n;
}

static int finish(struct job *job, int result, const struct err *why, struct err *e)
{
    struct build_row *row = &job->wish.row;
    cleanup_json json_t *reason = result < 0 ? reason_of(job, why) : NULL;
    cleanup_json json_t *config = NULL;
    const char *tags[TEMPLATE_TAGS_MAX];
    size_t n_tags;

    build_log_say(job->log, result < 0 ? "error" : "info", "%s%s",
                  result < 0 ? "the build failed: " : "the template is ready",
                  result < 0 ? why->msg : "");
    row->status = result < 0 ? BUILD_FAILED : BUILD_READY;
    row->ended_at_ms = control_now_ms(job->builds->opts.control);
    row->reason = reason ? json_text(reason) : NULL;
    row->log = build_log_text(job->log);
    if (result < 0) {
        return db_build_update(job->builds->opts.db, row, e);
    }
    result = json_parse_object(row->config, strlen(row->config), &config, e);
    if (result < 0) {
        return result;
    }
    n_tags = tags_of(config, tags);
    return db_build_finish(job->builds->opts.db, row, tags, n_tags, e);
}

static void *work(void *arg)
{
    struct job *job = arg;
    struct builds *b = job->builds;
    const struct builder_world world = {.db = b->opts.db,
                                        .fleet = control_fleet(b->opts.control),
                                        .control = b->opts.control,
                                        .actor = &job->wish.actor,
                                        .build = job->wish.row.id,
                                        .stop_fd = job->stop_fd};
    struct build build = {.world = &world,
                          .files = b->opts.files,
                          .recipe = &job->wish.recipe,
                          .base = &job->wish.base,
                          .log = job->log,
                          .row = &job->wish.row};
    struct err why = {0};
    struct err e = {0};
    int r = build_perform(&build, &why);

    if (finish(job, r, &why, &e) < 0) {
        log_error(NULL, "the end of build %s could not be noted: %s", job->wish.row.id, e.msg);
        if (e.code == -ENOENT && job->wish.row.sandbox[0] &&
            !still_named(b, job->wish.actor.project, job->wish.row.sandbox)) {
            remove_sandbox(b, &job->wish.actor, job->wish.row.sandbox); /* its template is gone */
        }
    }
    let_go(job);
    sweep(b, &job->wish.actor);
    pthread_mutex_lock(&b->lock);
    job->ended = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* --- the set --- */

static int check_room(struct builds *b, const char *project, struct err *e)
{
    size_t all = 0;
    size_t own = 0;

    for (struct job *job = b->jobs; job; job = job->next) {
        all++;
        own += str_eq(job->wish.actor.project, project);
    }
    return b->closing || all >= BUILDS_AT_ONCE || own >= BUILDS_AT_ONCE_PROJECT
               ? err_set(e, -EAGAIN, "too_many_builds",
                         "as many builds are at work as may be: try again when one has ended")
               : 0;
}

int builds_start(struct builds *b, struct build_wish *wish_take, struct err *e)
{
    struct job *job = xnew(struct job);
    int r;

    job->builds = b;
    job->wish = *wish_take;
    *wish_take = (struct build_wish){0};
    job->log = build_log_new();
    job->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (job->stop_fd < 0) {
        r = err_wrap(e, -errno, "making an event");
        job_free(job);
        return r;
    }
    job->wish.row.status = BUILD_RUNNING;
    pthread_mutex_lock(&b->lock);
    reap(b);
    r = check_room(b, job->wish.actor.project, e);
    if (r == 0 && db_shared(b->opts.db)) {
        char name[BUILD_HOLD_SIZE];

        r = hold(b, job->wish.row.id, name, e);
        r = r == 0 ? err_set(e, -ESTALE, "conflict", "another gateway has started this build") : r;
        r = MIN(r, 0);
    }
    r = r < 0 ? r : db_build_update(b->opts.db, &job->wish.row, e);
    if (r == 0) {
        r = -pthread_create(&job->thread, NULL, work, job);
        if (r < 0) {
            r = err_wrap(e, r, "starting a thread for the build");
        } else {
            job->next = b->jobs;
            b->jobs = job;
        }
    }
    pthread_mutex_unlock(&b->lock);
    if (r < 0) {
        job_free(job);
    }
    return r;
}

int builds_log(struct builds *b, const char *build, size_t offset, size_t max, json_t **ret)
{
    int r = -ENOENT;

    pthread_mutex_lock(&b->lock);
    for (struct job *job = b->jobs; job && r < 0; job = job->next) {
        if (!job->ended && str_eq(job->wish.row.id, build)) {
            *ret = build_log_entries(job->log, offset, max);
            r = 0;
        }
    }
    pthread_mutex_unlock(&b->lock);
    return r;
}

static bool at_work(struct builds *b, const char *template_id)
{
    bool found = false;

    reap(b);
    for (struct job *job = b->jobs; job; job = job->next) {
        if (str_eq(job->wish.row.template_id, template_id)) {
            call_off(job);
            found = true;
        }
    }
    return found;
}

void builds_cancel(struct builds *b, const char *template_id)
{
    pthread_mutex_lock(&b->lock);
    while (at_work(b, template_id)) {
        pthread_cond_wait(&b->changed, &b->lock);
    }
    pthread_mutex_unlock(&b->lock);
}

/* --- deleting --- */

int builds_delete_template(struct builds *b, const struct control_actor *actor, const char *id,
                           struct err *e)
{
    struct sandboxes own = {.ids = xcalloc(SANDBOXES_MAX, ID_SIZE)};
    int r;

    builds_cancel(b, id);
    r = db_build_list(b->opts.db, actor->project, id, keep_sandbox, &own, e);
    if (r == 0) {
        r = db_template_delete(b->opts.db, actor->project, id, e);
    }
    for (size_t i = 0; r == 0 && i < own.n; i++) {
        if (!still_named(b, actor->project, own.ids[i])) {
            remove_sandbox(b, actor, own.ids[i]);
        }
    }
    free(own.ids);
    if (r == 0) {
        control_audit(b->opts.control, actor, "template.delete", id, "");
    }
    return r;
}

/* --- after a crash --- */

#define LEFT_MAX 64

struct left {
    char (*ids)[ID_SIZE]; /* owned: builds, and their projects beside them */
    char (*projects)[ID_SIZE];
    size_t n;
};

static int keep_left(void *ctx, const struct build_row *row)
{
    struct left *left = ctx;

    if (row->status == BUILD_RUNNING && left->n < LEFT_MAX) {
        memcpy(left->projects[left->n], row->project, ID_SIZE);
        memcpy(left->ids[left->n++], row->id, ID_SIZE);
    }
    return 0;
}

static int fail_left(struct builds *b, struct build_row *row, struct err *e)
{
    struct control_actor actor = {0};
    char sandbox[ID_SIZE];
    int r;

    memcpy(sandbox, row->sandbox, sizeof(sandbox));
    row->status = BUILD_FAILED;
    row->sandbox[0] = '\0';
    row->ended_at_ms = control_now_ms(b->opts.control);
    free(row->reason);
    row->reason = xstrdup("{\"message\":\"the service was started anew while it ran\"}");
    r = db_build_update(b->opts.db, row, e);
    snprintf(actor.project, sizeof(actor.project), "%s", row->project);
    if (r == 0 && sandbox[0] && !still_named(b, actor.project, sandbox)) {
        remove_sandbox(b, &actor, sandbox);
    }
    return r;
}

int builds_bury(struct builds *b, const char *project, const char *id, struct build_row *ret,
                struct err *e)
{
    cleanup_build_row struct build_row row = {0};
    char name[BUILD_HOLD_SIZE];
    bool shared = db_shared(b->opts.db);
    int r = shared ? hold(b, id, name, e) : 1;

    if (r < 0) {
        return r;
    }
    if (r == 1) {
        r = db_build_get(b->opts.db, project, id, &row, e);
        if (r == 0 && row.status == BUILD_RUNNING) {
            r = fail_left(b, &row, e);
        }
        if (shared && db_hold_give(b->opts.db, name, control_owner(b->opts.control), NULL) < 0) {
            log_warn(NULL, "the hold of build %s stays until this service ends", id);
        }
    } else {
        r = db_build_get(b->opts.db, project, id, &row, e);
    }
    if (r < 0) {
        return r;
    }
    build_row_done(ret);
    *ret = row;
    row = (struct build_row){0};
    return 0;
}

int builds_recover(struct builds *b, struct err *e)
{
    struct left left = {.ids = xcalloc(LEFT_MAX, ID_SIZE), .projects = xcalloc(LEFT_MAX, ID_SIZE)};
    int r = db_build_list(b->opts.db, NULL, NULL, keep_left, &left, e);

    for (size_t i = 0; r == 0 && i < left.n; i++) {
        cleanup_build_row struct build_row row = {0};

        r = builds_bury(b, left.projects[i], left.ids[i], &row, e);
    }
    free(left.ids);
    free(left.projects);
    return r;
}

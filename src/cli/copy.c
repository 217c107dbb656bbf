/* SPDX-License-Identifier: Apache-2.0 */
/* The queue, the threads, the errors and the small requests that both directions of a copy share. */
#include "cli/copy.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/json.h"

#define COPY_PATH_MAX 65536u

void copy_init(struct copy *copy, struct cli *cli, const char *sandbox, const struct sigs *sigs)
{
    *copy = (struct copy){
        .cli = cli, .sandbox = sandbox, .user = cli->args->user, .sigs = sigs, .root_fd = FD_NONE};
    pthread_mutex_init(&copy->lock, /* attr */ NULL);
    pthread_cond_init(&copy->changed, /* attr */ NULL);
    copy->last = &copy->first;
}

void copy_job_free(struct copy_job *job)
{
    if (!job) {
        return;
    }
    fd_close(job->fd);
    free(job->guest);
    free(job->local);
    free(job);
}

static void copy_drop_queue(struct copy *copy)
{
    while (copy->first) {
        struct copy_job *job = copy->first;

        copy->first = job->next;
        copy_job_free(job);
    }
    copy->last = &copy->first;
    copy->n_queued = 0;
}

void copy_done(struct copy *copy)
{
    ASSERT(copy->n_threads == 0);
    copy_drop_queue(copy);
    for (size_t i = 0; i < copy->n_later; i++) {
        free(copy->later[i].path);
    }
    free(copy->later);
    pthread_cond_destroy(&copy->changed);
    pthread_mutex_destroy(&copy->lock);
}

struct pollfd copy_watch(const struct copy *copy)
{
    return (struct pollfd){.fd = copy->sigs->end_fd, .events = POLLIN};
}

static bool copy_interrupted(const struct copy *copy)
{
    struct pollfd p = copy_watch(copy);

    return poll(&p, 1, 0) > 0;
}

bool copy_stopped(struct copy *copy)
{
    bool stopped;

    pthread_mutex_lock(&copy->lock);
    if (!copy->fatal.code && copy_interrupted(copy)) {
        err_set(&copy->fatal, -ECANCELED, "interrupted", "interrupted");
        pthread_cond_broadcast(&copy->changed);
    }
    stopped = copy->fatal.code != 0;
    pthread_mutex_unlock(&copy->lock);
    return stopped;
}

/* Errors after which every further entry would fail in the same way. */
static bool copy_error_is_fatal(const struct err *e)
{
    int status;

    switch (e->code) {
    case -ECANCELED:
    case -ECONNREFUSED:
    case -ECONNRESET:
    case -ENETUNREACH:
    case -EHOSTUNREACH:
    case -ETIMEDOUT:
    case -EPIPE:
    case -ENOSPC:
    case -EDQUOT:
    case -EROFS:
    case -E2BIG:
        return true;
    default:
        break;
    }
    status = err_http_status(e);
    return e->reason[0] && (status == 401 || status == 429 || (status >= 500 && status != 501));
}

bool copy_error_is_passing(const struct err *e)
{
    return e->code == -ECONNRESET || e->code == -EPIPE || str_eq(e->reason, "answer_cut");
}

int copy_entry_failed(struct copy *copy, const char *path, const struct err *e)
{
    bool fatal = copy_error_is_fatal(e);
    cleanup_free char *text = xasprintf("%s: %s", path, e->msg[0] ? e->msg : strerror(-e->code));
    cleanup_free char *clean = ui_clean(text, strlen(text), /* lines */ false);

    pthread_mutex_lock(&copy->lock);
    copy->n_errors++;
    if (fatal && !copy->fatal.code) {
        copy->fatal = *e;
        if (e->code == -ECANCELED) {
            err_set(&copy->fatal, -ECANCELED, "interrupted", "interrupted");
        } else {
            cli_explain(copy->cli, &copy->fatal);
        }
        pthread_cond_broadcast(&copy->changed);
    }
    pthread_mutex_unlock(&copy->lock);
    if (fatal) {
        return e->code;
    }
    if (copy->progress) {
        cleanup_free char *line = xasprintf("space: %s", clean);

        progress_line(copy->progress, line);
    }
    return 0;
}

int copy_count_entry(struct copy *copy, struct err *e)
{
    if (++copy->entries > COPY_ENTRIES_MAX) {
        return err_set(e, -E2BIG, "too_many_entries", "more than %u files and folders",
                       COPY_ENTRIES_MAX);
    }
    return 0;
}

void copy_add_bytes(struct copy *copy, uint64_t n)
{
    pthread_mutex_lock(&copy->lock);
    copy->bytes += n;
    /* Until the walk is over the whole is not known. */
    if (copy->progress) {
        progress_set(copy->progress, copy->bytes, copy->closed ? copy->expected : 0);
    }
    pthread_mutex_unlock(&copy->lock);
}

void copy_later_add(struct copy *copy, const char *path, unsigned mode)
{
    copy->later = xrealloc(copy->later, (copy->n_later + 1) * sizeof(*copy->later));
    copy->later[copy->n_later++] = (struct copy_later){.path = xstrdup(path), .mode = mode};
}

static struct copy_job *copy_next_job(struct copy *copy)
{
    struct copy_job *job;

    pthread_mutex_lock(&copy->lock);
    while (!copy->first && !copy->closed && !copy->fatal.code) {
        pthread_cond_wait(&copy->changed, &copy->lock);
    }
    job = copy->fatal.code ? NULL : copy->first;
    if (job) {
        copy->first = job->next;
        job->next = NULL;
        if (!copy->first) {
            copy->last = &copy->first;
        }
        copy->n_queued--;
        pthread_cond_broadcast(&copy->changed);
    }
    pthread_mutex_unlock(&copy->lock);
    return job;
}

static void *copy_worker(void *arg)
{
    struct copy *copy = arg;
    struct copy_job *job;

    while ((job = copy_next_job(copy))) {
        struct err e = {0};
        int r = copy->job_fn(copy, job, &e);

        if (r < 0) {
            e.code = e.code ? e.code : r;
            copy_entry_failed(copy, job->local, &e);
        } else {
            pthread_mutex_lock(&copy->lock);
            copy->files++;
            pthread_mutex_unlock(&copy->lock);
        }
        copy_job_free(job);
    }
    return NULL;
}

int copy_pool_start(struct copy *copy, copy_job_fn fn, struct err *e)
{
    uint64_t n = copy->cli->args->jobs ? copy->cli->args->jobs : COPY_JOBS_DEFAULT;

    copy->job_fn = fn;
    copy->closed = false;
    n = MIN(n, (uint64_t)COPY_JOBS_MAX);
    while (copy->n_threads < n) {
        int r =
            -pthread_create(&copy->threads[copy->n_threads], /* attr */ NULL, copy_worker, copy);

        if (r < 0 && copy->n_threads == 0) {
            return err_wrap(e, r, "starting to copy");
        }
        if (r < 0) {
            break;
        }
        copy->n_threads++;
    }
    return 0;
}

int copy_pool_put_take(struct copy *copy, struct copy_job *job)
{
    int r = 0;

    pthread_mutex_lock(&copy->lock);
    while (copy->n_queued >= COPY_QUEUE && !copy->fatal.code) {
        pthread_cond_wait(&copy->changed, &copy->lock);
    }
    if (copy->fatal.code) {
        r = -ECANCELED;
    } else {
        *copy->last = job;
        copy->last = &job->next;
        copy->n_queued++;
        copy->expected += job->size;
        job = NULL;
        pthread_cond_broadcast(&copy->changed);
    }
    pthread_mutex_unlock(&copy->lock);
    copy_job_free(job);
    return r;
}

int copy_pool_finish(struct copy *copy, struct err *e)
{
    int r;

    pthread_mutex_lock(&copy->lock);
    copy->closed = true;
    pthread_cond_broadcast(&copy->changed);
    pthread_mutex_unlock(&copy->lock);
    for (size_t i = 0; i < copy->n_threads; i++) {
        pthread_join(copy->threads[i], /* ret */ NULL);
    }
    copy->n_threads = 0;
    copy_drop_queue(copy);
    r = copy->fatal.code;
    if (r < 0 && e) {
        *e = copy->fatal;
    }
    return r;
}

int copy_target(const struct copy *copy, const char *what, const char *path, char **ret,
                struct err *e)
{
    return cli_target(copy->sandbox, what, path, copy->user, ret, e);
}

int copy_guest_stat(struct copy *copy, const char *path, json_t **ret, struct err *e)
{
    const struct pollfd watch = copy_watch(copy);
    cleanup_free char *target = NULL;
    int r;

    r = copy_target(copy, "files/stat", path, &target, e);
    if (r < 0) {
        return r;
    }
    return cli_call_opts(
        copy->cli, &(struct http_json_opts){.method = "GET", .target = target, .watch = &watch},
        ret, e);
}

int copy_guest_post(struct copy *copy, const char *what, const char *path, json_t *more_take,
                    struct err *e)
{
    const struct pollfd watch = copy_watch(copy);
    cleanup_json json_t *body = more_take ? more_take : json_object();
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/files/%s", copy->sandbox, what);

    ASSERT(body);
    copy_json_path(body, "path", path);
    if (copy->user) {
        json_object_set_new(body, "user", json_string(copy->user));
    }
    return cli_call_opts(
        copy->cli,
        &(struct http_json_opts){.method = "POST", .target = target, .body = body, .watch = &watch},
        /* ret */ NULL, e);
}

void copy_json_path(json_t *object, const char *name, const char *path)
{
    json_t *text = json_string(path);

    if (!text) {
        cleanup_buf struct buf b64 = BUF_INIT(COPY_PATH_MAX * 2);
        cleanup_free char *twin = xasprintf("%s_base64", name);
        int r = base64_encode(path, strlen(path), &b64);

        ASSERT(r == 0);
        json_object_set_new(object, twin, json_string(buf_str(&b64)));
        return;
    }
    json_object_set_new(object, name, text);
}

char *copy_entry_path(json_t *entry, const char *name)
{
    cleanup_free char *twin = xasprintf("%s_base64", name);
    cleanup_buf struct buf bytes = BUF_INIT(COPY_PATH_MAX);
    const char *coded = json_get_string(entry, twin, NULL);
    json_t *plain = json_object_get(entry, name);

    if (coded) {
        if (base64_decode(coded, strlen(coded), &bytes) < 0 ||
            strlen(buf_str(&bytes)) != bytes.len) {
            return NULL;
        }
        return buf_take(&bytes);
    }
    if (!json_is_string(plain) || strlen(json_string_value(plain)) != json_string_length(plain)) {
        return NULL;
    }
    return xstrdup(json_string_value(plain));
}

unsigned copy_entry_mode(json_t *entry)
{
    const char *text = json_get_string(entry, "mode", "0644");
    char *end;
    unsigned long mode = strtoul(text, &end, 8);

    return *text && !*end ? (unsigned)(mode & 0777) : 0644;
}

char *copy_base_name(const char *path)
{
    size_t len = strlen(path);
    size_t start;

    while (len > 0 && path[len - 1] == '/') {
        len--;
    }
    start = len;
    while (start > 0 && path[start - 1] != '/') {
        start--;
    }
    return xstrndup(path + start, len - start);
}

bool copy_means_content(const char *path)
{
    cleanup_free char *name = copy_base_name(path);

    return str_eq(name, ".") || str_eq(name, "..") || str_empty(name);
}

char *copy_join(const char *dir, const char *name)
{
    size_t len = strlen(dir);

    if (len == 0) {
        return xstrdup(name);
    }
    return xasprintf("%s%s%s", dir, dir[len - 1] == '/' ? "" : "/", name);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/template/log.h"

#include "base/clock.h"
#include "gateway/e2b/box.h"
#include "model/json-text.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct build_log {
    pthread_mutex_t lock; /* guards what follows */
    json_t *entries;      /* owned */
    size_t bytes;
    bool full;
    char step[BUILD_LOG_STEP_SIZE];
    struct buf line[2]; /* owned: without its end yet; of output, of errors */
};

struct build_log *build_log_new(void)
{
    struct build_log *log = xnew(struct build_log);

    pthread_mutex_init(&log->lock, NULL);
    log->entries = json_array();
    log->line[0] = log->line[1] = BUF_INIT(BUILD_LOG_LINE_MAX);
    return log;
}

void build_log_free(struct build_log *log)
{
    if (log) {
        pthread_mutex_destroy(&log->lock);
        json_decref(log->entries);
        buf_done(&log->line[0]);
        buf_done(&log->line[1]);
        free(log);
    }
}

static void add_held(struct build_log *log, const char *level, const char *text, size_t len)
{
    cleanup_free char *copy = xstrndup(text, len);
    char at[E2B_TIME_SIZE];
    size_t i = 0;
    json_t *entry;

    len = strlen(copy);
    while ((i += utf8_valid_prefix(copy + i, len - i)) < len) {
        copy[i] = '?';
    }
    e2b_time(clock_wall_ms(), at);
    entry = json_pack("{s:s, s:s, s:s}", "timestamp", at, "level", level, "message", copy);
    ASSERT(entry);
    if (log->step[0]) {
        json_object_set_new(entry, "step", json_string(log->step));
    }
    json_array_append_new(log->entries, entry);
    log->bytes += len + 100; /* what the other fields take */
}

void build_log_step(struct build_log *log, const char *step)
{
    pthread_mutex_lock(&log->lock);
    snprintf(log->step, sizeof(log->step), "%s", step);
    pthread_mutex_unlock(&log->lock);
}

void build_log_say(struct build_log *log, const char *level, const char *fmt, ...)
{
    char text[BUILD_LOG_LINE_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&log->lock);
    add_held(log, level, text, strlen(text));
    pthread_mutex_unlock(&log->lock);
}

static void add_output_held(struct build_log *log, struct buf *line, bool is_error)
{
    if (log->full) {
        buf_reset(line);
        return;
    }
    add_held(log, is_error ? "warn" : "info", buf_str(line), line->len);
    buf_reset(line);
    if (log->bytes > BUILD_LOG_BYTES_MAX) {
        log->full = true;
        add_held(log, "warn", "(more output is left out)", 25);
    }
}

void build_log_output(void *arg, const char *data, size_t len, bool is_error)
{
    struct build_log *log = arg;
    struct buf *line = &log->line[is_error];

    pthread_mutex_lock(&log->lock);
    for (size_t i = 0; i < len; i++) {
        if (data[i] == '\n' || buf_add(line, data + i, 1) < 0) {
            add_output_held(log, line, is_error);
        }
    }
    pthread_mutex_unlock(&log->lock);
}

void build_log_flush(struct build_log *log)
{
    pthread_mutex_lock(&log->lock);
    for (int i = 0; i < 2; i++) {
        if (log->line[i].len > 0) {
            add_output_held(log, &log->line[i], i == 1);
        }
    }
    pthread_mutex_unlock(&log->lock);
}

json_t *build_log_slice(json_t *entries, size_t offset, size_t max)
{
    json_t *part = json_array();

    for (size_t i = offset; i < json_array_size(entries) && i - offset < max; i++) {
        json_array_append_new(part, json_deep_copy(json_array_get(entries, i)));
    }
    return part;
}

json_t *build_log_entries(struct build_log *log, size_t offset, size_t max)
{
    json_t *part;

    pthread_mutex_lock(&log->lock);
    part = build_log_slice(log->entries, offset, max);
    pthread_mutex_unlock(&log->lock);
    return part;
}

char *build_log_text(struct build_log *log)
{
    char *text;

    pthread_mutex_lock(&log->lock);
    text = json_text(log->entries);
    pthread_mutex_unlock(&log->lock);
    return text;
}

json_t *build_log_tail(struct build_log *log, size_t max)
{
    size_t n;
    size_t from;
    json_t *part;

    pthread_mutex_lock(&log->lock);
    n = from = json_array_size(log->entries);
    while (from > 0 && n - from < max &&
           str_eq(json_get_string(json_array_get(log->entries, from - 1), "step", ""), log->step)) {
        from--;
    }
    part = build_log_slice(log->entries, from, max);
    pthread_mutex_unlock(&log->lock);
    return part;
}

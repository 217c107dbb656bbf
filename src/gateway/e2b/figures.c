/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Metrics and logs. Metrics are what the node has kept of the sandbox (sandbox/usage.h) within the window that was asked
 * for, and, when the window holds the present and the sandbox runs, what it says now. A log is what the machine's console shows.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "gateway/e2b/figures.h"
#include "gateway/e2b/private.h"
#include "gateway/guest.h"

#define CONSOLE_MAX (4u << 20)
#define LOG_LIMIT_DEFAULT 1000
#define LOG_LIMIT_MAX 10000
#define MANY_MAX 100

struct window {
    int64_t from_ms;
    int64_t to_ms; /* both are in it */
};

/* --- metrics --- */

static double percent(int64_t part, int64_t all)
{
    return all > 0 && part > 0 ? 100.0 * (double)part / (double)all : 0;
}

/* A guest may say anything; sums and differences of these do not overflow. */
static int64_t figure(json_t *object, const char *name, int64_t fallback)
{
    int64_t n = json_get_int(object, name, fallback);

    return n < 0 ? 0 : MIN(n, INT64_MAX / 4);
}

void e2b_usage_read(json_t *guest, struct e2b_usage *ret)
{
    json_t *cpu = json_object_get(guest, "cpu");
    json_t *memory = json_object_get(guest, "memory");
    json_t *disk = json_object_get(guest, "disk");
    int64_t total = figure(memory, "total_bytes", 0);
    int64_t busy_ms = figure(cpu, "user_ms", 0) + figure(cpu, "system_ms", 0);
    int64_t all_ms = busy_ms + figure(cpu, "idle_ms", 0) + figure(cpu, "iowait_ms", 0);

    *ret = (struct e2b_usage){
        .cpu_count = figure(cpu, "count", 1),
        .cpu_percent = percent(busy_ms, all_ms),
        .cpu_busy_ms = busy_ms,
        .cpu_all_ms = all_ms,
        .memory_total = total,
        .memory_used = MAX(total - figure(memory, "available_bytes", total), (int64_t)0),
        .memory_cache = figure(memory, "cached_bytes", 0),
        .disk_total = figure(disk, "total_bytes", 0),
    };
    ret->disk_used = MAX(ret->disk_total - figure(disk, "free_bytes", 0), (int64_t)0);
}

void e2b_usage_since(struct e2b_usage *u, const struct e2b_usage *before)
{
    if (u->cpu_busy_ms >= before->cpu_busy_ms && u->cpu_all_ms > before->cpu_all_ms) {
        u->cpu_percent =
            percent(u->cpu_busy_ms - before->cpu_busy_ms, u->cpu_all_ms - before->cpu_all_ms);
    }
}

int e2b_usage(struct http_request *req, const struct sandbox *sb, struct e2b_usage *ret,
              struct err *e)
{
    struct pollfd watch = http_client_pollfd(req);
    struct node_call call = {.deadline_ns = deadline_in_ms(GATEWAY_NODE_MS), .watch = &watch};
    struct node_ask ask = {.method = "GET", .id = sb->id, .rest = "/guest/metrics"};
    cleanup_json json_t *guest = NULL;
    int r = node_client_ask(fleet_client(gateway_of(req)->fleet, sb->node), &ask, &call, &guest, e);

    if (r == 0) {
        e2b_usage_read(guest, ret);
    }
    return r;
}

static json_t *show_usage(const struct e2b_usage *u, int64_t now_ms)
{
    char at[E2B_TIME_SIZE];

    e2b_time(now_ms, at);
    return json_pack("{s:s, s:I, s:I, s:f, s:I, s:I, s:I, s:I, s:I}", "timestamp", at,
                     "timestampUnix", (json_int_t)(now_ms / 1000), "cpuCount",
                     (json_int_t)u->cpu_count, "cpuUsedPct", u->cpu_percent, "memUsed",
                     (json_int_t)u->memory_used, "memTotal", (json_int_t)u->memory_total,
                     "memCache", (json_int_t)u->memory_cache, "diskUsed", (json_int_t)u->disk_used,
                     "diskTotal", (json_int_t)u->disk_total);
}

/* NULL: it does not run, so there is nothing to measure. */
static int measure(struct http_request *req, const struct sandbox *sb, json_t **ret, struct err *e)
{
    struct e2b_usage usage;
    int r;

    *ret = NULL;
    if (sb->observed != SANDBOX_STATE_RUNNING) {
        return 0;
    }
    r = e2b_usage(req, sb, &usage, e);
    if (r == 0) {
        *ret = show_usage(&usage, control_now_ms(gateway_of(req)->control));
    }
    return r;
}

/* The node's samples of the window. One that knows nothing of the sandbox, as of one that failed, has none. */
static int read_samples(struct http_request *req, const struct sandbox *sb,
                        const struct window *window, json_t **ret, struct err *e)
{
    struct pollfd watch = http_client_pollfd(req);
    struct node_call call = {.deadline_ns = deadline_in_ms(GATEWAY_NODE_MS), .watch = &watch};
    cleanup_free char *rest = xasprintf("/usage?from_ms=%lld&to_ms=%lld",
                                        (long long)window->from_ms, (long long)window->to_ms);
    struct node_ask ask = {.method = "GET", .id = sb->id, .rest = rest};
    struct err why = {0};
    int r = node_client_ask(fleet_client(gateway_of(req)->fleet, sb->node), &ask, &call, ret, &why);

    if (r == -ENOENT) {
        *ret = json_object();
        return 0;
    }
    if (r < 0 && e) {
        *e = why;
    }
    return r;
}

/* *last: the newest sample, for what comes next; all zero when there is none. */
static json_t *show_samples(json_t *samples, struct e2b_usage *last)
{
    json_t *list = json_array();
    json_t *one;
    size_t i;

    json_array_foreach(samples, i, one)
    {
        struct e2b_usage u;

        e2b_usage_read(one, &u);
        e2b_usage_since(&u, last);
        *last = u;
        if (!json_get_bool(one, "before", false)) {
            json_array_append_new(list, show_usage(&u, json_get_int(one, "at_ms", 0)));
        }
    }
    return list;
}

static int read_window(struct http_request *req, struct window *ret, struct err *e)
{
    const struct http_query_bounds times = {0, INT64_MAX / 1000 - 1, -1};
    int64_t start_s = -1;
    int64_t end_s = -1;
    int r = http_query_int(req, "start", times, &start_s, e);

    if (r == 0) {
        r = http_query_int(req, "end", times, &end_s, e);
    }
    if (r == 0 && start_s >= 0 && end_s >= 0 && start_s > end_s) {
        return err_field(e, -EINVAL, "invalid_field", "start", "'start' lies after 'end'");
    }
    ret->from_ms = start_s < 0 ? 0 : start_s * 1000;
    ret->to_ms = end_s < 0 ? INT64_MAX : end_s * 1000 + 999; /* to the end of that second */
    return r;
}

int e2b_metrics_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_json json_t *answer = NULL;
    cleanup_json json_t *list = NULL;
    int64_t now_ms = control_now_ms(gateway_of(req)->control);
    struct e2b_usage last = {0};
    struct window window = {0};
    struct e2b_usage now;
    struct e2b_box box;
    int r = e2b_find(req, &sb, &box, e);

    if (r == 0) {
        r = read_window(req, &window, e);
    }
    if (r == 0) {
        r = read_samples(req, &sb, &window, &answer, e);
    }
    if (r < 0) {
        return r;
    }
    list = show_samples(json_object_get(answer, "samples"), &last);
    if (sb.observed == SANDBOX_STATE_RUNNING && window.from_ms <= now_ms &&
        now_ms <= window.to_ms) {
        r = e2b_usage(req, &sb, &now, e);
        if (r == 0) {
            e2b_usage_since(&now, &last);
            json_array_append_new(list, show_usage(&now, now_ms));
        }
    }
    return r < 0 ? r : e2b_reply_json_take(req, 200, json_incref(list), e);
}

/* Those of the list that are the caller's and run. */
int e2b_metrics_many_handler(struct http_request *req, struct err *e)
{
    const char *ids = http_query_get(req, "sandbox_ids");
    cleanup_free char *copy = xstrdup(ids ? ids : "");
    cleanup_json json_t *found = json_object();
    char *save = NULL;
    int n = 0;

    for (char *id = strtok_r(copy, ",", &save); id; id = strtok_r(NULL, ",", &save)) {
        cleanup_sandbox struct sandbox sb = {0};
        json_t *one = NULL;
        int r;

        if (n++ == MANY_MAX) {
            return err_field(e, -EINVAL, "too_many", "sandbox_ids",
                             "at most %d sandboxes can be asked for at once", MANY_MAX);
        }
        r = control_get(gateway_of(req)->control, actor_of(req), id, &sb, e);
        if (r == 0) {
            r = measure(req, &sb, &one, e);
        }
        if (r < 0 && r != -ENOENT && r != -ESTALE) {
            return r;
        }
        if (one) {
            json_object_set_new(found, sb.id, one);
        }
    }
    return e2b_reply_json_take(req, 200, json_pack("{s:O}", "sandboxes", found), e);
}

/* --- logs --- */

/* The machine's console; the caller frees. */
static int read_console(struct http_request *req, char **ret, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_free char *target = NULL;
    struct e2b_box box;
    size_t len;
    int r = e2b_find(req, &sb, &box, e);

    if (r < 0) {
        return r;
    }
    request_about(req, &sb);
    target = xasprintf("/v1/sandboxes/%s/logs", sb.id);
    r = guest_call(req, &(struct guest_call_opts){.method = "GET", .target = target}, &call, e);
    if (r == 0) {
        r = http_call_head(call, e);
    }
    if (r == 0) {
        r = http_call_check(call, e);
    }
    return r < 0 ? r : http_call_all(call, CONSOLE_MAX, ret, &len, e);
}

static json_t *line_text(const char *line, size_t len)
{
    cleanup_free char *copy = xstrndup(line, len);

    return e2b_text(copy);
}

/* The console's lines as entries; its end when there are more than the limit. They have no times of their own. */
static json_t *entries_of(const char *console, int64_t limit, const char *at)
{
    json_t *entries = json_array();

    while (*console) {
        size_t len = strcspn(console, "\r\n");

        if (len > 0) {
            if ((int64_t)json_array_size(entries) == limit) {
                json_array_remove(entries, 0);
            }
            json_array_append_new(entries, json_pack("{s:s, s:o, s:s, s:{s:s}}", "timestamp", at,
                                                     "message", line_text(console, len), "level",
                                                     "info", "fields", "logger", "console"));
        }
        console += len + (console[len] != '\0');
    }
    return entries;
}

static int logs_of(struct http_request *req, json_t **ret, struct err *e)
{
    cleanup_free char *console = NULL;
    char at[E2B_TIME_SIZE];
    int64_t limit = 0;
    int r = http_query_int(
        req, "limit", (struct http_query_bounds){1, LOG_LIMIT_MAX, LOG_LIMIT_DEFAULT}, &limit, e);

    if (r == 0) {
        r = read_console(req, &console, e);
    }
    if (r < 0) {
        return r;
    }
    e2b_time(control_now_ms(gateway_of(req)->control), at);
    *ret = entries_of(console, limit, at);
    return 0;
}

/* Beside the entries, each as a line of JSON text: clients read that. */
int e2b_logs_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *entries = NULL;
    json_t *lines;
    json_t *entry;
    size_t i;
    int r = logs_of(req, &entries, e);

    if (r < 0) {
        return r;
    }
    lines = json_array();
    json_array_foreach(entries, i, entry)
    {
        cleanup_free char *text = json_text(entry);

        json_array_append_new(lines,
                              json_pack("{s:s, s:s}", "timestamp",
                                        json_get_string(entry, "timestamp", ""), "line", text));
    }
    return e2b_reply_json_take(req, 200,
                               json_pack("{s:o, s:O}", "logs", lines, "logEntries", entries), e);
}

int e2b_logs_v2_handler(struct http_request *req, struct err *e)
{
    cleanup_json json_t *entries = NULL;
    int r = logs_of(req, &entries, e);

    return r < 0 ? r : e2b_reply_json_take(req, 200, json_pack("{s:O}", "logs", entries), e);
}

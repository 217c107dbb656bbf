/* SPDX-License-Identifier: Apache-2.0 */

/* GET /v2/sandboxes: filters and pages. A token is where the last page ended, as in our own list (query.h). */
#include <stdio.h>
#include <string.h>

#include "gateway/e2b/list.h"
#include "gateway/e2b/private.h"
#include "gateway/query.h"
#include "wire/url.h"

#define LIMIT_MAX 100

void e2b_filters_done(struct e2b_filters *f)
{
    free(f->text);
    *f = (struct e2b_filters){0};
}

/* Undoes one layer of percent-encoding in place. */
static int unescape(char *text, size_t len, struct err *e)
{
    size_t n = 0;

    return url_decode(text, len, URL_PLUS_IS_SPACE, text, &n) < 0
               ? err_field(e, -EINVAL, "invalid_field", "metadata",
                           "'metadata' is not encoded as a query")
               : 0;
}

int e2b_filters_parse(const char *text, struct e2b_filters *ret, struct err *e)
{
    CLEANUP(e2b_filters_done) struct e2b_filters f = {.text = xstrdup(text)};
    char *save = NULL;
    char *pair;
    int r = unescape(f.text, strlen(f.text), e);

    if (r < 0) {
        return r;
    }
    for (pair = strtok_r(f.text, "&", &save); pair; pair = strtok_r(NULL, "&", &save)) {
        char *value = strchr(pair, '=');

        if (f.n == SANDBOX_FILTER_MAX) {
            return err_field(e, -EINVAL, "too_many_filters", "metadata",
                             "at most %d pairs of metadata can be asked for", SANDBOX_FILTER_MAX);
        }
        if (!value) {
            return err_field(e, -EINVAL, "invalid_field", "metadata",
                             "'metadata' must be made of KEY=VALUE");
        }
        *value++ = '\0';
        r = unescape(pair, strlen(pair), e);
        if (r == 0) {
            r = unescape(value, strlen(value), e);
        }
        if (r < 0) {
            return r;
        }
        f.filters[f.n++] = (struct sandbox_filter){pair, value};
    }
    *ret = f;
    f = (struct e2b_filters){0};
    return 0;
}

struct listing {
    struct e2b_filters metadata; /* owned */
    struct list_query query;     /* for the token */
    const char *template_name;   /* borrowed; NULL: any */
    int64_t started_after_ms;
    bool want_running;
    bool want_paused;
    int64_t limit;

    json_t *found; /* owned: an array */
    int64_t n_running;
    int64_t last_ms;
    char last_id[ID_SIZE];
    bool more;
};

static void listing_done(struct listing *l)
{
    e2b_filters_done(&l->metadata);
    json_decref(l->found);
}

static bool is_wanted(const struct listing *l, const struct sandbox *sb, const struct e2b_box *box)
{
    const char *state = e2b_box_state(sb);

    if (box->killed || !state || !(str_eq(state, "running") ? l->want_running : l->want_paused)) {
        return false;
    }
    if (l->template_name && !str_eq(l->template_name, e2b_box_template(sb, box)) &&
        !str_eq(l->template_name, box->alias)) {
        return false;
    }
    return sb->started_at_ms >= l->started_after_ms;
}

static int add_to_list(void *ctx, const struct sandbox *sb)
{
    struct listing *l = ctx;
    struct e2b_box box;

    e2b_box_read(sb, &box);
    if (!is_wanted(l, sb, &box)) {
        return 0;
    }
    if ((int64_t)json_array_size(l->found) == l->limit) {
        l->more = true;
        return 1; /* there is a next page, that is all */
    }
    l->n_running += sb->observed == SANDBOX_STATE_RUNNING;
    l->last_ms = sb->created_at_ms;
    snprintf(l->last_id, sizeof(l->last_id), "%s", sb->id);
    json_array_append_new(l->found, e2b_box_listed(sb));
    return 0;
}

static int read_states(const char *text, struct listing *l, struct err *e)
{
    cleanup_free char *copy = xstrdup(text ? text : "running,paused");
    char *save = NULL;

    for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        if (str_eq(word, "running")) {
            l->want_running = true;
        } else if (str_eq(word, "paused")) {
            l->want_paused = true;
        } else {
            return err_field(e, -EINVAL, "invalid_field", "state",
                             "'state' must be made of 'running' and 'paused'");
        }
    }
    return 0;
}

static int read_order(const struct http_request *req, struct listing *l, struct err *e)
{
    const char *order = http_query_get(req, "order");
    const char *after = http_query_get(req, "startedAfter");

    if (order && !str_eq(order, "asc") && !str_eq(order, "desc")) {
        return err_field(e, -EINVAL, "invalid_field", "order", "'order' must be 'asc' or 'desc'");
    }
    l->query.query.oldest_first = order && str_eq(order, "asc");
    if (after && e2b_time_parse(after, &l->started_after_ms) < 0) {
        return err_field(e, -EINVAL, "invalid_field", "startedAfter",
                         "'startedAfter' must be a time like 2026-01-31T12:00:00Z");
    }
    return 0;
}

static int read_query(struct http_request *req, struct listing *l, struct err *e)
{
    const char *metadata = http_query_get(req, "metadata");
    const char *token = http_query_get(req, "nextToken");
    int r = metadata ? e2b_filters_parse(metadata, &l->metadata, e) : 0;

    if (r == 0) {
        r = read_states(http_query_get(req, "state"), l, e);
    }
    if (r == 0) {
        r = read_order(req, l, e);
    }
    if (r == 0) {
        r = http_query_int(req, "limit", (struct http_query_bounds){1, LIMIT_MAX, LIMIT_MAX},
                           &l->limit, e);
    }
    if (r == 0 && token) {
        r = list_query_add(&l->query, "cursor", token, e);
    }
    l->template_name = http_query_get(req, "template");
    return r;
}

static int run(struct http_request *req, struct listing *l, struct err *e)
{
    struct sandbox_query *q = &l->query.query;
    int r;

    q->project = actor_of(req)->project;
    q->n_filters = l->metadata.n;
    memcpy(q->filters, l->metadata.filters, sizeof(q->filters));
    l->found = json_array();
    r = db_sandbox_list(gateway_of(req)->db, q, add_to_list, l, e);
    return r < 0 ? r : 0;
}

int e2b_list_handler(struct http_request *req, struct err *e)
{
    CLEANUP(listing_done) struct listing l = {0};
    char cursor[LIST_CURSOR_SIZE];
    char total[24];
    int r = read_query(req, &l, e);

    if (r == 0) {
        r = run(req, &l, e);
    }
    if (r < 0) {
        return r;
    }
    if (l.more) {
        list_cursor_print(l.last_ms, l.last_id, cursor);
        http_reply_header(req, "X-Next-Token", cursor);
    }
    if (l.want_running) {
        snprintf(total, sizeof(total), "%lld", (long long)l.n_running);
        http_reply_header(req, "X-Total-Running", total);
    }
    return e2b_reply_json_take(req, 200, TAKE_PTR(l.found), e);
}

/* The older list: running ones only, all of them. */
int e2b_list_v1_handler(struct http_request *req, struct err *e)
{
    CLEANUP(listing_done)
    struct listing l = {.want_running = true, .limit = LIST_LIMIT_MAX};
    const char *metadata = http_query_get(req, "metadata");
    int r = metadata ? e2b_filters_parse(metadata, &l.metadata, e) : 0;

    if (r == 0) {
        r = run(req, &l, e);
    }
    return r < 0 ? r : e2b_reply_json_take(req, 200, TAKE_PTR(l.found), e);
}

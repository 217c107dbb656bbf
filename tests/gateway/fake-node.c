/* SPDX-License-Identifier: Apache-2.0 */
#include "fake-node.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/id.h"
#include "http/route.h"
#include "http/server.h"
#include "model/lease.h"
#include "wire/frames.h"

#define SANDBOXES_MAX 4096

struct fake_sandbox {
    char id[ID_SIZE];
    char state[24];
    char *spec; /* owned; NULL for one that was not made by a request */
    int64_t end_at_ms;
    char at_end[8];
    char *policy;  /* owned; JSON text; NULL: none was given */
    char *network; /* owned; the same */
};

#define FAKE_EPOCH "0123456789abcdef0123456789abcdef"

struct fake_node {
    struct http_server *server; /* owned */
    pthread_t thread;
    int gate[FAKE_OP_COUNT_]; /* owned: readable: open */
    pthread_mutex_t mutex;    /* guards what follows */
    pthread_cond_t changed;
    enum fake_fault fault[FAKE_OP_COUNT_];
    unsigned asked[FAKE_OP_COUNT_];
    unsigned held[FAKE_OP_COUNT_];
    unsigned made;
    bool differs;
    bool fenced;
    bool silent; /* it does not say what it is */
    unsigned grants;
    unsigned lease_ends;
    unsigned cold;
    char id[128]; /* where it listens: another one there is taken for the same */
    struct fake_sandbox sandboxes[SANDBOXES_MAX];
    size_t n_sandboxes;
    int guest_status;
    char guest_type[64];
    struct buf guest_data;
    bool guest_cut;
    size_t guest_after;
    int stdin_fd;     /* owned: readable when guest_after bytes have come */
    char *guest_seen; /* owned */
    struct buf stdin_seen;
};

/* --- the object store --- */

static struct {
    pthread_mutex_t mutex;
    char ids[SANDBOXES_MAX][ID_SIZE];
    size_t n;
} store = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool store_look(const char *id, bool remove)
{
    bool found = false;

    pthread_mutex_lock(&store.mutex);
    for (size_t i = 0; i < store.n && !found; i++) {
        found = str_eq(store.ids[i], id);
        if (found && remove) {
            memcpy(store.ids[i], store.ids[--store.n], ID_SIZE);
        }
    }
    pthread_mutex_unlock(&store.mutex);
    return found;
}

bool fake_store_has(const char *id)
{
    return store_look(id, /* remove */ false);
}

static void store_set(const char *id, bool there)
{
    if (store_look(id, /* remove */ !there) || !there) {
        return;
    }
    pthread_mutex_lock(&store.mutex);
    ASSERT(store.n < SANDBOXES_MAX);
    snprintf(store.ids[store.n++], ID_SIZE, "%s", id);
    pthread_mutex_unlock(&store.mutex);
}

static struct fake_sandbox *find(struct fake_node *n, const char *id)
{
    for (size_t i = 0; i < n->n_sandboxes; i++) {
        if (str_eq(n->sandboxes[i].id, id)) {
            return &n->sandboxes[i];
        }
    }
    return NULL;
}

static void forget(struct fake_node *n, const char *id)
{
    struct fake_sandbox *sb = find(n, id);

    if (sb) {
        free(sb->spec);
        free(sb->policy);
        free(sb->network);
        *sb = n->sandboxes[--n->n_sandboxes];
    }
}

static struct fake_sandbox *make(struct fake_node *n, const char *id, const char *state,
                                 const char *spec)
{
    struct fake_sandbox *sb;

    ASSERT(n->n_sandboxes < SANDBOXES_MAX);
    sb = &n->sandboxes[n->n_sandboxes++];
    *sb = (struct fake_sandbox){.spec = spec ? xstrdup(spec) : NULL};
    snprintf(sb->id, sizeof(sb->id), "%s", id);
    snprintf(sb->state, sizeof(sb->state), "%s", state);
    return sb;
}

static void keep_end(struct fake_sandbox *sb, json_t *body)
{
    sb->end_at_ms = json_get_int(body, "end_at_ms", 0);
    snprintf(sb->at_end, sizeof(sb->at_end), "%s", json_get_string(body, "at_end", "?"));
}

static json_t *show(const struct fake_sandbox *sb)
{
    json_t *out = json_pack("{s:s, s:s, s:s, s:I, s:n}", "id", sb->id, "state", sb->state, "accel",
                            "tcg", "started_at_ms", (json_int_t)1234567, "reason");

    json_object_set_new(out, "end_at_ms", json_integer(sb->end_at_ms));
    json_object_set_new(out, "at_end", json_string(sb->at_end));
    if (sb->policy) {
        json_object_set_new(out, "policy", json_loads(sb->policy, 0, NULL));
    }
    if (sb->network) {
        json_object_set_new(out, "network", json_loads(sb->network, 0, NULL));
    }
    return out;
}

/* Counts the request, waits while it is held, plays its fault. 1: go on; 0: answered; or an error. */
static int enter(struct http_request *req, enum fake_op op, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    struct pollfd p[2] = {{.fd = n->gate[op], .events = POLLIN}, http_client_pollfd(req)};
    enum fake_fault fault;
    bool fenced;

    pthread_mutex_lock(&n->mutex);
    n->asked[op]++;
    n->held[op]++;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->mutex);
    ASSERT(poll(p, 2, -1) > 0);
    pthread_mutex_lock(&n->mutex);
    n->held[op]--;
    fault = n->fault[op];
    fenced = n->fenced && op != FAKE_DELETE && op != FAKE_LIST && op != FAKE_GET;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->mutex);
    if (!(p[0].revents & POLLIN)) {
        return err_set(e, -ECONNRESET, NULL, "the client has gone");
    }
    if (fault == FAKE_FINE && fenced) {
        return err_set(e, -EHOSTDOWN, "node_fenced", "the node stands still");
    }
    switch (fault) {
    case FAKE_ERROR:
        return err_set(e, -ENOMEM, "no_capacity", "there is no memory for another machine");
    case FAKE_CUT:
        http_reply_abort(req);
        return 0;
    case FAKE_HALF:
        if (http_reply_begin(req, 200, "application/json", 100, e) == 0) {
            IGNORE_RESULT(http_write(req, "{\"sandboxes\":[", 14, e)); /* it is cut anyway */
        }
        http_reply_abort(req);
        return 0;
    case FAKE_NONSENSE:
        return http_reply_bytes(req, 200, "application/json", "{\"sandboxes\":{}}", 16, e);
    case FAKE_NOT_JSON:
        return http_reply_bytes(req, 200, "text/html", "<html></html>", 13, e);
    case FAKE_FINE:
    case FAKE_LOST:
        break;
    }
    return 1;
}

static bool loses_answer(struct fake_node *n, enum fake_op op)
{
    bool lost;

    pthread_mutex_lock(&n->mutex);
    lost = n->fault[op] == FAKE_LOST;
    pthread_mutex_unlock(&n->mutex);
    return lost;
}

static void set_network(struct fake_sandbox *sb, const json_t *network)
{
    free(sb->network);
    sb->network = network ? json_dumps(network, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
}

static void set_policy(struct fake_sandbox *sb, const json_t *policy)
{
    free(sb->policy);
    sb->policy = policy ? json_dumps(policy, JSON_SORT_KEYS) : NULL;
}

static int create(struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    cleanup_json json_t *body = NULL;
    cleanup_free char *spec = NULL;
    struct fake_sandbox *sb;
    const char *id;
    json_t *shown = NULL;
    int r;

    r = http_body_json(req, 1 << 20, &body, e);
    if (r == 0) {
        r = enter(req, FAKE_CREATE, e);
    }
    if (r != 1) {
        return r;
    }
    id = json_get_string(body, "id", "");
    spec = json_dumps(body, JSON_SORT_KEYS);
    pthread_mutex_lock(&n->mutex);
    sb = find(n, id);
    if (!sb) {
        sb = make(n, id, "running", spec);
        set_policy(sb, json_object_get(body, "policy"));
        set_network(sb, json_object_get(body, "network"));
        keep_end(sb, body);
        n->made++;
    }
    if (!sb->spec || !str_eq(sb->spec, spec)) {
        r = err_set(e, -EEXIST, "sandbox_exists",
                    "there is a sandbox with this id and another spec");
    }
    shown = show(sb);
    pthread_mutex_unlock(&n->mutex);
    if (r == 1 && loses_answer(n, FAKE_CREATE)) {
        http_reply_abort(req);
        r = 0;
    }
    if (r == 1 && !http_client_gone(req)) {
        return http_reply_json_take(req, 201, shown, e);
    }
    json_decref(shown);
    if (r == 1) {
        pthread_mutex_lock(&n->mutex);
        forget(n, id);
        pthread_mutex_unlock(&n->mutex);
        r = -ECONNRESET;
    }
    return r;
}

static int list(struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    json_t *array;
    int r = enter(req, FAKE_LIST, e);

    if (r != 1) {
        return r;
    }
    array = json_array();
    pthread_mutex_lock(&n->mutex);
    for (size_t i = 0; i < n->n_sandboxes; i++) {
        json_array_append_new(array, show(&n->sandboxes[i]));
    }
    pthread_mutex_unlock(&n->mutex);
    return http_reply_json_take(req, 200, json_pack("{s:o}", "sandboxes", array), e);
}

static int delete (struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    bool there;
    int r = enter(req, FAKE_DELETE, e);

    if (r != 1) {
        return r;
    }
    pthread_mutex_lock(&n->mutex);
    there = find(n, http_request_param(req, "id"));
    forget(n, http_request_param(req, "id"));
    pthread_mutex_unlock(&n->mutex);
    if (there && !http_query_get(req, "stored")) {
        store_set(http_request_param(req, "id"), false);
    }
    if (loses_answer(n, FAKE_DELETE)) {
        http_reply_abort(req);
        return 0;
    }
    return http_reply_empty(req, 204, e);
}

static int set_state(struct http_request *req, enum fake_op op, const char *state, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    struct fake_sandbox *sb;
    json_t *shown = NULL;
    int r = enter(req, op, e);

    if (r != 1) {
        return r;
    }
    pthread_mutex_lock(&n->mutex);
    sb = find(n, http_request_param(req, "id"));
    if (sb) {
        snprintf(sb->state, sizeof(sb->state), "%s", state);
        shown = show(sb);
    }
    pthread_mutex_unlock(&n->mutex);
    if (shown && loses_answer(n, op)) {
        json_decref(shown);
        http_reply_abort(req);
        return 0;
    }
    return shown ? http_reply_json_take(req, 200, shown, e)
                 : err_set(e, -ENOENT, "sandbox_not_found", "there is no such sandbox");
}

static int get(struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    struct fake_sandbox *sb;
    json_t *shown = NULL;
    int r = enter(req, FAKE_GET, e);

    if (r != 1) {
        return r;
    }
    pthread_mutex_lock(&n->mutex);
    sb = find(n, http_request_param(req, "id"));
    shown = sb ? show(sb) : NULL;
    pthread_mutex_unlock(&n->mutex);
    return shown ? http_reply_json_take(req, 200, shown, e)
                 : err_set(e, -ENOENT, "sandbox_not_found", "there is no such sandbox");
}

static int stop(struct http_request *req, struct err *e)
{
    return set_state(req, FAKE_STOP, "stopped", e);
}

static int start(struct http_request *req, struct err *e)
{
    return set_state(req, FAKE_START, "running", e);
}

static int pause_one(struct http_request *req, struct err *e)
{
    return set_state(req, FAKE_PAUSE, "paused", e);
}

static int resume(struct http_request *req, struct err *e)
{
    return set_state(req, FAKE_RESUME, "running", e);
}

static int suspend(struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    const char *id = http_request_param(req, "id");
    json_t *shown = NULL;
    int r = enter(req, FAKE_SUSPEND, e);

    if (r != 1) {
        return r;
    }
    pthread_mutex_lock(&n->mutex);
    if (find(n, id)) {
        store_set(id, true);
        forget(n, id);
    }
    pthread_mutex_unlock(&n->mutex);
    if (!fake_store_has(id)) {
        return err_set(e, -ENOENT, "not_stored", "there is no such sandbox, here or stored");
    }
    if (loses_answer(n, FAKE_SUSPEND)) {
        http_reply_abort(req);
        return 0;
    }
    shown = json_pack("{s:s, s:s}", "id", id, "state", "suspended");
    return http_reply_json_take(req, 200, shown, e);
}

static int restore(struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    const char *id = http_request_param(req, "id");
    cleanup_json json_t *body = NULL;
    json_t *shown;
    int r = http_body_json(req, 1 << 20, &body, e);

    if (r == 0) {
        r = enter(req, FAKE_RESTORE, e);
    }
    if (r != 1) {
        return r;
    }
    if (!fake_store_has(id)) {
        return err_set(e, -ENOENT, "not_stored", "nothing is stored of it");
    }
    pthread_mutex_lock(&n->mutex);
    if (!find(n, id) && n->differs && json_get_bool(body, "need_memory", false)) {
        pthread_mutex_unlock(&n->mutex);
        return err_set(e, -ENOTSUP, "memory_does_not_fit", "the memory is of another VMM");
    }
    n->cold += n->differs;
    shown = show(find(n, id) ? find(n, id) : make(n, id, "running", NULL));
    pthread_mutex_unlock(&n->mutex);
    if (loses_answer(n, FAKE_RESTORE)) {
        json_decref(shown);
        http_reply_abort(req);
        return 0;
    }
    return http_reply_json_take(req, 200, shown, e);
}

static int stored(struct http_request *req, struct err *e)
{
    if (!fake_store_has(http_request_param(req, "id"))) {
        return err_set(e, -ENOENT, "not_stored", "nothing is stored of it");
    }
    return http_reply_json_take(req, 200, json_pack("{s:i, s:i}", "modified_ms", 1, "age_ms", 1),
                                e);
}

static int forget_stored(struct http_request *req, struct err *e)
{
    store_set(http_request_param(req, "id"), false);
    return http_reply_empty(req, 204, e);
}

static bool known_snapshot(const char *id)
{
    return str_eq(id, FAKE_SNAPSHOT_ID);
}

static int no_snapshot(struct err *e)
{
    return err_set(e, -ENOENT, "snapshot_not_found", "the sandbox has no such snapshot");
}

static int rollback(struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    cleanup_json json_t *body = NULL;
    struct fake_sandbox *sb;
    json_t *shown = NULL;
    int r = http_body_json(req, 1 << 16, &body, e);

    if (r == 0) {
        r = enter(req, FAKE_ROLLBACK, e);
    }
    if (r != 1) {
        return r;
    }
    if (!known_snapshot(json_get_string(body, "snapshot", ""))) {
        return no_snapshot(e);
    }
    pthread_mutex_lock(&n->mutex);
    sb = find(n, http_request_param(req, "id"));
    if (sb) {
        snprintf(sb->state, sizeof(sb->state), "running");
        shown = show(sb);
        json_object_set_new(shown, "before", json_string("n0000000000000000002"));
        json_object_set_new(shown, "cold", json_true());
    }
    pthread_mutex_unlock(&n->mutex);
    return shown ? http_reply_json_take(req, 200, shown, e)
                 : err_set(e, -ENOENT, "sandbox_not_found", "there is no such sandbox");
}

/* With the lock held. */
static json_t *make_children(struct fake_node *n, const struct fake_sandbox *parent, json_t *body)
{
    json_t *children = json_object_get(body, "children");
    json_t *all = json_array();
    json_t *id;
    size_t i;

    json_array_foreach(children, i, id)
    {
        struct fake_sandbox *sb = find(n, json_string_value(id));

        if (!sb) {
            sb = make(n, json_string_value(id), "running", NULL);
            keep_end(sb, body);
            sb->policy = parent->policy ? xstrdup(parent->policy) : NULL;
            sb->network = parent->network ? xstrdup(parent->network) : NULL;
            n->made++;
        }
        json_array_append_new(all, show(sb));
    }
    return all;
}

static int fork_one(struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    cleanup_json json_t *body = NULL;
    struct fake_sandbox parent = {0};
    struct fake_sandbox *found;
    json_t *all = NULL;
    const char *snapshot;
    int r = http_body_json(req, 1 << 20, &body, e);

    if (r == 0) {
        r = enter(req, FAKE_FORK, e);
    }
    if (r != 1) {
        return r;
    }
    snapshot = json_get_string(body, "snapshot", NULL);
    if (snapshot && !known_snapshot(snapshot)) {
        return no_snapshot(e);
    }
    pthread_mutex_lock(&n->mutex);
    found = find(n, http_request_param(req, "id"));
    if (found) {
        parent = *found;
        all = make_children(n, &parent, body);
    }
    pthread_mutex_unlock(&n->mutex);
    if (!all) {
        return err_set(e, -ENOENT, "sandbox_not_found", "there is no such sandbox");
    }
    if (loses_answer(n, FAKE_FORK)) {
        json_decref(all);
        http_reply_abort(req);
        return 0;
    }
    return http_reply_json_take(req, 201, json_pack("{s:o}", "sandboxes", all), e);
}

static int set_end(struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    cleanup_json json_t *body = NULL;
    struct fake_sandbox *sb;
    int r = http_body_json(req, 1 << 16, &body, e);

    if (r == 0) {
        r = enter(req, FAKE_END, e);
    }
    if (r != 1) {
        return r;
    }
    pthread_mutex_lock(&n->mutex);
    sb = find(n, http_request_param(req, "id"));
    if (sb) {
        keep_end(sb, body);
    }
    pthread_mutex_unlock(&n->mutex);
    return sb ? http_reply_json_take(req, 200, json_incref(body), e)
              : err_set(e, -ENOENT, "sandbox_not_found", "there is no such sandbox");
}

static int policy(struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    cleanup_json json_t *body = NULL;
    struct fake_sandbox *sb;
    int r = http_body_json(req, 1 << 16, &body, e);

    if (r == 0) {
        r = enter(req, FAKE_POLICY, e);
    }
    if (r != 1) {
        return r;
    }
    pthread_mutex_lock(&n->mutex);
    sb = find(n, http_request_param(req, "id"));
    if (sb) {
        set_policy(sb, body);
    }
    pthread_mutex_unlock(&n->mutex);
    return sb ? http_reply_json_take(req, 200, json_incref(body), e)
              : err_set(e, -ENOENT, "sandbox_not_found", "there is no such sandbox");
}

static int network(struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    cleanup_json json_t *body = NULL;
    struct fake_sandbox *sb;
    int r = http_body_json(req, 1 << 18, &body, e);

    if (r == 0) {
        r = enter(req, FAKE_NETWORK, e);
    }
    if (r != 1) {
        return r;
    }
    pthread_mutex_lock(&n->mutex);
    sb = find(n, http_request_param(req, "id"));
    if (sb) {
        set_network(sb, body);
    }
    pthread_mutex_unlock(&n->mutex);
    return sb ? http_reply_json_take(req, 200, json_incref(body), e)
              : err_set(e, -ENOENT, "sandbox_not_found", "there is no such sandbox");
}

static int answer_ask(struct http_request *req, struct err *e)
{
    cleanup_json json_t *body = NULL;
    int r = http_body_json(req, 1 << 16, &body, e);

    if (r == 0) {
        r = enter(req, FAKE_ASK, e);
    }
    if (r != 1) {
        return r;
    }
    if (!str_eq(http_request_param(req, "ask"), "7") ||
        !str_eq(json_get_string(body, "token", FAKE_ASK_TOKEN), FAKE_ASK_TOKEN)) {
        return err_set(e, -ENOENT, "no_such_ask", "nothing waits for an answer");
    }
    return http_reply_json_take(req, 200, json_incref(body), e);
}

static int remember(struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    const struct http_headers *headers = http_request_headers(req);
    const char *query = http_request_query_raw(req);
    cleanup_buf struct buf seen = BUF_INIT(8u << 20);
    cleanup_free char *body = NULL;
    size_t len = 0;
    int r = http_body_all(req, 4u << 20, &body, &len, e);

    if (r < 0) {
        return r;
    }
    ASSERT(buf_printf(&seen, "%s %s%s%s\n", http_request_method(req), http_request_path(req),
                      query ? "?" : "", query ? query : "") == 0);
    for (size_t i = 0; i < headers->n; i++) {
        ASSERT(buf_printf(&seen, "%s: %s\n", headers->v[i].name, headers->v[i].value) == 0);
    }
    ASSERT(buf_printf(&seen, "\n%s", body) == 0);
    pthread_mutex_lock(&n->mutex);
    free(n->guest_seen);
    n->guest_seen = buf_take(&seen);
    pthread_mutex_unlock(&n->mutex);
    return 0;
}

/* A start frame leaves at once; the rest when stdin has come, as with a program that reads it. */
static int send_guest_data(struct http_request *req, const struct buf *data, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    struct pollfd p[2] = {{.fd = n->stdin_fd, .events = POLLIN}, http_client_pollfd(req)};
    struct frame f = {0};
    size_t used = 0;
    int r;

    if (frame_parse(buf_str(data), data->len, &f, &used) < 0 || f.type != FRAME_START) {
        used = 0;
    }
    r = http_write(req, buf_str(data), used, e);
    if (r == 0) {
        r = http_flush(req, e);
    }
    ASSERT(poll(p, 2, -1) > 0);
    return r < 0 ? r : http_write(req, buf_str(data) + used, data->len - used, e);
}

static json_t *one_snapshot(void)
{
    return json_pack("{s:s, s:i, s:i, s:s, s:I, s:s, s:s, s:s, s:b, s:s, s:I, s:I, s:s, s:b}", "id",
                     FAKE_SNAPSHOT_ID, "n", 1, "parent", 0, "kind", "disk", "created_at_ms",
                     (json_int_t)1234567, "made_by", "request", "command", "", "name", "before",
                     "keep", 1, "vmm_version", "secret of the node", "private_bytes", (json_int_t)0,
                     "pause_us", (json_int_t)0, "parent_id", "n0000000000000000000", "past", 1);
}

static int snapshots(struct http_request *req, struct err *e)
{
    int r = remember(req, e);

    if (r == 0) {
        r = enter(req, FAKE_SNAPSHOT, e);
    }
    if (r != 1) {
        return r;
    }
    if (str_eq(http_request_method(req), "GET")) {
        return http_reply_json_take(req, 200, json_pack("{s:[o]}", "snapshots", one_snapshot()), e);
    }
    return http_reply_json_take(req, 201, one_snapshot(), e);
}

static int snapshot(struct http_request *req, struct err *e)
{
    int r = remember(req, e);

    if (r == 0) {
        r = enter(req, FAKE_SNAPSHOT, e);
    }
    if (r != 1) {
        return r;
    }
    if (!known_snapshot(http_request_param(req, "snapshot"))) {
        return no_snapshot(e);
    }
    return str_eq(http_request_method(req), "DELETE")
               ? http_reply_empty(req, 204, e)
               : http_reply_json_take(req, 200, one_snapshot(), e);
}

static int history(struct http_request *req, struct err *e)
{
    int r = enter(req, FAKE_SNAPSHOT, e);

    return r != 1 ? r
                  : http_reply_json_take(req, 200,
                                         json_pack("{s:[{s:i, s:s, s:s}], s:[]}", "history",
                                                   "at_ms", 1, "event", "created", "text", "\n<b>",
                                                   "operations"),
                                         e);
}

/* Whatever is asked for: one sample before it and one in it. */
static int usage(struct http_request *req, struct err *e)
{
    static const char text[] =
        "{\"samples\":[{\"at_ms\":1000,\"before\":true,\"cpu\":{\"user_ms\":100,\"idle_ms\":900}},"
        "{\"at_ms\":16000,\"before\":false,\"cpu\":{\"count\":2,\"user_ms\":200,\"system_ms\":150,"
        "\"idle_ms\":1650},\"memory\":{\"total_bytes\":1000,\"available_bytes\":400},"
        "\"disk\":{\"total_bytes\":50,\"free_bytes\":20}}]}";
    int r = remember(req, e);

    if (r == 0) {
        r = enter(req, FAKE_SNAPSHOT, e);
    }
    return r != 1 ? r : http_reply_bytes(req, 200, "application/json", text, strlen(text), e);
}

static int templates(struct http_request *req, struct err *e)
{
    return http_reply_json_take(req, 200, json_pack("{s:[{s:s}]}", "templates", "name", "debian"),
                                e);
}

static int node_info(struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    json_t *out;

    pthread_mutex_lock(&n->mutex);
    out = n->silent ? NULL
                    : json_pack("{s:s, s:s, s:i, s:i, s:[{s:i}], s:{s:s, s:I, s:b}}", "id", n->id,
                                "accel", "tcg", "cpus", 4, "memory_mib", 1000, "warm", "ready", 3,
                                "lease", "epoch", FAKE_EPOCH, "stamp_ms",
                                (json_int_t)(clock_now_ns() / NS_PER_MS), "fenced", (int)n->fenced);
    pthread_mutex_unlock(&n->mutex);
    return out ? http_reply_json_take(req, 200, out, e)
               : err_set(e, -EIO, "silent", "it says nothing");
}

static int node_lease(struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    cleanup_json json_t *body = NULL;
    int64_t now_ms = (int64_t)(clock_now_ns() / NS_PER_MS);
    int r = http_body_json(req, 4096, &body, e);

    if (r == 0) {
        ASSERT(str_eq(json_get_string(body, "epoch", ""), FAKE_EPOCH));
        ASSERT(json_get_int(body, "stamp_ms", 0) <= now_ms);
        ASSERT(json_get_int(body, "for_ms", 0) == lease_node_ms());
        pthread_mutex_lock(&n->mutex);
        n->grants++;
        n->fenced = false;
        pthread_mutex_unlock(&n->mutex);
        r = http_reply_json_take(req, 200, json_object(), e);
    }
    return r;
}

static int node_lease_end(struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);

    pthread_mutex_lock(&n->mutex);
    n->lease_ends++;
    pthread_mutex_unlock(&n->mutex);
    return http_reply_json_take(req, 200, json_object(), e);
}

bool fake_node_runs(struct fake_node *n, const char *id)
{
    const struct fake_sandbox *sb;
    bool runs;

    pthread_mutex_lock(&n->mutex);
    sb = find(n, id);
    runs = sb && str_eq(sb->state, "running") && !n->fenced;
    pthread_mutex_unlock(&n->mutex);
    return runs;
}

void fake_node_each(struct fake_node *n, void (*each)(void *ctx, const char *id), void *ctx)
{
    pthread_mutex_lock(&n->mutex);
    for (size_t i = 0; i < n->n_sandboxes; i++) {
        each(ctx, n->sandboxes[i].id);
    }
    pthread_mutex_unlock(&n->mutex);
}

unsigned fake_node_lease_ends(struct fake_node *n)
{
    unsigned ends;

    pthread_mutex_lock(&n->mutex);
    ends = n->lease_ends;
    pthread_mutex_unlock(&n->mutex);
    return ends;
}

void fake_node_fence(struct fake_node *n)
{
    pthread_mutex_lock(&n->mutex);
    n->fenced = true;
    pthread_mutex_unlock(&n->mutex);
}

void fake_node_silence(struct fake_node *n, bool silent)
{
    pthread_mutex_lock(&n->mutex);
    n->silent = silent;
    pthread_mutex_unlock(&n->mutex);
}

unsigned fake_node_grants(struct fake_node *n)
{
    unsigned grants;

    pthread_mutex_lock(&n->mutex);
    grants = n->grants;
    pthread_mutex_unlock(&n->mutex);
    return grants;
}

/* With the mutex held. */
static void announce_stdin(struct fake_node *n)
{
    if (n->stdin_seen.len >= n->guest_after) {
        IGNORE_RESULT(eventfd_write(n->stdin_fd, 1)); /* more than enough is enough */
    }
}

static int read_stdin(struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    char data[4096];
    ssize_t len;

    http_body_limit(req, UINT64_MAX);
    while ((len = http_body_read(req, data, sizeof(data), e)) > 0) {
        pthread_mutex_lock(&n->mutex);
        ASSERT(buf_add(&n->stdin_seen, data, (size_t)len) == 0);
        announce_stdin(n);
        pthread_cond_broadcast(&n->changed);
        pthread_mutex_unlock(&n->mutex);
    }
    return len < 0 ? (int)len : http_reply_empty(req, 204, e);
}

static int guest(struct http_request *req, struct err *e)
{
    struct fake_node *n = http_request_ctx(req);
    cleanup_buf struct buf data = BUF_INIT(16u << 20);
    char type[64];
    int status;
    bool cut;
    int r;

    if (strstr(http_request_path(req), "/stdin")) {
        return read_stdin(req, e);
    }
    r = remember(req, e);
    if (r == 0) {
        r = enter(req, FAKE_GUEST, e);
    }
    if (r != 1) {
        return r;
    }
    pthread_mutex_lock(&n->mutex);
    status = n->guest_status;
    cut = n->guest_cut;
    snprintf(type, sizeof(type), "%s", n->guest_type);
    ASSERT(buf_add(&data, buf_str(&n->guest_data), n->guest_data.len) == 0);
    pthread_mutex_unlock(&n->mutex);
    http_reply_header(req, "X-Space-Mode", "0644");
    http_reply_header(req, "Set-Cookie", "evil=1");
    http_reply_header(req, "Access-Control-Allow-Origin", "*");
    r = http_reply_begin(req, status, type, -1, e);
    if (r == 0) {
        r = send_guest_data(req, &data, e);
    }
    if (r == 0 && cut) {
        http_reply_abort(req);
        return -ECONNRESET;
    }
    return r < 0 ? r : http_end(req, e);
}

/* What listens in every sandbox: on port 80 what tells the request it got, on 25 no HTTP, elsewhere nothing. */
static int port(struct http_request *req, struct err *e)
{
    const char *number = http_request_param(req, "port");
    cleanup_buf struct buf head = BUF_INIT(65536);
    cleanup_free char *answer = NULL;
    void *room = NULL;
    ssize_t n = 1;
    int r;

    if (!str_eq(number, "80") && !str_eq(number, "25")) {
        return err_set(e, -ECONNREFUSED,
                       str_eq(number, "429") ? "too_many_connections" : "port_closed",
                       "nothing listens there");
    }
    http_body_limit(req, UINT64_MAX);
    r = http_reply_begin(req, 200, "application/octet-stream", -1, e);
    r = r < 0 ? r : http_flush(req, e);
    while (r == 0 && n > 0 && !strstr(buf_str(&head), "\r\n\r\n")) {
        r = buf_reserve(&head, 4096, &room);
        n = r < 0 ? r : http_body_read(req, room, 4096, e);
        if (n > 0) {
            buf_commit(&head, (size_t)n);
        }
    }
    answer = str_eq(number, "25")
                 ? xstrdup("220 mail\r\n")
                 : xasprintf("HTTP/1.1 200 OK\r\nX-Port: 80\r\nContent-Length: %zu\r\n\r\n%s",
                             head.len, buf_str(&head));
    return r < 0 ? r : http_write(req, answer, strlen(answer), e);
}

static const struct http_route routes[] = {
    {"POST", "/v1/sandboxes/{id}/guest/ports/{port}", port, 0},
    {"POST", "/v1/sandboxes", create, 0},
    {"GET", "/v1/sandboxes", list, 0},
    {"GET", "/v1/sandboxes/{id}", get, 0},
    {"DELETE", "/v1/sandboxes/{id}", delete, 0},
    {"POST", "/v1/sandboxes/{id}/stop", stop, 0},
    {"POST", "/v1/sandboxes/{id}/start", start, 0},
    {"POST", "/v1/sandboxes/{id}/pause", pause_one, 0},
    {"POST", "/v1/sandboxes/{id}/resume", resume, 0},
    {"POST", "/v1/sandboxes/{id}/suspend", suspend, 0},
    {"POST", "/v1/sandboxes/{id}/restore", restore, 0},
    {"GET", "/v1/sandboxes/{id}/stored", stored, 0},
    {"DELETE", "/v1/sandboxes/{id}/stored", forget_stored, 0},
    {"POST", "/v1/sandboxes/{id}/rollback", rollback, 0},
    {"POST", "/v1/sandboxes/{id}/fork", fork_one, 0},
    {"PATCH", "/v1/sandboxes/{id}/policy", policy, 0},
    {"PATCH", "/v1/sandboxes/{id}/network", network, 0},
    {"POST", "/v1/sandboxes/{id}/network/asks/{ask}", answer_ask, 0},
    {"PATCH", "/v1/sandboxes/{id}/end", set_end, 0},
    {"*", "/v1/sandboxes/{id}/snapshots", snapshots, 0},
    {"*", "/v1/sandboxes/{id}/snapshots/{snapshot}", snapshot, 0},
    {"GET", "/v1/sandboxes/{id}/history", history, 0},
    {"GET", "/v1/sandboxes/{id}/trace", history, 0},
    {"GET", "/v1/sandboxes/{id}/usage", usage, 0},
    {"GET", "/v1/sandboxes/{id}/logs", guest, 0},
    {"*", "/v1/sandboxes/{id}/guest{rest...}", guest, 0},
    {"GET", "/v1/templates", templates, 0},
    {"GET", "/v1/node", node_info, 0},
    {"PUT", "/v1/node/lease", node_lease, 0},
    {"DELETE", "/v1/node/lease", node_lease_end, 0},
};
static const struct http_router router = {routes, ARRAY_SIZE(routes), NULL};

static int handle(struct http_request *req, struct err *e)
{
    return http_router_handle(&router, req, e);
}

static void *serve(void *arg)
{
    struct fake_node *n = arg;

    ASSERT(http_server_run(n->server, NULL) == 0);
    return NULL;
}

static void fake_node_listen(struct fake_node *n, const char *socket_path, struct http_tls *tls,
                             uint16_t *port)
{
    char address[32];

    if (!tls) {
        ASSERT(http_server_listen_unix(n->server, socket_path, 0600, NULL, NULL) == 0);
        return;
    }
    snprintf(address, sizeof(address), "127.0.0.1:%u", *port);
    ASSERT(http_server_listen_tls(n->server, address, tls, NULL) == 0);
    *port = http_server_port(n->server);
}

struct fake_node *fake_node_start(const char *socket_path)
{
    return fake_node_start_tls(socket_path, /* tls */ NULL, /* port */ NULL);
}

struct fake_node *fake_node_start_tls(const char *socket_path, struct http_tls *tls, uint16_t *port)
{
    struct fake_node *n = xnew(struct fake_node);
    struct http_server_opts opts = {
        .handler = handle, .ctx = n, .name = "fake-node", .drain_timeout_ms = 1};

    pthread_mutex_init(&n->mutex, NULL);
    pthread_cond_init(&n->changed, NULL);
    snprintf(n->id, sizeof(n->id), "%s", socket_path);
    n->guest_data = BUF_INIT(16u << 20);
    n->stdin_seen = BUF_INIT(16u << 20);
    n->stdin_fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    ASSERT(n->stdin_fd >= 0);
    for (int op = 0; op < FAKE_OP_COUNT_; op++) {
        n->gate[op] = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
        ASSERT(n->gate[op] >= 0);
    }
    fake_node_guest_answer(n, 200, "application/json", "{}", 2);
    n->server = http_server_new(&opts);
    fake_node_listen(n, socket_path, tls, port);
    ASSERT(pthread_create(&n->thread, NULL, serve, n) == 0);
    return n;
}

void fake_node_stop(struct fake_node *n)
{
    if (!n) {
        return;
    }
    http_server_stop(n->server);
    pthread_join(n->thread, NULL);
    http_server_free(n->server);
    for (int op = 0; op < FAKE_OP_COUNT_; op++) {
        fd_close(n->gate[op]);
    }
    for (size_t i = 0; i < n->n_sandboxes; i++) {
        free(n->sandboxes[i].spec);
        free(n->sandboxes[i].policy);
        free(n->sandboxes[i].network);
    }
    fd_close(n->stdin_fd);
    buf_done(&n->guest_data);
    buf_done(&n->stdin_seen);
    free(n->guest_seen);
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->mutex);
    free(n);
}

void fake_node_fault(struct fake_node *n, enum fake_op op, enum fake_fault fault)
{
    pthread_mutex_lock(&n->mutex);
    n->fault[op] = fault;
    pthread_mutex_unlock(&n->mutex);
}

void fake_node_hold(struct fake_node *n, enum fake_op op)
{
    eventfd_t count;

    ASSERT(eventfd_read(n->gate[op], &count) == 0);
}

void fake_node_release(struct fake_node *n, enum fake_op op)
{
    ASSERT(eventfd_write(n->gate[op], 1) == 0);
}

void fake_node_await_held(struct fake_node *n, enum fake_op op, unsigned count)
{
    pthread_mutex_lock(&n->mutex);
    while (n->held[op] < count) {
        pthread_cond_wait(&n->changed, &n->mutex);
    }
    pthread_mutex_unlock(&n->mutex);
}

unsigned fake_node_asked(struct fake_node *n, enum fake_op op)
{
    unsigned asked;

    pthread_mutex_lock(&n->mutex);
    asked = n->asked[op];
    pthread_mutex_unlock(&n->mutex);
    return asked;
}

void fake_node_await_asked(struct fake_node *n, enum fake_op op, unsigned count)
{
    pthread_mutex_lock(&n->mutex);
    while (n->asked[op] < count) {
        pthread_cond_wait(&n->changed, &n->mutex);
    }
    pthread_mutex_unlock(&n->mutex);
}

unsigned fake_node_made(struct fake_node *n)
{
    unsigned made;

    pthread_mutex_lock(&n->mutex);
    made = n->made;
    pthread_mutex_unlock(&n->mutex);
    return made;
}

unsigned fake_node_count(struct fake_node *n)
{
    unsigned count;

    pthread_mutex_lock(&n->mutex);
    count = (unsigned)n->n_sandboxes;
    pthread_mutex_unlock(&n->mutex);
    return count;
}

bool fake_node_has(struct fake_node *n, const char *id)
{
    bool has;

    pthread_mutex_lock(&n->mutex);
    has = find(n, id) != NULL;
    pthread_mutex_unlock(&n->mutex);
    return has;
}

void fake_node_set(struct fake_node *n, const char *id, const char *state)
{
    struct fake_sandbox *sb;

    pthread_mutex_lock(&n->mutex);
    sb = find(n, id);
    if (!state[0]) {
        forget(n, id);
    } else if (sb) {
        snprintf(sb->state, sizeof(sb->state), "%s", state);
    } else {
        make(n, id, state, NULL);
    }
    pthread_mutex_unlock(&n->mutex);
}

int64_t fake_node_end_at_ms(struct fake_node *n, const char *id)
{
    struct fake_sandbox *sb;
    int64_t end_at_ms;

    pthread_mutex_lock(&n->mutex);
    sb = find(n, id);
    end_at_ms = sb ? sb->end_at_ms : -1;
    pthread_mutex_unlock(&n->mutex);
    return end_at_ms;
}

char *fake_node_policy(struct fake_node *n, const char *id)
{
    struct fake_sandbox *sb;
    char *text;

    pthread_mutex_lock(&n->mutex);
    sb = find(n, id);
    text = xstrdup(sb && sb->policy ? sb->policy : "");
    pthread_mutex_unlock(&n->mutex);
    return text;
}

char *fake_node_network(struct fake_node *n, const char *id)
{
    struct fake_sandbox *sb;
    char *text;

    pthread_mutex_lock(&n->mutex);
    sb = find(n, id);
    text = xstrdup(sb && sb->network ? sb->network : "");
    pthread_mutex_unlock(&n->mutex);
    return text;
}

void fake_node_guest_answer(struct fake_node *n, int status, const char *type, const void *data,
                            size_t len)
{
    pthread_mutex_lock(&n->mutex);
    n->guest_status = status;
    snprintf(n->guest_type, sizeof(n->guest_type), "%s", type);
    buf_reset(&n->guest_data);
    ASSERT(buf_add(&n->guest_data, data, len) == 0);
    pthread_mutex_unlock(&n->mutex);
}

void fake_node_guest_cut(struct fake_node *n, bool cut)
{
    pthread_mutex_lock(&n->mutex);
    n->guest_cut = cut;
    pthread_mutex_unlock(&n->mutex);
}

void fake_node_guest_after_stdin(struct fake_node *n, size_t len)
{
    eventfd_t count;

    pthread_mutex_lock(&n->mutex);
    n->guest_after = len;
    IGNORE_RESULT(eventfd_read(n->stdin_fd, &count)); /* it may be empty already */
    announce_stdin(n);
    pthread_mutex_unlock(&n->mutex);
}

char *fake_node_guest_seen(struct fake_node *n)
{
    char *seen;

    pthread_mutex_lock(&n->mutex);
    seen = xstrdup(n->guest_seen ? n->guest_seen : "");
    pthread_mutex_unlock(&n->mutex);
    return seen;
}

char *fake_node_stdin_seen(struct fake_node *n, size_t len)
{
    char *seen;

    pthread_mutex_lock(&n->mutex);
    while (n->stdin_seen.len < len) {
        pthread_cond_wait(&n->changed, &n->mutex);
    }
    seen = xstrdup(buf_str(&n->stdin_seen));
    pthread_mutex_unlock(&n->mutex);
    return seen;
}

void fake_node_differs(struct fake_node *n)
{
    pthread_mutex_lock(&n->mutex);
    n->differs = true;
    pthread_mutex_unlock(&n->mutex);
}

unsigned fake_node_cold(struct fake_node *n)
{
    unsigned cold;

    pthread_mutex_lock(&n->mutex);
    cold = n->cold;
    pthread_mutex_unlock(&n->mutex);
    return cold;
}

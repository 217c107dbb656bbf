/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mcp-session.h"

#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"

TAILQ_HEAD(running, mcp_running);

struct mcp_session {
    struct mcp_sessions *all; /* borrowed: lives longer */
    char id[MCP_SESSION_ID_SIZE];
    struct cli cli;       /* owned: conf and client, with the session's key */
    unsigned refs;        /* this and what follows: under the lock */
    bool ended;           /* not in the list */
    uint64_t used_ns;     /* by its last request */
    struct running calls; /* borrowed: their waiters' */
    size_t n_calls;
    TAILQ_ENTRY(mcp_session) entry;
};
TAILQ_HEAD(session_list, mcp_session);

struct mcp_sessions {
    const struct cli *base; /* borrowed */
    pthread_mutex_t lock;
    struct session_list list; /* each counted once by the list; the latest used is last */
    size_t n;
    bool stopping;
};

struct mcp_sessions *mcp_sessions_new(const struct cli *base)
{
    struct mcp_sessions *all = xnew(struct mcp_sessions);

    ASSERT(base->conf.url);
    all->base = base;
    TAILQ_INIT(&all->list);
    pthread_mutex_init(&all->lock, NULL);
    return all;
}

static void session_free(struct mcp_session *s)
{
    ASSERT(s->n_calls == 0);
    cli_done(&s->cli);
    free(s);
}

void mcp_session_unref(struct mcp_session *s)
{
    struct mcp_sessions *all;
    bool last;

    if (!s) {
        return;
    }
    all = s->all;
    pthread_mutex_lock(&all->lock);
    ASSERT(s->refs > 0);
    last = --s->refs == 0;
    pthread_mutex_unlock(&all->lock);
    if (last) {
        session_free(s);
    }
}

static void call_stop(const struct mcp_running *c)
{
    uint64_t one = 1;

    IGNORE_RESULT(write(c->stop_fd, &one, sizeof(one))); /* full: it has been told already */
}

/* Under the lock. */
static void stop_calls(struct mcp_session *s)
{
    const struct mcp_running *c;

    TAILQ_FOREACH(c, &s->calls, entry)
    {
        call_stop(c);
    }
}

/* Under the lock: the list's count is the caller's now. */
static void unlist(struct mcp_session *s)
{
    ASSERT(!s->ended);
    TAILQ_REMOVE(&s->all->list, s, entry);
    s->all->n--;
    s->ended = true;
    stop_calls(s);
}

void mcp_session_end(struct mcp_session *s)
{
    bool mine;

    pthread_mutex_lock(&s->all->lock);
    mine = !s->ended;
    if (mine) {
        unlist(s);
    }
    pthread_mutex_unlock(&s->all->lock);
    if (mine) {
        mcp_session_unref(s);
    }
}

void mcp_sessions_stop(struct mcp_sessions *all)
{
    struct mcp_session *s;

    pthread_mutex_lock(&all->lock);
    all->stopping = true;
    TAILQ_FOREACH(s, &all->list, entry)
    {
        stop_calls(s);
    }
    pthread_mutex_unlock(&all->lock);
}

void mcp_sessions_free(struct mcp_sessions *all)
{
    if (!all) {
        return;
    }
    while (!TAILQ_EMPTY(&all->list)) {
        mcp_session_end(TAILQ_FIRST(&all->list));
    }
    pthread_mutex_destroy(&all->lock);
    free(all);
}

/* ---- begin and find ---- */

static bool has_key(const struct mcp_session *s, const char *key)
{
    size_t len = strlen(s->cli.conf.key);

    return strlen(key) == len && bytes_equal_constant_time(s->cli.conf.key, key, len);
}

static struct mcp_session *session_new(struct mcp_sessions *all, const char *key)
{
    struct mcp_session *s = xnew(struct mcp_session);
    const struct conf *conf = &all->base->conf;
    unsigned char random[MCP_SESSION_ID_LEN / 2];

    random_bytes(random, sizeof(random));
    hex_encode(random, sizeof(random), s->id);
    s->all = all;
    s->refs = 1;
    s->cli = (struct cli){.ui = all->base->ui, .args = all->base->args, .verb = all->base->verb};
    s->cli.conf = (struct conf){.url = xstrdup(conf->url),
                                .key = xstrdup(key),
                                .ca_file = conf->ca_file ? xstrdup(conf->ca_file) : NULL,
                                .key_from = "the request"};
    TAILQ_INIT(&s->calls);
    return s;
}

/* Under the lock: what goes so that one more of this key fits; its count is the caller's. NULL: nothing has to. */
static struct mcp_session *make_room(struct mcp_sessions *all, const char *key)
{
    uint64_t now_ns = clock_now_ns();
    struct mcp_session *oldest = NULL;
    struct mcp_session *s;
    size_t n = 0;

    TAILQ_FOREACH(s, &all->list, entry)
    {
        bool own = has_key(s, key);

        n += own;
        if (s->n_calls == 0 && now_ns - s->used_ns > MCP_SESSION_IDLE_MS * NS_PER_MS) {
            unlist(s);
            return s;
        }
        if (own && !oldest && s->n_calls == 0) {
            oldest = s;
        }
    }
    if (n < MCP_SESSIONS_OF_KEY || !oldest) {
        return NULL;
    }
    unlist(oldest);
    return oldest;
}

/* Under the lock: whether one more of this key fits. */
static bool has_room(const struct mcp_sessions *all, const char *key)
{
    const struct mcp_session *s;
    size_t n = 0;

    TAILQ_FOREACH(s, &all->list, entry)
    {
        n += has_key(s, key);
    }
    return !all->stopping && all->n < MCP_SESSIONS_MAX && n < MCP_SESSIONS_OF_KEY;
}

int mcp_session_begin(struct mcp_sessions *all, const char *key,
                      char ret_id[static MCP_SESSION_ID_SIZE], struct err *e)
{
    CLEANUP(mcp_session_unrefp) struct mcp_session *s = session_new(all, key);
    struct mcp_session *gone;
    int r = cli_client(&s->cli, &s->cli.client, e);

    r = r < 0
            ? r
            : cli_call(&s->cli, "GET", "/v1/sandboxes?limit=1", /* body */ NULL, /* ret */ NULL, e);
    if (r < 0) {
        return r;
    }
    do {
        pthread_mutex_lock(&all->lock);
        gone = make_room(all, key);
        if (!gone && has_room(all, key)) {
            s->used_ns = clock_now_ns();
            TAILQ_INSERT_TAIL(&all->list, s, entry);
            all->n++;
            memcpy(ret_id, s->id, sizeof(s->id));
            s = NULL; /* the list's */
        }
        pthread_mutex_unlock(&all->lock);
        mcp_session_unref(gone);
    } while (gone);
    if (s) {
        return err_set(e, -EBUSY, "unavailable",
                       "there are too many sessions; end some with DELETE");
    }
    return 0;
}

struct mcp_session *mcp_session_find(struct mcp_sessions *all, const char *id, const char *key)
{
    struct mcp_session *s;

    if (strlen(id) != MCP_SESSION_ID_LEN) {
        return NULL;
    }
    pthread_mutex_lock(&all->lock);
    TAILQ_FOREACH(s, &all->list, entry)
    {
        if (bytes_equal_constant_time(s->id, id, MCP_SESSION_ID_LEN)) {
            break;
        }
    }
    if (s && has_key(s, key)) {
        s->refs++;
        s->used_ns = clock_now_ns();
        TAILQ_REMOVE(&all->list, s, entry);
        TAILQ_INSERT_TAIL(&all->list, s, entry);
    } else {
        s = NULL;
    }
    pthread_mutex_unlock(&all->lock);
    return s;
}

/* ---- calls ---- */

static void *call_main(void *arg)
{
    struct mcp_running *c = arg;
    struct pollfd watch = {.fd = c->stop_fd, .events = POLLIN};
    uint64_t one = 1;

    c->result = mcp_tool_run(c->tool, &c->session->cli, c->args, watch);
    IGNORE_RESULT(write(c->done_fd, &one, sizeof(one))); /* it was empty */
    return NULL;
}

static void call_free(struct mcp_running *c)
{
    json_decref(c->id);
    json_decref(c->args);
    fd_close(c->stop_fd);
    fd_close(c->done_fd);
    mcp_session_unref(c->session);
    free(c);
}

/* Objects of JSON are counted by whoever holds them, without a lock: a thread gets its own. */
static struct mcp_running *call_new(struct mcp_session *s, const struct mcp_asked *asked,
                                    json_t *id)
{
    struct mcp_running *c = xnew(struct mcp_running);

    c->session = s;
    c->tool = asked->tool;
    c->id = json_deep_copy(id);
    c->args = asked->args ? json_deep_copy(asked->args) : json_object();
    c->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return c;
}

int mcp_call_begin(struct mcp_session *s, const struct mcp_asked *asked, json_t *id,
                   struct mcp_running **ret)
{
    struct mcp_running *c = call_new(s, asked, id);
    int r = c->stop_fd < 0 || c->done_fd < 0 ? -EMFILE : 0;

    pthread_mutex_lock(&s->all->lock);
    s->refs++;
    if (r == 0 && (s->ended || s->all->stopping || s->n_calls >= MCP_CALLS_MAX)) {
        r = -EBUSY;
    }
    r = r < 0 ? r : -pthread_create(&c->thread, NULL, call_main, c);
    if (r == 0) {
        TAILQ_INSERT_TAIL(&s->calls, c, entry);
        s->n_calls++;
    }
    pthread_mutex_unlock(&s->all->lock);
    if (r < 0) {
        call_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

void mcp_call_cancel(struct mcp_session *s, const json_t *id)
{
    const struct mcp_running *c;

    pthread_mutex_lock(&s->all->lock);
    TAILQ_FOREACH(c, &s->calls, entry)
    {
        if (json_equal(c->id, id)) {
            call_stop(c);
        }
    }
    pthread_mutex_unlock(&s->all->lock);
}

json_t *mcp_call_end_take(struct mcp_running *c)
{
    struct mcp_session *s = c->session;
    json_t *result;

    pthread_join(c->thread, NULL);
    result = c->result;
    pthread_mutex_lock(&s->all->lock);
    TAILQ_REMOVE(&s->calls, c, entry);
    s->n_calls--;
    pthread_mutex_unlock(&s->all->lock);
    call_free(c);
    return result;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "control/fleet.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODE_TEMPLATES_MAX 1024
#define NODE_WARM_MAX 64
/* Nobody is ever there. */
#define NOWHERE "unix:/proc/self/no-node"

struct member {
    struct node_client *client; /* owned by the fleet's list of clients */
    char *url;                  /* owned */
    bool listed;
    bool pass_failed;
    struct schedule_node facts;            /* its name, too; the lists are the two below */
    char (*templates)[TEMPLATE_NAME_SIZE]; /* owned */
    struct schedule_warm *warm;            /* owned */
};

struct fleet {
    struct http_tls *tls; /* borrowed; may be NULL */
    char home[SANDBOX_NODE_SIZE];
    struct node_client *nowhere; /* owned */

    pthread_mutex_t lock;   /* guards what follows */
    struct member *members; /* owned; by name */
    size_t n;               /* with those that are not listed */
    size_t n_listed;
    bool changed;
    struct node_client **clients; /* owned, and so are they: all there ever were */
    size_t n_clients;
};

int fleet_new(const struct fleet_opts *opts, struct fleet **ret, struct err *e)
{
    CLEANUP(fleet_freep) struct fleet *f = xnew(struct fleet);
    int r;

    ASSERT(opts && opts->home && ret);
    pthread_mutex_init(&f->lock, NULL);
    f->tls = opts->tls;
    f->members = xnew_n(struct member, SCHEDULE_NODES_MAX);
    r = str_copy(f->home, sizeof(f->home), opts->home);
    if (r < 0) {
        return err_set(e, r, NULL, "the name of the node is too long");
    }
    r = node_client_new("", NOWHERE, /* tls */ NULL, &f->nowhere, e);
    if (r == 0 && opts->url) {
        r = fleet_put(f, &(struct fleet_news){.name = f->home, .url = opts->url, .alive = true}, e);
    }
    if (r < 0) {
        return r;
    }
    *ret = TAKE_PTR(f);
    return 0;
}

void fleet_free(struct fleet *f)
{
    if (!f) {
        return;
    }
    for (size_t i = 0; i < f->n; i++) {
        free(f->members[i].url);
        free(f->members[i].templates);
        free(f->members[i].warm);
    }
    for (size_t i = 0; i < f->n_clients; i++) {
        node_client_free(f->clients[i]);
    }
    node_client_free(f->nowhere);
    free(f->clients);
    free(f->members);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

const char *fleet_home(const struct fleet *f)
{
    return f->home;
}

/* Under the lock. The place where it is or would be. */
static size_t place_of(const struct fleet *f, const char *name, bool *ret_there)
{
    size_t low = 0;
    size_t high = f->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int c = strcmp(f->members[mid].facts.name, name);

        if (c == 0) {
            *ret_there = true;
            return mid;
        }
        if (c < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    *ret_there = false;
    return low;
}

/* Under the lock; NULL: not there. */
static struct member *find(const struct fleet *f, const char *name)
{
    bool there;
    size_t i = place_of(f, str_empty(name) ? f->home : name, &there);

    return there ? &f->members[i] : NULL;
}

bool fleet_chooses(struct fleet *f)
{
    bool alone;

    pthread_mutex_lock(&f->lock);
    alone = f->n_listed == 1 && find(f, f->home);
    pthread_mutex_unlock(&f->lock);
    return !alone;
}

struct node_client *fleet_client(struct fleet *f, const char *name)
{
    struct node_client *client = f->nowhere;
    struct member *m;

    ASSERT(f && name);
    pthread_mutex_lock(&f->lock);
    m = find(f, name);
    if (m) { /* also one that is not listed any more: what is there may still be asked for */
        client = m->client;
    }
    pthread_mutex_unlock(&f->lock);
    return client;
}

static bool lives(const struct member *m)
{
    return m->listed && m->facts.alive;
}

bool fleet_alive(struct fleet *f, const char *name)
{
    struct member *m;
    bool alive;

    pthread_mutex_lock(&f->lock);
    m = find(f, name);
    alive = m && lives(m);
    pthread_mutex_unlock(&f->lock);
    return alive;
}

struct node_client *fleet_any(struct fleet *f, const char *name)
{
    struct node_client *client = NULL;
    struct member *m;

    pthread_mutex_lock(&f->lock);
    m = find(f, name);
    if (m && lives(m)) {
        client = m->client;
    }
    for (size_t i = 0; i < f->n && !client; i++) {
        client = lives(&f->members[i]) ? f->members[i].client : NULL;
    }
    pthread_mutex_unlock(&f->lock);
    return client ? client : fleet_client(f, name);
}

bool fleet_knows(struct fleet *f, const char *name)
{
    struct member *m;
    bool knows;

    pthread_mutex_lock(&f->lock);
    m = find(f, name);
    knows = m && m->listed;
    pthread_mutex_unlock(&f->lock);
    return knows;
}

bool fleet_changed(struct fleet *f)
{
    bool changed;

    pthread_mutex_lock(&f->lock);
    changed = f->changed;
    f->changed = false;
    pthread_mutex_unlock(&f->lock);
    return changed;
}

int fleet_each(struct fleet *f, fleet_fn *each, void *ctx)
{
    cleanup_free struct node_client **clients = xnew_n(struct node_client *, SCHEDULE_NODES_MAX);
    size_t n = 0;
    int r = 0;

    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < f->n; i++) {
        if (f->members[i].listed) {
            clients[n++] = f->members[i].client;
        }
    }
    pthread_mutex_unlock(&f->lock);
    for (size_t i = 0; i < n && r == 0; i++) {
        r = each(ctx, clients[i]);
    }
    return r;
}

/* ---- news ---- */

static void read_templates(struct member *m, const json_t *list)
{
    size_t n = MIN(json_array_size(list), (size_t)NODE_TEMPLATES_MAX);

    free(m->templates);
    m->templates = xcalloc(MAX(n, (size_t)1), TEMPLATE_NAME_SIZE);
    m->facts.templates = m->templates;
    m->facts.n_templates = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *entry = json_array_get(list, i);
        const char *name =
            json_is_string(entry) ? json_string_value(entry) : json_get_string(entry, "name", "");

        if (template_name_valid(name)) {
            snprintf(m->templates[m->facts.n_templates++], TEMPLATE_NAME_SIZE, "%s", name);
        }
    }
}

static unsigned to_count(int64_t n)
{
    return (unsigned)MIN(MAX(n, (int64_t)0), (int64_t)INT32_MAX);
}

static void read_warm(struct member *m, const json_t *list)
{
    size_t n = MIN(json_array_size(list), (size_t)NODE_WARM_MAX);

    free(m->warm);
    m->warm = xnew_n(struct schedule_warm, MAX(n, (size_t)1));
    m->facts.warm = m->warm;
    m->facts.n_warm = n;
    for (size_t i = 0; i < n; i++) {
        json_t *entry = json_array_get(list, i);
        const char *name = json_get_string(entry, "template", "");

        m->warm[i] = (struct schedule_warm){
            .vcpus = to_count(json_get_int(entry, "vcpus", 0)),
            .memory_mib = to_count(json_get_int(entry, "memory_mib", 0)),
            .n = to_count(json_get_int(entry, "ready", 0)),
        };
        if (template_name_valid(name)) {
            snprintf(m->warm[i].template_name, TEMPLATE_NAME_SIZE, "%s", name);
        }
    }
}

static uint64_t mib_of(json_t *told, const char *bytes)
{
    return (uint64_t)MAX(json_get_int(told, bytes, 0), (int64_t)0) >> 20;
}

/* What is not said counts as nothing: such a node is not chosen. */
static void read_told(struct member *m, const json_t *told)
{
    json_t *t = (json_t *)(uintptr_t)told; /* jansson's getters take no const */
    struct schedule_node *n = &m->facts;

    n->known = true;
    n->memory_mib = (uint64_t)MAX(json_get_int(t, "memory_mib", 0), (int64_t)0);
    n->memory_free_mib = (uint64_t)MAX(json_get_int(t, "memory_free_mib", 0), (int64_t)0);
    n->pool_free_mib = mib_of(t, "pool_free_bytes");
    n->cpus = to_count(json_get_int(t, "cpus", 0));
    n->vcpus_used = to_count(json_get_int(t, "vcpus_used", 0));
    n->sandboxes = to_count(json_get_int(t, "sandboxes", 0));
    n->sandboxes_max = to_count(json_get_int(json_object_get(t, "limits"), "sandboxes_max", 0));
    snprintf(n->accel, sizeof(n->accel), "%s", json_get_string(t, "accel", ""));
    snprintf(n->vmm, sizeof(n->vmm), "%s", json_get_string(t, "vmm_version", ""));
    snprintf(n->cpu, sizeof(n->cpu), "%s", json_get_string(t, "cpu_model", ""));
    read_templates(m, json_object_get(t, "templates"));
    read_warm(m, json_object_get(t, "warm"));
}

/* Under the lock. */
static int set_address(struct fleet *f, struct member *m, const char *name, const char *url,
                       struct err *e)
{
    bool home = str_eq(name, f->home);
    struct node_client *client = NULL;
    int r;

    if (m->client && (home || str_eq(m->url, url))) {
        return 0;
    }
    if (str_starts(url, "https:") && !f->tls) {
        return err_set(e, -EINVAL, "usage",
                       "node '%s' is at '%s': the gateway needs --node-cert, --node-key and "
                       "--node-ca for it",
                       name, url);
    }
    r = node_client_new(name, url, str_starts(url, "https:") ? f->tls : NULL, &client, e);
    if (r < 0) {
        return r;
    }
    f->clients = xrealloc(f->clients, (f->n_clients + 1) * sizeof(struct node_client *));
    f->clients[f->n_clients++] = client;
    free(m->url);
    m->client = client;
    m->url = xstrdup(url);
    return 0;
}

/* Under the lock. */
static int put(struct fleet *f, const struct fleet_news *news, struct err *e)
{
    struct member fresh = {0};
    bool there;
    size_t i = place_of(f, news->name, &there);
    struct member *m = there ? &f->members[i] : &fresh;
    int r;

    if (!there && f->n == SCHEDULE_NODES_MAX) {
        return err_set(e, -ENOSPC, NULL, "there are more than %d nodes", SCHEDULE_NODES_MAX);
    }
    if (!there && str_copy(fresh.facts.name, sizeof(fresh.facts.name), news->name) < 0) {
        return err_set(e, -EINVAL, NULL, "the name of a node is too long");
    }
    r = set_address(f, m, news->name, news->url, e);
    if (r < 0) {
        return r;
    }
    if (!there) {
        memmove(&f->members[i + 1], &f->members[i], (f->n - i) * sizeof(*f->members));
        f->members[i] = fresh;
        f->n++;
        m = &f->members[i];
    }
    f->n_listed += m->listed ? 0 : 1;
    f->changed = f->changed || !m->listed;
    m->listed = true;
    m->facts.wanted = news->wanted;
    m->facts.alive = news->alive;
    if (news->told) {
        read_told(m, news->told);
    }
    return 0;
}

int fleet_put(struct fleet *f, const struct fleet_news *news, struct err *e)
{
    int r;

    ASSERT(f && news && !str_empty(news->name) && !str_empty(news->url));
    pthread_mutex_lock(&f->lock);
    r = put(f, news, e);
    pthread_mutex_unlock(&f->lock);
    return r;
}

void fleet_told(struct fleet *f, const char *name, const json_t *told)
{
    struct member *m;

    pthread_mutex_lock(&f->lock);
    m = find(f, name);
    if (m) {
        read_told(m, told);
    }
    pthread_mutex_unlock(&f->lock);
}

static bool among(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (str_eq(names[i], name)) {
            return true;
        }
    }
    return false;
}

void fleet_keep(struct fleet *f, const char *const *names, size_t n)
{
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < f->n; i++) {
        struct member *m = &f->members[i];

        if (m->listed && !str_eq(m->facts.name, f->home) && !among(names, n, m->facts.name)) {
            m->listed = false;
            f->n_listed--;
        }
    }
    pthread_mutex_unlock(&f->lock);
}

bool fleet_passed(struct fleet *f, const char *name, bool fine, bool *ret_was)
{
    struct member *m;
    bool all = true;

    *ret_was = true;
    pthread_mutex_lock(&f->lock);
    m = find(f, name);
    if (m) {
        *ret_was = !m->pass_failed;
        m->pass_failed = !fine;
    }
    for (size_t i = 0; i < f->n; i++) {
        all = all && !(f->members[i].listed && f->members[i].pass_failed);
    }
    pthread_mutex_unlock(&f->lock);
    return all;
}

/* ---- choosing ---- */

size_t fleet_schedule(struct fleet *f, const struct schedule_wish *wish, struct fleet_choice **ret,
                      size_t *ret_n)
{
    cleanup_free struct schedule_node *nodes = xnew_n(struct schedule_node, SCHEDULE_NODES_MAX);
    cleanup_free struct schedule_verdict *verdicts = NULL;
    size_t n = 0;
    size_t fit;

    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < f->n; i++) {
        if (f->members[i].listed) {
            nodes[n++] = f->members[i].facts; /* its lists are read under the lock only */
        }
    }
    verdicts = xnew_n(struct schedule_verdict, MAX(n, (size_t)1));
    fit = schedule(wish, nodes, n, verdicts);
    pthread_mutex_unlock(&f->lock);

    *ret = xnew_n(struct fleet_choice, MAX(n, (size_t)1));
    for (size_t i = 0; i < n; i++) {
        (*ret)[i].verdict = verdicts[i];
        memcpy((*ret)[i].name, nodes[verdicts[i].node].name, SANDBOX_NODE_SIZE);
    }
    *ret_n = n;
    return fit;
}

void fleet_count(struct fleet *f, const char *name, const struct shape *shape)
{
    struct member *m;

    pthread_mutex_lock(&f->lock);
    m = find(f, name);
    if (m) {
        m->facts.sandboxes++;
        m->facts.vcpus_used += shape->vcpus;
        m->facts.memory_free_mib -= MIN(m->facts.memory_free_mib, (uint64_t)shape->memory_mib);
    }
    pthread_mutex_unlock(&f->lock);
}

void fleet_origin(struct fleet *f, const char *name, struct fleet_origin *ret)
{
    struct member *m;

    *ret = (struct fleet_origin){0};
    pthread_mutex_lock(&f->lock);
    m = find(f, name);
    if (m && m->facts.known) {
        memcpy(ret->accel, m->facts.accel, sizeof(ret->accel));
        memcpy(ret->vmm, m->facts.vmm, sizeof(ret->vmm));
        memcpy(ret->cpu, m->facts.cpu, sizeof(ret->cpu));
    }
    pthread_mutex_unlock(&f->lock);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/store.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/fs.h"

#define NAME "credentials.json"
#define FILE_MAX (64u * 1024 * 1024)

struct entry {
    struct credential c;
    double uses_left; /* a bucket that fills up to rate_count in rate_s seconds */
    uint64_t filled_ns;
};

struct store {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    int dir_fd;             /* owned */
    struct entry **entries; /* owned, and what they point to */
    size_t n;
    uint64_t generation;
};

static int store_write(struct store *s)
{
    cleanup_json json_t *list = json_array();
    cleanup_json json_t *doc = json_pack("{s:i, s:O}", "version", 1, "credentials", list);
    cleanup_free char *text = NULL;

    for (size_t i = 0; i < s->n; i++) {
        json_array_append_new(list, credential_json(&s->entries[i]->c, /* private */ true));
    }
    text = json_text(doc);
    return fs_write_file_durable(s->dir_fd, NAME, text, strlen(text), 0600);
}

static void append(struct store *s, const struct credential *c)
{
    struct entry *entry = xnew(struct entry);

    entry->c = *c;
    entry->uses_left = (double)c->rate_count;
    entry->filled_ns = clock_now_ns();
    s->entries = xrealloc(s->entries, (s->n + 1) * sizeof(struct entry *));
    s->entries[s->n++] = entry;
}

static int store_read(struct store *s, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(FILE_MAX);
    cleanup_json json_t *doc = NULL;
    json_t *list;
    int r = fs_read_file(s->dir_fd, NAME, &text);

    if (r == -ENOENT) {
        return 0;
    }
    r = r < 0 ? r : json_parse_object(text.data, text.len, &doc, e);
    if (r < 0) {
        return err_wrap(e, r, "reading '" NAME "'");
    }
    list = json_object_get(doc, "credentials");
    if (json_get_int(doc, "version", 0) != 1 || !json_is_array(list) ||
        json_array_size(list) > STORE_MAX) {
        return err_set(e, -EBADMSG, NULL, "'" NAME "' is of another version or damaged");
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct credential c;

        r = credential_from_private(json_array_get(list, i), &c, e);
        if (r < 0) {
            return err_wrap(e, r, "reading '" NAME "'");
        }
        append(s, &c);
    }
    return 0;
}

int store_open(const char *dir, struct store **ret, struct err *e)
{
    CLEANUP(store_freep) struct store *s = xnew(struct store);
    int r;

    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->changed);
    /* Another one than that of an earlier process, so that nobody takes what he knows for still true. */
    s->generation = clock_wall_ms();
    s->dir_fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
    if (s->dir_fd < 0) {
        return err_wrap(e, s->dir_fd, "opening '%s'", dir);
    }
    r = store_read(s, e);
    if (r == 0) {
        *ret = TAKE_PTR(s);
    }
    return r;
}

void store_free(struct store *s)
{
    if (s) {
        for (size_t i = 0; i < s->n; i++) {
            free(s->entries[i]);
        }
        free(s->entries);
        s->dir_fd = fd_close(s->dir_fd);
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->lock);
        free(s);
    }
}

/* ---- changes; with the lock held ---- */

static struct entry *find(struct store *s, const char *id)
{
    for (size_t i = 0; i < s->n; i++) {
        if (str_eq(s->entries[i]->c.id, id)) {
            return s->entries[i];
        }
    }
    return NULL;
}

static bool same_owner(const struct credential *a, const struct credential *b)
{
    return a->scope == b->scope && str_eq(a->organisation, b->organisation) &&
           (a->scope == CREDENTIAL_ORGANISATION || str_eq(a->project, b->project)) &&
           (a->scope != CREDENTIAL_SANDBOX || str_eq(a->sandbox, b->sandbox));
}

static void changed(struct store *s)
{
    s->generation++;
    pthread_cond_broadcast(&s->changed);
}

static int add_locked(struct store *s, const struct credential *c, struct err *e)
{
    size_t of_project = 0;
    int r;

    for (size_t i = 0; i < s->n; i++) {
        const struct credential *other = &s->entries[i]->c;

        if (str_eq(other->name, c->name) && same_owner(other, c)) {
            return err_set(e, -EEXIST, "credential_exists",
                           "there is a credential '%s' with this scope; rotate it, or remove it",
                           c->name);
        }
        of_project +=
            str_eq(other->organisation, c->organisation) && str_eq(other->project, c->project);
    }
    if (s->n >= STORE_MAX || of_project >= STORE_PROJECT_MAX) {
        return err_set(e, -EDQUOT, "too_many_credentials", "there are %u credentials already",
                       s->n >= STORE_MAX ? STORE_MAX : STORE_PROJECT_MAX);
    }
    append(s, c);
    r = store_write(s);
    if (r < 0) {
        free(s->entries[--s->n]);
        return err_wrap(e, r, "writing '" NAME "'");
    }
    changed(s);
    return 0;
}

int store_add(struct store *s, const struct credential *c, struct err *e)
{
    int r;

    pthread_mutex_lock(&s->lock);
    r = add_locked(s, c, e);
    pthread_mutex_unlock(&s->lock);
    return r;
}

int store_change(struct store *s, const struct credential *c, struct err *e)
{
    struct entry *entry;
    struct credential before;
    int r = -ENOENT;

    pthread_mutex_lock(&s->lock);
    entry = find(s, c->id);
    if (entry) {
        before = entry->c;
        entry->c = *c;
        r = store_write(s);
        if (r < 0) {
            entry->c = before;
        } else {
            entry->uses_left = MIN(entry->uses_left, (double)c->rate_count);
            if (before.rate_count != c->rate_count || before.rate_s != c->rate_s) {
                entry->uses_left = (double)c->rate_count;
            }
            changed(s);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return r < 0 ? err_wrap(e, r, "changing the credential '%s'", c->name) : 0;
}

int store_remove(struct store *s, const char *id, struct err *e)
{
    struct entry *entry = NULL;
    size_t at = 0;
    int r = -ENOENT;

    pthread_mutex_lock(&s->lock);
    while (at < s->n && !str_eq(s->entries[at]->c.id, id)) {
        at++;
    }
    if (at < s->n) {
        entry = s->entries[at];
        s->entries[at] = s->entries[--s->n];
        r = store_write(s);
        if (r < 0) {
            s->entries[s->n++] = s->entries[at];
            s->entries[at] = TAKE_PTR(entry);
        } else {
            changed(s);
        }
    }
    pthread_mutex_unlock(&s->lock);
    free(entry);
    return r < 0 ? err_wrap(e, r, "removing the credential") : 0;
}

/* ---- questions ---- */

static bool visible(const struct credential *c, const char *organisation, const char *project)
{
    return str_eq(c->organisation, organisation) &&
           (!project || c->scope == CREDENTIAL_ORGANISATION || str_eq(c->project, project));
}

int store_find(struct store *s, const char *id, const char *organisation, const char *project,
               struct credential *ret, struct err *e)
{
    const struct entry *entry;
    int r = -ENOENT;

    pthread_mutex_lock(&s->lock);
    entry = find(s, id);
    if (entry && visible(&entry->c, organisation, project)) {
        *ret = entry->c;
        r = 0;
    }
    pthread_mutex_unlock(&s->lock);
    return r < 0 ? err_set(e, r, "credential_not_found", "there is no such credential") : 0;
}

size_t store_list(struct store *s, const char *organisation, const char *project,
                  struct credential **ret)
{
    struct credential *list;
    size_t n = 0;

    pthread_mutex_lock(&s->lock);
    list = xnew_n(struct credential, s->n + 1);
    for (size_t i = 0; i < s->n; i++) {
        if (visible(&s->entries[i]->c, organisation, project)) {
            list[n++] = s->entries[i]->c;
        }
    }
    pthread_mutex_unlock(&s->lock);
    *ret = list;
    return n;
}

/* Those in scope; with the lock held. Owned by the caller. */
static const struct credential **in_scope(struct store *s, const struct credential_request *q,
                                          size_t *ret_n)
{
    const struct credential **all = xnew_n(const struct credential *, s->n + 1);
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++) {
        if (credential_in_scope(&s->entries[i]->c, q)) {
            all[n++] = &s->entries[i]->c;
        }
    }
    *ret_n = n;
    return all;
}

size_t store_choose(struct store *s, const struct credential_request *q, struct credential **ret)
{
    const struct credential **all;
    const struct credential **chosen;
    struct credential *list;
    size_t n;

    pthread_mutex_lock(&s->lock);
    all = in_scope(s, q, &n);
    chosen = xnew_n(const struct credential *, n + 1);
    n = credential_choose(all, n, q, chosen);
    list = xnew_n(struct credential, n + 1);
    for (size_t i = 0; i < n; i++) {
        list[i] = *chosen[i];
    }
    pthread_mutex_unlock(&s->lock);
    free(chosen);
    free(all);
    *ret = list;
    return n;
}

typedef const struct credential *(*find_fn)(const struct credential *const *all, size_t n,
                                            const struct credential_request *q);

static int store_one(struct store *s, const struct credential_request *q, find_fn find_one,
                     struct credential *ret)
{
    const struct credential **all;
    const struct credential *found;
    size_t n;

    pthread_mutex_lock(&s->lock);
    all = in_scope(s, q, &n);
    found = find_one(all, n, q);
    if (found) {
        *ret = *found;
    }
    pthread_mutex_unlock(&s->lock);
    free(all);
    return found ? 0 : -ENOENT;
}

int store_webhook(struct store *s, const struct credential_request *q, struct credential *ret)
{
    return store_one(s, q, credential_webhook, ret);
}

int store_ssh(struct store *s, const struct credential_request *q, struct credential *ret)
{
    return store_one(s, q, credential_ssh, ret);
}

int store_named(struct store *s, const struct credential_request *q, const char *name,
                struct credential *ret)
{
    const struct credential **all;
    const struct credential *found;
    size_t n;

    pthread_mutex_lock(&s->lock);
    all = in_scope(s, q, &n);
    found = credential_named(all, n, q, name);
    if (found) {
        *ret = *found;
    }
    pthread_mutex_unlock(&s->lock);
    free(all);
    return found ? 0 : -ENOENT;
}

static int take_locked(struct entry *entry)
{
    uint64_t now_ns = clock_now_ns();
    double most = (double)entry->c.rate_count;
    double gained;

    if (entry->c.rate_count == 0) {
        return 0;
    }
    gained =
        (double)(now_ns - entry->filled_ns) / (double)NS_PER_S * most / (double)entry->c.rate_s;
    entry->uses_left = MIN(most, entry->uses_left + gained);
    entry->filled_ns = now_ns;
    if (entry->uses_left < 1) {
        return -EUSERS;
    }
    entry->uses_left -= 1;
    return 0;
}

int store_take_use(struct store *s, const struct credential *c, struct err *e)
{
    struct entry *entry;
    int r;

    pthread_mutex_lock(&s->lock);
    entry = find(s, c->id);
    r = entry ? take_locked(entry) : -ENOENT;
    pthread_mutex_unlock(&s->lock);
    if (r == -EUSERS) {
        return err_set(e, r, "credential_rate",
                       "the credential '%s' may be used %lld times in %lld seconds", c->name,
                       (long long)c->rate_count, (long long)c->rate_s);
    }
    return r < 0 ? err_set(e, r, "credential_not_found", "there is no such credential") : 0;
}

uint64_t store_wait(struct store *s, uint64_t known, uint64_t deadline_ns)
{
    uint64_t present;

    pthread_mutex_lock(&s->lock);
    while (s->generation == known && !deadline_passed(deadline_ns)) {
        cond_wait_until(&s->changed, &s->lock, deadline_ns);
    }
    present = s->generation;
    pthread_mutex_unlock(&s->lock);
    return present;
}

void store_wake(struct store *s)
{
    pthread_mutex_lock(&s->lock);
    changed(s);
    pthread_mutex_unlock(&s->lock);
}

json_t *store_targets(struct store *s, uint64_t *ret_generation)
{
    json_t *list = json_array();

    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->n; i++) {
        const struct credential *c = &s->entries[i]->c;

        if (c->inject.type == CREDENTIAL_WEBHOOK) {
            continue; /* no connection of a guest is looked into for it */
        }
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:b, s:s, s:I}", "scope",
                            credential_scope_name(c->scope), "organisation", c->organisation,
                            "project", c->project, "sandbox", c->sandbox, "host", c->target.host,
                            "port", (int)c->target.port, "ssh", c->inject.type == CREDENTIAL_SSH,
                            "id", c->id, "rotated_at_ms", (json_int_t)c->rotated_at_ms));
    }
    *ret_generation = s->generation;
    pthread_mutex_unlock(&s->lock);
    return list;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define CACHE_SLOTS 1024
#define LOAD_BUCKETS 256
/* A key's last use is written at most this often: it is for people. */
#define TOUCH_MS 60000

struct cached {
    char hash[KEY_HASH_SIZE]; /* "": empty */
    uint64_t until_ns;
    struct caller caller;
};

/* Requests at work of one project. */
struct load {
    char project[ID_SIZE];
    unsigned n;
    struct load *next; /* owned */
};

struct auth {
    struct db *db;         /* borrowed: lives longer */
    pthread_mutex_t mutex; /* guards what follows */
    struct cached cache[CACHE_SLOTS];
    struct load *load[LOAD_BUCKETS]; /* owned: lists */
};

struct auth *auth_new(struct db *db)
{
    struct auth *auth = xnew(struct auth);

    ASSERT(db);
    auth->db = db;
    pthread_mutex_init(&auth->mutex, NULL);
    return auth;
}

void auth_free(struct auth *auth)
{
    if (!auth) {
        return;
    }
    for (size_t i = 0; i < LOAD_BUCKETS; i++) {
        ASSERT(!auth->load[i]); /* no request is left */
    }
    pthread_mutex_destroy(&auth->mutex);
    OPENSSL_cleanse(auth->cache, sizeof(auth->cache));
    free(auth);
}

void auth_hash(const void *data, size_t len, char ret[static KEY_HASH_SIZE])
{
    unsigned char digest[32];
    unsigned int n = 0;
    int ok = EVP_Digest(data, len, digest, &n, EVP_sha256(), NULL);

    ASSERT(ok == 1 && n == sizeof(digest));
    hex_encode(digest, sizeof(digest), ret);
}

void auth_make_key(struct api_key *k, char text[static KEY_TEXT_SIZE])
{
    unsigned char secret[KEY_HEX_LEN / 2];

    random_bytes(secret, sizeof(secret));
    memcpy(text, "e2b_", 4);
    hex_encode(secret, sizeof(secret), text + 4);
    OPENSSL_cleanse(secret, sizeof(secret));
    id_new(ID_KEY, k->id);
    auth_hash(text, KEY_TEXT_LEN, k->hash);
    snprintf(k->prefix, sizeof(k->prefix), "%.*s", KEY_PREFIX_LEN, text);
}

static int refused(struct err *e)
{
    return err_set(e, -EKEYREJECTED, "unauthorized",
                   "the API key is not valid or has been revoked");
}

static struct cached *slot_of(struct auth *auth, const char *hash)
{
    unsigned slot = 0;

    IGNORE_RESULT(sscanf(hash, "%4x", &slot)); /* it is hex of ours */
    return &auth->cache[slot % CACHE_SLOTS];
}

static bool find_cached(struct auth *auth, const char *hash, struct caller *ret)
{
    struct cached *c = slot_of(auth, hash);
    bool found;

    pthread_mutex_lock(&auth->mutex);
    found =
        bytes_equal_constant_time(c->hash, hash, KEY_HASH_SIZE) && !deadline_passed(c->until_ns);
    if (found) {
        *ret = c->caller;
    }
    pthread_mutex_unlock(&auth->mutex);
    return found;
}

static void keep(struct auth *auth, const char *hash, const struct caller *caller)
{
    struct cached *c = slot_of(auth, hash);

    pthread_mutex_lock(&auth->mutex);
    *c = (struct cached){.until_ns = deadline_in_ms(AUTH_CACHE_MS), .caller = *caller};
    memcpy(c->hash, hash, KEY_HASH_SIZE);
    pthread_mutex_unlock(&auth->mutex);
}

static void touch(struct auth *auth, const struct api_key *k)
{
    int64_t now_ms = (int64_t)clock_wall_ms();
    struct err e = {0};

    if (now_ms - k->last_used_at_ms < TOUCH_MS) {
        return;
    }
    if (db_key_touch(auth->db, k->id, now_ms, &e) < 0) {
        log_warn(NULL, "cannot note the use of key '%s', ignoring: %s", k->id, e.msg);
    }
}

int auth_key(struct auth *auth, const char *key, struct caller *ret, struct err *e)
{
    char hash[KEY_HASH_SIZE];
    struct api_key k = {0};
    struct project p = {0};
    struct caller caller = {0};
    int r;

    ASSERT(auth && key && ret);

    if (!key_text_valid(key)) {
        return refused(e);
    }
    auth_hash(key, KEY_TEXT_LEN, hash);
    if (find_cached(auth, hash, ret)) {
        return 0;
    }
    r = db_key_by_hash(auth->db, hash, &k, e);
    if (r == 0 && !bytes_equal_constant_time(k.hash, hash, KEY_HASH_SIZE)) {
        r = -ENOENT;
    }
    if (r == 0) {
        r = db_project_get(auth->db, k.project, &p, e);
    }
    if (r < 0) {
        return r == -ENOENT ? refused(e) : r;
    }
    caller.scope = k.scope;
    caller.actor.max_sandboxes = p.max_sandboxes;
    snprintf(caller.actor.organisation, ID_SIZE, "%s", k.organisation);
    snprintf(caller.actor.project, ID_SIZE, "%s", k.project);
    snprintf(caller.actor.key, ID_SIZE, "%s", k.id);
    keep(auth, hash, &caller);
    touch(auth, &k);
    *ret = caller;
    return 0;
}

/* The item of a comma list that begins with the prefix, without it. */
static bool find_protocol_key(const char *list, char *ret, size_t size)
{
    static const char prefix[] = "space.key.";

    while (*list) {
        size_t len;

        list += strspn(list, " \t,");
        len = strcspn(list, " \t,");
        if (len > sizeof(prefix) - 1 && strncmp(list, prefix, sizeof(prefix) - 1) == 0 &&
            len - (sizeof(prefix) - 1) < size) {
            snprintf(ret, size, "%.*s", (int)(len - (sizeof(prefix) - 1)),
                     list + sizeof(prefix) - 1);
            return true;
        }
        list += len;
    }
    return false;
}

int auth_request(struct auth *auth, const struct http_request *req, struct caller *ret,
                 struct err *e)
{
    const char *bearer = http_bearer(http_request_header(req, "Authorization"));
    const char *plain = http_request_header(req, "X-API-Key");
    const char *protocols = http_request_header(req, "Sec-WebSocket-Protocol");
    char key[KEY_TEXT_SIZE];
    int r;

    if (bearer) {
        return auth_key(auth, bearer, ret, e);
    }
    if (plain) {
        return auth_key(auth, plain, ret, e);
    }
    if (protocols && find_protocol_key(protocols, key, sizeof(key))) {
        r = auth_key(auth, key, ret, e);
        OPENSSL_cleanse(key, sizeof(key));
        return r;
    }
    return err_set(e, -EKEYREJECTED, "unauthorized",
                   "give an API key in the header 'Authorization: Bearer KEY' or 'X-API-Key: KEY'");
}

void auth_forget(struct auth *auth)
{
    pthread_mutex_lock(&auth->mutex);
    memset(auth->cache, 0, sizeof(auth->cache));
    pthread_mutex_unlock(&auth->mutex);
}

static struct load **find_load(struct auth *auth, const char *project)
{
    unsigned h = 0;
    struct load **link;

    for (const char *p = project; *p; p++) {
        h = h * 31 + (unsigned char)*p;
    }
    link = &auth->load[h % LOAD_BUCKETS];
    while (*link && !str_eq((*link)->project, project)) {
        link = &(*link)->next;
    }
    return link;
}

int auth_enter(struct auth *auth, const char *project, struct err *e)
{
    struct load **link;
    bool full;

    pthread_mutex_lock(&auth->mutex);
    link = find_load(auth, project);
    if (!*link) {
        *link = xnew(struct load);
        snprintf((*link)->project, ID_SIZE, "%s", project);
    }
    full = (*link)->n >= AUTH_PROJECT_REQUESTS_MAX;
    if (!full) {
        (*link)->n++;
    }
    pthread_mutex_unlock(&auth->mutex);
    if (full) {
        return err_set(e, -EUSERS, "too_many_requests",
                       "the project has %d requests at work, streams included: end some or wait",
                       AUTH_PROJECT_REQUESTS_MAX);
    }
    return 0;
}

void auth_leave(struct auth *auth, const char *project)
{
    struct load **link;
    struct load *load;

    pthread_mutex_lock(&auth->mutex);
    link = find_load(auth, project);
    load = *link;
    ASSERT(load && load->n > 0);
    if (--load->n == 0) {
        *link = load->next;
        free(load);
    }
    pthread_mutex_unlock(&auth->mutex);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/leftovers.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"

#define PERIOD_MS 60000

struct leftovers {
    struct db *db;                         /* borrowed */
    struct credential_client *credentials; /* borrowed */
    pthread_t thread;
    pthread_mutex_t lock; /* guards the next */
    pthread_cond_t stopped;
    bool stop;
};

static int ask(struct credential_client *c, const char *what, json_t *owner, json_t **ret,
               struct err *e)
{
    cleanup_json json_t *body = json_pack("{s:O, s:{}}", "actor", owner, "body");

    return credential_client_call(c, "POST", what, body, ret, e);
}

static int remove_of(struct credential_client *c, json_t *owner, const char *sandbox,
                     size_t *removed, struct err *e)
{
    cleanup_json json_t *answer = NULL;
    json_t *one;
    size_t i;
    int r = ask(c, "/v1/credentials/list", owner, &answer, e);

    json_array_foreach(json_object_get(answer, "credentials"), i, one)
    {
        const char *id = json_get_string(one, "id", "");
        char target[96];

        if (r < 0 || !str_eq(json_get_string(one, "sandbox", ""), sandbox) ||
            !id_valid(ID_CREDENTIAL, id)) {
            continue;
        }
        snprintf(target, sizeof(target), "/v1/credentials/%s/remove", id);
        r = ask(c, target, owner, /* ret */ NULL, e);
        *removed += r == 0;
        r = r == -ENOENT ? 0 : r; /* somebody was faster */
    }
    return r;
}

/* 1: it has gone; 0: it is there. */
static int has_gone(struct db *db, const char *sandbox, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    int r = db_sandbox_get(db, sandbox, /* project */ NULL, &sb, e);

    return r == -ENOENT ? 1 : r;
}

int leftovers_remove(struct db *db, struct credential_client *credentials, size_t *ret_removed,
                     struct err *e)
{
    cleanup_json json_t *answer = NULL;
    cleanup_json json_t *seen = json_object();
    json_t *target;
    size_t i;
    int r = credential_client_targets(credentials, /* known */ 0, /* watch */ NULL, &answer, e);

    *ret_removed = 0;
    json_array_foreach(json_object_get(answer, "targets"), i, target)
    {
        const char *sandbox = json_get_string(target, "sandbox", "");
        cleanup_json json_t *owner = json_pack(
            "{s:s, s:s, s:s}", "organisation", json_get_string(target, "organisation", ""),
            "project", json_get_string(target, "project", ""), "key", "");

        if (r < 0 || !id_valid(ID_SANDBOX, sandbox) || json_object_get(seen, sandbox)) {
            continue;
        }
        json_object_set_new(seen, sandbox, json_true());
        r = has_gone(db, sandbox, e);
        if (r == 1) {
            r = remove_of(credentials, owner, sandbox, ret_removed, e);
        }
    }
    return r;
}

static bool wait_stopped(struct leftovers *l)
{
    uint64_t deadline_ns = deadline_in_ms(PERIOD_MS);
    bool stop;

    pthread_mutex_lock(&l->lock);
    while (!l->stop && !deadline_passed(deadline_ns)) {
        cond_wait_until(&l->stopped, &l->lock, deadline_ns);
    }
    stop = l->stop;
    pthread_mutex_unlock(&l->lock);
    return stop;
}

static void *leftovers_main(void *arg)
{
    struct leftovers *l = arg;
    bool failed = false;

    while (!wait_stopped(l)) {
        struct err e = {0};
        size_t n = 0;
        int r = leftovers_remove(l->db, l->credentials, &n, &e);

        if (n > 0) {
            log_info(NULL, "%zu credentials of sandboxes that have gone were removed", n);
        }
        if (r < 0 && !failed) { /* said once, not each minute */
            log_warn(NULL, "cannot look for credentials of sandboxes that have gone, retrying: %s",
                     e.msg);
        }
        failed = r < 0;
    }
    return NULL;
}

static void leftovers_free(struct leftovers *l)
{
    pthread_cond_destroy(&l->stopped);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

int leftovers_start(struct db *db, struct credential_client *credentials, struct leftovers **ret,
                    struct err *e)
{
    struct leftovers *l = xnew(struct leftovers);
    int r;

    l->db = db;
    l->credentials = credentials;
    pthread_mutex_init(&l->lock, NULL);
    cond_init(&l->stopped);
    r = -pthread_create(&l->thread, NULL, leftovers_main, l);
    if (r < 0) {
        leftovers_free(l);
        return err_wrap(e, r, "starting to look for leftovers");
    }
    *ret = l;
    return 0;
}

void leftovers_stop(struct leftovers *l)
{
    if (!l) {
        return;
    }
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->stopped);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    leftovers_free(l);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "network/notify.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"
#include "credential/client.h"

/* A webhook that does not answer keeps one of them for POST_MS. */
#define THREADS 4u
/* Between tries: 1, 4, 16, 64 s. */
#define FIRST_PAUSE_MS 1000u
#define PAUSE_GROWS 4u

struct notice {
    struct notice *next; /* owned: the next one due */
    struct intercept_owner owner;
    char *text; /* owned */
    uint64_t due_ns;
    uint64_t end_ns;
    unsigned tries;
};

struct notifier {
    struct credential_client *client; /* owned */
    pthread_mutex_t lock;             /* guards all below */
    pthread_cond_t wake;
    struct notice *list; /* owned */
    size_t n;
    bool stop;
    pthread_t threads[THREADS];
};

static void notice_free(struct notice *notice)
{
    if (notice->text) {
        explicit_bzero(notice->text, strlen(notice->text)); /* with it one can answer */
    }
    free(notice->text);
    free(notice);
}

/* With the lock held. */
static void insert(struct notifier *n, struct notice *notice)
{
    struct notice **at = &n->list;

    while (*at && (*at)->due_ns <= notice->due_ns) {
        at = &(*at)->next;
    }
    notice->next = *at;
    *at = notice;
    n->n++;
    pthread_cond_signal(&n->wake);
}

/* With the lock held; waits for one that is due. NULL: it is time to end. */
static struct notice *take(struct notifier *n)
{
    while (!n->stop) {
        struct notice *first = n->list;

        if (!first) {
            pthread_cond_wait(&n->wake, &n->lock);
            continue;
        }
        if (first->due_ns <= clock_now_ns()) {
            n->list = first->next;
            n->n--;
            return first;
        }
        cond_wait_until(&n->wake, &n->lock, first->due_ns);
    }
    return NULL;
}

/* True: it was told, or there is nobody to tell. */
static bool try_once(struct notifier *n, const struct notice *notice)
{
    const struct log_ctx log = {.sandbox = notice->owner.sandbox};
    cleanup_json json_t *answer = NULL;
    cleanup_json json_t *body =
        json_pack("{s:s, s:s, s:s, s:s}", "organisation", notice->owner.organisation, "project",
                  notice->owner.project, "sandbox", notice->owner.sandbox, "text", notice->text);
    struct err e = {0};
    int r = credential_client_call(n->client, "POST", "/v1/notify", body, &answer, &e);

    if (r < 0 && !str_eq(e.reason, "no_webhook")) {
        log_info(&log, "a question could not be told, %s: %s",
                 notice->tries + 1 < NOTIFY_TRIES ? "retrying" : "giving up", e.msg);
        return false;
    }
    return true;
}

static void *work(void *arg)
{
    struct notifier *n = arg;
    struct notice *notice;

    pthread_mutex_lock(&n->lock);
    while ((notice = take(n))) {
        uint64_t pause_ms = FIRST_PAUSE_MS;
        bool done;

        pthread_mutex_unlock(&n->lock);
        done = try_once(n, notice);
        for (unsigned i = 0; i < notice->tries; i++) {
            pause_ms *= PAUSE_GROWS;
        }
        notice->due_ns = deadline_in_ms(pause_ms);
        notice->tries++;
        pthread_mutex_lock(&n->lock);
        if (done || notice->tries == NOTIFY_TRIES || notice->due_ns >= notice->end_ns) {
            notice_free(notice);
        } else {
            insert(n, notice);
        }
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

int notifier_new(const char *credential_url, struct notifier **ret, struct err *e)
{
    struct credential_client *client = NULL;
    struct notifier *n;
    int r = credential_client_new(credential_url, &client, e);

    if (r < 0) {
        return r;
    }
    n = xnew(struct notifier);
    n->client = client;
    pthread_mutex_init(&n->lock, NULL);
    cond_init(&n->wake);
    for (unsigned i = 0; i < THREADS; i++) {
        ASSERT(pthread_create(&n->threads[i], NULL, work, n) == 0);
    }
    *ret = n;
    return 0;
}

void notifier_free(struct notifier *n)
{
    if (!n) {
        return;
    }
    pthread_mutex_lock(&n->lock);
    n->stop = true;
    pthread_cond_broadcast(&n->wake);
    pthread_mutex_unlock(&n->lock);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(n->threads[i], NULL);
    }
    while (n->list) {
        struct notice *notice = n->list;

        n->list = notice->next;
        notice_free(notice);
    }
    pthread_cond_destroy(&n->wake);
    pthread_mutex_destroy(&n->lock);
    credential_client_free(n->client);
    free(n);
}

void notifier_add_take(struct notifier *n, const struct intercept_owner *owner, char *text,
                       uint64_t end_ns)
{
    struct notice *notice = xnew(struct notice);
    bool full;

    *notice =
        (struct notice){.owner = *owner, .text = text, .due_ns = clock_now_ns(), .end_ns = end_ns};
    pthread_mutex_lock(&n->lock);
    full = n->n >= NOTIFY_MAX;
    if (!full) {
        insert(n, notice);
    }
    pthread_mutex_unlock(&n->lock);
    if (full) {
        notice_free(notice);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/trust.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "credential/client.h"

struct trusted {
    char organisation[ID_SIZE];
    char *pem; /* owned */
    char *ssh; /* owned */
};

struct trust {
    struct credential_client *client; /* owned; NULL: its address does not fit */
    pthread_mutex_t lock;             /* guards all below */
    struct trusted **list;            /* owned, and what they point to, which never changes */
    size_t n;
    uint64_t again_ns;   /* not to be asked before */
    char usual[ID_SIZE]; /* asked for last */
};

struct trust *trust_new(const char *run_dir)
{
    cleanup_free char *url = xasprintf("unix:%s/" CREDENTIAL_SOCKET, run_dir);
    struct trust *t = xnew(struct trust);

    pthread_mutex_init(&t->lock, NULL);
    if (credential_client_new(url, &t->client, /* e */ NULL) < 0) {
        t->client = NULL;
    }
    return t;
}

void trust_free(struct trust *t)
{
    if (t) {
        for (size_t i = 0; i < t->n; i++) {
            free(t->list[i]->pem);
            free(t->list[i]->ssh);
            free(t->list[i]);
        }
        free(t->list);
        credential_client_free(t->client);
        pthread_mutex_destroy(&t->lock);
        free(t);
    }
}

/* With the lock held. */
static struct trust_what find(const struct trust *t, const char *organisation)
{
    for (size_t i = 0; i < t->n; i++) {
        if (str_eq(t->list[i]->organisation, organisation)) {
            return (struct trust_what){t->list[i]->pem, t->list[i]->ssh};
        }
    }
    return (struct trust_what){NULL, NULL};
}

static struct trust_what keep_take(struct trust *t, const char *organisation, char *pem, char *ssh)
{
    struct trusted *new = xnew(struct trusted);

    snprintf(new->organisation, sizeof(new->organisation), "%s", organisation);
    new->pem = pem;
    new->ssh = ssh;
    t->list = xrealloc(t->list, (t->n + 1) * sizeof(struct trusted *));
    t->list[t->n++] = new;
    return (struct trust_what){pem, ssh};
}

void trust_usual(struct trust *t, char ret[static ID_SIZE])
{
    pthread_mutex_lock(&t->lock);
    memcpy(ret, t->usual, ID_SIZE);
    pthread_mutex_unlock(&t->lock);
}

struct trust_what trust_get(struct trust *t, const char *organisation)
{
    struct trust_what found = {NULL, NULL};
    struct err e = {0};
    char *pem = NULL;
    char *ssh = NULL;
    bool ask;
    int r = -EAGAIN;

    if (!t->client || !id_valid(ID_ORGANISATION, organisation)) {
        return found;
    }
    pthread_mutex_lock(&t->lock);
    snprintf(t->usual, sizeof(t->usual), "%s", organisation);
    found = find(t, organisation);
    ask = !found.authority && deadline_passed(t->again_ns);
    pthread_mutex_unlock(&t->lock);
    if (!ask) {
        return found;
    }
    r = credential_client_authority(t->client, organisation, TRUST_ASK_MS, &pem, &ssh, &e);
    pthread_mutex_lock(&t->lock);
    found = find(t, organisation);
    if (r == 0 && !found.authority) {
        found = keep_take(t, organisation, TAKE_PTR(pem), TAKE_PTR(ssh));
    } else if (r < 0) {
        t->again_ns = deadline_in_ms(TRUST_RETRY_MS);
    }
    pthread_mutex_unlock(&t->lock);
    free(pem);
    free(ssh);
    if (r < 0) {
        log_debug(NULL, "there is no authority for '%s': %s", organisation, e.msg);
    }
    return found;
}

int trust_metrics(struct trust *t, uint64_t ms, json_t **ret, struct err *e)
{
    return t->client ? credential_client_metrics(t->client, ms, ret, e)
                     : err_set(e, -EHOSTDOWN, NULL, "its address does not fit");
}

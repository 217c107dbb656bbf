/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/rate.h"

#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"

#define BUCKETS 1024

/* Counted in time: full_ns is when it will be full again; each token is a step of 1/per_s. */
struct bucket {
    char key_id[ID_SIZE];
    uint64_t full_ns;
    struct bucket *next; /* owned */
};

struct rates {
    struct rate_limit limit;
    uint64_t step_ns;
    pthread_mutex_t mutex; /* guards what follows */
    unsigned share;
    struct bucket *lists[BUCKETS];
    unsigned n;
};

struct rates *rates_new(struct rate_limit limit)
{
    struct rates *rates = xnew(struct rates);

    ASSERT(limit.per_s <= RATE_MAX && limit.burst <= RATE_MAX);
    ASSERT(limit.per_s == 0 || limit.burst > 0);
    rates->limit = limit;
    rates->share = 1;
    rates->step_ns = limit.per_s ? NS_PER_S / limit.per_s : 0;
    pthread_mutex_init(&rates->mutex, NULL);
    return rates;
}

void rates_free(struct rates *rates)
{
    if (!rates) {
        return;
    }
    for (size_t i = 0; i < BUCKETS; i++) {
        struct bucket *next;

        for (struct bucket *b = rates->lists[i]; b; b = next) {
            next = b->next;
            free(b);
        }
    }
    pthread_mutex_destroy(&rates->mutex);
    free(rates);
}

/* The key's bucket; those on the way that are full again go. */
static struct bucket *find(struct rates *rates, const char *key_id, uint64_t now_ns)
{
    struct bucket **link = &rates->lists[str_hash(key_id) % BUCKETS];
    struct bucket *b;

    while ((b = *link)) {
        if (str_eq(b->key_id, key_id)) {
            return b;
        }
        if (b->full_ns <= now_ns) {
            *link = b->next;
            free(b);
            rates->n--;
        } else {
            link = &b->next;
        }
    }
    b = xnew(struct bucket);
    snprintf(b->key_id, sizeof(b->key_id), "%s", key_id);
    b->full_ns = now_ns;
    *link = b;
    rates->n++;
    return b;
}

void rates_share(struct rates *rates, unsigned n)
{
    ASSERT(n > 0);
    pthread_mutex_lock(&rates->mutex);
    rates->share = n;
    pthread_mutex_unlock(&rates->mutex);
}

uint64_t rates_take(struct rates *rates, const char *key_id, uint64_t now_ns)
{
    uint64_t wait_ns = 0;
    uint64_t room_ns;
    uint64_t step_ns;
    struct bucket *b;

    if (rates->limit.per_s == 0) {
        return 0;
    }
    pthread_mutex_lock(&rates->mutex);
    step_ns = rates->step_ns * rates->share;
    room_ns = step_ns * MAX(rates->limit.burst / rates->share, 1u);
    b = find(rates, key_id, now_ns);
    b->full_ns = MAX(b->full_ns, now_ns) + step_ns;
    if (b->full_ns - now_ns > room_ns) { /* it was empty: nothing is taken */
        b->full_ns -= step_ns;
        wait_ns = b->full_ns + step_ns - now_ns - room_ns;
    }
    pthread_mutex_unlock(&rates->mutex);
    return wait_ns;
}

unsigned rates_count(struct rates *rates)
{
    unsigned n;

    pthread_mutex_lock(&rates->mutex);
    n = rates->n;
    pthread_mutex_unlock(&rates->mutex);
    return n;
}

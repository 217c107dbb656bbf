/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/turns.h"

#include "base/cond.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given;
static struct turn *taken; /* as many as there are clients that change something: few */

static void init(void)
{
    cond_init(&given);
}

static bool is_taken(const char *sandbox)
{
    const struct turn *t = taken;

    while (t && !str_eq(t->sandbox, sandbox)) {
        t = t->next;
    }
    return t;
}

int turn_take(struct turn *t, const char *sandbox, uint64_t deadline_ns, struct err *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int r = 0;

    ASSERT(t && sandbox);
    pthread_once(&once, init);
    pthread_mutex_lock(&lock);
    while (r == 0 && is_taken(sandbox)) {
        r = cond_wait_until(&given, &lock, deadline_ns);
    }
    if (r == 0) {
        *t = (struct turn){.next = taken, .sandbox = sandbox};
        taken = t;
    }
    pthread_mutex_unlock(&lock);
    return r == 0 ? 0
                  : err_set(e, -EBUSY, "busy",
                            "what is stored of the sandbox is being changed by somebody else");
}

void turn_give(struct turn *t)
{
    struct turn **at = &taken;

    pthread_mutex_lock(&lock);
    while (*at != t) {
        ASSERT(*at);
        at = &(*at)->next;
    }
    *at = t->next;
    pthread_cond_broadcast(&given);
    pthread_mutex_unlock(&lock);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Requests on connections that are looked into, from the interceptor's threads into the island's log. */
#include "network/conn-private.h"

#include <stdio.h>
#include <string.h>

struct note_job {
    struct handed_over *h; /* borrowed: given back later than this is done, by the same queue */
    struct egress_entry entry;
};

static void on_note(void *arg)
{
    struct note_job *job = arg;
    struct island *island = job->h->island;

    if (island) {
        egress_add_take(&island->log, &job->entry);
    } else {
        egress_entry_done(&job->entry);
    }
    free(job);
}

void conn_note_request(void *arg, const struct intercept_note *note)
{
    struct handed_over *h = arg;
    struct note_job *job = xnew(struct note_job);

    job->h = h;
    job->entry = (struct egress_entry){
        .kind = EGRESS_REQUEST,
        .action = note->refused ? NETPOLICY_DENY : NETPOLICY_ALLOW,
        .rule = note->verdict.rule,
        .level = note->verdict.level,
        .observed = note->observed,
        .name = h->name ? xstrdup(h->name) : NULL,
        .addr = h->addr,
        .port = h->port,
        .status = note->status,
        .credential = note->credential ? xstrdup(note->credential) : NULL,
        .method = xstrndup(note->method, strnlen(note->method, EGRESS_METHOD_MAX)),
        .path = xstrndup(note->path, strnlen(note->path, EGRESS_PATH_MAX)),
    };
    snprintf(job->entry.why, sizeof(job->entry.why), "%s", note->refused ? note->refused : "");
    worker_post(h->worker, on_note, job);
}

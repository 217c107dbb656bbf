/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Signed addresses of files, opened by whoever was given them. Where all of SPACE is one origin they name no sandbox: it
 * is the one whose token the signature was made with. Each of those that run is tried. That costs anybody nothing to ask
 * and us a little for each sandbox, so it is done for one at a time.
 */
#include <stdio.h>
#include <string.h>

#include "gateway/e2b/inside.h"

struct search {
    struct http_request *req; /* borrowed */
    struct address found;
    struct err why; /* of the nearest miss: a signature that is right and too late */
};

static int try_one(void *ctx, const struct sandbox *sb)
{
    struct search *s = ctx;
    struct err why = {0};
    char token[TOKEN_SIZE];
    int r;

    tokens_make(gateway_of(s->req)->tokens, TOKEN_ENVD, sb->id, token);
    r = e2b_signature_check(s->req, token, &why);
    if (r < 0 && str_eq(why.reason, "signature_expired")) {
        s->why = why;
        return 1;
    }
    if (r == 0) {
        snprintf(s->found.id, sizeof(s->found.id), "%s", sb->id);
        return 1;
    }
    return 0;
}

int e2b_signed_files_handler(struct http_request *req, struct err *e)
{
    struct gateway *g = gateway_of(req);
    const struct sandbox_query q = {.states =
                                        1u << SANDBOX_STATE_RUNNING | 1u << SANDBOX_STATE_PAUSED};
    struct search s = {.req = req, .found = {.port = ADDRESS_ENVD_PORT}};
    int r;

    if (!http_query_get(req, "signature")) {
        return err_set(e, -EKEYREJECTED, "unauthorized", "missing signature query parameter");
    }
    pthread_mutex_lock(&g->e2b->search);
    r = db_sandbox_list(g->db, &q, try_one, &s, e);
    pthread_mutex_unlock(&g->e2b->search);
    if (r < 0) {
        return r;
    }
    if (s.found.id[0]) {
        return e2b_inside(req, &s.found, e);
    }
    if (s.why.code < 0) {
        *e = s.why;
        return s.why.code;
    }
    return err_set(e, -EKEYREJECTED, "unauthorized", "invalid signature");
}

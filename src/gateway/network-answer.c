/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An answer by who was told of a question by webhook: "SANDBOX.ASK.SECRET" instead of a key, good for that question, once, as long as
 * it waits. Whatever does not fit is answered alike: nothing is said of which sandboxes there are.
 */
#include "gateway/gateway.h"

#include <stdio.h>
#include <string.h>

#define TOKEN_MAX 160u

static int nothing_waits(struct err *e)
{
    return err_set(e, -ENOENT, "no_such_ask", "nothing waits for an answer with that token");
}

/* Cuts text in three. */
static int split(char *text, char **ret_ask, char **ret_secret)
{
    char *first = strchr(text, '.');
    char *second = first ? strchr(first + 1, '.') : NULL;
    uint64_t number = 0;

    if (!second) {
        return -EINVAL;
    }
    *first = *second = '\0';
    *ret_ask = first + 1;
    *ret_secret = second + 1;
    return id_valid(ID_SANDBOX, text) && str_to_u64(*ret_ask, INT64_MAX, &number) == 0 ? 0
                                                                                       : -EINVAL;
}

/* Of the sandbox itself: nobody has a key here. */
static int actor_for(struct gateway *g, const char *sandbox, struct control_actor *ret,
                     struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    struct project p = {0};
    int r = db_sandbox_get(g->db, sandbox, /* project */ NULL, &sb, e);

    r = r < 0 ? r : db_project_get(g->db, sb.project, &p, e);
    if (r < 0) {
        return r;
    }
    *ret = (struct control_actor){0};
    snprintf(ret->organisation, sizeof(ret->organisation), "%s", p.organisation);
    snprintf(ret->project, sizeof(ret->project), "%s", p.id);
    return 0;
}

int network_token_answer_handler(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {{"token", JSON_FIELD_STRING, JSON_REQUIRED},
                                               {"allow", JSON_FIELD_BOOL, JSON_REQUIRED},
                                               {"remember_s", JSON_FIELD_INT, 0}};
    struct gateway *g = gateway_of(req);
    struct pollfd watch = http_client_pollfd(req);
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *answer = NULL;
    cleanup_free char *rest = NULL;
    struct control_actor actor;
    char text[TOKEN_MAX];
    char *number;
    char *secret;
    int r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);

    r = r < 0 ? r : json_check_object(body, fields, ARRAY_SIZE(fields), e);
    if (r < 0) {
        return r;
    }
    if (str_copy(text, sizeof(text), json_get_string(body, "token", "")) < 0 ||
        split(text, &number, &secret) < 0) {
        return nothing_waits(e);
    }
    r = actor_for(g, text, &actor, e);
    if (r == 0) {
        rest = xasprintf("/network/asks/%s", number);
        json_object_set_new(body, "token", json_string(secret));
        r = control_ask(g->control, &actor, text,
                        &(struct control_ask){.method = "POST",
                                              .rest = rest,
                                              .body = body,
                                              .action = "network.answer",
                                              .watch = &watch},
                        &answer, e);
    }
    if (r == -ENOENT) {
        return nothing_waits(e);
    }
    return r < 0 ? r : http_reply_empty(req, 204, e);
}

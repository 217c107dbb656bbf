/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One request for a sandbox's inside, and the calls to our daemon that it is made of. Every call is broken off when the
 * client goes away or the sandbox is paused or killed (live.h).
 *
 * Errors. Handlers return them; envd.c turns them into what the client of that protocol expects. Whatever failed in a sandbox that
 * does not run any more is 502, for that is how clients find out.
 */
#pragma once

#include "gateway/e2b/private.h"
#include "gateway/guest.h"
#include "http/client.h"

#define INSIDE_USER_SIZE 65
/* An answer of the daemon that is one JSON document: a page of a list, at most. */
#define INSIDE_ANSWER_MAX (8u << 20)

enum inside_kind {
    INSIDE_REST,   /* errors are {"code":STATUS,"message"} */
    INSIDE_UNARY,  /* {"code":WORD,"message"} with the status of the word */
    INSIDE_STREAM, /* 200, and the error in the last envelope */
};

struct inside {
    struct http_request *req;
    struct sandbox sb; /* owned */
    struct e2b_box box;
    struct live *live;           /* owned */
    char user[INSIDE_USER_SIZE]; /* who acts; "": the sandbox's default user */
    enum inside_kind kind;
};

/* The daemon's path with a query; names and values in turn, ended by NULL; a value of NULL is left out. */
char *inside_target(const struct inside *in, const char *path, ...) __attribute__((sentinel));
MUST_CHECK int inside_call(struct inside *in, const struct guest_call_opts *opts,
                           struct http_call **ret, struct err *e);
/* A whole exchange: 4xx and 5xx are errors. body may be NULL; ret (may be NULL) is NULL for an answer without a body. */
struct inside_ask {
    const char *method;
    const char *target;
    const json_t *body;
    int *ret_status; /* may be NULL */
};
MUST_CHECK int inside_json(struct inside *in, const struct inside_ask *ask, json_t **ret,
                           struct err *e);

/* Names of users are printable ASCII. -EKEYREJECTED. */
MUST_CHECK int inside_check_user(const char *name, struct err *e);
/*
 * What a client's path is for the daemon, where relative ones begin at the user's home, or at the folder that the sandbox's
 * template says: "~" and "" are the home, other
 * users' homes (~x) and what is longer than a path can be are -EINVAL. The caller frees *ret.
 */
MUST_CHECK int inside_path(const struct inside *in, const char *text, char **ret, struct err *e);
/* The same as an absolute path, for sentences; asks the daemon where the home is. The caller frees. */
char *inside_absolute(struct inside *in, const char *path);

/* --- handlers, by file --- */

int e2b_files_get(struct inside *in, struct err *e);
int e2b_files_post(struct inside *in, struct err *e);
/* The request's signature, made with the sandbox's token; -EKEYREJECTED, "signature_expired" when only its time is over. */
MUST_CHECK int e2b_signature_check(struct http_request *req, const char *token, struct err *e);

/* body is the request's message. */
int e2b_process_start(struct inside *in, json_t *body, struct err *e);
int e2b_process_connect(struct inside *in, json_t *body, struct err *e);
int e2b_process_list(struct inside *in, json_t *body, struct err *e);
int e2b_process_send_input(struct inside *in, json_t *body, struct err *e);
int e2b_process_send_signal(struct inside *in, json_t *body, struct err *e);
int e2b_process_close_stdin(struct inside *in, json_t *body, struct err *e);
int e2b_process_update(struct inside *in, json_t *body, struct err *e);
/* Reads its messages from the request by itself: body is NULL. */
int e2b_process_stream_input(struct inside *in, json_t *body, struct err *e);

int e2b_fs_stat(struct inside *in, json_t *body, struct err *e);
int e2b_fs_list(struct inside *in, json_t *body, struct err *e);
int e2b_fs_make_dir(struct inside *in, json_t *body, struct err *e);
int e2b_fs_move(struct inside *in, json_t *body, struct err *e);
int e2b_fs_remove(struct inside *in, json_t *body, struct err *e);
int e2b_fs_watch(struct inside *in, json_t *body, struct err *e);
int e2b_fs_create_watcher(struct inside *in, json_t *body, struct err *e);
int e2b_fs_watcher_events(struct inside *in, json_t *body, struct err *e);
int e2b_fs_remove_watcher(struct inside *in, json_t *body, struct err *e);

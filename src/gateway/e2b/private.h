/* SPDX-License-Identifier: Apache-2.0 */

/* What the files of this folder share. */
#pragma once

#include <pthread.h>

#include "gateway/e2b/box.h"
#include "gateway/e2b/e2b.h"
#include "gateway/e2b/live.h"
#include "gateway/e2b/watchers.h"
#include "gateway/template/find.h"
#include "gateway/tokens.h"

struct e2b {
    struct live_set *live;     /* owned */
    struct watchers *watchers; /* owned */
    pthread_mutex_t search;    /* held while a signature's sandbox is looked for: one at a time */
};

/* --- answers --- */

/* As a JSON string; what is not UTF-8 in it becomes '?'. Sentences may hold a cut-off piece of anything. */
json_t *e2b_text(const char *text);
/* {"code":status,"message":...}. */
MUST_CHECK int e2b_reply_error(struct http_request *req, int status, const char *message,
                               struct err *e);
/* An array or object, which is taken over. */
MUST_CHECK int e2b_reply_json_take(struct http_request *req, int status, json_t *json,
                                   struct err *e);

/* --- bodies: null is absent, what is not known is ignored, a wrong type is -EINVAL naming the field --- */

MUST_CHECK int e2b_string(json_t *body, const char *name, const char **ret, struct err *e);
MUST_CHECK int e2b_bool(json_t *body, const char *name, bool fallback, bool *ret, struct err *e);
MUST_CHECK int e2b_int(json_t *body, const char *name, struct json_bounds bounds, int64_t *ret,
                       struct err *e);
/* Borrowed; NULL: absent. */
MUST_CHECK int e2b_object(json_t *body, const char *name, json_t **ret, struct err *e);
MUST_CHECK int e2b_array(json_t *body, const char *name, json_t **ret, struct err *e);

/* --- sandboxes of the caller --- */

/* The sandbox of the path. -ENOENT, with the same bytes, when it is not there, not the caller's, or not shown. */
MUST_CHECK int e2b_find(struct http_request *req, struct sandbox *ret, struct e2b_box *ret_box,
                        struct err *e);
/* Answers with the object of create and connect. */
MUST_CHECK int e2b_reply_sandbox(struct http_request *req, int status, const struct sandbox *sb,
                                 struct err *e);
json_t *e2b_show(const struct gateway *g, const struct sandbox *sb);

struct e2b_network {
    char *policy;  /* owned: its text; NULL: nothing was said of what may be reached */
    json_t *rules; /* owned: credentials to be made, see rules.c; NULL or empty: none */
};
void e2b_network_done(struct e2b_network *n);
/* network.c: what a request wants of the network, in body and body.network; -EINVAL for what is not honoured. */
MUST_CHECK int e2b_network_from_json(json_t *body, struct e2b_box *box, struct e2b_network *ret,
                                     struct err *e);

/* rules.c. An array, which is empty when there are none; -EINVAL naming the host. Pure. */
MUST_CHECK int e2b_rules_read(json_t *network, json_t **ret, struct err *e);
/* In place of those that the sandbox had. On failure it has those still. */
MUST_CHECK int e2b_rules_set(struct http_request *req, const char *sandbox, json_t *rules,
                             struct err *e);
/* Of a sandbox that has gone. */
void e2b_rules_drop(struct http_request *req, const char *sandbox);

/* "waiting", "building", "ready", "error" */
const char *e2b_build_status_name(enum build_status status);

/* --- handlers, by file --- */

int e2b_create_handler(struct http_request *req, struct err *e);
int e2b_create_v1_handler(struct http_request *req, struct err *e);
int e2b_get_handler(struct http_request *req, struct err *e);
int e2b_kill_handler(struct http_request *req, struct err *e);
int e2b_list_handler(struct http_request *req, struct err *e);
int e2b_list_v1_handler(struct http_request *req, struct err *e);

int e2b_timeout_handler(struct http_request *req, struct err *e);
int e2b_refresh_handler(struct http_request *req, struct err *e);
int e2b_connect_handler(struct http_request *req, struct err *e);
int e2b_connect_v1_handler(struct http_request *req, struct err *e);
int e2b_resume_handler(struct http_request *req, struct err *e);
int e2b_pause_handler(struct http_request *req, struct err *e);

/* A signed address of a file, which names no sandbox. */
int e2b_signed_files_handler(struct http_request *req, struct err *e);

int e2b_snapshot_handler(struct http_request *req, struct err *e);
int e2b_snapshots_handler(struct http_request *req, struct err *e);
int e2b_fork_handler(struct http_request *req, struct err *e);

int e2b_metrics_handler(struct http_request *req, struct err *e);
int e2b_metrics_many_handler(struct http_request *req, struct err *e);
int e2b_logs_handler(struct http_request *req, struct err *e);
int e2b_logs_v2_handler(struct http_request *req, struct err *e);
int e2b_network_handler(struct http_request *req, struct err *e);

int e2b_secret_create_handler(struct http_request *req, struct err *e);
int e2b_secret_update_handler(struct http_request *req, struct err *e);
int e2b_secret_get_handler(struct http_request *req, struct err *e);
int e2b_secret_delete_handler(struct http_request *req, struct err *e);
int e2b_secrets_handler(struct http_request *req, struct err *e);

int e2b_volumes_handler(struct http_request *req, struct err *e);
int e2b_volume_create_handler(struct http_request *req, struct err *e);
int e2b_volume_handler(struct http_request *req, struct err *e);

int e2b_templates_handler(struct http_request *req, struct err *e);
int e2b_template_alias_handler(struct http_request *req, struct err *e);
int e2b_template_get_handler(struct http_request *req, struct err *e);
int e2b_template_patch_handler(struct http_request *req, struct err *e);
int e2b_template_delete_handler(struct http_request *req, struct err *e);
int e2b_template_tags_handler(struct http_request *req, struct err *e);
int e2b_tags_add_handler(struct http_request *req, struct err *e);
int e2b_tags_remove_handler(struct http_request *req, struct err *e);

int e2b_build_begin_handler(struct http_request *req, struct err *e);
int e2b_build_start_handler(struct http_request *req, struct err *e);
int e2b_build_status_handler(struct http_request *req, struct err *e);
int e2b_build_logs_handler(struct http_request *req, struct err *e);
int e2b_build_files_handler(struct http_request *req, struct err *e);
int e2b_build_upload_handler(struct http_request *req, struct err *e);

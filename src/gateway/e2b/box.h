/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A sandbox as E2B's clients see it: what this surface remembers of it, and the JSON that shows it. Pure.
 *
 * Two states only: "running" and "paused". Paused is what keeps its disk and has no machine that answers, whether its
 * memory is kept or not (stopped), or its machine has failed: connecting brings it back. What is being made is not
 * shown before it runs, what is being deleted is gone.
 */
#pragma once

#include "base/json.h"
#include "model/sandbox.h"

/* What the clients' checks of versions make of us; see the thresholds in docs/e2b.md. */
#define E2B_ENVD_VERSION "0.6.13"
/* Deprecated in the API, and required. */
#define E2B_CLIENT_ID "space"
/* Templates have no tags here: each name has the one that E2B gives when none is said. */
#define E2B_TAG "default"

enum e2b_internet {
    E2B_INTERNET_UNSAID,
    E2B_INTERNET_DENIED,
    E2B_INTERNET_ALLOWED,
};

struct e2b_box {
    char alias[TEMPLATE_NAME_SIZE]; /* the name that was asked for; "": made by another surface */
    char template_id[ID_SIZE];      /* of the built template that it is made from; "": of none */
    char user[65];                  /* who acts when nobody is said; "": the disk's default user */
    char workdir[1024];             /* where commands start; "": the user's home */
    bool secure;                    /* the inside wants the token */
    bool auto_resume;               /* traffic wakes it when it is paused */
    bool
        private_traffic; /* its ports want the traffic token; these two are read by preview.c, too */
    char mask_host[128]; /* what servers in it are told as Host; "": the truth */
    bool killed;         /* only its snapshots are still wanted: it is not shown any more */
    enum e2b_internet internet;
    bool rules; /* it was given rules of its network: there may be credentials of it */
};

/* Of any sandbox; one that another surface made is secure. */
void e2b_box_read(const struct sandbox *sb, struct e2b_box *ret);
/* For sandbox.surface; the caller frees. */
char *e2b_box_text(const struct e2b_box *box);

/* What clients take for its template's id; borrowed from either. */
const char *e2b_box_template(const struct sandbox *sb, const struct e2b_box *box);
/* "running", "paused"; NULL: it is not shown. */
const char *e2b_box_state(const struct sandbox *sb);

#define E2B_TIME_SIZE 32
/* RFC 3339 in UTC with milliseconds; what is before 1970 or after 9999 counts as the nearest of these. */
void e2b_time(int64_t ms, char ret[static E2B_TIME_SIZE]);
/* The inverse, also with an offset. -EINVAL. */
MUST_CHECK int e2b_time_parse(const char *text, int64_t *ret_ms);

struct e2b_tokens {
    const char *envd;    /* NULL: none is needed */
    const char *traffic; /* NULL: none is needed */
    const char *domain;  /* NULL: the client's own */
};
/* The answer to create, connect, resume and fork; the caller ends it with json_decref(). */
json_t *e2b_box_sandbox(const struct sandbox *sb, const struct e2b_tokens *tokens);
/* network.c: what a policy allows and denies, as clients said it, onto their object. */
void e2b_network_show(const char *policy, json_t *network);
/* An entry of the lists. */
json_t *e2b_box_listed(const struct sandbox *sb);
/* All of it. */
json_t *e2b_box_detail(const struct sandbox *sb, const struct e2b_tokens *tokens);

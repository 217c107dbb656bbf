/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent protocol of SSH (draft-miller-ssh-agent) as far as a client uses it that has one key, and what such a client
 * has signed: a request for authentication (RFC 4252 7). Pure; views point into what was parsed.
 */
#pragma once

#include "base/buf.h"

/* Of one message. Requests for authentication are far shorter. */
#define SSH_AGENT_MAX 8192u
#define SSH_AGENT_RSA_SHA2_256 2u
#define SSH_AGENT_RSA_SHA2_512 4u

struct ssh_view {
    const uint8_t *p; /* borrowed */
    size_t len;
};

enum ssh_agent_kind {
    SSH_AGENT_LIST, /* which keys are there? */
    SSH_AGENT_SIGN,
    SSH_AGENT_OTHER, /* to be answered with a failure */
};

struct ssh_agent_request {
    enum ssh_agent_kind kind;
    struct ssh_view key;  /* to sign with */
    struct ssh_view data; /* to sign */
    uint32_t flags;
};

/* The first message of these bytes and its length. -EAGAIN: more is needed. -EBADMSG. */
MUST_CHECK int ssh_agent_parse(const void *data, size_t len, struct ssh_agent_request *ret,
                               size_t *ret_used);

/* The answers. -E2BIG. */
MUST_CHECK int ssh_agent_print_failure(struct buf *ret);
MUST_CHECK int ssh_agent_print_list(struct ssh_view key, const char *comment, struct buf *ret);
MUST_CHECK int ssh_agent_print_signature(struct ssh_view signature, struct buf *ret);

/* What a client signs to log in with a key. */
struct ssh_login {
    struct ssh_view session; /* id of the connection that the signature is good for */
    struct ssh_view user;
    struct ssh_view service;
    struct ssh_view algorithm;
    struct ssh_view key;
};
/* -EBADMSG: anything else. */
MUST_CHECK int ssh_login_parse(struct ssh_view data, struct ssh_login *ret);

/* ---- pieces ---- */

bool ssh_view_is(struct ssh_view v, const char *text);
/* Takes a string, or a number, from the front. -EBADMSG: there is none. */
MUST_CHECK int ssh_take_string(struct ssh_view *from, struct ssh_view *ret);
MUST_CHECK int ssh_take_u32(struct ssh_view *from, uint32_t *ret);
MUST_CHECK int ssh_put_u32(struct buf *b, uint32_t n);
MUST_CHECK int ssh_put_string(struct buf *b, const void *data, size_t len);
/* A number that is not negative: without zeros before it, and one if its first bit were taken for a sign. */
MUST_CHECK int ssh_put_mpint(struct buf *b, const uint8_t *data, size_t len);

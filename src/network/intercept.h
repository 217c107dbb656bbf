/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The seam between the network gateway's loops, which judge connections and pass bytes on unread, and
 * what reads them: TLS interception, HTTP rules, the use of credentials.
 *
 *     loop thread                                     the interceptor's own threads
 *     accept, peek, judge ──intercept_accept()──────▶ owns the guest's socket from here on
 *     policy changed, sandbox gone ──intercept_drop()──▶ ends what it holds of that sandbox
 *     account, log line  ◀──────────target.done()──── once for each accepted connection
 *
 * A loop hands a connection over when the policy's decision is "inspect" or intercept_wants() says that a
 * credential is meant for its name and port. Nothing has been answered to the guest then; the bytes that
 * were read to find the name come along and have to be taken as the first of the stream.
 *
 * All functions may be called from any thread, never block for longer than a lock is held, and do no
 * input or output on the caller's time. The interceptor connects to the server itself.
 */
#pragma once

#include "base/err.h"
#include "model/netpolicy.h"

#include <netinet/in.h>

/* A ClientHello or a request head fits; the loops give up on a longer one before it gets here. */
#define INTERCEPT_PEEKED_MAX 16384u
#define INTERCEPT_ID_SIZE 24u

struct intercept;

/* Whose connection it is; ids. */
struct intercept_owner {
    char sandbox[INTERCEPT_ID_SIZE];
    char project[INTERCEPT_ID_SIZE];
    char organisation[INTERCEPT_ID_SIZE];
};

/* What one connection did, for the egress log. Pointers are borrowed for the call. */
struct intercept_result {
    uint64_t bytes_up;      /* guest to server, as the guest sent them */
    uint64_t bytes_down;    /* server to guest */
    uint32_t requests;      /* HTTP requests that were let through */
    int status;             /* of the last answer; 0: none */
    const char *credential; /* name of the one that was used last, NULL: none; never its value */
    const char *refused;    /* why it was ended by us, a stable word; NULL: it was not */
};

/* A request that the policy wants a person to decide about. Pointers are borrowed for the call. */
struct intercept_question {
    const char *name; /* NULL: an address */
    struct in_addr addr;
    uint16_t port;
    const char *method;
    const char *path; /* without its query */
    int stop_fd;      /* readable: do not wait any longer */
};
/* From the interceptor's threads; waits. NETPOLICY_ALLOW or NETPOLICY_DENY. */
typedef enum netpolicy_action (*intercept_ask_fn)(void *arg, const struct intercept_question *q);

/* One request, once its answer's head is known or it was refused, for the egress log. Pointers are borrowed for the call. */
struct intercept_note {
    const char *method;
    const char *path; /* without its query; as the guest sent it */
    struct netpolicy_verdict verdict;
    bool observed;
    int status;             /* of the answer; of ours, if it was refused */
    const char *credential; /* name of the one that was used; NULL: none */
    const char *refused;    /* why we have answered it, a stable word; NULL: the server has */
};
/* From the interceptor's threads; does not wait. */
typedef void (*intercept_note_fn)(void *arg, const struct intercept_note *note);

typedef void (*intercept_done_fn)(void *arg, const struct intercept_result *result);

/* Copied by intercept_accept(); what it points to is borrowed for the call. */
struct intercept_target {
    struct intercept_owner owner;
    /*
     * Lower case, no trailing dot: from the ClientHello or the Host header, judged and resolved. "" where
     * the guest named an address only.
     */
    char name[NETPOLICY_NAME_MAX + 1];
    uint16_t port;       /* host order; the one the guest connected to */
    struct in_addr addr; /* where to connect: resolved by us, allowed by the policy */
    bool is_ssh;         /* intercept_wants_ssh() has said so; nothing was peeked */
    bool is_tls;         /* peeked begins with a ClientHello; else a plain HTTP request */
    const void *peeked;  /* borrowed */
    size_t n_peeked;     /* at most INTERCEPT_PEEKED_MAX */
    const struct netpolicy *policy; /* borrowed; netpolicy_ref() to keep it: judges the requests */
    intercept_ask_fn ask;           /* with done_arg; NULL: nobody can be asked */
    intercept_note_fn note; /* with done_arg, for each request; NULL: nobody wants to know */
    intercept_done_fn done; /* called once, from any thread, unless accept has failed */
    void *done_arg;         /* borrowed until done has returned */
};

struct intercept_opts {
    const char *credential_url; /* "unix:/run/space/credential/manager.sock" */
    const char *ca_file; /* whom servers are verified against; NULL: the system's authorities */
    unsigned max_connections; /* 0: 4096 */
};

/*
 * Does not connect: without the credential manager nothing is wanted and TLS cannot be looked into, until it is there.
 */
MUST_CHECK int intercept_new(const struct intercept_opts *opts, struct intercept **ret,
                             struct err *e);
/* Ends all connections and waits for them. */
void intercept_free(struct intercept *in);
DEFINE_CLEANUP(struct intercept *, intercept_free);

/* Does a credential of this sandbox want to see what goes to that name and port? */
bool intercept_wants(struct intercept *in, const struct intercept_owner *owner, const char *name,
                     uint16_t port);

/* Does one log in there with SSH? name NULL: with this port, wherever. */
bool intercept_wants_ssh(struct intercept *in, const struct intercept_owner *owner,
                         const char *name, uint16_t port);

/*
 * Takes the connection over. On success client_fd belongs to the interceptor; on failure it stays the
 * caller's, who resets it, and done is not called. client_fd is a non-blocking TCP socket of the sandbox's
 * network namespace. -ENOTSUP "cannot_inspect": this gateway has no authority for the sandbox;
 * -EMFILE "too_many_connections".
 */
MUST_CHECK int intercept_accept(struct intercept *in, int client_fd,
                                const struct intercept_target *target, struct err *e);

/* Ends every connection of the sandbox whose policy is not keep (NULL: all of them). done is called for each. */
void intercept_drop(struct intercept *in, const char *sandbox, const struct netpolicy *keep);

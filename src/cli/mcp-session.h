/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sessions of "Streamable HTTP": who has said 'initialize', with which key, and which calls are at work.
 *
 * A session belongs to the key that began it: with another key it does not exist. Its id is 128 random bits. It ends by
 * DELETE, after MCP_SESSION_IDLE_MS without a request, or when its key begins more than MCP_SESSIONS_OF_KEY: then the
 * one that has been idle for longest goes. A client whose session has ended is told 404 and begins a new one.
 *
 * A call is a thread of its own. Whoever started it waits for `done_fd`, and then takes the result.
 *
 * All functions may be called from any thread; the lock is mcp_sessions'.
 */
#pragma once

#include <pthread.h>
#include <sys/queue.h>

#include "cli/mcp.h"

#define MCP_SESSION_ID_LEN 32
#define MCP_SESSION_ID_SIZE (MCP_SESSION_ID_LEN + 1)
#define MCP_SESSION_IDLE_MS (24u * 3600 * 1000)
#define MCP_SESSIONS_OF_KEY 64u
#define MCP_SESSIONS_MAX 1024u

struct mcp_sessions;
struct mcp_session;

struct mcp_running {
    struct mcp_session *session; /* counted */
    const struct mcp_tool *tool; /* static */
    json_t *id;                  /* owned */
    json_t *args;                /* owned */
    json_t *result;              /* owned: the thread's until done_fd can be read; NULL: given up */
    int stop_fd;                 /* owned; readable: given up */
    int done_fd;                 /* owned; readable: the thread ends */
    pthread_t thread;
    TAILQ_ENTRY(mcp_running) entry; /* of the session, under the lock */
};

/* base is borrowed: its address and certificates are used, never its key. */
struct mcp_sessions *mcp_sessions_new(const struct cli *base);
/* When no request is left. */
void mcp_sessions_free(struct mcp_sessions *all);
/* Gives up all calls, and those that begin later. */
void mcp_sessions_stop(struct mcp_sessions *all);

/* Asks the gateway whether the key is one. -EBUSY: too many sessions; what the gateway says goes up. */
MUST_CHECK int mcp_session_begin(struct mcp_sessions *all, const char *key,
                                 char ret_id[static MCP_SESSION_ID_SIZE], struct err *e);
/* Counted. NULL: there is none, or it is not that key's. */
struct mcp_session *mcp_session_find(struct mcp_sessions *all, const char *id, const char *key);
void mcp_session_unref(struct mcp_session *s);
DEFINE_CLEANUP(struct mcp_session *, mcp_session_unref);
/* Nobody finds it any more, and its calls are given up. */
void mcp_session_end(struct mcp_session *s);

/* -EBUSY: MCP_CALLS_MAX are at work. id and args (NULL: none) are copied. */
MUST_CHECK int mcp_call_begin(struct mcp_session *s, const struct mcp_asked *asked, json_t *id,
                              struct mcp_running **ret);
/* Calls of that id are given up; there may be none. */
void mcp_call_cancel(struct mcp_session *s, const json_t *id);
/* Waits for the end. The caller owns what comes back; NULL: it was given up. */
json_t *mcp_call_end_take(struct mcp_running *c);

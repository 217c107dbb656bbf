/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines to standard error: one line each, with level, program and context, for the journal or a
 * file. An error is logged once, where it stops; everything below returns it.
 *
 *     error = someone must act; warn = we went on, and says "ignoring" or "retrying";
 *     info = a state changed; debug = the rest (shown with SPACE_LOG=debug).
 *
 * Foreign text is cut and escaped by log itself: control characters never reach the terminal.
 * Thread-safe; one write per line.
 *
 * With SPACE_LOG=json (or "debug,json") each line is a JSON object:
 *
 *     {"time":"2026-01-02T03:04:05.678Z","level":"info","program":"space-gateway","message":"...",
 *      "request":"...","trace":"...","sandbox":"..."}
 *
 * the last three where there are any; bytes that are no UTF-8 become '?'.
 *
 * A request has one id in all services. Whoever begins or continues one says so for its thread, by log_request_set():
 * from then on the id is on all lines of the thread, and the services that it asks are told (http/client.h,
 * volume/client.h, ipc/netgate.h). A thread that is started for a request is told by its starter.
 */
#pragma once

#include "base/util.h"

enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARN,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG
};

#define LOG_REQUEST_SIZE 65u /* 64 characters and the NUL */
#define LOG_TRACE_SIZE 33u
#define LOG_SPAN_SIZE 17u

/* "" where there is none. trace and span: of a W3C trace context, lower-case hex. */
struct log_request {
    char id[LOG_REQUEST_SIZE];
    char trace[LOG_TRACE_SIZE];
    char span[LOG_SPAN_SIZE]; /* what whoever is asked by us takes for its parent */
};

/* For this thread, until the next call. NULL: none. */
void log_request_set(const struct log_request *request);
/* Of this thread; never NULL. */
const struct log_request *log_request(void);
/* An id that may be printed and passed on: 1 to 64 of letters, digits, '-', '_' and '.'. id may be NULL. */
bool log_request_id_fine(const char *id);
/* Takes an id that came from outside, when it is fine. */
void log_request_identify(struct log_request *r, const char *id);

/* What the lines of one request, sandbox or operation share; NULL where there is none. */
struct log_ctx {
    const char *request; /* borrowed: lives as long as the context */
    const char *sandbox; /* borrowed: lives as long as the context */
};

/*
 * Names the program and reads SPACE_LOG: words with commas between them, a level (error, warn, info, debug; default info)
 * and json. Other words are passed over. Call once in main.
 */
void log_init(const char *program);
void log_write(enum log_level level, const struct log_ctx *ctx, const char *fmt, ...) PRINTF(3, 4);

#define log_error(ctx, ...) log_write(LOG_LEVEL_ERROR, (ctx), __VA_ARGS__)
#define log_warn(ctx, ...) log_write(LOG_LEVEL_WARN, (ctx), __VA_ARGS__)
#define log_info(ctx, ...) log_write(LOG_LEVEL_INFO, (ctx), __VA_ARGS__)
#define log_debug(ctx, ...) log_write(LOG_LEVEL_DEBUG, (ctx), __VA_ARGS__)

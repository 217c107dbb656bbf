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
 */
#pragma once

#include "base/util.h"

enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARN,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG
};

/* What the lines of one request, sandbox or operation share; NULL where there is none. */
struct log_ctx {
    const char *request; /* borrowed: lives as long as the context */
    const char *sandbox; /* borrowed: lives as long as the context */
};

/* Names the program and reads SPACE_LOG (error, warn, info, debug; default info). Call once in main. */
void log_init(const char *program);
void log_write(enum log_level level, const struct log_ctx *ctx, const char *fmt, ...) PRINTF(3, 4);

#define log_error(ctx, ...) log_write(LOG_LEVEL_ERROR, (ctx), __VA_ARGS__)
#define log_warn(ctx, ...) log_write(LOG_LEVEL_WARN, (ctx), __VA_ARGS__)
#define log_info(ctx, ...) log_write(LOG_LEVEL_INFO, (ctx), __VA_ARGS__)
#define log_debug(ctx, ...) log_write(LOG_LEVEL_DEBUG, (ctx), __VA_ARGS__)

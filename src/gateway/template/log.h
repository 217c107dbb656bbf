/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a build says, entry by entry: {"timestamp": RFC 3339, "level": "info"|"warn"|"error"|"debug", "message", "step"?}. It is read
 * while it grows. What commands print comes in pieces and is cut into lines; a line that is not UTF-8 is made so. Its size has a
 * ceiling: then it says so once, and only what the build itself says is added.
 *
 * Threads: any.
 */
#pragma once

#include "base/json.h"

#define BUILD_LOG_BYTES_MAX (1u << 20)
#define BUILD_LOG_LINE_MAX 4096u
#define BUILD_LOG_STEP_SIZE 24

struct build_log;

struct build_log *build_log_new(void);
void build_log_free(struct build_log *log);
DEFINE_CLEANUP(struct build_log *, build_log_free);
/* The step that what follows belongs to: "base", "1", ..., "finalize". */
void build_log_step(struct build_log *log, const char *step);
void build_log_say(struct build_log *log, const char *level, const char *fmt, ...) PRINTF(3, 4);
/* As a builder_output_fn. */
void build_log_output(void *log, const char *data, size_t len, bool is_error);
/* What is left of lines without an end. */
void build_log_flush(struct build_log *log);
/* Entries from offset on, at most max, as an array for the caller to end with json_decref(). */
json_t *build_log_entries(struct build_log *log, size_t offset, size_t max);
/* The same of what was stored. */
json_t *build_log_slice(json_t *entries, size_t offset, size_t max);
/* JSON text; the caller frees. */
char *build_log_text(struct build_log *log);
/* The last entries of the present step, for a failure's reason. */
json_t *build_log_tail(struct build_log *log, size_t max);

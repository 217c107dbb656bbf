/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of a command on their way to our own standard output and error, unchanged; or, for --json, into memory up to a
 * ceiling.
 */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "cli/sigs.h"

/* What --json keeps of each stream; more is counted, not kept. */
#define OUTPUT_CAPTURE_MAX (8u * 1024 * 1024)

enum output_stream {
    OUTPUT_STDOUT,
    OUTPUT_STDERR,
    OUTPUT_STREAM_COUNT_
};

struct output {
    bool capture;
    bool truncated[OUTPUT_STREAM_COUNT_];
    struct buf kept[OUTPUT_STREAM_COUNT_];
};

void output_init(struct output *o, bool capture);
void output_done(struct output *o);
/*
 * Writes as much as can be written before a signal arrives; *ret_written is how much. 0: everything; -EINTR: a signal waits in
 * sigs, call again with the rest after it was handled; -EPIPE: nobody reads.
 */
MUST_CHECK int output_write(struct output *o, enum output_stream stream, const void *data,
                            size_t len, const struct sigs *sigs, size_t *ret_written);
/* Puts "stdout" and "stderr" (or "..._base64" when they are not UTF-8) and "..._truncated" into the object. */
void output_to_json(const struct output *o, json_t *object);

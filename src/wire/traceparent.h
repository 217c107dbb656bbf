/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The field "traceparent" of W3C Trace Context (level 1, https://www.w3.org/TR/trace-context/): which trace a request is
 * part of, and which span of it asks. Pure.
 *
 *     00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
 */
#pragma once

#include "base/util.h"

#define TRACEPARENT_TRACE_SIZE 33u /* 32 hex digits and the NUL */
#define TRACEPARENT_SPAN_SIZE 17u
#define TRACEPARENT_SIZE 56u

struct traceparent {
    char trace[TRACEPARENT_TRACE_SIZE];
    char span[TRACEPARENT_SPAN_SIZE];
    bool sampled;
};

/* text may be NULL. -EINVAL: malformed, or of zeros; *ret is untouched. Later versions are read as far as they are like this one. */
MUST_CHECK int traceparent_parse(const char *text, struct traceparent *ret);
/* Always sampled. */
void traceparent_print(const char *trace, const char *span, char ret[static TRACEPARENT_SIZE]);

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * JSON text without a tree: lists of a thousand objects are printed straight into a buf, and this is the
 * one place that escapes strings for that. Reading is in base/json.h.
 */
#pragma once

#include "base/buf.h"

/* Adds s as a JSON string, quotes included. Bytes that are not UTF-8 become U+FFFD. */
MUST_CHECK int json_text_string(struct buf *out, const char *s);
/* As above for bytes of any kind, NUL included. */
MUST_CHECK int json_text_bytes(struct buf *out, const char *data, size_t len);
/* How many bytes at data form whole valid UTF-8 characters. */
size_t utf8_valid_prefix(const char *data, size_t len);

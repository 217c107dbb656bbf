/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 (RFC 4648 section 4, with padding). Pure. */
#pragma once

#include "base/buf.h"

/* Appends the text; -E2BIG. */
MUST_CHECK int base64_encode(const void *data, size_t len, struct buf *b);
/* Strict: no white space, right padding, no spare bits. Appends the bytes; -EINVAL, -E2BIG. */
MUST_CHECK int base64_decode(const char *text, size_t len, struct buf *b);

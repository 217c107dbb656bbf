/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names as bytes, JSON as text. Linux allows every byte but NUL and '/' in a name; JSON carries
 * only Unicode. So a name that is valid UTF-8 stands in JSON as it is, and any other name stands
 * twice: readable with U+FFFD for what is not UTF-8, and exact in a second member whose key ends in
 * _base64.
 *
 * Everything here is pure: bytes in, bytes out. The writers add to a struct buf and return 0 or
 * -E2BIG.
 */
#pragma once

#include "base/buf.h"
#include "base/util.h"

bool file_text_is_utf8(const char *s, size_t len);
/* Adds "…" with escapes. */
MUST_CHECK int file_text_json(struct buf *b, const char *s);
/* Adds "key":"…", and ,"key_base64":"…" when s is not UTF-8. */
MUST_CHECK int file_text_member(struct buf *b, const char *key, const char *s);
/*
 * A path for an error message: cut, with everything that is not printable ASCII or valid UTF-8 as
 * \xNN. Always terminates; returns dst.
 */
const char *file_text_show(char *dst, size_t size, const char *path);
#define FILE_TEXT_SHOW_MAX 160

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The little of XML that S3's answers consist of: elements by name, their text. Pure. What a store answers is not trusted: text
 * that is not what is looked for is not found, and nothing more happens.
 */
#pragma once

#include "base/buf.h"

/* Where to look next; begins as {text, len}. */
struct s3_xml {
    const char *at; /* borrowed */
    size_t len;
};

/*
 * The next <name>...</name> in it; *ret is what is between, as it stands, and x goes on behind it. False: there is none. Elements of
 * the same name within each other do not occur in these answers.
 */
bool s3_xml_next(struct s3_xml *x, const char *name, struct s3_xml *ret);
/* The text of the first <name> within; entities decoded. -ENOENT; -EBADMSG: not text; -ENAMETOOLONG. */
MUST_CHECK int s3_xml_text(struct s3_xml within, const char *name, char *ret, size_t size);
/* "2009-10-12T17:50:30.000Z" as milliseconds since 1970. -EBADMSG. */
MUST_CHECK int s3_xml_time(const char *text, uint64_t *ret_ms);

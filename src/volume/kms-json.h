/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes in the JSON of key management services. */
#pragma once

#include "base/json.h"
#include "credential/secret.h"

/* Base64 of at most SECRET_MAX bytes, as a JSON string that the caller owns. */
json_t *kms_json_bytes(const void *data, size_t len);
/* The member of an object that is base64 of a key. -EBADMSG: there is none, or it is not. */
MUST_CHECK int kms_json_secret(json_t *object, const char *name, struct secret *ret);

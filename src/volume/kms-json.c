/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/kms-json.h"

#include <string.h>

#include "base/base64.h"

json_t *kms_json_bytes(const void *data, size_t len)
{
    cleanup_secret_buf struct buf b = BUF_INIT(2 * SECRET_MAX);

    ASSERT(base64_encode(data, len, &b) == 0);
    return json_string(buf_str(&b));
}

int kms_json_secret(json_t *object, const char *name, struct secret *ret)
{
    const char *text = json_get_string(object, name, "");
    cleanup_secret_buf struct buf plain = BUF_INIT(SECRET_MAX);

    if (!text[0] || base64_decode(text, strlen(text), &plain) < 0) {
        return -EBADMSG;
    }
    return secret_init(ret, plain.data, plain.len);
}

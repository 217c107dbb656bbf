/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a key file without its armour: what is read has its parts inside, and signs only as its kind does. */
#include <string.h>

#include "base/base64.h"
#include "credential/ssh-key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_buf struct buf pem = BUF_INIT(SECRET_MAX);
    cleanup_buf struct buf line = BUF_INIT(SECRET_MAX);
    cleanup_ssh_key struct ssh_key key = {0};
    cleanup_buf struct buf signature = BUF_INIT(SSH_KEY_BLOB_MAX);
    const struct ssh_view text = {(const uint8_t *)"text", 4};
    const struct ssh_view sha1 = {(const uint8_t *)"ssh-rsa", 7};
    const uint8_t *begin;
    const uint8_t *end;

    if (buf_add_str(&pem, "-----BEGIN OPENSSH PRIVATE KEY-----\n") < 0 ||
        base64_encode(data, size, &pem) < 0 ||
        buf_add_str(&pem, "\n-----END OPENSSH PRIVATE KEY-----\n") < 0 ||
        ssh_key_parse(buf_str(&pem), pem.len, &key, NULL) < 0) {
        return 0;
    }
    begin = (const uint8_t *)key.bytes.p;
    end = begin + key.bytes.len;
    ASSERT(key.public.p >= begin && key.public.p + key.public.len <= end);
    for (size_t i = 0; i < ARRAY_SIZE(key.parts); i++) {
        ASSERT(!key.parts[i].p ||
               (key.parts[i].p >= begin && key.parts[i].p + key.parts[i].len <= end));
    }
    ASSERT(ssh_key_public_text(&key, &line) == 0 && str_starts(buf_str(&line), key.name));
    ASSERT(ssh_key_sign(&key, sha1, text, &signature, NULL) < 0);
    /* Numbers that are no key make no signature, and no more than that. */
    IGNORE_RESULT(ssh_key_sign(&key, (struct ssh_view){(const uint8_t *)key.name, strlen(key.name)},
                               text, &signature, NULL));
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A manifest as it comes from the object store, and what is sealed in it under a key that is known. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "volume/manifest.h"

static void check_names(const struct manifest_outside *o)
{
    ASSERT(id_valid(ID_ORGANISATION, o->organisation) && manifest_key_id_valid(o->key_id));
    ASSERT(o->n_chunks <= MANIFEST_CHUNKS_MAX && o->n_images <= MANIFEST_FILES_MAX);
    for (size_t i = 0; i < o->n_chunks; i++) {
        ASSERT(manifest_name_valid(o->chunks[i]));
    }
    for (size_t i = 0; i < o->n_images; i++) {
        ASSERT(manifest_name_valid(o->images[i]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char bytes[CIPHER_KEY_SIZE];
    cleanup_manifest_outside struct manifest_outside outside = {0};
    cleanup_manifest struct manifest m = {0};
    cleanup_manifest struct manifest again = {0};
    cleanup_secret struct secret key = {0};
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);

    ASSERT(secret_init(&key, bytes, sizeof(bytes)) == 0);
    if (manifest_read_outside(data, size, &outside, NULL) == 0) {
        check_names(&outside);
    }
    if (manifest_read(data, size, &key, &m, NULL) == 0) {
        ASSERT(manifest_write(&m, &key, &text) == 0);
        ASSERT(manifest_read(text.data, text.len, &key, &again, NULL) == 0);
        ASSERT(again.n_files == m.n_files && strcmp(again.subject, m.subject) == 0);
    }
    return 0;
}

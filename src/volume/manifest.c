/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/manifest.h"

#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/json.h"
#include "volume/chunk.h"

#define VERSION 1
#define HEX "0123456789abcdef"

void manifest_done(struct manifest *m)
{
    for (size_t i = 0; i < m->n_files; i++) {
        if (m->files[i].chunks) {
            explicit_bzero(m->files[i].chunks, m->files[i].n_chunks * sizeof(*m->files[i].chunks));
        }
        free(m->files[i].chunks);
    }
    *m = (struct manifest){0};
}

void manifest_outside_done(struct manifest_outside *o)
{
    free(o->chunks);
    free(o->images);
    *o = (struct manifest_outside){0};
}

struct manifest_file *manifest_find(struct manifest *m, const char *name)
{
    for (size_t i = 0; i < m->n_files; i++) {
        if (str_eq(m->files[i].name, name)) {
            return &m->files[i];
        }
    }
    return NULL;
}

static bool is_hex(const char *text, size_t len)
{
    return strlen(text) == len && strspn(text, HEX) == len;
}

bool manifest_key_id_valid(const char *id)
{
    return is_hex(id, MANIFEST_KEY_ID_SIZE - 1);
}

bool manifest_name_valid(const char *name)
{
    return is_hex(name, CIPHER_NAME_SIZE - 1);
}

static bool subject_valid(const char *subject)
{
    if (str_starts(subject, "sandboxes/")) {
        return id_valid(ID_SANDBOX, subject + strlen("sandboxes/"));
    }
    return str_starts(subject, "images/") && manifest_name_valid(subject + strlen("images/"));
}

static int damaged(struct err *e, const char *what)
{
    return err_set(e, -EBADMSG, "manifest_damaged", "the manifest is damaged: %s", what);
}

/* ---- what the seal is bound to ---- */

static void digest_names(json_t *names, char ret[static CIPHER_NAME_SIZE])
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    json_t *name;
    size_t i;

    ASSERT(ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1);
    json_array_foreach(names, i, name)
    {
        ASSERT(EVP_DigestUpdate(ctx, json_string_value(name), json_string_length(name)) == 1);
    }
    ASSERT(EVP_DigestFinal_ex(ctx, digest, NULL) == 1);
    EVP_MD_CTX_free(ctx);
    hex_encode(digest, sizeof(digest), ret);
}

/* The caller's to free. */
static char *bound_to(json_t *outside)
{
    char chunks[CIPHER_NAME_SIZE];
    char images[CIPHER_NAME_SIZE];

    digest_names(json_object_get(outside, "chunks"), chunks);
    digest_names(json_object_get(outside, "images"), images);
    return xasprintf("space-manifest-%d|%s|%s|%s|%s|%s", VERSION,
                     json_get_string(outside, "organisation", ""),
                     json_get_string(outside, "subject", ""), json_get_string(outside, "key", ""),
                     chunks, images);
}

/* ---- writing ---- */

static json_t *chunk_to_json(const struct manifest_chunk *c)
{
    char key[2 * CIPHER_KEY_SIZE + 1];
    json_t *out;

    hex_encode(c->id.key, sizeof(c->id.key), key);
    out = json_pack("{s:s, s:s, s:I}", "name", c->id.name, "key", key, "bytes",
                    (json_int_t)c->sealed_len);
    explicit_bzero(key, sizeof(key));
    return out;
}

static json_t *inside_to_json(const struct manifest *m)
{
    json_t *files = json_array();

    for (size_t i = 0; i < m->n_files; i++) {
        const struct manifest_file *f = &m->files[i];
        json_t *chunks = json_array();

        for (size_t j = 0; j < f->n_chunks; j++) {
            json_array_append_new(chunks, chunk_to_json(&f->chunks[j]));
        }
        json_array_append_new(files,
                              json_pack("{s:s, s:I, s:s, s:o}", "name", f->name, "size",
                                        (json_int_t)f->size, "image", f->image, "chunks", chunks));
    }
    return json_pack("{s:I, s:o}", "created_at_ms", (json_int_t)m->created_at_ms, "files", files);
}

static json_t *outside_to_json(const struct manifest *m)
{
    json_t *chunks = json_array();
    json_t *images = json_array();

    for (size_t i = 0; i < m->n_files; i++) {
        const struct manifest_file *f = &m->files[i];

        for (size_t j = 0; j < f->n_chunks; j++) {
            json_array_append_new(chunks, json_string(f->chunks[j].id.name));
        }
        if (f->image[0]) {
            json_array_append_new(images, json_string(f->image));
        }
    }
    return json_pack("{s:i, s:s, s:s, s:s, s:o, s:o}", "version", VERSION, "organisation",
                     m->organisation, "subject", m->subject, "key", m->key_id, "chunks", chunks,
                     "images", images);
}

int manifest_write(const struct manifest *m, const struct secret *key, struct buf *ret)
{
    cleanup_json json_t *outside = outside_to_json(m);
    cleanup_json json_t *inside = inside_to_json(m);
    cleanup_secret_buf struct buf plain = BUF_INIT(MANIFEST_BYTES_MAX / 2);
    cleanup_buf struct buf sealed = BUF_INIT(MANIFEST_BYTES_MAX / 2);
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
    cleanup_free char *about = bound_to(outside);
    int r = json_write(inside, &plain);

    ASSERT(subject_valid(m->subject) && manifest_key_id_valid(m->key_id));
    if (r == 0) {
        r = cipher_seal(key, about, plain.data, plain.len, &sealed);
    }
    if (r == 0) {
        r = base64_encode(sealed.data, sealed.len, &text);
    }
    if (r == 0) {
        json_object_set_new(outside, "sealed", json_string(buf_str(&text)));
        r = json_write(outside, ret);
    }
    return r;
}

/* ---- reading ---- */

static int parse_outside(const void *text, size_t len, json_t **ret, struct err *e)
{
    static const struct json_field fields[] = {
        {"version", JSON_FIELD_INT, JSON_REQUIRED},
        {"organisation", JSON_FIELD_STRING, JSON_REQUIRED},
        {"subject", JSON_FIELD_STRING, JSON_REQUIRED},
        {"key", JSON_FIELD_STRING, JSON_REQUIRED},
        {"chunks", JSON_FIELD_ARRAY, JSON_REQUIRED},
        {"images", JSON_FIELD_ARRAY, JSON_REQUIRED},
        {"sealed", JSON_FIELD_STRING, JSON_REQUIRED},
    };
    cleanup_json json_t *root = NULL;

    if (len > MANIFEST_BYTES_MAX || json_parse_object(text, len, &root, NULL) < 0 ||
        json_check_object(root, fields, ARRAY_SIZE(fields), NULL) < 0) {
        return damaged(e, "it is not a manifest");
    }
    if (json_get_int(root, "version", 0) != VERSION) {
        return err_set(e, -ENOTSUP, "manifest_version",
                       "the manifest has version %lld, this program knows %d: use a newer one",
                       (long long)json_get_int(root, "version", 0), VERSION);
    }
    if (!id_valid(ID_ORGANISATION, json_get_string(root, "organisation", "")) ||
        !subject_valid(json_get_string(root, "subject", "")) ||
        !manifest_key_id_valid(json_get_string(root, "key", ""))) {
        return damaged(e, "its names are no names");
    }
    *ret = TAKE_PTR(root);
    return 0;
}

static int read_names(json_t *list, size_t max, char (**ret)[CIPHER_NAME_SIZE], size_t *ret_n)
{
    size_t n = json_array_size(list);
    json_t *name;
    size_t i;

    if (n > max) {
        return -EBADMSG;
    }
    *ret = xcalloc(n + 1, sizeof(**ret));
    json_array_foreach(list, i, name)
    {
        if (!json_is_string(name) || !manifest_name_valid(json_string_value(name))) {
            return -EBADMSG;
        }
        memcpy((*ret)[i], json_string_value(name), CIPHER_NAME_SIZE);
    }
    *ret_n = n;
    return 0;
}

static int take_outside(json_t *root, struct manifest_outside *ret)
{
    snprintf(ret->organisation, sizeof(ret->organisation), "%s",
             json_get_string(root, "organisation", ""));
    snprintf(ret->subject, sizeof(ret->subject), "%s", json_get_string(root, "subject", ""));
    snprintf(ret->key_id, sizeof(ret->key_id), "%s", json_get_string(root, "key", ""));
    if (read_names(json_object_get(root, "chunks"), MANIFEST_CHUNKS_MAX, &ret->chunks,
                   &ret->n_chunks) < 0) {
        return -EBADMSG;
    }
    return read_names(json_object_get(root, "images"), MANIFEST_FILES_MAX, &ret->images,
                      &ret->n_images);
}

int manifest_read_outside(const void *text, size_t len, struct manifest_outside *ret, struct err *e)
{
    cleanup_manifest_outside struct manifest_outside o = {0};
    cleanup_json json_t *root = NULL;
    int r = parse_outside(text, len, &root, e);

    if (r == 0 && take_outside(root, &o) < 0) {
        r = damaged(e, "a name in it is no name");
    }
    if (r < 0) {
        return r;
    }
    *ret = o;
    o = (struct manifest_outside){0};
    return 0;
}

static int hex_key(const char *text, unsigned char ret[static CIPHER_KEY_SIZE])
{
    if (!is_hex(text, 2 * (size_t)CIPHER_KEY_SIZE)) {
        return -EBADMSG;
    }
    for (size_t i = 0; i < CIPHER_KEY_SIZE; i++) {
        unsigned high = (unsigned)(strchr(HEX, text[2 * i]) - HEX);
        unsigned low = (unsigned)(strchr(HEX, text[2 * i + 1]) - HEX);

        ret[i] = (unsigned char)(high << 4 | low);
    }
    return 0;
}

static int read_chunk(json_t *json, struct manifest_chunk *ret)
{
    static const struct json_field fields[] = {{"name", JSON_FIELD_STRING, JSON_REQUIRED},
                                               {"key", JSON_FIELD_STRING, JSON_REQUIRED},
                                               {"bytes", JSON_FIELD_INT, JSON_REQUIRED}};
    int64_t bytes;

    if (!json_is_object(json) || json_check_object(json, fields, ARRAY_SIZE(fields), NULL) < 0) {
        return -EBADMSG;
    }
    bytes = json_get_int(json, "bytes", 0);
    if (!manifest_name_valid(json_get_string(json, "name", "")) || bytes <= CIPHER_TAG_SIZE ||
        bytes > CHUNK_PACKED_MAX + CIPHER_TAG_SIZE) {
        return -EBADMSG;
    }
    memcpy(ret->id.name, json_get_string(json, "name", ""), CIPHER_NAME_SIZE);
    ret->sealed_len = (uint32_t)bytes;
    return hex_key(json_get_string(json, "key", ""), ret->id.key);
}

static int read_file(json_t *json, struct manifest_file *ret, size_t room)
{
    static const struct json_field fields[] = {{"name", JSON_FIELD_STRING, JSON_REQUIRED},
                                               {"size", JSON_FIELD_INT, JSON_REQUIRED},
                                               {"image", JSON_FIELD_STRING, JSON_REQUIRED},
                                               {"chunks", JSON_FIELD_ARRAY, JSON_REQUIRED}};
    const char *image;
    json_t *chunks;
    int64_t size;
    int r = 0;

    if (!json_is_object(json) || json_check_object(json, fields, ARRAY_SIZE(fields), NULL) < 0) {
        return -EBADMSG;
    }
    image = json_get_string(json, "image", "");
    size = json_get_int(json, "size", -1);
    chunks = json_object_get(json, "chunks");
    if (str_copy(ret->name, sizeof(ret->name), json_get_string(json, "name", "")) < 0 || size < 0 ||
        size > (int64_t)MANIFEST_FILE_SIZE_MAX || (image[0] && !manifest_name_valid(image)) ||
        json_array_size(chunks) > room) {
        return -EBADMSG;
    }
    memcpy(ret->image, image, strlen(image) + 1);
    ret->size = (uint64_t)size;
    ret->n_chunks = json_array_size(chunks);
    ret->chunks = xnew_n(struct manifest_chunk, ret->n_chunks + 1);
    for (size_t i = 0; i < ret->n_chunks && r == 0; i++) {
        r = read_chunk(json_array_get(chunks, i), &ret->chunks[i]);
    }
    return r;
}

static int read_inside(json_t *inside, struct manifest *ret)
{
    static const struct json_field fields[] = {{"created_at_ms", JSON_FIELD_INT, JSON_REQUIRED},
                                               {"files", JSON_FIELD_ARRAY, JSON_REQUIRED}};
    size_t room = MANIFEST_CHUNKS_MAX;
    json_t *files;
    int r = 0;

    if (json_check_object(inside, fields, ARRAY_SIZE(fields), NULL) < 0) {
        return -EBADMSG;
    }
    files = json_object_get(inside, "files");
    if (json_array_size(files) > MANIFEST_FILES_MAX) {
        return -EBADMSG;
    }
    ret->created_at_ms = (uint64_t)MAX(json_get_int(inside, "created_at_ms", 0), (int64_t)0);
    for (size_t i = 0; i < json_array_size(files) && r == 0; i++) {
        ret->n_files = i + 1;
        r = read_file(json_array_get(files, i), &ret->files[i], room);
        room -= r == 0 ? ret->files[i].n_chunks : 0;
    }
    return r;
}

static int open_inside(json_t *outside, const struct secret *key, json_t **ret)
{
    cleanup_free char *about = bound_to(outside);
    const char *sealed = json_get_string(outside, "sealed", "");
    cleanup_buf struct buf bytes = BUF_INIT(MANIFEST_BYTES_MAX);
    cleanup_secret_buf struct buf plain = BUF_INIT(MANIFEST_BYTES_MAX);
    int r = base64_decode(sealed, strlen(sealed), &bytes);

    if (r == 0) {
        r = cipher_open(key, about, bytes.data, bytes.len, &plain);
    }
    return r < 0 ? r : json_parse_object(buf_str(&plain), plain.len, ret, NULL);
}

int manifest_read(const void *text, size_t len, const struct secret *key, struct manifest *ret,
                  struct err *e)
{
    cleanup_manifest struct manifest m = {0};
    cleanup_manifest_outside struct manifest_outside o = {0};
    cleanup_json json_t *root = NULL;
    cleanup_json json_t *inside = NULL;
    int r = parse_outside(text, len, &root, e);

    if (r == 0 && take_outside(root, &o) < 0) {
        r = damaged(e, "a name in it is no name");
    }
    if (r < 0) {
        return r;
    }
    if (open_inside(root, key, &inside) < 0) {
        return damaged(e, "it was changed, or is another's");
    }
    memcpy(m.organisation, o.organisation, sizeof(m.organisation));
    memcpy(m.subject, o.subject, sizeof(m.subject));
    memcpy(m.key_id, o.key_id, sizeof(m.key_id));
    if (read_inside(inside, &m) < 0) {
        return damaged(e, "what is sealed in it is no list of files");
    }
    *ret = m;
    m = (struct manifest){0};
    return 0;
}

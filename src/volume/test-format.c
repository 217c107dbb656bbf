/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks, their cipher, manifests: all that is pure. */
#include "base/test.h"

#include "volume/chunk.h"
#include "volume/manifest.h"

static struct secret key_of(char fill)
{
    char bytes[CIPHER_KEY_SIZE];
    struct secret s = {0};

    memset(bytes, fill, sizeof(bytes));
    CHECK_INT(secret_init(&s, bytes, sizeof(bytes)), 0);
    return s;
}

/* ---- chunks ---- */

static void a_chunk_is_full_at_its_data_and_at_a_region(void)
{
    struct chunk_builder b;

    chunk_builder_init(&b);
    CHECK_INT(chunk_room(&b, 0, 5000), 5000);
    CHECK_INT(chunk_room(&b, CHUNK_REGION - 100, 5000), 100);
    memset(chunk_add(&b, 4096, CHUNK_DATA_MAX - 10), 'x', CHUNK_DATA_MAX - 10);
    CHECK_INT(chunk_room(&b, 3 << 20, 5000), 10);
    CHECK_INT(chunk_room(&b, CHUNK_REGION, 5000), 0);
    memset(chunk_add(&b, 3 << 20, 10), 'y', 10);
    CHECK_INT(chunk_room(&b, 4 << 20, 1), 0);
    chunk_builder_done(&b);
}

struct seen {
    uint64_t offsets[4];
    size_t lengths[4];
    char first[4];
    size_t n;
};

static int see(void *ctx, uint64_t offset, const unsigned char *data, size_t length)
{
    struct seen *s = ctx;

    if (s->n < 4) {
        s->offsets[s->n] = offset;
        s->lengths[s->n] = length;
        s->first[s->n] = (char)data[0];
    }
    s->n++;
    return 0;
}

static size_t two_pieces(unsigned char *ret)
{
    struct chunk_builder b;
    size_t len;

    chunk_builder_init(&b);
    memset(chunk_add(&b, 4096, 4096), 'a', 4096);
    memset(chunk_add(&b, 40960, 100), 'b', 100);
    len = chunk_finish(&b, ret);
    CHECK_INT(b.n, 0);
    chunk_builder_done(&b);
    return len;
}

static void a_chunk_gives_its_pieces_back(void)
{
    cleanup_free unsigned char *plain = xmalloc(CHUNK_PLAIN_MAX);
    cleanup_free unsigned char *packed = xmalloc(CHUNK_PACKED_MAX);
    cleanup_free unsigned char *again = xmalloc(CHUNK_PLAIN_MAX);
    struct seen seen = {0};
    size_t len = two_pieces(plain);
    size_t n = chunk_pack(plain, len, packed);
    size_t back = 0;

    CHECK(n < 200); /* it compresses well */
    CHECK_INT(chunk_unpack(packed, n, again, &back), 0);
    CHECK_INT(back, len);
    CHECK_INT(chunk_parse(again, back, 50000, see, &seen), 0);
    CHECK_INT(seen.n, 2);
    CHECK_INT(seen.offsets[1], 40960);
    CHECK_INT(seen.lengths[1], 100);
    CHECK_INT(seen.first[0], 'a');
    CHECK_INT(seen.first[1], 'b');
}

static void bytes_that_do_not_compress_are_kept_plain(void)
{
    cleanup_free unsigned char *plain = xmalloc(CHUNK_PLAIN_MAX);
    cleanup_free unsigned char *packed = xmalloc(CHUNK_PACKED_MAX);
    cleanup_free unsigned char *again = xmalloc(CHUNK_PLAIN_MAX);
    size_t back = 0;
    size_t n;

    random_bytes(plain, 10000);
    n = chunk_pack(plain, 10000, packed);
    CHECK_INT(n, 10001);
    CHECK_INT(chunk_unpack(packed, n, again, &back), 0);
    CHECK_INT(back, 10000);
    CHECK_MEM(plain, again, 10000);
}

static void a_chunk_that_leads_outside_is_refused(void)
{
    cleanup_free unsigned char *plain = xmalloc(CHUNK_PLAIN_MAX);
    struct seen seen = {0};
    size_t len = two_pieces(plain);

    CHECK_INT(chunk_parse(plain, len, 41059, see, &seen), -EBADMSG); /* the file is shorter */
    CHECK_INT(chunk_parse(plain, len - 1, 50000, see, &seen), -EBADMSG);
    CHECK_INT(chunk_parse(plain, 3, 50000, see, &seen), -EBADMSG);
    plain[0] = 3; /* a piece more than there are */
    CHECK_INT(chunk_parse(plain, len, 50000, see, &seen), -EBADMSG);
    plain[0] = 2;
    plain[4 + CHUNK_PIECE_SIZE] = 0; /* the second over the first */
    plain[4 + CHUNK_PIECE_SIZE + 1] = 0x10;
    CHECK_INT(chunk_parse(plain, len, 50000, see, &seen), -EBADMSG);
    CHECK_INT(seen.n, 0);
}

/* ---- the cipher ---- */

static void the_same_bytes_have_one_name_in_a_tenant_and_another_elsewhere(void)
{
    cleanup_secret struct secret one = key_of('1');
    cleanup_secret struct secret two = key_of('2');
    struct chunk_id a;
    struct chunk_id b;
    struct chunk_id c;

    cipher_chunk_id(&one, "hello", 5, &a);
    cipher_chunk_id(&one, "hello", 5, &b);
    cipher_chunk_id(&two, "hello", 5, &c);
    CHECK_STR(a.name, b.name);
    CHECK_MEM(a.key, b.key, sizeof(a.key));
    CHECK(strcmp(a.name, c.name) != 0);
    CHECK(memcmp(a.key, c.key, sizeof(a.key)) != 0);
    CHECK(manifest_name_valid(a.name));
}

static void a_changed_cut_or_swapped_chunk_does_not_open(void)
{
    cleanup_secret struct secret tenant = key_of('1');
    struct chunk_id a;
    struct chunk_id b;
    unsigned char sealed[5 + CIPHER_TAG_SIZE];
    unsigned char other[5 + CIPHER_TAG_SIZE];
    unsigned char plain[sizeof(sealed)];

    cipher_chunk_id(&tenant, "hello", 5, &a);
    cipher_chunk_id(&tenant, "world", 5, &b);
    CHECK_INT(cipher_seal_chunk(&a, "hello", 5, sealed), sizeof(sealed));
    CHECK_INT(cipher_seal_chunk(&b, "world", 5, other), sizeof(other));
    CHECK(memcmp(sealed, "hello", 5) != 0);
    CHECK_INT(cipher_open_chunk(&a, sealed, sizeof(sealed), plain), 0);
    CHECK_MEM(plain, "hello", 5);
    CHECK_INT(cipher_open_chunk(&a, other, sizeof(other), plain), -EBADMSG);
    CHECK_INT(cipher_open_chunk(&a, sealed, sizeof(sealed) - 1, plain), -EBADMSG);
    CHECK_INT(cipher_open_chunk(&a, sealed, 3, plain), -EBADMSG);
    sealed[2] ^= 1;
    CHECK_INT(cipher_open_chunk(&a, sealed, sizeof(sealed), plain), -EBADMSG);
}

/* ---- manifests ---- */

static void make_manifest(struct manifest *m)
{
    cleanup_secret struct secret tenant = key_of('t');
    struct manifest_file *f;

    *m = (struct manifest){.created_at_ms = 1234567890123, .n_files = 2};
    id_new(ID_ORGANISATION, m->organisation);
    snprintf(m->subject, sizeof(m->subject), "sandboxes/");
    id_new(ID_SANDBOX, m->subject + strlen(m->subject));
    memset(m->key_id, 'a', sizeof(m->key_id) - 1);
    f = &m->files[0];
    *f = (struct manifest_file){.name = "disk", .size = 64 << 20, .n_chunks = 2};
    memset(f->image, '5', sizeof(f->image) - 1);
    f->chunks = xnew_n(struct manifest_chunk, 2);
    cipher_chunk_id(&tenant, "one", 3, &f->chunks[0].id);
    cipher_chunk_id(&tenant, "two", 3, &f->chunks[1].id);
    f->chunks[0].sealed_len = 19;
    f->chunks[1].sealed_len = 20;
    m->files[1] = (struct manifest_file){.name = "device", .size = 13};
}

static void a_manifest_comes_back_as_it_was(void)
{
    cleanup_manifest struct manifest m = {0};
    cleanup_manifest struct manifest back = {0};
    cleanup_manifest_outside struct manifest_outside outside = {0};
    cleanup_secret struct secret key = key_of('k');
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
    struct err e = {0};

    make_manifest(&m);
    CHECK_INT(manifest_write(&m, &key, &text), 0);
    CHECK_INT(manifest_read(text.data, text.len, &key, &back, &e), 0);
    CHECK_STR(back.organisation, m.organisation);
    CHECK_STR(back.subject, m.subject);
    CHECK_INT(back.created_at_ms, m.created_at_ms);
    CHECK_INT(back.n_files, 2);
    CHECK_STR(back.files[0].image, m.files[0].image);
    CHECK_INT(back.files[0].n_chunks, 2);
    CHECK_INT(back.files[0].chunks[1].sealed_len, 20);
    CHECK_MEM(&back.files[0].chunks[0].id, &m.files[0].chunks[0].id, sizeof(struct chunk_id));
    CHECK(manifest_find(&back, "device") == &back.files[1]);
    CHECK(!manifest_find(&back, "memory"));
    CHECK_INT(manifest_read_outside(text.data, text.len, &outside, &e), 0);
    CHECK_INT(outside.n_chunks, 2);
    CHECK_STR(outside.chunks[1], m.files[0].chunks[1].id.name);
    CHECK_INT(outside.n_images, 1);
}

static void no_key_of_a_chunk_stands_outside_the_seal(void)
{
    cleanup_manifest struct manifest m = {0};
    cleanup_secret struct secret key = key_of('k');
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
    char hex[2 * CIPHER_KEY_SIZE + 1];

    make_manifest(&m);
    CHECK_INT(manifest_write(&m, &key, &text), 0);
    hex_encode(m.files[0].chunks[0].id.key, CIPHER_KEY_SIZE, hex);
    CHECK(!strstr(buf_str(&text), hex));
    CHECK(strstr(buf_str(&text), m.files[0].chunks[0].id.name));
}

/* Changes the first `from` into `to`, of the same length. */
static void change(struct buf *text, const char *from, const char *to)
{
    char *at = strstr(text->data, from);

    CHECK(at && strlen(from) == strlen(to));
    if (at) {
        memcpy(at, to, strlen(to));
    }
}

static void refused(struct buf *text, const struct secret *key)
{
    cleanup_manifest struct manifest back = {0};
    struct err e = {0};

    CHECK_INT(manifest_read(text->data, text->len, key, &back, &e), -EBADMSG);
    CHECK_STR(e.reason, "manifest_damaged");
}

static void a_manifest_of_another_place_or_key_is_refused(void)
{
    cleanup_manifest struct manifest m = {0};
    cleanup_secret struct secret key = key_of('k');
    cleanup_secret struct secret other = key_of('x');
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
    char sandbox[ID_SIZE];

    make_manifest(&m);
    id_new(ID_SANDBOX, sandbox);
    CHECK_INT(manifest_write(&m, &key, &text), 0);
    refused(&text, &other);
    change(&text, m.subject + strlen("sandboxes/"), sandbox);
    refused(&text, &key);
    change(&text, sandbox, m.subject + strlen("sandboxes/"));
    change(&text, m.files[0].chunks[0].id.name, m.files[0].chunks[1].id.name);
    refused(&text, &key);
    buf_reset(&text);
    CHECK_INT(manifest_write(&m, &key, &text), 0);
    change(&text, "\"version\":1", "\"version\":x");
    refused(&text, &key);
    text.len /= 2;
    refused(&text, &key);
}

static void a_manifest_of_a_newer_program_says_so(void)
{
    cleanup_manifest struct manifest m = {0};
    cleanup_manifest_outside struct manifest_outside outside = {0};
    cleanup_secret struct secret key = key_of('k');
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
    struct err e = {0};

    make_manifest(&m);
    CHECK_INT(manifest_write(&m, &key, &text), 0);
    change(&text, "\"version\":1", "\"version\":2");
    CHECK_INT(manifest_read_outside(text.data, text.len, &outside, &e), -ENOTSUP);
    CHECK_STR(e.reason, "manifest_version");
}

TEST_MAIN(T(a_chunk_is_full_at_its_data_and_at_a_region), T(a_chunk_gives_its_pieces_back),
          T(bytes_that_do_not_compress_are_kept_plain), T(a_chunk_that_leads_outside_is_refused),
          T(the_same_bytes_have_one_name_in_a_tenant_and_another_elsewhere),
          T(a_changed_cut_or_swapped_chunk_does_not_open), T(a_manifest_comes_back_as_it_was),
          T(no_key_of_a_chunk_stands_outside_the_seal),
          T(a_manifest_of_another_place_or_key_is_refused),
          T(a_manifest_of_a_newer_program_says_so))

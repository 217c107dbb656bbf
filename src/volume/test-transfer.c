/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between files, and files through a store and back. */
#include "base/test.h"

#include "base/fs.h"
#include "base/id.h"
#include "volume/transfer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE (40u << 20)

static char folder[] = "/tmp/space-volume-XXXXXX";

static int new_file(uint64_t size)
{
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    return fd;
}

static void fill(int fd, uint64_t offset, char byte, size_t len)
{
    cleanup_free char *data = xmalloc(len);

    memset(data, byte, len);
    CHECK_INT(pwrite(fd, data, len, (off_t)offset), len);
}

struct runs {
    uint64_t at[16];
    uint64_t len[16];
    size_t n;
};

static int note(void *ctx, uint64_t offset, uint64_t length)
{
    struct runs *r = ctx;

    if (r->n < 16) {
        r->at[r->n] = offset;
        r->len[r->n] = length;
    }
    r->n++;
    return 0;
}

static void only_blocks_that_differ_are_told(void)
{
    cleanup_close int base = new_file(SIZE);
    cleanup_close int fd = new_file(SIZE + 100);
    struct runs runs = {0};

    fill(base, 8192, 'a', 100000);
    fill(fd, 8192, 'a', 100000);
    fill(fd, 8192 + 4096 * 3, 'b', 4096 * 2);
    fill(base, 30 << 20, 'z', 4096); /* a hole in the file now */
    fill(fd, SIZE, 'c', 100);
    CHECK_INT(extent_diff(&(struct extent_pair){fd, base, SIZE + 100}, note, &runs), 0);
    CHECK_INT(runs.n, 3);
    CHECK_INT(runs.at[0], 8192 + 4096 * 3);
    CHECK_INT(runs.len[0], 4096 * 2);
    CHECK_INT(runs.at[1], 30 << 20);
    CHECK_INT(runs.len[1], 4096);
    CHECK_INT(runs.at[2], SIZE);
    CHECK_INT(runs.len[2], 100);
}

static void a_file_of_zeroes_does_not_differ_from_none(void)
{
    cleanup_close int fd = new_file(SIZE);
    struct runs runs = {0};

    fill(fd, 123456, 0, 50000);
    CHECK_INT(extent_diff(&(struct extent_pair){fd, FD_NONE, SIZE}, note, &runs), 0);
    CHECK_INT(runs.n, 0);
}

static void an_image_has_the_name_of_its_bytes_wherever_its_holes_are(void)
{
    cleanup_close int a = new_file(SIZE);
    cleanup_close int b = new_file(SIZE);
    char one[CIPHER_NAME_SIZE] = "";
    char two[CIPHER_NAME_SIZE] = "";

    fill(a, 5 << 20, 'q', 10);
    fill(b, 0, 0, 6 << 20);
    fill(b, 5 << 20, 'q', 10);
    CHECK_INT(extent_image_name(a, SIZE, one), 0);
    CHECK_INT(extent_image_name(b, SIZE, two), 0);
    CHECK_STR(one, two);
    fill(b, 7 << 20, 'q', 1);
    CHECK_INT(extent_image_name(b, SIZE, two), 0);
    CHECK(strcmp(one, two) != 0);
}

/* ---- through a store ---- */

struct round {
    struct store *store;
    struct secret tenant;
    char organisation[ID_SIZE];
    struct transfer t;
    struct manifest_file file;
    struct transfer_stats stats;
    int base;
    int fd;
};

static void round_done(struct round *r)
{
    store_free(r->store);
    secret_done(&r->tenant);
    free(r->file.chunks);
    fd_close(r->base);
    fd_close(r->fd);
}

static void up(struct round *r)
{
    struct err e = {0};

    free(r->file.chunks);
    r->file = (struct manifest_file){.name = "disk"};
    r->stats = (struct transfer_stats){0};
    CHECK_INT(transfer_upload(&r->t, &r->tenant, &(struct extent_pair){r->fd, r->base, SIZE},
                              &r->file, &r->stats, &e),
              0);
}

/* A file with a base and some changes, stored. */
static void round_init(struct round *r)
{
    static unsigned number;
    cleanup_free char *path = xasprintf("%s/store-%u", folder, number++);
    cleanup_free char *noise = xmalloc(3 << 20);
    struct err e = {0};

    *r = (struct round){.base = new_file(SIZE), .fd = new_file(SIZE)};
    CHECK_INT(store_dir_open(path, &r->store, &e), 0);
    cipher_new_key(&r->tenant);
    id_new(ID_ORGANISATION, r->organisation);
    r->t =
        (struct transfer){.store = r->store, .organisation = r->organisation, .watch_fd = FD_NONE};
    fill(r->base, 0, 'a', 2 << 20);
    fill(r->fd, 0, 'a', 2 << 20);
    fill(r->fd, 4096, 'b', 4096);
    random_bytes(noise, 3 << 20);
    CHECK_INT(pwrite(r->fd, noise, 3 << 20, 15 << 20), 3 << 20);
    fill(r->fd, SIZE - 5, 'e', 5);
    up(r);
}

static bool same_content(int a, int b)
{
    cleanup_free char *one = xmalloc(SIZE);
    cleanup_free char *two = xmalloc(SIZE);

    return pread(a, one, SIZE, 0) == SIZE && pread(b, two, SIZE, 0) == SIZE &&
           memcmp(one, two, SIZE) == 0;
}

static int copy_of(int from)
{
    cleanup_free char *data = xmalloc(SIZE);
    int to = new_file(SIZE);

    CHECK_INT(pread(from, data, SIZE, 0), SIZE);
    CHECK_INT(pwrite(to, data, SIZE, 0), SIZE);
    return to;
}

static int down(struct round *r, int fd, struct err *e)
{
    struct transfer_stats stats = {0};

    return transfer_download(&r->t, &r->file, fd, &stats, e);
}

static void what_differs_goes_up_and_comes_back(void)
{
    CLEANUP(round_done) struct round r;
    cleanup_close int fd = FD_NONE;
    struct err e = {0};

    round_init(&r);
    CHECK_INT(r.stats.plain_bytes, 4096 + (3 << 20) + 4096);
    CHECK(r.stats.uploaded_bytes > 3 << 20 && r.stats.uploaded_bytes < (3 << 20) + 65536);
    CHECK_INT(r.file.n_chunks, r.stats.chunks);
    fd = copy_of(r.base);
    CHECK_INT(down(&r, fd, &e), 0);
    CHECK(same_content(fd, r.fd));
}

static void the_second_time_only_what_changed_goes_up(void)
{
    CLEANUP(round_done) struct round r;
    uint64_t first;

    round_init(&r);
    first = r.stats.stored_bytes;
    up(&r);
    CHECK_INT(r.stats.uploaded_bytes, 0);
    CHECK_INT(r.stats.stored_bytes, first);
    fill(r.fd, 1 << 20, 'x', 1); /* the first region again; not the noise in the others */
    up(&r);
    CHECK(r.stats.uploaded_bytes > 0 && r.stats.uploaded_bytes < 2 << 20);
}

static char *chunk_path(const struct round *r, size_t i)
{
    char key[STORE_KEY_MAX + 1];

    transfer_chunk_key(r->organisation, r->file.chunks[i].id.name, key);
    return xstrdup(key);
}

static void a_tampered_chunk_is_refused(void)
{
    CLEANUP(round_done) struct round r;
    cleanup_buf struct buf bytes = BUF_INIT(STORE_OBJECT_MAX);
    cleanup_close int fd = new_file(SIZE);
    cleanup_free char *key = NULL;
    cleanup_free char *another = NULL;
    struct err e = {0};

    round_init(&r);
    key = chunk_path(&r, 1);
    another = chunk_path(&r, 0);
    CHECK_INT(store_get(r.store, key, &bytes, &e), 0);
    bytes.data[bytes.len / 2] ^= 1;
    CHECK_INT(store_put(r.store, key, bytes.data, bytes.len, &e), 0);
    CHECK_INT(down(&r, fd, &e), -EBADMSG);
    CHECK_STR(e.reason, "chunk_damaged");
    CHECK_INT(store_put(r.store, key, bytes.data, bytes.len - 1, &e), 0);
    CHECK_INT(down(&r, fd, &e), -EBADMSG);
    buf_reset(&bytes);
    CHECK_INT(store_get(r.store, another, &bytes, &e), 0); /* another's in its place */
    CHECK_INT(store_put(r.store, key, bytes.data, bytes.len, &e), 0);
    CHECK_INT(down(&r, fd, &e), -EBADMSG);
    CHECK_INT(store_remove(r.store, key, &e), 0);
    CHECK_INT(down(&r, fd, &e), -EIO);
    CHECK_STR(e.reason, "object_missing");
}

static void the_order_of_the_list_says_nothing(void)
{
    CLEANUP(round_done) struct round r;
    cleanup_close int fd = FD_NONE;
    struct err e = {0};
    struct manifest_chunk first;

    /* Places stand inside of the chunks: their order in the list says nothing. */
    round_init(&r);
    first = r.file.chunks[0];
    r.file.chunks[0] = r.file.chunks[1];
    r.file.chunks[1] = first;
    fd = copy_of(r.base);
    CHECK_INT(down(&r, fd, &e), 0);
    CHECK(same_content(fd, r.fd));
}

static void a_store_that_cannot_be_written_fails_the_upload(void)
{
    CLEANUP(round_done) struct round r;
    struct manifest_file file = {.name = "disk"};
    struct transfer_stats stats = {0};
    char other[ID_SIZE];
    struct err e = {0};

    round_init(&r);
    id_new(ID_ORGANISATION, other);
    CHECK_INT(store_put(r.store, other, "in the way", 10, &e), 0); /* where a folder should be */
    r.t.organisation = other;
    CHECK(transfer_upload(&r.t, &r.tenant, &(struct extent_pair){r.fd, r.base, SIZE}, &file, &stats,
                          &e) < 0);
    CHECK_STR(e.reason, "store_unavailable");
    CHECK(!file.chunks);
}

static void who_hung_up_gets_nothing_stored(void)
{
    CLEANUP(round_done) struct round r;
    struct manifest_file file = {.name = "disk"};
    struct transfer_stats stats = {0};
    struct err e = {0};
    int pair[2];

    round_init(&r);
    CHECK_INT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    close(pair[1]);
    r.t.watch_fd = pair[0];
    CHECK_INT(transfer_upload(&r.t, &r.tenant, &(struct extent_pair){r.fd, r.base, SIZE}, &file,
                              &stats, &e),
              -ECANCELED);
    close(pair[0]);
}

static void remove_folder(void)
{
    IGNORE_RESULT(fs_remove_tree(AT_FDCWD, folder)); /* a leftover in /tmp fails no test */
}

__attribute__((constructor)) static void make_folder(void)
{
    ASSERT(mkdtemp(folder));
    atexit(remove_folder);
}

TEST_MAIN(T(only_blocks_that_differ_are_told), T(a_file_of_zeroes_does_not_differ_from_none),
          T(an_image_has_the_name_of_its_bytes_wherever_its_holes_are),
          T(what_differs_goes_up_and_comes_back), T(the_second_time_only_what_changed_goes_up),
          T(a_tampered_chunk_is_refused), T(the_order_of_the_list_says_nothing),
          T(a_store_that_cannot_be_written_fails_the_upload), T(who_hung_up_gets_nothing_stored))

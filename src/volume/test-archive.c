/* SPDX-License-Identifier: Apache-2.0 */
/* Whole sandboxes to a store and back; keys; collecting. In folders. */
#include "base/test.h"

#include "base/clock.h"
#include "base/fs.h"
#include "volume/archive-internal.h"
#include "volume/collect.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE (8u << 20)
#define GRACE_MS 1000u

static char folder[] = "/tmp/space-archive-XXXXXX";

struct scene {
    struct archive *a;
    char organisation[ID_SIZE];
    char sandbox[ID_SIZE];
    struct archive_file files[2]; /* "meta" without, "disk" with an image */
};

static int file_of(size_t size, char fill)
{
    cleanup_free char *data = xmalloc(size);
    int fd = memfd_create("test", MFD_CLOEXEC);

    memset(data, fill, size);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    return fd;
}

static void scene_init(struct scene *s)
{
    static unsigned number;
    cleanup_free char *objects = xasprintf("%s/%u/objects", folder, number);
    cleanup_free char *keys = xasprintf("%s/%u/keys", folder, number++);
    struct store *store = NULL;
    struct kms *kms = NULL;

    ASSERT(store_dir_open(objects, &store, NULL) == 0);
    ASSERT(kms_local_open(keys, &kms, NULL) == 0);
    *s = (struct scene){.a = archive_new_take(store, kms, 0)};
    id_new(ID_ORGANISATION, s->organisation);
    id_new(ID_SANDBOX, s->sandbox);
    s->files[0] = (struct archive_file){"meta", file_of(100, 'm'), FD_NONE};
    s->files[1] = (struct archive_file){"disk", file_of(SIZE, 'd'), file_of(SIZE, 'd')};
    CHECK_INT(pwrite(s->files[1].fd, "changed", 7, 5 << 20), 7);
}

static void scene_done(struct scene *s)
{
    archive_free(s->a);
    fd_close(s->files[0].fd);
    fd_close(s->files[1].fd);
    fd_close(s->files[1].base_fd);
}

static int keep(struct scene *s, struct archive_result *ret, struct err *e)
{
    const struct archive_job job = {s->organisation, s->sandbox, s->files, 2, FD_NONE};

    return archive_store(s->a, &job, ret, e);
}

/* Both files into new ones; 0 only when they are what was stored. */
static int bring(struct scene *s, int base_fd, struct archive_result *ret, struct err *e)
{
    struct archive_file files[2] = {{"meta", memfd_create("m", MFD_CLOEXEC), FD_NONE},
                                    {"disk", memfd_create("d", MFD_CLOEXEC), base_fd}};
    const struct archive_job job = {s->organisation, s->sandbox, files, 2, FD_NONE};
    cleanup_free char *one = xmalloc(SIZE);
    cleanup_free char *two = xmalloc(SIZE);
    int r = archive_fetch(s->a, &job, ret, e);

    if (r == 0) {
        CHECK_INT(pread(files[1].fd, one, SIZE, 0), SIZE);
        CHECK_INT(pread(s->files[1].fd, two, SIZE, 0), SIZE);
        CHECK(memcmp(one, two, SIZE) == 0);
        CHECK_INT(pread(files[0].fd, one, SIZE, 0), 100);
    }
    fd_close(files[0].fd);
    fd_close(files[1].fd);
    return r;
}

static void a_sandbox_comes_back_with_and_without_its_image_here(void)
{
    CLEANUP(scene_done) struct scene s;
    struct archive_result up = {0};
    struct archive_result down = {0};
    struct err e = {0};

    scene_init(&s);
    CHECK_INT(keep(&s, &up, &e), 0);
    CHECK_INT(up.images, 1);
    CHECK_INT(up.stats.plain_bytes, 100 + 4096 + SIZE);
    CHECK_INT(bring(&s, FD_NONE, &down, &e), 0);
    CHECK_INT(down.images, 1);
    CHECK_INT(down.created_at_ms, up.created_at_ms);
    CHECK_INT(keep(&s, &up, &e), 0); /* the image is there already */
    CHECK_INT(up.images, 0);
    CHECK_INT(up.stats.uploaded_bytes, 0);
    CHECK_INT(up.stats.plain_bytes, 100 + 4096);
    CHECK_STR(e.msg, "");
}

static void an_image_that_is_another_is_not_laid_under(void)
{
    CLEANUP(scene_done) struct scene s;
    struct archive_result result = {0};
    cleanup_close int other = file_of(SIZE, 'x');
    struct err e = {0};

    scene_init(&s);
    CHECK_INT(keep(&s, &result, &e), 0);
    CHECK_INT(bring(&s, other, &result, &e), 0);
    CHECK_INT(result.images, 1);
}

static void what_is_not_stored_says_so(void)
{
    CLEANUP(scene_done) struct scene s;
    struct archive_result result = {0};
    uint64_t ms = 0;
    struct err e = {0};

    scene_init(&s);
    CHECK_INT(bring(&s, FD_NONE, &result, &e), -ENOENT);
    CHECK_STR(e.reason, "not_stored");
    CHECK_INT(archive_age(s.a, s.organisation, s.sandbox, &ms, &e), -ENOENT);
    CHECK_INT(archive_forget(s.a, s.organisation, s.sandbox, &e), 0);
    CHECK_INT(keep(&s, &result, &e), 0);
    CHECK_INT(archive_age(s.a, s.organisation, s.sandbox, &ms, &e), 0);
    CHECK(ms + 60000 > clock_wall_ms());
    CHECK_INT(archive_forget(s.a, s.organisation, s.sandbox, &e), 0);
    CHECK_INT(bring(&s, FD_NONE, &result, &e), -ENOENT);
}

/* The manifest of one sandbox in another's place, or another organisation's. */
static void a_manifest_in_anothers_place_is_refused(void)
{
    CLEANUP(scene_done) struct scene s;
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
    struct archive_result result = {0};
    cleanup_free char *subject = NULL;
    char from[STORE_KEY_MAX + 1];
    char to[STORE_KEY_MAX + 1];
    struct err e = {0};

    scene_init(&s);
    CHECK_INT(keep(&s, &result, &e), 0);
    subject = xasprintf("sandboxes/%s", s.sandbox);
    archive_manifest_of(s.organisation, subject, from);
    CHECK_INT(store_get(s.a->store, from, &text, &e), 0);
    id_new(ID_SANDBOX, s.sandbox);
    free(subject);
    subject = xasprintf("sandboxes/%s", s.sandbox);
    archive_manifest_of(s.organisation, subject, to);
    CHECK_INT(store_put(s.a->store, to, text.data, text.len, &e), 0);
    CHECK_INT(bring(&s, FD_NONE, &result, &e), -EBADMSG);
    CHECK_STR(e.reason, "manifest_damaged");
}

static void a_rotated_key_reads_and_a_shredded_one_does_not(void)
{
    CLEANUP(scene_done) struct scene s;
    struct archive_result result = {0};
    uint64_t keys = 0;
    struct err e = {0};

    scene_init(&s);
    CHECK_INT(keep(&s, &result, &e), 0);
    CHECK_INT(archive_rotate(s.a, s.organisation, &keys, &e), 0);
    CHECK_INT(keys, 3); /* the tenant's, the image's, the sandbox's */
    CHECK_INT(bring(&s, FD_NONE, &result, &e), 0);
    CHECK_INT(keep(&s, &result, &e), 0);
    CHECK_INT(archive_shred(s.a, s.organisation, &e), 0);
    CHECK_INT(bring(&s, FD_NONE, &result, &e), -EACCES);
    CHECK_STR(e.reason, "key_refused");
}

/* ---- collecting ---- */

static int count(void *ctx, const struct store_object *object)
{
    (void)object;
    ++*(unsigned *)ctx;
    return 0;
}

static unsigned objects(struct scene *s)
{
    unsigned n = 0;

    CHECK_INT(store_list(s->a->store, "", count, &n, NULL), 0);
    return n;
}

static void visit(struct scene *s, uint64_t now_ms, uint64_t condemned, uint64_t removed)
{
    struct collect_result result = {0};
    struct err e = {0};

    CHECK_INT(collect_at(s->a, now_ms, GRACE_MS, &result, &e), 0);
    CHECK_STR(e.msg, "");
    CHECK_INT(result.condemned, condemned);
    CHECK_INT(result.removed, removed);
}

static void what_nothing_names_goes_with_the_second_visit(void)
{
    CLEANUP(scene_done) struct scene s;
    struct archive_result result = {0};
    uint64_t now = clock_wall_ms() + 60000;
    unsigned before;
    struct err e = {0};

    scene_init(&s);
    CHECK_INT(keep(&s, &result, &e), 0);
    before = objects(&s);
    visit(&s, now, 0, 0); /* all of it is needed */
    CHECK_INT(objects(&s), before);
    CHECK_INT(archive_forget(s.a, s.organisation, s.sandbox, &e), 0);
    visit(&s, clock_wall_ms(), 0, 0); /* too young */
    visit(&s, now, before - 3, 0); /* but for the tenant's key, manifest and key of the sandbox */
    visit(&s, now + GRACE_MS / 2, 0, 0);
    visit(&s, now + 2 * GRACE_MS, 0, before - 3);
    CHECK_INT(objects(&s), 1);
}

static void what_is_named_again_after_it_was_condemned_stays(void)
{
    CLEANUP(scene_done) struct scene s;
    struct archive_result result = {0};
    uint64_t now = clock_wall_ms() + 60000;
    struct err e = {0};

    scene_init(&s);
    CHECK_INT(keep(&s, &result, &e), 0);
    CHECK_INT(archive_forget(s.a, s.organisation, s.sandbox, &e), 0);
    CHECK_INT(collect_at(s.a, now, GRACE_MS, &(struct collect_result){0}, &e), 0);
    CHECK_INT(keep(&s, &result, &e), 0);
    CHECK(result.stats.uploaded_bytes > 0); /* anew, although it was there */
    CHECK_INT(result.images, 1);
    CHECK_INT(collect_at(s.a, now + 2 * GRACE_MS, GRACE_MS, &(struct collect_result){0}, &e), 0);
    CHECK_INT(collect_at(s.a, now + 4 * GRACE_MS, GRACE_MS, &(struct collect_result){0}, &e), 0);
    CHECK_INT(bring(&s, FD_NONE, &result, &e), 0);
    CHECK_STR(e.msg, "");
}

static void a_manifest_that_cannot_be_read_stops_the_collection(void)
{
    CLEANUP(scene_done) struct scene s;
    cleanup_free char *subject = NULL;
    struct archive_result result = {0};
    char key[STORE_KEY_MAX + 1];
    unsigned before;
    struct err e = {0};

    scene_init(&s);
    CHECK_INT(keep(&s, &result, &e), 0);
    subject = xasprintf("sandboxes/%s", s.sandbox);
    archive_manifest_of(s.organisation, subject, key);
    CHECK_INT(store_put(s.a->store, key, "{", 1, &e), 0);
    before = objects(&s);
    CHECK(collect_at(s.a, clock_wall_ms() + 60000, GRACE_MS, &(struct collect_result){0}, &e) < 0);
    CHECK(collect_at(s.a, clock_wall_ms() + 90000, GRACE_MS, &(struct collect_result){0}, &e) < 0);
    CHECK_INT(objects(&s), before);
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

TEST_MAIN(T(a_sandbox_comes_back_with_and_without_its_image_here),
          T(an_image_that_is_another_is_not_laid_under), T(what_is_not_stored_says_so),
          T(a_manifest_in_anothers_place_is_refused),
          T(a_rotated_key_reads_and_a_shredded_one_does_not),
          T(what_nothing_names_goes_with_the_second_visit),
          T(what_is_named_again_after_it_was_condemned_stays),
          T(a_manifest_that_cannot_be_read_stops_the_collection))

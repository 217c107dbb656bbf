/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fs.h"
#include "base/test.h"
#include "cli/copy-local.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder `in` to write below, beside one that must stay as it is. */
struct place {
    char top[64];
    int top_fd;
    int fd;
};

static void place_init(struct place *p)
{
    snprintf(p->top, sizeof(p->top), "/tmp/space-copy-XXXXXX");
    REQUIRE(mkdtemp(p->top));
    p->top_fd = open(p->top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK_INT(mkdirat(p->top_fd, "in", 0755), 0);
    CHECK_INT(mkdirat(p->top_fd, "outside", 0755), 0);
    p->fd = openat(p->top_fd, "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    REQUIRE(p->fd >= 0);
}

static void place_done(struct place *p)
{
    struct stat st;

    CHECK(fstatat(p->top_fd, "outside/x", &st, AT_SYMLINK_NOFOLLOW) < 0);
    close(p->fd);
    close(p->top_fd);
    CHECK_INT(fs_remove_tree(AT_FDCWD, p->top), 0);
}

static int put(int fd, const char *path, const char *text)
{
    CLEANUP(copy_file_done) struct copy_file f = COPY_FILE_INIT;
    int r = copy_file_begin(fd, path, &f);

    r = r < 0 ? r : copy_file_write(&f, text, strlen(text));
    return r < 0 ? r : copy_file_commit(&f, 0640);
}

static void paths_that_could_leave_are_refused(void)
{
    static const char *const bad[] = {"",      "/",    "/a",   "a/",     "a//b",          ".",
                                      "..",    "a/..", "../a", "a/../b", "./a",           "a/.",
                                      "a/./b", "..//", "//",   "a/b/..", "a/b/../../../c"};
    static const char *const good[] = {"a", "a/b", "...", "..a", "a..", ".a", "a\nb", "\xff", "-"};
    char long_name[300];
    struct place p;

    place_init(&p);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CHECK(!copy_local_path_valid(bad[i]));
        CHECK_INT(put(p.fd, bad[i], "x"), -EINVAL);
        CHECK_INT(copy_local_mkdir(p.fd, bad[i], 0755, NULL), -EINVAL);
        CHECK_INT(copy_local_symlink(p.fd, bad[i], "x"), -EINVAL);
        CHECK_INT(copy_local_chmod_dir(p.fd, bad[i], 0), -EINVAL);
    }
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        CHECK(copy_local_path_valid(good[i]));
    }
    memset(long_name, 'x', sizeof(long_name));
    long_name[256] = '\0';
    CHECK(!copy_local_path_valid(long_name));
    long_name[255] = '\0';
    CHECK(copy_local_path_valid(long_name));
    place_done(&p);
}

static void links_are_never_followed(void)
{
    static const char *const targets[] = {"../outside", "/tmp", ".", "outside", ".."};
    struct place p;

    place_init(&p);
    for (size_t i = 0; i < ARRAY_SIZE(targets); i++) {
        CHECK_INT(copy_local_symlink(p.fd, "l", targets[i]), 0);
        CHECK(put(p.fd, "l/x", "bad") < 0);
        CHECK(copy_local_mkdir(p.fd, "l/x", 0755, NULL) < 0);
        CHECK(copy_local_mkdir(p.fd, "l", 0755, NULL) < 0);
        CHECK(copy_local_symlink(p.fd, "l/x", "y") < 0);
        CHECK(copy_local_chmod_dir(p.fd, "l", 0) < 0);
    }
    /* In the place of an entry a link is replaced. */
    CHECK_INT(put(p.fd, "l", "good"), 0);
    CHECK_INT(copy_local_symlink(p.fd, "l", "elsewhere"), 0);
    place_done(&p);
}

static void an_unfinished_file_leaves_nothing(void)
{
    struct copy_file f = COPY_FILE_INIT;
    struct stat st;
    struct place p;

    place_init(&p);
    CHECK_INT(put(p.fd, "keep", "old"), 0);
    CHECK_INT(copy_file_begin(p.fd, "keep", &f), 0);
    CHECK_INT(copy_file_write(&f, "new", 3), 0);
    CHECK_INT(fstatat(p.fd, f.temp, &st, 0), 0);
    CHECK_INT(st.st_mode & 077, 0);
    copy_file_done(&f);
    copy_file_done(&f);
    CHECK_INT(fstatat(p.fd, "keep", &st, 0), 0);
    CHECK_INT(st.st_size, 3);
    CHECK_INT(unlinkat(p.fd, "keep", 0), 0);
    CHECK_INT(unlinkat(p.top_fd, "in", AT_REMOVEDIR), 0); /* empty */
    CHECK_INT(mkdirat(p.top_fd, "in", 0755), 0);
    place_done(&p);
}

static void zeros_become_holes(void)
{
    static char data[1 << 20];
    static char back[1 << 20];
    cleanup_close int fd = FD_NONE;
    CLEANUP(copy_file_done) struct copy_file f = COPY_FILE_INIT;
    struct stat st;
    struct place p;

    place_init(&p);
    memset(data + 5000, 'x', 100);
    CHECK_INT(copy_file_begin(p.fd, "f", &f), 0);
    /* In uneven pieces, so that blocks are cut. */
    for (size_t at = 0; at < sizeof(data);) {
        size_t n = MIN((size_t)3333, sizeof(data) - at);

        CHECK_INT(copy_file_write(&f, data + at, n), 0);
        at += n;
    }
    CHECK_INT(copy_file_commit(&f, 04755), 0);
    fd = openat(p.fd, "f", O_RDONLY | O_CLOEXEC);
    REQUIRE(fd >= 0 && fstat(fd, &st) == 0);
    CHECK_INT(st.st_size, sizeof(data));
    CHECK_INT(st.st_mode & 07777, 0755);
    CHECK(st.st_blocks * 512 < (1 << 18));
    CHECK_INT(fs_read_full(fd, back, sizeof(back)), sizeof(back));
    CHECK_MEM(back, data, sizeof(data));
    place_done(&p);
}

TEST_MAIN(T(paths_that_could_leave_are_refused), T(links_are_never_followed),
          T(an_unfinished_file_leaves_nothing), T(zeros_become_holes))

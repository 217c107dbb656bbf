/* SPDX-License-Identifier: Apache-2.0 */
/* Listing: paging, cursors, depth, what cannot be read. */
#include "daemon/file-harness.h"

#include <sys/wait.h>

struct page {
    json_t *root; /* owned */
    json_t *entries;
    json_t *errors;
    const char *next;
};

static void page_done(struct page *p)
{
    json_decref(p->root);
    *p = (struct page){0};
}
#define PAGE CLEANUP(page_done) struct page

/* The page at this cursor; false when there is none. */
static bool get_page(struct page *p, const char *query, const char *cursor)
{
    cleanup_free char *all = cursor ? xasprintf("%s&cursor=%s", query, cursor) : xstrdup(query);
    ANSWER a = ANSWER_INIT;

    page_done(p);
    ask(&a, FILE_OP_LIST, all);
    CHECK_INT(a.err.code, 0);
    if (a.err.code || json_parse_object(a.body.data, a.body.len, &p->root, NULL) < 0) {
        TEST_FAIL("no page: %s", a.err.msg);
        return false;
    }
    p->entries = json_object_get(p->root, "entries");
    p->errors = json_object_get(p->root, "errors");
    p->next = json_string_value(json_object_get(p->root, "next_cursor"));
    return true;
}

static const char *entry_path(const struct page *p, size_t i)
{
    return json_string_value(json_object_get(json_array_get(p->entries, i), "path"));
}

static void make_many(const char *dir, size_t n)
{
    cleanup_close int fd = FD_NONE;

    put_dir(dir, 0755, 1000);
    fd = open(inside(dir), O_PATH | O_CLOEXEC);
    for (size_t i = 0; i < n; i++) {
        char name[32];

        snprintf(name, sizeof(name), "f%06zu", i * 7919 % n); /* not in order */
        ASSERT(mknodat(fd, name, S_IFREG | 0644, 0) == 0);
    }
}

static void hundred_thousand_entries_each_once(void)
{
    enum {
        N = 100000
    };
    NEED_HARNESS;
    cleanup_free char *seen = xcalloc(1, N);
    cleanup_free char *cursor = NULL;
    PAGE p = {0};
    size_t total = 0;
    size_t pages = 0;
    uint64_t start;

    make_many("/tmp/big", N);
    start = clock_now_ns();
    do {
        REQUIRE(get_page(&p, "path=/tmp/big&limit=5000", cursor));
        for (size_t i = 0; i < json_array_size(p.entries); i++) {
            size_t number = (size_t)strtoul(entry_path(&p, i) + strlen("/tmp/big/f"), NULL, 10);

            REQUIRE(number < N && !seen[number]);
            seen[number] = 1;
            total++;
        }
        pages++;
        free(cursor);
        cursor = p.next ? xstrdup(p.next) : NULL;
    } while (cursor);
    printf("# %zu pages in %llu ms\n", pages,
           (unsigned long long)((clock_now_ns() - start) / NS_PER_MS));
    CHECK_INT(total, N);
    CHECK_INT(pages, N / 5000);
}

static void cursor_survives_removal_and_addition(void)
{
    NEED_HARNESS;
    cleanup_free char *cursor = NULL;
    PAGE p = {0};

    put_dir("/tmp/stable", 0755, 1000);
    for (char c = 'a'; c <= 'h'; c++) {
        char path[] = "/tmp/stable/?";

        path[strlen(path) - 1] = c;
        put(path, "", 0644, 1000);
    }
    REQUIRE(get_page(&p, "path=/tmp/stable&limit=3", cursor));
    CHECK_STR(entry_path(&p, 2), "/tmp/stable/c");
    cursor = xstrdup(p.next);
    unlink(inside("/tmp/stable/c")); /* the one the cursor names */
    unlink(inside("/tmp/stable/d"));
    put("/tmp/stable/bb", "", 0644, 1000);
    REQUIRE(get_page(&p, "path=/tmp/stable&limit=3", cursor));
    CHECK_STR(entry_path(&p, 0), "/tmp/stable/e");
    CHECK_STR(entry_path(&p, 2), "/tmp/stable/g");
    free(cursor);
    cursor = xstrdup(p.next);
    REQUIRE(get_page(&p, "path=/tmp/stable&limit=3", cursor));
    CHECK_INT(json_array_size(p.entries), 1);
    CHECK(!p.next);
}

/* A tree told page by page must be the same as at once, whatever the page size. */
static void pages_of_a_tree_add_up(void)
{
    NEED_HARNESS;
    static const char *const dirs[] = {"/tmp/tree",      "/tmp/tree/a", "/tmp/tree/a/a",
                                       "/tmp/tree/a/b",  "/tmp/tree/b", "/tmp/tree/b/c",
                                       "/tmp/tree/b/c/d"};
    PAGE whole = {0};

    for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
        cleanup_free char *one = xasprintf("%s/one", dirs[i]);
        cleanup_free char *two = xasprintf("%s/a-b", dirs[i]);

        put_dir(dirs[i], 0755, 1000);
        put(one, "1", 0644, 1000);
        put(two, "2", 0644, 1000);
    }
    ASSERT(symlink("..", inside("/tmp/tree/b/loop")) == 0);
    REQUIRE(get_page(&whole, "path=/tmp/tree&depth=10", /* cursor */ NULL));
    CHECK_INT(json_array_size(whole.entries), 6 + 14 + 1);
    for (unsigned limit = 1; limit <= 7; limit++) {
        cleanup_free char *query = xasprintf("path=/tmp/tree&depth=10&limit=%u", limit);
        cleanup_free char *cursor = NULL;
        size_t at = 0;

        do {
            PAGE p = {0};

            REQUIRE(get_page(&p, query, cursor));
            for (size_t i = 0; i < json_array_size(p.entries); i++, at++) {
                CHECK_STR(entry_path(&p, i), entry_path(&whole, at));
            }
            free(cursor);
            cursor = p.next ? xstrdup(p.next) : NULL;
        } while (cursor && at < 100);
        CHECK_INT(at, json_array_size(whole.entries));
    }
}

static void depth_limits_and_unreadable_folders(void)
{
    NEED_HARNESS;
    PAGE p = {0};

    put_dir("/tmp/closed", 0755, 1000);
    put_dir("/tmp/closed/locked", 0700, 0);
    put("/tmp/closed/locked/inner", "x", 0644, 0);
    put("/tmp/closed/open", "x", 0644, 0);
    REQUIRE(get_page(&p, "path=/tmp/closed&depth=5&user=user", /* cursor */ NULL));
    CHECK_INT(json_array_size(p.entries), 2);
    CHECK_INT(json_array_size(p.errors), 1);
    CHECK_STR(json_string_value(json_object_get(json_array_get(p.errors, 0), "path")),
              "/tmp/closed/locked");
    CHECK_STR(json_string_value(json_object_get(json_array_get(p.errors, 0), "code")),
              "permission_denied");
    REQUIRE(get_page(&p, "path=/tmp/closed&depth=5&user=root", /* cursor */ NULL));
    CHECK_INT(json_array_size(p.entries), 3);
    CHECK_INT(json_array_size(p.errors), 0);
    REQUIRE(get_page(&p, "path=/tmp/closed&user=root", /* cursor */ NULL));
    CHECK_INT(json_array_size(p.entries), 2);
}

static void folder_replaced_by_a_link_between_pages(void)
{
    NEED_HARNESS;
    cleanup_free char *cursor = NULL;
    PAGE p = {0};

    put_dir("/tmp/swap", 0755, 1000);
    put_dir("/tmp/swap/dir", 0755, 1000);
    put("/tmp/swap/dir/a", "", 0644, 1000);
    put("/tmp/swap/dir/b", "", 0644, 1000);
    put("/tmp/swap/last", "", 0644, 1000);
    REQUIRE(get_page(&p, "path=/tmp/swap&depth=3&limit=2", cursor));
    CHECK_STR(entry_path(&p, 1), "/tmp/swap/dir/a");
    cursor = xstrdup(p.next);
    ASSERT(rename(inside("/tmp/swap/dir"), inside("/tmp/elsewhere")) == 0);
    ASSERT(symlink("/etc", inside("/tmp/swap/dir")) == 0);
    REQUIRE(get_page(&p, "path=/tmp/swap&depth=3&limit=2", cursor));
    CHECK_INT(json_array_size(p.entries), 1);
    CHECK_STR(entry_path(&p, 0), "/tmp/swap/last");
}

static void odd_and_wrong_requests(void)
{
    static const struct {
        const char *query;
        int code;
        const char *field;
    } cases[] = {
        {"path=/tmp&limit=0", -EINVAL, "limit"},
        {"path=/tmp&limit=10001", -EINVAL, "limit"},
        {"path=/tmp&depth=0", -EINVAL, "depth"},
        {"path=/tmp&depth=x", -EINVAL, "depth"},
        {"path=/tmp&cursor=!!!!", -EINVAL, "cursor"},
        {"path=/tmp&cursor=MS4u", -EINVAL, "cursor"},
        {"path=/tmp&cursor=MS9ldGM.", -EINVAL, "cursor"},
        {"path=/etc/passwd", -ENOTDIR, ""},
        {"path=/tmp/none", -ENOENT, ""},
        {"depth=1", -EINVAL, "path"},
    };
    NEED_HARNESS;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ANSWER a = ANSWER_INIT;

        ask(&a, FILE_OP_LIST, cases[i].query);
        CHECK_INT(a.err.code, cases[i].code);
        CHECK_STR(a.err.field, cases[i].field);
    }
}

static void listing_while_entries_come_and_go(void)
{
    NEED_HARNESS;
    pid_t pid;

    make_many("/tmp/busy", 500);
    pid = fork();
    if (pid == 0) {
        int fd = open(inside("/tmp/busy"), O_PATH | O_CLOEXEC);

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            IGNORE_RESULT(symlinkat("nowhere", fd, "a-flicker")); /* the next turn tries again */
            mkdirat(fd, "b-flicker", 0755);
            unlinkat(fd, "a-flicker", 0);
            unlinkat(fd, "b-flicker", AT_REMOVEDIR);
        }
    }
    for (int i = 0; i < 60; i++) {
        PAGE p = {0};
        size_t n_files = 0;

        if (!get_page(&p, "path=/tmp/busy&depth=3", /* cursor */ NULL)) {
            break;
        }
        for (size_t j = 0; j < json_array_size(p.entries); j++) {
            n_files += entry_path(&p, j)[strlen("/tmp/busy/")] == 'f';
        }
        CHECK_INT(n_files, 500);
        CHECK_INT(json_array_size(p.errors), 0);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void proc_is_listed_with_depth(void)
{
    NEED_HARNESS;
    cleanup_free char *cursor = NULL;
    PAGE p = {0};

    /* Processes, threads and descriptors that come and go, links of all kinds. Pages end. */
    for (int i = 0; i < 5 && (i == 0 || cursor); i++) {
        REQUIRE(get_page(&p, "path=/proc&depth=4&limit=300&user=root", cursor));
        free(cursor);
        cursor = p.next ? xstrdup(p.next) : NULL;
    }
    CHECK(cursor);
}

static void nothing_is_left(void)
{
    harness_free();
    CHECK(!harness.loop);
}

TEST_MAIN(T(hundred_thousand_entries_each_once), T(cursor_survives_removal_and_addition),
          T(pages_of_a_tree_add_up), T(depth_limits_and_unreadable_folders),
          T(folder_replaced_by_a_link_between_pages), T(odd_and_wrong_requests),
          T(listing_while_entries_come_and_go), T(proc_is_listed_with_depth), T(nothing_is_left))

/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/conformance-store.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/test.h"

static struct store *store;

static void put(const char *key, const char *text)
{
    struct err e = {0};

    CHECK_INT(store_put(store, key, text, strlen(text), &e), 0);
}

static void holds(const char *key, const char *text)
{
    cleanup_buf struct buf b = BUF_INIT(1000);
    struct err e = {0};

    CHECK_INT(store_get(store, key, &b, &e), 0);
    CHECK_STR(buf_str(&b), text);
}

static void what_was_put_is_there(void)
{
    put("one/two/three.json", "hello");
    holds("one/two/three.json", "hello");
    put("one/two/three.json", "");
    holds("one/two/three.json", "");
    put("one/two/three.json", "other");
    holds("one/two/three.json", "other");
}

static void what_is_not_there_is_missing(void)
{
    cleanup_buf struct buf b = BUF_INIT(1000);
    struct store_object object;
    struct err e = {0};

    CHECK_INT(store_get(store, "no/such", &b, &e), -ENOENT);
    CHECK_STR(e.reason, "object_missing");
    e = (struct err){0};
    CHECK_INT(store_stat(store, "no/such", &object, &e), -ENOENT);
    CHECK_STR(e.reason, "object_missing");
    CHECK_INT(store_remove(store, "no/such", &e), 0);
    CHECK_INT(store_get(store, "one", &b, &e), -ENOENT); /* above what is there is nothing */
}

static void removed_is_gone(void)
{
    struct store_object object;
    struct err e = {0};

    put("gone/a", "x");
    CHECK_INT(store_remove(store, "gone/a", &e), 0);
    CHECK_INT(store_stat(store, "gone/a", &object, &e), -ENOENT);
}

static void size_and_time_are_told(void)
{
    uint64_t now = clock_wall_ms();
    struct store_object object = {0};
    struct err e = {0};

    put("size/a", "12345");
    CHECK_INT(store_stat(store, "size/a", &object, &e), 0);
    CHECK_STR(object.key, "size/a");
    CHECK_INT(object.size, 5);
    CHECK(object.modified_ms + 2000 >= now && object.modified_ms <= now + 60000);
}

static void more_than_may_be_is_refused(void)
{
    cleanup_buf struct buf b = BUF_INIT(4);
    struct err e = {0};

    put("large/a", "12345");
    CHECK_INT(store_get(store, "large/a", &b, &e), -E2BIG);
    CHECK_INT(b.len, 0);
}

/* 20 MiB: in parts, where a store wants parts. */
static void a_large_object_is_whole(void)
{
    size_t len = (20u << 20) + 5;
    cleanup_free char *data = xmalloc(len);
    cleanup_buf struct buf b = BUF_INIT(STORE_OBJECT_MAX);
    struct err e = {0};

    random_bytes(data, len);
    CHECK_INT(store_put(store, "large/b", data, len, &e), 0);
    CHECK_INT(store_get(store, "large/b", &b, &e), 0);
    CHECK_INT(b.len, len);
    CHECK(b.len == len && memcmp(b.data, data, len) == 0);
}

struct names {
    char text[400];
    unsigned n;
    uint64_t size;
};

static int note(void *ctx, const struct store_object *object)
{
    struct names *names = ctx;

    names->n++;
    names->size += object->size;
    CHECK(object->modified_ms > 0);
    if (strlen(object->key) == strlen("list/x/a")) {
        size_t at = strlen(names->text);

        snprintf(names->text + at, sizeof(names->text) - at, "%c",
                 object->key[strlen(object->key) - 1]);
    }
    return 0;
}

static int by_byte(const void *a, const void *b)
{
    return *(const char *)a - *(const char *)b;
}

static void a_list_has_all_below_and_no_other(void)
{
    struct names names = {0};
    struct err e = {0};

    for (char c = 'a'; c <= 'h'; c++) {
        char key[] = "list/x/?";

        key[7] = c;
        put(key, "12");
    }
    put("list/xy/a", "no");
    put("list/y/z/deep", "1");
    CHECK_INT(store_list(store, "list/x/", note, &names, &e), 0);
    qsort(names.text, strlen(names.text), 1, by_byte); /* in no order */
    CHECK_STR(names.text, "abcdefgh");
    CHECK_INT(names.size, 16);
    names = (struct names){0};
    CHECK_INT(store_list(store, "list/", note, &names, &e), 0);
    CHECK_INT(names.n, 10);
    names = (struct names){0};
    CHECK_INT(store_list(store, "nothing/here/", note, &names, &e), 0);
    CHECK_INT(names.n, 0);
}

static int stop(void *ctx, const struct store_object *object)
{
    unsigned *n = ctx;

    (void)object;
    return ++*n == 2 ? -ENOTEMPTY : 0;
}

static void a_list_ends_when_it_is_told_to(void)
{
    unsigned n = 0;
    struct err e = {0};

    CHECK_INT(store_list(store, "list/x/", stop, &n, &e), -ENOTEMPTY);
    CHECK_INT(n, 2);
}

static void names_that_lead_elsewhere_are_none(void)
{
    CHECK(store_key_valid("a/b-c.d/e"));
    CHECK(!store_key_valid(""));
    CHECK(!store_key_valid("/a"));
    CHECK(!store_key_valid("a/"));
    CHECK(!store_key_valid("a//b"));
    CHECK(!store_key_valid("../a"));
    CHECK(!store_key_valid("a/../b"));
    CHECK(!store_key_valid("a/.b"));
    CHECK(!store_key_valid("a b"));
    CHECK(!store_key_valid("A"));
}

static void close_it(void)
{
    store_free(TAKE_PTR(store));
}

__attribute__((constructor)) static void open_it(void)
{
    store = conformance_open();
    atexit(close_it);
}

TEST_MAIN(T(what_was_put_is_there), T(what_is_not_there_is_missing), T(removed_is_gone),
          T(size_and_time_are_told), T(more_than_may_be_is_refused), T(a_large_object_is_whole),
          T(a_list_has_all_below_and_no_other), T(a_list_ends_when_it_is_told_to),
          T(names_that_lead_elsewhere_are_none))

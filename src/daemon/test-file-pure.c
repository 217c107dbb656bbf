/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the file service that are bytes in, bytes out. */
#include "base/json.h"
#include "base/test.h"
#include "daemon/file-entry.h"
#include "daemon/file-more.h"
#include "daemon/file-proto.h"
#include "daemon/file-request.h"
#include "daemon/file-text.h"
#include "daemon/watch-tree.h"

static void names_in_json(void)
{
    static const struct {
        const char *in;
        const char *out;
    } cases[] = {
        {"plain", "\"k\":\"plain\""},
        {"", "\"k\":\"\""},
        {"a\"b\\c\n\t\x01\x7f", "\"k\":\"a\\\"b\\\\c\\n\\u0009\\u0001\\u007f\""},
        {"caf\xc3\xa9 \xf0\x9f\x98\x80", "\"k\":\"caf\xc3\xa9 \xf0\x9f\x98\x80\""},
        {"\x80", "\"k\":\"\xef\xbf\xbd\",\"k_base64\":\"gA==\""},
        {"\xc0\xaf", "\"k\":\"\xef\xbf\xbd\xef\xbf\xbd\",\"k_base64\":\"wK8=\""}, /* overlong */
        {"\xed\xa0\x80",
         "\"k\":\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\",\"k_base64\":\"7aCA\""}, /* surrogate */
        {"\xf4\x90\x80\x80x",
         "\"k\":\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdx\",\"k_base64\":\"9JCAgHg=\""},
        {"cut\xe2\x82", "\"k\":\"cut\xef\xbf\xbd\xef\xbf\xbd\",\"k_base64\":\"Y3V04oI=\""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_buf struct buf b = BUF_INIT(1000);

        CHECK_INT(file_text_member(&b, "k", cases[i].in), 0);
        CHECK_STR(buf_str(&b), cases[i].out);
    }
}

static void names_in_messages(void)
{
    char out[24];

    CHECK_STR(file_text_show(out, sizeof(out), "a\nb\xff"), "a\\x0ab\\xff");
    CHECK_STR(file_text_show(out, sizeof(out), "0123456789012345678901234567890"),
              "01234567890123456...");
    CHECK_STR(file_text_show(out, sizeof(out), ""), "");
}

static void metadata_is_printable_and_bounded(void)
{
    static const char *const good[] = {"{}", "{\"a\":\"b c\"}", "{\"a-b.c\":\"\"}"};
    static const char *const bad[] = {"",
                                      "[]",
                                      "{\"a\":1}",
                                      "{\"\":\"x\"}",
                                      "{\"a\":\"\\n\"}",
                                      "{\"a\":\"\\u0000\"}",
                                      "{\"\xc3\xbc\":\"x\"}",
                                      "{\"a\":\"b\"} x"};
    cleanup_free char *value = xcalloc(FILE_METADATA_MAX + 1, 1);
    cleanup_free char *fits = NULL;
    cleanup_free char *too_long = NULL;
    cleanup_free char *long_key = NULL;
    struct err e = {0};

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        CHECK_INT(file_metadata_check(good[i], NULL), 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CHECK_INT(file_metadata_check(bad[i], &e), -EINVAL);
        CHECK_STR(e.field, "metadata");
    }
    memset(value, 'v', FILE_METADATA_MAX);
    too_long = xasprintf("{\"k\":\"%s\"}", value);
    long_key = xasprintf("{\"%.*s\":\"\"}", (int)FILE_METADATA_KEY_MAX + 1, value);
    value[FILE_METADATA_MAX - 1] = '\0';
    fits = xasprintf("{\"k\":\"%s\"}", value);
    CHECK_INT(file_metadata_check(fits, NULL), 0);
    CHECK_INT(file_metadata_check(too_long, NULL), -EINVAL);
    CHECK_INT(file_metadata_check(long_key, NULL), -EINVAL);
}

static void modes(void)
{
    static const struct {
        const char *text;
        int mode; /* -1: refused */
    } cases[] = {{"0644", 0644}, {"755", 0755}, {"0", 0},   {"7777", 07777}, {"10000", -1},
                 {"", -1},       {"8", -1},     {"-1", -1}, {"0x1", -1},     {"00000000644", -1}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int mode = -1;

        CHECK_INT(file_mode_parse(cases[i].text, &mode), cases[i].mode < 0 ? -EINVAL : 0);
        CHECK_INT(mode, cases[i].mode);
    }
}

static void range_headers(void)
{
    static const struct {
        const char *text;
        enum file_range_kind kind;
        uint64_t first;
        uint64_t last;
    } cases[] = {
        {NULL, FILE_RANGE_ALL, 0, 0},
        {"bytes=0-0", FILE_RANGE_BETWEEN, 0, 0},
        {"bytes=5-", FILE_RANGE_FROM, 5, 0},
        {"bytes=-5", FILE_RANGE_TAIL, 0, 5},
        {"bytes=5-4", FILE_RANGE_ALL, 0, 0},
        {"bytes=-", FILE_RANGE_ALL, 0, 0},
        {"bytes=", FILE_RANGE_ALL, 0, 0},
        {"bytes=1-2,3-4", FILE_RANGE_ALL, 0, 0},
        {"bytes= 1-2", FILE_RANGE_ALL, 0, 0},
        {"bytes=18446744073709551615-", FILE_RANGE_FROM, UINT64_MAX, 0},
        {"bytes=18446744073709551616-", FILE_RANGE_ALL, 0, 0},
        {"Bytes=1-2", FILE_RANGE_ALL, 0, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct file_range range;

        file_range_parse(cases[i].text, &range);
        CHECK_INT(range.kind, cases[i].kind);
        CHECK(range.first == cases[i].first && range.last == cases[i].last);
    }
}

static void cursors_come_back(void)
{
    static const char *const paths[] = {"a", "a/b/c", "\xff\xfe/?", "...", ".a/..b"};
    static const char *const bad[] = {"",     "MQ..", "MS4u",     "MWEvLi4vYg..", "MS9h",
                                      "Mm14", "MWE=", "MWEvL2I.", "MWEv"};
    char *out = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        cleanup_free char *token = file_cursor_print(paths[i]);
        cleanup_free char *back = NULL;

        CHECK_INT(file_cursor_parse(token, &back), 0);
        CHECK_STR(back, paths[i]);
        CHECK_INT(
            strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."),
            strlen(token));
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CHECK_INT(file_cursor_parse(bad[i], &out), -EINVAL);
    }
}

static void longest_cursor_fits(void)
{
    cleanup_free char *path = xmalloc(FILE_PATH_MAX + 1);
    cleanup_free char *token = NULL;
    cleanup_free char *back = NULL;

    memset(path, 'x', FILE_PATH_MAX);
    for (size_t i = 200; i < FILE_PATH_MAX; i += 200) {
        path[i] = '/';
    }
    path[FILE_PATH_MAX] = '\0';
    token = file_cursor_print(path);
    CHECK_INT(file_cursor_parse(token, &back), 0);
    CHECK_STR(back, path);
}

static void worker_messages(void)
{
    union {
        uint32_t type;
        char bytes[FILE_MSG_MAX + 1];
    } p = {0};
    struct file_head head = {
        .flags = FILE_HEAD_CONTENT | FILE_HEAD_LENGTH, .length = 5, .owner = "user"};
    struct file_fault fault = {.code = -ENOENT, .reason = "not_found", .msg = "'x' does not exist"};
    struct file_msg m;
    size_t head_len = sizeof(uint32_t) + sizeof(head);
    size_t fault_len = sizeof(uint32_t) + sizeof(fault);

    p.type = FILE_MSG_HEAD;
    memcpy(p.bytes + 4, &head, sizeof(head));
    CHECK_INT(file_msg_parse(p.bytes, head_len, &m), 0);
    CHECK_INT(m.head.length, 5);
    CHECK_INT(file_msg_parse(p.bytes, head_len - 1, &m), -EPROTO);
    CHECK_INT(file_msg_parse(p.bytes, head_len + 1, &m), -EPROTO);
    CHECK_INT(file_msg_parse(p.bytes, 3, &m), -EPROTO);
    head.owner[0] = '\n'; /* would split a header line */
    memcpy(p.bytes + 4, &head, sizeof(head));
    CHECK_INT(file_msg_parse(p.bytes, head_len, &m), -EPROTO);
    memset(head.owner, 'a', sizeof(head.owner)); /* no end */
    memcpy(p.bytes + 4, &head, sizeof(head));
    CHECK_INT(file_msg_parse(p.bytes, head_len, &m), -EPROTO);

    memset(&p, 0, sizeof(p));
    p.type = FILE_MSG_ERROR;
    memcpy(p.bytes + 4, &fault, sizeof(fault));
    CHECK_INT(file_msg_parse(p.bytes, fault_len, &m), 0);
    CHECK_STR(m.err.msg, "'x' does not exist");
    fault.code = 5;
    memcpy(p.bytes + 4, &fault, sizeof(fault));
    CHECK_INT(file_msg_parse(p.bytes, fault_len, &m), -EPROTO);
    fault.code = INT32_MIN;
    memcpy(p.bytes + 4, &fault, sizeof(fault));
    CHECK_INT(file_msg_parse(p.bytes, fault_len, &m), -EPROTO);

    p.type = FILE_MSG_BODY;
    CHECK_INT(file_msg_parse(p.bytes, FILE_MSG_MAX, &m), 0);
    CHECK_INT(m.body_len, FILE_BODY_CHUNK);
    CHECK_INT(file_msg_parse(p.bytes, FILE_MSG_MAX + 1, &m), -EPROTO);
    CHECK_INT(file_msg_parse(p.bytes, 4, &m), -EPROTO);
    p.type = FILE_MSG_END;
    CHECK_INT(file_msg_parse(p.bytes, 4, &m), 0);
    CHECK_INT(file_msg_parse(p.bytes, 5, &m), -EPROTO);
    p.type = 77;
    CHECK_INT(file_msg_parse(p.bytes, 4, &m), -EPROTO);
}

static void passwd_lines(void)
{
    static const char text[] =
        "# comment\n\nroot:x:0:0::/root:/bin/sh\nbad:x:12a:0::\nno id\n:x:5:5::\n"
        "huge:x:99999999999:1::\nuser:x:1000:1000::/home/user:/bin/sh\nlast:x:7";
    char name[16];
    uint32_t id = 0;

    CHECK_INT(file_names_find_id(text, "user", &id), 0);
    CHECK_INT(id, 1000);
    CHECK_INT(file_names_find_id(text, "use", &id), -ENOENT);
    CHECK_INT(file_names_find_id(text, "bad", &id), -ENOENT);
    CHECK_INT(file_names_find_id(text, "huge", &id), -ENOENT);
    CHECK_INT(file_names_find_id(text, "", &id), -ENOENT);
    CHECK_INT(file_names_find_name(text, 0, name, sizeof(name)), 0);
    CHECK_STR(name, "root");
    CHECK_INT(file_names_find_name(text, 7, name, sizeof(name)), 0);
    CHECK_STR(name, "last");
    CHECK_INT(file_names_find_name(text, 5, name, sizeof(name)), -ENOENT);
    CHECK_INT(file_names_find_name(text, 1000, name, 4), -ENOENT); /* no room */
}

static void count_removed(void *arg, int wd)
{
    (void)wd;
    ++*(int *)arg;
}

static void tree_of_watches(void)
{
    struct watch_tree t = {0};
    cleanup_buf struct buf b = BUF_INIT(4000);
    struct watch_node *root = watch_add(&t, /* parent */ NULL, "", 1);
    struct watch_node *a = watch_add(&t, root, "a", 2);
    struct watch_node *deep = watch_add(&t, a, "b", 3 + WATCH_BUCKETS);
    struct watch_node *z = watch_add(&t, root, "z", 3);
    int n = 0;

    CHECK(watch_find(&t, 3 + WATCH_BUCKETS) == deep && watch_find(&t, 3) == z &&
          !watch_find(&t, 4));
    CHECK_INT(watch_path(deep, "file", &b), 0);
    CHECK_STR(buf_str(&b), "a/b/file");
    buf_reset(&b);
    CHECK_INT(watch_path(root, "file", &b), 0);
    CHECK_STR(buf_str(&b), "file");
    buf_reset(&b);
    CHECK_INT(watch_path(root, /* name */ NULL, &b), 0);
    CHECK_STR(buf_str(&b), "");
    CHECK(!watch_move(a, deep, "loop"));
    CHECK(watch_move(a, z, "moved"));
    CHECK_INT(watch_path(deep, /* name */ NULL, &b), 0);
    CHECK_STR(buf_str(&b), "z/moved/b");
    CHECK(!watch_child(root, "a") && watch_child(z, "moved") == a);
    watch_seen_add(z, "x");
    z->seen_until = 100;
    CHECK(watch_seen_take(z, "x", 50));
    CHECK(!watch_seen_take(z, "x", 50));
    watch_seen_add(z, "y");
    CHECK(!watch_seen_take(z, "y", 100));
    CHECK_INT(z->n_seen, 0);
    watch_remove(&t, z, count_removed, &n);
    CHECK_INT(n, 3);
    CHECK_INT(t.n, 1);
    watch_tree_done(&t);
}

TEST_MAIN(T(names_in_json), T(names_in_messages), T(metadata_is_printable_and_bounded), T(modes),
          T(range_headers), T(cursors_come_back), T(longest_cursor_fits), T(worker_messages),
          T(passwd_lines), T(tree_of_watches))

/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "base/test.h"
#include "gateway/auth.h"
#include "gateway/ndjson.h"
#include "gateway/options.h"
#include "gateway/query.h"

/* --- options --- */

static int parse(struct options *ret, struct err *e, int argc, const char *const *words)
{
    char *argv[8] = {NULL};

    for (int i = 0; i < argc; i++) {
        argv[i] = (char *)(uintptr_t)words[i];
    }
    return options_parse(argc, argv, ret, e);
}
#define PARSE(ret_, e_, ...) \
    parse((ret_), (e_), (int)ARRAY_SIZE(((const char *const[]){__VA_ARGS__})), \
          (const char *const[]){__VA_ARGS__})

static void options_have_defaults_and_two_forms(void)
{
    struct options opts = {0};

    CHECK_INT(PARSE(&opts, NULL, "g"), 0);
    CHECK_STR(opts.listen, "127.0.0.1:7777");
    CHECK(!opts.create_key && !opts.user && !opts.console);
    CHECK_INT(PARSE(&opts, NULL, "g", "--listen", ":1", "--state-dir=/s"), 0);
    CHECK_STR(opts.listen, ":1");
    CHECK_STR(opts.state_dir, "/s");
    CHECK_INT(PARSE(&opts, NULL, "g", "--help"), 0);
    CHECK(opts.help);
}

static void wrong_options_are_named(void)
{
    struct options opts = {.listen = "untouched"};
    struct err e = {0};

    CHECK_INT(PARSE(&opts, &e, "g", "--lisen", ":1"), -EINVAL);
    CHECK(strstr(e.msg, "--lisen") != NULL);
    CHECK_INT(PARSE(&opts, &e, "g", "--listen"), -EINVAL);
    CHECK(strstr(e.msg, "--listen HOST:PORT") != NULL);
    CHECK_INT(PARSE(&opts, &e, "g", "--listen="), -EINVAL);
    CHECK_INT(PARSE(&opts, &e, "g", "--help=1"), -EINVAL);
    CHECK_INT(PARSE(&opts, &e, "g", "word"), -EINVAL);
    CHECK_INT(PARSE(&opts, &e, "g", "-l"), -EINVAL);
    CHECK_STR(opts.listen, "untouched");
}

/* --- keys --- */

static void made_keys_are_well_formed_and_hashed(void)
{
    struct api_key k = {0};
    char text[KEY_TEXT_SIZE];
    char hash[KEY_HASH_SIZE];

    auth_make_key(&k, text);
    CHECK(key_text_valid(text));
    CHECK(id_valid(ID_KEY, k.id));
    CHECK(str_starts(text, k.prefix));
    auth_hash(text, strlen(text), hash);
    CHECK_STR(k.hash, hash);
    auth_hash("abc", 3, hash);
    CHECK_STR(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

/* --- list queries --- */

static void queries_collect_filters(void)
{
    struct list_query list = {0};

    CHECK_INT(list_query_add(&list, "state", "running,deleting", NULL), 0);
    CHECK_INT(list.query.states, (1u << SANDBOX_STATE_RUNNING) | (1u << SANDBOX_STATE_DELETING));
    CHECK_INT(list_query_add(&list, "metadata.a.b", "", NULL), 0);
    CHECK_STR(list.query.filters[0].key, "a.b");
    CHECK_INT(list_query_add(&list, "limit", "1000", NULL), 0);
    CHECK_INT(list_query_add(&list, "builders", "false", NULL), 0);
    CHECK(list.query.no_builders);
    CHECK_INT(list_query_add(&list, "builders", "true", NULL), 0);
    CHECK(!list.query.no_builders);
    CHECK_INT(list_query_add(&list, "builders", "1", NULL), -EINVAL);
    for (int i = 1; i < SANDBOX_FILTER_MAX; i++) {
        CHECK_INT(list_query_add(&list, "metadata.x", "y", NULL), 0);
    }
    CHECK_INT(list_query_add(&list, "metadata.x", "y", NULL), -EINVAL);
}

static void cursors_come_back(void)
{
    static const char *const bad[] = {"",
                                      "-",
                                      "1-",
                                      "x-s0123456789abcdefghj",
                                      "1-p0123456789abcdefghj",
                                      "99999999999999999999-s0123456789abcdefghj",
                                      "-1-s0123456789abcdefghj"};
    struct list_query list = {0};
    char id[ID_SIZE];
    char cursor[LIST_CURSOR_SIZE];

    id_new(ID_SANDBOX, id);
    list_cursor_print(INT64_MAX, id, cursor);
    CHECK_INT(list_query_add(&list, "cursor", cursor, NULL), 0);
    CHECK_STR(list.query.after_id, id);
    CHECK_INT(list.query.after_ms, INT64_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CHECK_INT(list_query_add(&list, "cursor", bad[i], NULL), -EINVAL);
    }
}

/* --- lines --- */

static void broken_stream_gives_what_was_held_back_and_an_error(void)
{
    CLEANUP(ndjson_done) struct ndjson lines = NDJSON_INIT;

    CHECK_INT(ndjson_feed(&lines, "O\0\0\0\0\0\0\2\xe2\x82", 10), 0);
    CHECK_STR(buf_str(&lines.out), "");
    CHECK_INT(ndjson_cut(&lines), 0);
    CHECK(str_starts(buf_str(&lines.out),
                     "{\"type\":\"stdout\",\"data_base64\":\"4oI=\"}\n{\"type\":\"error\""));
}

static void nothing_may_follow_the_end(void)
{
    CLEANUP(ndjson_done) struct ndjson lines = NDJSON_INIT;

    CHECK_INT(ndjson_feed(&lines, "E\0\0\0\0\0\0\2{}", 10), 0);
    CHECK(lines.ended);
    CHECK_INT(ndjson_feed(&lines, "K\0\0\0\0\0\0\0", 8), -EPROTO);
}

TEST_MAIN(T(options_have_defaults_and_two_forms), T(wrong_options_are_named),
          T(made_keys_are_well_formed_and_hashed), T(queries_collect_filters), T(cursors_come_back),
          T(broken_stream_gives_what_was_held_back_and_an_error), T(nothing_may_follow_the_end))

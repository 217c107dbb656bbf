/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "wire/http1.h"

static enum http1_error parse_request(const char *text, struct http1_head *ret)
{
    return http1_parse_request(text, strlen(text), ret);
}

static void view_is(struct http1_view v, const char *want, const char *what)
{
    if (v.len != strlen(want) || (v.len && memcmp(v.p, want, v.len) != 0)) {
        TEST_FAIL("%s is '%.*s', not '%s'", what, (int)v.len, v.p, want);
    }
}

static void request_is_taken_apart(void)
{
    struct http1_head h;

    REQUIRE(
        parse_request("POST /a%20b?x=1&y HTTP/1.1\r\nHost: example.org:80\r\nContent-Length: 12\r\n"
                      "Expect: 100-Continue\r\nX-Empty:\r\nX-Space: \t a b \t\r\n\r\n",
                      &h) == HTTP1_OK);
    view_is(h.method, "POST", "method");
    view_is(h.target, "/a%20b?x=1&y", "target");
    view_is(h.path, "/a%20b", "path");
    view_is(h.query, "x=1&y", "query");
    view_is(h.authority, "example.org:80", "authority");
    CHECK_INT(h.framing, HTTP1_BODY_LENGTH);
    CHECK_INT(h.content_length, 12);
    CHECK(h.keep_alive && h.expect_continue && !h.upgrade);
    CHECK_INT(h.n_fields, 5);
    REQUIRE(http1_field_get(&h, "x-space"));
    view_is(http1_field_get(&h, "x-space")->value, "a b", "value");
    view_is(http1_field_get(&h, "X-EMPTY")->value, "", "empty value");
    CHECK(!http1_field_get(&h, "absent"));
}

static void targets_have_forms(void)
{
    static const struct {
        const char *line;
        enum http1_form form;
        const char *path;
        const char *authority;
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", HTTP1_FORM_ORIGIN, "/", "h"},
        {"GET http://h/p?q HTTP/1.1\r\nHost: h\r\n\r\n", HTTP1_FORM_ABSOLUTE, "/p", "h"},
        {"GET HTTPS://h:1?q HTTP/1.1\r\nHost: H:1\r\n\r\n", HTTP1_FORM_ABSOLUTE, "/", "h:1"},
        {"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", HTTP1_FORM_AUTHORITY, "", "h:443"},
        {"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", HTTP1_FORM_ASTERISK, "", "h"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct http1_head h;

        if (parse_request(cases[i].line, &h) != HTTP1_OK) {
            TEST_FAIL("refused: %s", cases[i].line);
            continue;
        }
        CHECK_INT(h.form, cases[i].form);
        view_is(h.path, cases[i].path, "path");
        view_is(h.authority, cases[i].authority, "authority");
    }
}

static const struct {
    const char *name;
    const char *text;
    enum http1_error why;
} ambiguous[] = {
    {"empty", "\r\n", HTTP1_BAD_LINE},
    {"no version", "GET /\r\nHost: h\r\n\r\n", HTTP1_BAD_LINE},
    {"two spaces", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n", HTTP1_BAD_TARGET},
    {"space at the end", "GET / HTTP/1.1 \r\nHost: h\r\n\r\n", HTTP1_BAD_LINE},
    {"tab", "GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n", HTTP1_BAD_LINE},
    {"method with colon", "GE:T / HTTP/1.1\r\nHost: h\r\n\r\n", HTTP1_BAD_LINE},
    {"long method", "ABCDEFGHIJKLMNOPQRSTUVWXYZ / HTTP/1.1\r\nHost: h\r\n\r\n", HTTP1_BAD_METHOD},
    {"http 2", "GET / HTTP/2.0\r\nHost: h\r\n\r\n", HTTP1_BAD_VERSION},
    {"http 1.2", "GET / HTTP/1.2\r\nHost: h\r\n\r\n", HTTP1_BAD_VERSION},
    {"lower case version", "GET / http/1.1\r\nHost: h\r\n\r\n", HTTP1_BAD_LINE},
    {"fragment", "GET /#x HTTP/1.1\r\nHost: h\r\n\r\n", HTTP1_BAD_TARGET},
    {"raw utf-8", "GET /\xc3\xa4 HTTP/1.1\r\nHost: h\r\n\r\n", HTTP1_BAD_TARGET},
    {"backslash in the path", "GET /a\\b HTTP/1.1\r\nHost: h\r\n\r\n", HTTP1_BAD_TARGET},
    {"asterisk with GET", "GET * HTTP/1.1\r\nHost: h\r\n\r\n", HTTP1_BAD_TARGET},
    {"user in the authority", "GET http://u@h/ HTTP/1.1\r\nHost: h\r\n\r\n", HTTP1_BAD_TARGET},
    {"other scheme", "GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n", HTTP1_BAD_TARGET},
    {"relative", "GET a HTTP/1.1\r\nHost: h\r\n\r\n", HTTP1_BAD_TARGET},
    {"bare lf in the line", "GET / HTTP/1.1\nHost: h\r\n\r\n", HTTP1_BAD_NEWLINE},
    {"bare lf at the end", "GET / HTTP/1.1\r\nHost: h\r\n\n", HTTP1_BAD_NEWLINE},
    {"bare cr in a value", "GET / HTTP/1.1\r\nHost: h\r\nA: b\rC: d\r\n\r\n", HTTP1_BAD_NEWLINE},
    {"obs-fold", "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", HTTP1_OBS_FOLD},
    {"fold before the first field", "GET / HTTP/1.1\r\n Host: h\r\n\r\n", HTTP1_OBS_FOLD},
    {"space before the colon", "GET / HTTP/1.1\r\nHost : h\r\n\r\n", HTTP1_BAD_FIELD},
    {"no colon", "GET / HTTP/1.1\r\nHost\r\n\r\n", HTTP1_BAD_FIELD},
    {"empty name", "GET / HTTP/1.1\r\nHost: h\r\n: x\r\n\r\n", HTTP1_BAD_FIELD},
    {"control in a value", "GET / HTTP/1.1\r\nHost: h\r\nA: \x01\r\n\r\n", HTTP1_BAD_FIELD},
    {"no host", "GET / HTTP/1.1\r\n\r\n", HTTP1_BAD_HOST},
    {"two hosts", "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", HTTP1_BAD_HOST},
    {"host with a path", "GET / HTTP/1.1\r\nHost: h/x\r\n\r\n", HTTP1_BAD_HOST},
    {"host with a user", "GET / HTTP/1.1\r\nHost: u@h\r\n\r\n", HTTP1_BAD_HOST},
    {"host differs from the target", "GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", HTTP1_BAD_HOST},
    {"length twice", "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
     HTTP1_BAD_LENGTH},
    {"length list", "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\n", HTTP1_BAD_LENGTH},
    {"length with sign", "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\n",
     HTTP1_BAD_LENGTH},
    {"negative length", "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
     HTTP1_BAD_LENGTH},
    {"hexadecimal length", "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x1\r\n\r\n",
     HTTP1_BAD_LENGTH},
    {"leading zero", "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 010\r\n\r\n", HTTP1_BAD_LENGTH},
    {"empty length", "GET / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n", HTTP1_BAD_LENGTH},
    {"huge length", "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551617\r\n\r\n",
     HTTP1_BAD_LENGTH},
    {"length and coding",
     "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
     HTTP1_BAD_CODING},
    {"coding twice",
     "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
     "chunked\r\n\r\n",
     HTTP1_BAD_CODING},
    {"coding in 1.0", "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", HTTP1_BAD_CODING},
    {"empty coding", "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n\r\n", HTTP1_BAD_CODING},
    {"coding list", "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
     HTTP1_UNKNOWN_CODING},
    {"chunked misspelt", "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n",
     HTTP1_UNKNOWN_CODING},
    {"vertical tab before chunked",
     "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \x0b"
     "chunked\r\n\r\n",
     HTTP1_BAD_FIELD},
    {"other expectation", "GET / HTTP/1.1\r\nHost: h\r\nExpect: gold\r\n\r\n", HTTP1_BAD_EXPECT},
    {"bytes behind the end", "GET / HTTP/1.1\r\nHost: h\r\n\r\nX", HTTP1_BAD_LINE},
};

static void ambiguous_requests_are_refused(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(ambiguous); i++) {
        struct http1_head h;
        enum http1_error why = parse_request(ambiguous[i].text, &h);

        if (why != ambiguous[i].why) {
            TEST_FAIL("%s: %u (%s), not %u", ambiguous[i].name, why, http1_error_text(why),
                      ambiguous[i].why);
        }
    }
}

static void errors_have_statuses(void)
{
    CHECK_INT(http1_error_status(HTTP1_BAD_FIELD), 400);
    CHECK_INT(http1_error_status(HTTP1_TARGET_TOO_LONG), 414);
    CHECK_INT(http1_error_status(HTTP1_TOO_LARGE), 431);
    CHECK_INT(http1_error_status(HTTP1_UNKNOWN_CODING), 501);
    CHECK_INT(http1_error_status(HTTP1_BAD_VERSION), 505);
    for (int i = 0; i < HTTP1_ERROR_COUNT_; i++) {
        CHECK(http1_error_text((enum http1_error)i)[0]);
        CHECK(!strpbrk(http1_error_text((enum http1_error)i),
                       "\"\\")); /* it goes into JSON as it is */
    }
}

static void too_many_fields_are_refused(void)
{
    cleanup_buf struct buf b = BUF_INIT(HTTP1_MAX_HEAD);
    struct http1_head h;

    CHECK_INT(buf_add_str(&b, "GET / HTTP/1.1\r\nHost: h\r\n"), 0);
    for (unsigned i = 0; i < HTTP1_MAX_FIELDS; i++) {
        CHECK_INT(buf_add_str(&b, "A: b\r\n"), 0);
    }
    CHECK_INT(buf_add_str(&b, "\r\n"), 0);
    CHECK_INT(http1_parse_request(b.data, b.len, &h), HTTP1_TOO_LARGE);
}

static void keep_alive_follows_version_and_connection(void)
{
    static const struct {
        const char *text;
        bool keep;
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", true},
        {"GET / HTTP/1.1\r\nHost: h\r\nConnection: x, CLOSE\r\n\r\n", false},
        {"GET / HTTP/1.1\r\nHost: h\r\nConnection: x\r\nConnection: close\r\n\r\n", false},
        {"GET / HTTP/1.0\r\n\r\n", false},
        {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true},
        {"GET / HTTP/1.1\r\nHost: h\r\nConnection: closer\r\n\r\n", true},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct http1_head h;

        CHECK_INT(parse_request(cases[i].text, &h), HTTP1_OK);
        if (h.keep_alive != cases[i].keep) {
            TEST_FAIL("%s", cases[i].text);
        }
    }
}

static void answers_frame_their_body(void)
{
    static const struct {
        const char *text;
        bool head;
        enum http1_error why;
        enum http1_framing framing;
        bool keep;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", false, HTTP1_OK, HTTP1_BODY_LENGTH, true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, HTTP1_OK, HTTP1_BODY_NONE, true},
        {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false, HTTP1_OK, HTTP1_BODY_NONE, true},
        {"HTTP/1.1 200\r\nTransfer-Encoding: Chunked\r\n\r\n", false, HTTP1_OK, HTTP1_BODY_CHUNKED,
         true},
        {"HTTP/1.1 200 \r\n\r\n", false, HTTP1_OK, HTTP1_BODY_CLOSE, false},
        {"HTTP/1.1 204 No\r\n\r\n", false, HTTP1_OK, HTTP1_BODY_NONE, true},
        {"HTTP/1.1 304 No\r\nContent-Length: 5\r\n\r\n", false, HTTP1_OK, HTTP1_BODY_NONE, true},
        {"HTTP/1.1 100 Go\r\n\r\n", false, HTTP1_OK, HTTP1_BODY_NONE, true},
        {"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", false, HTTP1_BAD_LENGTH, 0, false},
        {"HTTP/1.1 101 No\r\nTransfer-Encoding: chunked\r\n\r\n", false, HTTP1_BAD_CODING, 0,
         false},
        {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", false,
         HTTP1_BAD_CODING, 0, false},
        {"HTTP/1.1 2000 OK\r\n\r\n", false, HTTP1_BAD_LINE, 0, false},
        {"HTTP/1.1 20 OK\r\n\r\n", false, HTTP1_BAD_LINE, 0, false},
        {"HTTP/1.1 2x0 OK\r\n\r\n", false, HTTP1_BAD_STATUS, 0, false},
        {"HTTP/1.1 099 OK\r\n\r\n", false, HTTP1_BAD_STATUS, 0, false},
        {"HTTP/1.1 600 OK\r\n\r\n", false, HTTP1_BAD_STATUS, 0, false},
        {"HTTP/1.1 200 O\x01K\r\n\r\n", false, HTTP1_BAD_LINE, 0, false},
        {"ICY 200 OK\r\n\r\n", false, HTTP1_BAD_LINE, 0, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct http1_head h;
        enum http1_error why =
            http1_parse_response(cases[i].text, strlen(cases[i].text), cases[i].head, &h);

        if (why != cases[i].why ||
            (why == HTTP1_OK && (h.framing != cases[i].framing || h.keep_alive != cases[i].keep))) {
            TEST_FAIL("%s: %u", cases[i].text, why);
        }
    }
}

static void scan_finds_the_end_byte_by_byte(void)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: h\r\n\r\nbehind";
    size_t end = strlen(text) - strlen("behind");
    struct http1_scan scan = {0};
    size_t len = 0;

    for (size_t n = 0; n < end; n++) {
        CHECK_INT(http1_scan(&scan, text, n, &len), -EAGAIN);
    }
    CHECK_INT(http1_scan(&scan, text, strlen(text), &len), 0);
    CHECK_INT(len, end);
}

static void scan_gives_up_early(void)
{
    static char text[HTTP1_MAX_HEAD + 10];
    struct http1_scan scan = {0};
    size_t len = 0;

    CHECK_INT(http1_scan(&scan, "\x16", 1, &len), 0);
    scan = (struct http1_scan){0};
    CHECK_INT(http1_scan(&scan, "GET / HTTP/1.1\nHost", 19, &len), 0);
    CHECK_INT(len, 15);
    memset(text, 'a', sizeof(text));
    scan = (struct http1_scan){0};
    CHECK_INT(http1_scan(&scan, text, HTTP1_MAX_HEAD - 1, &len), -EAGAIN);
    CHECK_INT(http1_scan(&scan, text, HTTP1_MAX_HEAD, &len), -E2BIG);
}

/* Feeds in pieces of `step`; the body as a string, or NULL when refused or not over. */
static char *dechunk(const char *text, size_t step, size_t *ret_used)
{
    cleanup_buf struct buf b = BUF_INIT(100000);
    struct http1_chunked c = {0};
    size_t len = strlen(text);
    size_t at = 0;
    int r = 0;

    while (at < len && r == 0) {
        size_t used = 0;
        size_t body = 0;

        r = http1_chunked_next(&c, text + at, MIN(step, len - at), &used, &body);
        if (r < 0) {
            return NULL;
        }
        CHECK_INT(buf_add(&b, text + at + used - body, body), 0);
        at += used;
    }
    *ret_used = at;
    return r == 1 ? buf_take(&b) : NULL;
}

static void chunks_are_joined(void)
{
    static const struct {
        const char *text;
        const char *want; /* NULL: refused, or not over */
    } cases[] = {
        {"0\r\n\r\n", ""},
        {"3\r\nabc\r\n0\r\n\r\n", "abc"},
        {"3\r\nabc\r\nA\r\n0123456789\r\n00\r\n\r\n", "abc0123456789"},
        {"1\r\nx\r\n0\r\nA: b\r\nC:\r\n\r\n", "x"},
        {"3\r\nab", NULL},
        {"3\r\nabc\r\n0\r\n", NULL},
        {"3;ext=1\r\nabc\r\n0\r\n\r\n", NULL},
        {"3 \r\nabc\r\n0\r\n\r\n", NULL},
        {" 3\r\nabc\r\n0\r\n\r\n", NULL},
        {"0x3\r\nabc\r\n0\r\n\r\n", NULL},
        {"+3\r\nabc\r\n0\r\n\r\n", NULL},
        {"\r\nabc\r\n0\r\n\r\n", NULL},
        {"3\nabc\r\n0\r\n\r\n", NULL},
        {"3\r\nabcd\r\n0\r\n\r\n", NULL},
        {"3\r\nabc\n0\r\n\r\n", NULL},
        {"3\r\nabc\r\n0\r\n\n", NULL},
        {"3\r\nabc\r\n0\r\n folded\r\n\r\n", NULL},
        {"3\r\nabc\r\n0\r\nA : b\r\n\r\n", NULL},
        {"3\r\nabc\r\n0\r\nA: b\nC: d\r\n\r\n", NULL},
        {"10000000000000003\r\nabc\r\n0\r\n\r\n", NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        static const size_t steps[] = {1, 2, 7, 1000};

        for (size_t k = 0; k < ARRAY_SIZE(steps); k++) {
            size_t used = 0;
            cleanup_free char *got = dechunk(cases[i].text, steps[k], &used);
            bool same =
                got && cases[i].want ? strcmp(got, cases[i].want) == 0 : got == cases[i].want;

            if (!same) {
                TEST_FAIL("'%s' in steps of %zu gives '%s'", cases[i].text, steps[k],
                          got ? got : "(refused)");
            }
        }
    }
}

static void what_is_behind_a_chunked_body_is_left(void)
{
    size_t used = 0;
    cleanup_free char *body = dechunk("1\r\nx\r\n0\r\n\r\nGET /", 1000, &used);

    CHECK_STR(body, "x");
    CHECK_INT(used, 11);
}

static void trailers_are_bounded(void)
{
    static char text[HTTP1_MAX_TRAILER + 100] = "0\r\nA: ";
    size_t used;
    char *body;

    memset(text + 6, 'a', sizeof(text) - 7);
    body = dechunk(text, 1000, &used);
    CHECK(!body);
    free(body);
}

static void trailers_are_fields_that_no_head_needs(void)
{
    static const struct {
        const char *text;
        enum http1_error want;
        size_t n;
    } cases[] = {
        {"", HTTP1_OK, 0},
        {"Grpc-Status: 0\r\nX-Sum:abc \r\n", HTTP1_OK, 2},
        {"A: b\r\n\r\n", HTTP1_BAD_LINE, 0},
        {"A: b", HTTP1_BAD_NEWLINE, 0},
        {"Content-Length: 3\r\n", HTTP1_BAD_FIELD, 0},
        {"A: b\r\ntransfer-ENCODING: chunked\r\n", HTTP1_BAD_FIELD, 0},
        {"Host: other\r\n", HTTP1_BAD_FIELD, 0},
        {"Authorization: x\r\n", HTTP1_BAD_FIELD, 0},
        {"Set-Cookie: a=b\r\n", HTTP1_BAD_FIELD, 0},
        {"A: b\r\n c\r\n", HTTP1_OBS_FOLD, 0},
        {"A : b\r\n", HTTP1_BAD_FIELD, 0},
    };
    cleanup_buf struct buf b = BUF_INIT(HTTP1_MAX_TRAILER);
    struct http1_chunked c = {.trailers = &b};
    const char body[] = "1\r\nx\r\n0\r\nA: b\r\nC:\r\n\r\n";
    size_t used = 0;
    size_t len = 0;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct http1_head head;
        enum http1_error got = http1_parse_trailers(cases[i].text, strlen(cases[i].text), &head);

        if (got != cases[i].want || (got == HTTP1_OK && head.n_fields != cases[i].n)) {
            TEST_FAIL("'%s' gives %d", cases[i].text, (int)got);
        }
    }
    CHECK_INT(http1_chunked_next(&c, body, 4, &used, &len), 0);
    CHECK_INT(http1_chunked_next(&c, body + used, strlen(body) - used, &used, &len), 1);
    CHECK_STR(buf_str(&b), "A: b\r\nC:\r\n");
}

static void printers_refuse_what_would_split(void)
{
    cleanup_buf struct buf b = BUF_INIT(1000);
    char line[HTTP1_CHUNK_LINE_SIZE];

    CHECK_INT(http1_print_request(&b, "GET", "/a b"), -EINVAL);
    CHECK_INT(http1_print_request(&b, "GET", ""), -EINVAL);
    CHECK_INT(http1_print_request(&b, "G T", "/"), -EINVAL);
    CHECK_INT(http1_print_field(&b, "A:", "b"), -EINVAL);
    CHECK_INT(http1_print_field(&b, "A", "b\r\nC: d"), -EINVAL);
    CHECK_INT(http1_print_field(&b, "A", "b\nC: d"), -EINVAL);
    CHECK_INT(b.len, 0);
    CHECK_INT(http1_print_status(&b, 1, 404), 0);
    CHECK_INT(http1_print_field(&b, "A", "b"), 0);
    CHECK_INT(http1_print_end(&b), 0);
    CHECK_STR(buf_str(&b), "HTTP/1.1 404 Not Found\r\nA: b\r\n\r\n");
    CHECK_INT(http1_print_chunk(line, 0x1a2b), 6);
    CHECK_STR(line, "1a2b\r\n");
    http1_print_chunk(line, UINT64_MAX);
    CHECK_STR(line, "ffffffffffffffff\r\n");
}

TEST_MAIN(T(request_is_taken_apart), T(targets_have_forms), T(ambiguous_requests_are_refused),
          T(errors_have_statuses), T(too_many_fields_are_refused),
          T(keep_alive_follows_version_and_connection), T(answers_frame_their_body),
          T(scan_finds_the_end_byte_by_byte), T(scan_gives_up_early), T(chunks_are_joined),
          T(what_is_behind_a_chunked_body_is_left), T(trailers_are_bounded),
          T(trailers_are_fields_that_no_head_needs), T(printers_refuse_what_would_split))

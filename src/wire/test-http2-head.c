/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "wire/http1.h"
#include "wire/http2-head.h"

#define FIELDS_MAX 8
#define GET \
    {":method", "GET"}, {":scheme", "https"}, {":authority", "a.com"}, \
    { \
        ":path", "/p?q" \
    }

struct pair {
    const char *name;
    const char *value;
};

static int fill(struct http2_head *h, const struct pair *pairs)
{
    int r = 0;

    http2_head_init(h);
    for (size_t i = 0; i < FIELDS_MAX && pairs[i].name && r == 0; i++) {
        r = http2_head_add(h, (struct http2_bytes){pairs[i].name, strlen(pairs[i].name)},
                           (struct http2_bytes){pairs[i].value, strlen(pairs[i].value)});
    }
    return r;
}

static void requests_become_the_same_in_http1(void)
{
    static const struct {
        struct pair fields[FIELDS_MAX];
        bool more;
        const char *text;
    } cases[] = {
        {{GET, {"x-a", "1"}}, false, "GET /p?q HTTP/1.1\r\nHost: a.com\r\nx-a: 1\r\n\r\n"},
        {{GET, {"cookie", "a=1"}, {"te", "trailers"}, {"cookie", "b=2"}},
         true,
         "GET /p?q HTTP/1.1\r\nHost: a.com\r\ncookie: a=1; b=2\r\nTransfer-Encoding: "
         "chunked\r\n\r\n"},
        {{GET, {"content-length", "3"}},
         true,
         "GET /p?q HTTP/1.1\r\nHost: a.com\r\ncontent-length: 3\r\n\r\n"},
        {{GET, {"host", "a.com"}}, false, "GET /p?q HTTP/1.1\r\nHost: a.com\r\n\r\n"},
        {{{":method", "CONNECT"}, {":authority", "a.com:443"}},
         false,
         "CONNECT a.com:443 HTTP/1.1\r\nHost: a.com:443\r\n\r\n"},
        {{{":method", "OPTIONS"}, {":scheme", "https"}, {":authority", "a.com"}, {":path", "*"}},
         false,
         "OPTIONS * HTTP/1.1\r\nHost: a.com\r\n\r\n"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_http2_head struct http2_head h;
        cleanup_buf struct buf b = BUF_INIT(HTTP1_MAX_HEAD);
        struct http1_head head;

        CHECK_INT(fill(&h, cases[i].fields), 0);
        CHECK_INT(http2_head_request(&h, "https", cases[i].more, &b), 0);
        CHECK_STR(buf_str(&b), cases[i].text);
        CHECK_INT(http1_parse_request(b.data, b.len, &head), HTTP1_OK);
    }
}

static void what_could_be_read_differently_is_refused(void)
{
    static const struct pair cases[][FIELDS_MAX] = {
        {GET, {"x", "a\r\nHost: b.com"}},
        {GET, {"x\r\ny", "a"}},
        {GET, {"X-Upper", "a"}},
        {GET, {"x", " a"}},
        {GET, {"x", "a\t"}},
        {GET, {"", "a"}},
        {GET, {"transfer-encoding", "chunked"}},
        {GET, {"connection", "close"}},
        {GET, {"upgrade", "h2c"}},
        {GET, {"te", "gzip"}},
        {GET, {"host", "b.com"}},
        {GET, {":path", "/again"}},
        {GET, {":protocol", "websocket"}},
        {GET, {":status", "200"}},
        {{":method", "GET"}, {"x", "y"}, {":scheme", "https"}, {":authority", "a"}, {":path", "/"}},
        {{":method", "GET"}, {":scheme", "http"}, {":authority", "a.com"}, {":path", "/"}},
        {{":method", "GET"}, {":scheme", "https"}, {":authority", "a.com"}, {":path", ""}},
        {{":method", "GET"}, {":scheme", "https"}, {":authority", "a.com"}, {":path", "x"}},
        {{":method", "GET"}, {":scheme", "https"}, {":authority", "a.com"}, {":path", "*"}},
        {{":method", "GET"}, {":scheme", "https"}, {":authority", "a.com"}},
        {{":method", "GET"}, {":scheme", "https"}, {":path", "/"}},
        {{":method", "CONNECT"}, {":scheme", "https"}, {":authority", "a.com"}, {":path", "/"}},
        {{":method", "CONNECT"}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_http2_head struct http2_head h;
        cleanup_buf struct buf b = BUF_INIT(HTTP1_MAX_HEAD);
        int r = fill(&h, cases[i]);

        r = r < 0 ? r : http2_head_request(&h, "https", false, &b);
        if (r != -EBADMSG) {
            TEST_FAIL("case %zu is not refused: %d, %s", i, r, buf_str(&b));
        }
    }
}

/* Refused by the parser that every request goes through. */
static void what_http1_refuses_is_refused_behind_it(void)
{
    static const struct pair cases[][FIELDS_MAX] = {
        {{":method", "GET"}, {":scheme", "https"}, {":authority", "a.com"}, {":path", "/a b"}},
        {{":method", "GET"}, {":scheme", "https"}, {":authority", "a.com"}, {":path", "/a#b"}},
        {{":method", "GET"}, {":scheme", "https"}, {":authority", "a/b"}, {":path", "/"}},
        {{":method", "G T"}, {":scheme", "https"}, {":authority", "a.com"}, {":path", "/"}},
        {GET, {"content-length", "1"}, {"content-length", "2"}},
        {GET, {"content-length", "+1"}},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_http2_head struct http2_head h;
        cleanup_buf struct buf b = BUF_INIT(HTTP1_MAX_HEAD);
        struct http1_head head;

        CHECK_INT(fill(&h, cases[i]), 0);
        if (http2_head_request(&h, "https", true, &b) == 0 &&
            http1_parse_request(b.data, b.len, &head) == HTTP1_OK) {
            TEST_FAIL("case %zu is not refused: %s", i, buf_str(&b));
        }
    }
}

static void too_much_is_refused(void)
{
    cleanup_http2_head struct http2_head h;
    char big[1000];
    int r = 0;
    unsigned n = 0;

    memset(big, 'x', sizeof(big));
    http2_head_init(&h);
    while (r == 0 && n < 1000) {
        r = http2_head_add(&h, (struct http2_bytes){"cookie", 6},
                           (struct http2_bytes){big, n % 2 ? sizeof(big) : 0});
        n++;
    }
    CHECK_INT(r, -E2BIG);
    CHECK(n > 30 && n <= HTTP1_MAX_FIELDS);
}

static void answers_and_trailers(void)
{
    static const struct pair answer[FIELDS_MAX] = {{":status", "404"}, {"server", "x"}};
    static const struct pair request[FIELDS_MAX] = {GET};
    static const struct pair good[FIELDS_MAX] = {{"grpc-status", "0"}, {"grpc-message", ""}};
    static const struct pair bad[FIELDS_MAX] = {{"grpc-status", "0"}, {"authorization", "x"}};
    static const struct pair status[FIELDS_MAX] = {{":status", "2000"}};
    cleanup_http2_head struct http2_head h;
    cleanup_buf struct buf b = BUF_INIT(HTTP1_MAX_HEAD);

    CHECK_INT(fill(&h, answer), 0);
    CHECK_INT(http2_head_answer(&h, &b), 0);
    CHECK_STR(buf_str(&b), "HTTP/1.1 404 Not Found\r\nserver: x\r\n\r\n");
    CHECK_INT(http2_head_trailers(&h, &b), -EBADMSG);
    http2_head_done(&h);
    CHECK_INT(fill(&h, request), 0);
    CHECK_INT(http2_head_answer(&h, &b), -EBADMSG);
    http2_head_done(&h);
    buf_reset(&b);
    CHECK_INT(fill(&h, good), 0);
    CHECK_INT(http2_head_trailers(&h, &b), 0);
    CHECK_STR(buf_str(&b), "grpc-status: 0\r\ngrpc-message: \r\n");
    http2_head_done(&h);
    CHECK_INT(fill(&h, bad), 0);
    CHECK_INT(http2_head_trailers(&h, &b), -EBADMSG);
    http2_head_done(&h);
    CHECK_INT(fill(&h, status), -EBADMSG);
}

TEST_MAIN(T(requests_become_the_same_in_http1), T(what_could_be_read_differently_is_refused),
          T(what_http1_refuses_is_refused_behind_it), T(too_much_is_refused),
          T(answers_and_trailers))

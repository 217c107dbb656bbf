/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/multipart.h"

#include "base/test.h"

static const char type[] = "multipart/form-data; boundary=\"b o\"; charset=x; boundary=----xyz";

/* Events as text, fed byte by byte. */
static int events(const char *form, size_t len, struct buf *out)
{
    struct multipart m;
    struct multipart_event ev;
    int r = multipart_init(&m, "multipart/form-data; boundary=----xyz");

    for (size_t i = 0; i < len && r == 0; i++) {
        multipart_feed(&m, form + i, 1);
        while ((r = multipart_next(&m, &ev)) == 1) {
            switch (ev.type) {
            case MULTIPART_EVENT_BEGIN:
                CHECK_INT(buf_printf(out, "[%s:%s:", ev.name, ev.has_filename ? ev.filename : "?"),
                          0);
                break;
            case MULTIPART_EVENT_DATA:
                CHECK_INT(buf_add(out, ev.data, ev.len), 0);
                break;
            case MULTIPART_EVENT_END:
                CHECK_INT(buf_add_str(out, "]"), 0);
                break;
            case MULTIPART_EVENT_DONE:
                CHECK_INT(buf_add_str(out, "."), 0);
                break;
            }
        }
    }
    multipart_done(&m);
    return r;
}

static void check_form(const char *form, const char *want)
{
    cleanup_buf struct buf out = BUF_INIT(4096);

    CHECK_INT(events(form, strlen(form), &out), 0);
    CHECK_STR(buf_str(&out), want);
}

#define PART "------xyz\r\nContent-Disposition: form-data; "

static void parts_come_out_whole(void)
{
    check_form(
        PART "name=\"file\"; filename=\"a.txt\"\r\nContent-Type: x\r\n\r\nhello\r\n------xyz--\r\n",
        "[file:a.txt:hello].");
    check_form(PART "name=file\r\n\r\n\r\n" PART "name=\"b\"\r\n\r\n\r\n--\r\n------xyz--",
               "[file:?:][b:?:\r\n--].");
    check_form("preamble\r\n" PART "name=a\r\n\r\n1\r\n------xyz--epilogue", "[a:?:1].");
    check_form("------xyz--\r\n", ".");
}

static void names_are_unescaped_and_nothing_else(void)
{
    check_form(
        PART "name=\"file\"; filename=\"/d\xc3\xadr/m%22%0D%0A%20 2;=.txt\"\r\n\r\n\r\n------xyz--",
        "[file:/d\xc3\xadr/m\"\r\n%20 2;=.txt:].");
}

static void other_forms_are_refused(void)
{
    static const char *const bad[] = {
        PART "name=\"a\r\n\r\n",
        "------xyz\r\nContent-Type: x\r\n\r\n",
        "------xyzzy\r\n\r\n",
        PART "name=a\r\nContent-Disposition: form-data; name=b\r\n\r\n",
        "------xyz\r\nContent-Disposition: attachment\r\n\r\n",
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        cleanup_buf struct buf out = BUF_INIT(4096);

        CHECK_INT(events(bad[i], strlen(bad[i]), &out), -EPROTO);
        CHECK_STR(buf_str(&out), "");
    }
}

static void content_types_need_a_boundary(void)
{
    struct multipart m = {0};

    CHECK_INT(multipart_init(&m, NULL), -EINVAL);
    CHECK_INT(multipart_init(&m, "application/json"), -EINVAL);
    CHECK_INT(multipart_init(&m, "multipart/form-data"), -EINVAL);
    CHECK_INT(multipart_init(&m, "multipart/form-data; boundary="), -EINVAL);
    CHECK_INT(multipart_init(&m, type), -EINVAL); /* the first one counts, and it has a space */
}

TEST_MAIN(T(parts_come_out_whole), T(names_are_unescaped_and_nothing_else),
          T(other_forms_are_refused), T(content_types_need_a_boundary))

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"
#include "base/log.h"
#include "base/test.h"

#include <fcntl.h>
#include <unistd.h>

/* What log_write() wrote, through a pipe that stands in the place of standard error. */
static char written[8192];

static void catch (const char *mode, const struct log_ctx *ctx, const char *text)
{
    int saved = dup(STDERR_FILENO);
    int pipes[2];
    ssize_t n;

    ASSERT(saved >= 0 && pipe2(pipes, O_CLOEXEC) == 0 && dup2(pipes[1], STDERR_FILENO) >= 0);
    setenv("SPACE_LOG", mode, 1);
    log_init("test");
    log_info(ctx, "%s", text);
    log_debug(ctx, "not to be seen");
    ASSERT(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    close(pipes[1]);
    n = read(pipes[0], written, sizeof(written) - 1);
    written[MAX(n, (ssize_t)0)] = '\0';
    close(pipes[0]);
}

static json_t *caught(void)
{
    json_t *json = NULL;
    struct err e = {0};

    if (json_parse_object(written, strlen(written), &json, &e) < 0) {
        TEST_FAIL("%s: %s", e.msg, written);
    }
    return json;
}

static void text_is_one_line_with_its_context(void)
{
    catch ("info", &(struct log_ctx){.sandbox = "s1\n", .request = "r1"}, "two\nlines\x1b[1m");
    CHECK(strstr(written, " info test: [sandbox s1?] [request r1] two?lines?[1m\n"));
    CHECK(strchr(written, '\n') == written + strlen(written) - 1);
}

static void the_request_of_the_thread_is_on_its_lines(void)
{
    const struct log_request of = {.id = "mine", .trace = "4bf92f3577b34da6a3ce929d0e0e4736"};

    log_request_set(&of);
    catch ("info", NULL, "hello");
    CHECK(strstr(written, "[request mine] hello"));
    catch ("info", &(struct log_ctx){.request = "other"}, "hello");
    CHECK(strstr(written, "[request other] hello"));
    log_request_set(NULL);
    catch ("info", NULL, "hello");
    CHECK(strstr(written, "test: hello"));
}

static void ids_are_fine_or_not(void)
{
    char longest[LOG_REQUEST_SIZE + 1] = "";

    memset(longest, 'a', LOG_REQUEST_SIZE - 1);
    CHECK(log_request_id_fine(longest));
    longest[LOG_REQUEST_SIZE - 1] = 'a';
    CHECK(!log_request_id_fine(longest));
    CHECK(log_request_id_fine("A-b_c.9"));
    CHECK(!log_request_id_fine("a b"));
    CHECK(!log_request_id_fine("a\""));
    CHECK(!log_request_id_fine(""));
    CHECK(!log_request_id_fine(NULL));
}

/* From here on lines are JSON: the mode stays with the process. */
static void json_has_the_fields(void)
{
    const struct log_request of = {.id = "mine", .trace = "4bf92f3577b34da6a3ce929d0e0e4736"};
    cleanup_json json_t *json = NULL;

    log_request_set(&of);
    catch ("debug,json,what", &(struct log_ctx){.sandbox = "s1"}, "a \"quoted\" \\ word\n");
    log_request_set(NULL);
    CHECK(strstr(written, "not to be seen")); /* debug was asked for */
    *strchr(written, '\n') = '\0';
    json = caught();
    CHECK_STR(json_get_string(json, "level", ""), "info");
    CHECK_STR(json_get_string(json, "program", ""), "test");
    CHECK_STR(json_get_string(json, "request", ""), "mine");
    CHECK_STR(json_get_string(json, "trace", ""), of.trace);
    CHECK_STR(json_get_string(json, "sandbox", ""), "s1");
    CHECK_STR(json_get_string(json, "message", ""), "a \"quoted\" \\ word?");
    CHECK_INT(strlen(json_get_string(json, "time", "")), strlen("2026-01-02T03:04:05.678Z"));
}

static void json_stays_json_whatever_comes(void)
{
    static const struct {
        const char *text;
        const char *want;
    } cases[] = {
        {"caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xff\xfe", "??"},
        {"\xc3", "?"},
        {"\xe2\x82", "??"},
        {"\xc0\xaf", "??"},
        {"\xed\xa0\x80", "???"},
        {"\xf4\x90\x80\x80", "????"}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_json json_t *json = NULL;

        catch ("info", NULL, cases[i].text);
        *strchrnul(written, '\n') = '\0';
        json = caught();
        CHECK_STR(json_get_string(json, "message", ""), cases[i].want);
    }
}

static void json_that_is_too_long_is_cut_and_whole(void)
{
    char text[6001];

    for (size_t shift = 0; shift < 8; shift++) {
        cleanup_json json_t *json = NULL;

        memset(text, '"', sizeof(text) - 1);
        memset(text, 'a', shift);
        text[sizeof(text) - 1] = '\0';
        catch ("info", &(struct log_ctx){.sandbox = text, .request = text}, text);
        *strchrnul(written, '\n') = '\0';
        json = caught();
        CHECK(strlen(json_get_string(json, "message", "")) > 500);
        CHECK_INT(strlen(json_get_string(json, "sandbox", "")), 64);
    }
}

TEST_MAIN(T(text_is_one_line_with_its_context), T(the_request_of_the_thread_is_on_its_lines),
          T(ids_are_fine_or_not), T(json_has_the_fields), T(json_stays_json_whatever_comes),
          T(json_that_is_too_long_is_cut_and_whole))

/* SPDX-License-Identifier: Apache-2.0 */
/* S3 when it does not behave. Run by tests/volume/s3server.py. */
#include "base/test.h"

#include "base/clock.h"
#include "base/json.h"
#include "http/client.h"
#include "volume/s3-xml.h"
#include "volume/s3.h"

#include <unistd.h>

static struct store *open_store(const char *region, const char *credentials, bool path_style)
{
    const struct s3_opts opts = {.endpoint = getenv("S3_TEST_URL"),
                                 .bucket = getenv("S3_TEST_BUCKET"),
                                 .region = region,
                                 .credentials_file = credentials,
                                 .path_style = path_style};
    struct store *s = NULL;

    ASSERT(opts.endpoint && opts.bucket && credentials);
    ASSERT(store_s3_open(&opts, &s, NULL) == 0);
    return s;
}

/* What the server counts; sets faults on the way. */
static int64_t server(const char *target, const char *field)
{
    CLEANUP(http_client_freep) struct http_client *c = NULL;
    cleanup_json json_t *answer = NULL;
    const struct http_json_opts opts = {.target = target, .deadline_ns = deadline_in_ms(10000)};

    ASSERT(http_client_new(getenv("S3_TEST_URL"), NULL, &c, NULL) == 0);
    ASSERT(http_client_json(c, &opts, &answer, NULL) == 0);
    return json_get_int(answer, field, -1);
}

static void fault(const char *kind, unsigned n)
{
    cleanup_free char *target = xasprintf("/-/fault?kind=%s&n=%u", kind, n);

    CHECK(server(target, "requests") >= 0);
}

static void passing_faults_are_sat_out(void)
{
    static const char *const kinds[] = {"500", "503", "error200", "slow", "cut"};
    CLEANUP(store_freep)
    struct store *s = open_store("r", getenv("S3_TEST_CREDENTIALS"), true);

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        cleanup_buf struct buf b = BUF_INIT(100);
        struct store_object object;
        struct err e = {0};

        fault(kinds[i], 2);
        CHECK_INT(store_put(s, "faults/a", kinds[i], strlen(kinds[i]), &e), 0);
        if (!str_eq(kinds[i], "error200")) { /* of an object the store may say anything */
            fault(kinds[i], 2);
        }
        CHECK_INT(store_get(s, "faults/a", &b, &e), 0);
        CHECK_STR(buf_str(&b), kinds[i]);
        if (!str_eq(kinds[i], "error200")) { /* which has no body to look into */
            fault(kinds[i], 2);
            CHECK_INT(store_stat(s, "faults/a", &object, &e), 0);
            CHECK_INT(object.size, strlen(kinds[i]));
        }
        fault(kinds[i], 2);
        CHECK_INT(store_remove(s, "faults/a", &e), 0);
        CHECK_INT(store_stat(s, "faults/a", &object, &e), -ENOENT);
    }
}

static int count(void *ctx, const struct store_object *object)
{
    (void)object;
    ++*(unsigned *)ctx;
    return 0;
}

static void a_list_that_breaks_is_not_taken_for_a_short_one(void)
{
    static const char *const kinds[] = {"500", "error200", "cut"};
    CLEANUP(store_freep)
    struct store *s = open_store("r", getenv("S3_TEST_CREDENTIALS"), true);
    struct err e = {0};

    for (char c = 'a'; c < 'i'; c++) {
        char key[] = "many/?";

        key[5] = c;
        CHECK_INT(store_put(s, key, "x", 1, &e), 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        unsigned n = 0;

        fault(kinds[i], 3);
        CHECK_INT(store_list(s, "many/", count, &n, &e), 0);
        CHECK_INT(n, 8);
    }
    fault("error200", 100);
    CHECK_INT(store_list(s, "many/", count, &(unsigned){0}, &e), -EHOSTDOWN);
    fault("500", 0);
}

static void faults_that_stay_are_told(void)
{
    CLEANUP(store_freep)
    struct store *s = open_store("r", getenv("S3_TEST_CREDENTIALS"), true);
    cleanup_buf struct buf b = BUF_INIT(100);
    int64_t before = server("/-/count", "requests");
    struct err e = {0};

    fault("503", 1000);
    CHECK_INT(store_put(s, "stays/a", "x", 1, &e), -EHOSTDOWN);
    CHECK_STR(e.reason, "store_unavailable");
    CHECK(strstr(e.msg, "SlowDown"));
    CHECK_INT(server("/-/count", "requests") - before, S3_TRIES);
    fault("503", 0);
    e = (struct err){0};
    CHECK_INT(store_get(s, "stays/a", &b, &e), -ENOENT);
}

static void a_part_that_fails_is_sent_again_alone(void)
{
    CLEANUP(store_freep)
    struct store *s = open_store("r", getenv("S3_TEST_CREDENTIALS"), true);
    size_t len = 3 * S3_PART;
    cleanup_free char *data = xcalloc(1, len);
    int64_t before = server("/-/count", "bytes");
    struct err e = {0};

    fault("503", 4); /* the first of them is the beginning's */
    CHECK_INT(store_put(s, "parts/a", data, len, &e), 0);
    CHECK_INT(server("/-/count", "bytes") - before, len);
}

static void a_wrong_secret_is_refused_at_once(void)
{
    char path[] = "/tmp/space-s3-XXXXXX";
    int fd = mkstemp(path);
    static const char text[] = "{\"access_key_id\":\"AKIATEST\",\"secret_access_key\":\"wrong\","
                               "\"session_token\":\"a token/with=signs\"}";
    int64_t before = server("/-/count", "requests");
    struct err e = {0};
    struct store *s;

    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    s = open_store("r", path, true);
    CHECK_INT(store_put(s, "refused/a", "x", 1, &e), -EACCES);
    CHECK_STR(e.reason, "store_refused");
    CHECK(strstr(e.msg, "SignatureDoesNotMatch"));
    CHECK_INT(server("/-/count", "requests") - before, 1);
    CHECK_INT(ftruncate(fd, 0), 0); /* no credentials at all */
    CHECK_INT(store_put(s, "refused/a", "x", 1, &e), -EACCES);
    store_free(s);
    close(fd);
    unlink(path);
}

static void nobody_there_is_told(void)
{
    const struct s3_opts opts = {.endpoint = "http://127.0.0.1:1",
                                 .bucket = "bucket",
                                 .region = "r",
                                 .credentials_file = getenv("S3_TEST_CREDENTIALS"),
                                 .path_style = true};
    struct store *s = NULL;
    struct err e = {0};

    CHECK_INT(store_s3_open(&opts, &s, &e), 0);
    CHECK_INT(store_put(s, "a", "x", 1, &e), -EHOSTDOWN);
    CHECK_STR(e.reason, "store_unavailable");
    store_free(s);
}

static void places_that_are_none_are_refused(void)
{
    struct s3_opts opts = {
        .endpoint = "ftp://x", .bucket = "bucket", .region = "r", .credentials_file = "/x"};
    struct store *s = NULL;
    struct err e = {0};

    CHECK_INT(store_s3_open(&opts, &s, &e), -EINVAL);
    opts.endpoint = "https://s3.example.org";
    opts.bucket = "no/bucket";
    CHECK_INT(store_s3_open(&opts, &s, &e), -EINVAL);
    opts.bucket = "bucket";
    opts.prefix = "../up";
    CHECK_INT(store_s3_open(&opts, &s, &e), -EINVAL);
}

static void times_are_read_as_they_are_written(void)
{
    uint64_t ms = 0;

    CHECK_INT(s3_xml_time("2009-10-12T17:50:30.000Z", &ms), 0);
    CHECK_INT(ms, 1255369830000);
    CHECK_INT(s3_xml_time("2009-10-12T17:50:30.25Z", &ms), 0);
    CHECK_INT(ms, 1255369830250);
    CHECK_INT(s3_xml_time("2009-10-12T17:50:30Z", &ms), 0);
    CHECK_INT(s3_xml_time("2009-10-12", &ms), -EBADMSG);
    CHECK_INT(s3_xml_time("2009-10-12T17:50:30.000Zx", &ms), -EBADMSG);
}

TEST_MAIN(T(passing_faults_are_sat_out), T(a_list_that_breaks_is_not_taken_for_a_short_one),
          T(faults_that_stay_are_told), T(a_part_that_fails_is_sent_again_alone),
          T(a_wrong_secret_is_refused_at_once), T(nobody_there_is_told),
          T(places_that_are_none_are_refused), T(times_are_read_as_they_are_written))

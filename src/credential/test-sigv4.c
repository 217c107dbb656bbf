/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The examples of AWS's own documentation: "get-vanilla" and others of its test suite (access key AKIDEXAMPLE), and those
 * of Amazon S3's reference (AKIAIOSFODNN7EXAMPLE).
 */
#include "base/id.h"
#include "base/test.h"
#include "credential/sigv4.h"

#define SUITE_SECRET "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
#define S3_SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

static void check_signature(const char *secret, const struct sigv4_scope *scope,
                            const struct sigv4_request *req, const char *want, const char *names)
{
    cleanup_buf struct buf signed_headers = BUF_INIT(4096);
    unsigned char key[PLAN_KEY_SIZE];
    char got[SIGV4_SIGNATURE_SIZE];

    sigv4_key(secret, scope, key);
    CHECK_INT(sigv4_sign(req, scope, key, got, &signed_headers), 0);
    CHECK_STR(got, want);
    CHECK_STR(buf_str(&signed_headers), names);
}

static void the_key_of_the_documentation(void)
{
    const struct sigv4_scope scope = {"20150830", "us-east-1", "iam"};
    unsigned char key[PLAN_KEY_SIZE];
    char hex[2 * PLAN_KEY_SIZE + 1];

    sigv4_key(SUITE_SECRET, &scope, key);
    hex_encode(key, sizeof(key), hex);
    CHECK_STR(hex, "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9");
}

static void get_vanilla(void)
{
    const struct sigv4_scope scope = {"20150830", "us-east-1", "service"};
    const struct sigv4_header headers[] = {{"host", "example.amazonaws.com"},
                                           {"x-amz-date", "20150830T123600Z"}};
    struct sigv4_request req = {.method = "GET",
                                .path = "/",
                                .query = "",
                                .headers = headers,
                                .n_headers = 2,
                                .payload = SIGV4_EMPTY,
                                .time = "20150830T123600Z",
                                .encode_twice = true};

    check_signature(SUITE_SECRET, &scope, &req,
                    "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
                    "host;x-amz-date");
    req.query = "Param2=value2&Param1=value1"; /* get-vanilla-query-order-key-case */
    check_signature(SUITE_SECRET, &scope, &req,
                    "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
                    "host;x-amz-date");
}

static void s3_get_object(void)
{
    const struct sigv4_scope scope = {"20130524", "us-east-1", "s3"};
    const struct sigv4_header headers[] = {{"host", "examplebucket.s3.amazonaws.com"},
                                           {"range", "bytes=0-9"},
                                           {"x-amz-content-sha256", SIGV4_EMPTY},
                                           {"x-amz-date", "20130524T000000Z"}};
    const struct sigv4_request req = {.method = "GET",
                                      .path = "/test.txt",
                                      .query = "",
                                      .headers = headers,
                                      .n_headers = 4,
                                      .payload = SIGV4_EMPTY,
                                      .time = "20130524T000000Z"};

    check_signature(S3_SECRET, &scope, &req,
                    "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
                    "host;range;x-amz-content-sha256;x-amz-date");
}

static void s3_list_objects(void)
{
    const struct sigv4_scope scope = {"20130524", "us-east-1", "s3"};
    const struct sigv4_header headers[] = {{"host", "examplebucket.s3.amazonaws.com"},
                                           {"x-amz-content-sha256", SIGV4_EMPTY},
                                           {"x-amz-date", "20130524T000000Z"}};
    struct sigv4_request req = {.method = "GET",
                                .path = "/",
                                .query = "max-keys=2&prefix=J",
                                .headers = headers,
                                .n_headers = 3,
                                .payload = SIGV4_EMPTY,
                                .time = "20130524T000000Z"};

    check_signature(S3_SECRET, &scope, &req,
                    "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
                    "host;x-amz-content-sha256;x-amz-date");
    req.query = "lifecycle";
    check_signature(S3_SECRET, &scope, &req,
                    "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
                    "host;x-amz-content-sha256;x-amz-date");
}

static void the_guests_own_scope_is_read(void)
{
    static const char good[] =
        "AWS4-HMAC-SHA256 Credential=AKID/20150830/eu-west-1/dynamodb/aws4_request, "
        "SignedHeaders=host, Signature=00";
    static const char *const bad[] = {
        "", "Bearer x", "AWS4-HMAC-SHA256 Credential=AKID/20150830/eu-west-1",
        "AWS4-HMAC-SHA256 Credential=AKID/20150830/eu west/x/aws4_request",
        "AWS4-HMAC-SHA256 Credential=AKID/201508301/eu-west-1/x/aws4_request"};
    struct sigv4_scope scope;

    CHECK_INT(sigv4_scope_of(good, strlen(good), &scope), 0);
    CHECK_STR(scope.region, "eu-west-1");
    CHECK_STR(scope.service, "dynamodb");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        CHECK_INT(sigv4_scope_of(bad[i], strlen(bad[i]), &scope), -EINVAL);
    }
}

TEST_MAIN(T(the_key_of_the_documentation), T(get_vanilla), T(s3_get_object), T(s3_list_objects),
          T(the_guests_own_scope_is_read))

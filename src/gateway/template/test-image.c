/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "gateway/template/image.h"

#include <string.h>

#define HASH64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void names_have_a_registry(void)
{
    static const struct {
        const char *text;
        const char *host;
        unsigned port;
        bool plain;
        const char *name;
    } cases[] = {
        {"python", IMAGE_HUB, 0, false, "python"},
        {"python:3.12", IMAGE_HUB, 0, false, "python:3.12"},
        {"owner/name:v1", IMAGE_HUB, 0, false, "owner/name:v1"},
        {"ghcr.io/a/b", "ghcr.io", 0, false, "ghcr.io/a/b"},
        {"a.b:5000/c@sha256:" HASH64, "a.b", 5000, false, "a.b:5000/c@sha256:" HASH64},
        {"localhost/a", "localhost", 0, false, "localhost/a"},
        {"http://10.1.2.3:80/a", "10.1.2.3", 80, true, "10.1.2.3:80/a"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct template_image image;

        CHECK_INT(template_image_parse(cases[i].text, &image, NULL), 0);
        CHECK_STR(image.host, cases[i].host);
        CHECK_INT(image.port, cases[i].port);
        CHECK(image.plain == cases[i].plain && !image.archive[0]);
        CHECK_STR(image.name, cases[i].name);
    }
}

static void archives_have_a_hash_and_perhaps_a_tag(void)
{
    struct template_image image;

    CHECK_INT(template_image_parse("oci-archive:" HASH64, &image, NULL), 0);
    CHECK_STR(image.archive, HASH64);
    CHECK(!image.name[0] && !image.host[0]);
    CHECK_INT(template_image_parse("oci-archive:" HASH64 ":v1", &image, NULL), 0);
    CHECK_STR(image.name, "v1");
}

static void wrong_names_are_refused(void)
{
    static const char *const cases[] = {"",
                                        "-x",
                                        "a b",
                                        "a;b",
                                        "a/",
                                        "a:",
                                        "a//b",
                                        "/a",
                                        "http://a",
                                        "http://",
                                        "docker://a",
                                        "a.b:0/c",
                                        "a.b:x/c",
                                        "a.b:70000/c",
                                        "A.b/c",
                                        ".b/c",
                                        "oci-archive:",
                                        "oci-archive:abc",
                                        "a.b:1:2/c",
                                        "a..b/c",
                                        "oci:/etc",
                                        "oci-archive:" HASH64 ":",
                                        "oci-archive:" HASH64 ":a/b",
                                        "oci-archive:" HASH64 "0"};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct template_image image;
        struct err e = {0};

        if (template_image_parse(cases[i], &image, &e) != -EINVAL) {
            printf("# %s\n", cases[i]);
        }
        CHECK_STR(e.field, "fromImage");
    }
    CHECK(template_image_is_base("e2bdev/base") && template_image_is_base("e2bdev/base:latest") &&
          !template_image_is_base("e2bdev/base2"));
}

static void fetching_reaches_the_registry_and_what_is_public(void)
{
    struct template_image image;
    cleanup_free char *named = NULL;
    cleanup_free char *numbered = NULL;
    cleanup_free char *auth = NULL;

    CHECK_INT(template_image_parse("reg.corp:5000/a", &image, NULL), 0);
    named = template_image_policy(&image);
    CHECK_STR(named,
              "{\"preset\":\"internet\",\"rules\":[{\"host\":\"reg.corp\",\"action\":\"allow\","
              "\"ports\":\"5000\"}]}");
    auth = template_image_auth(&image, "me", "se:cret");
    CHECK_STR(auth, "{\"auths\":{\"reg.corp:5000\":{\"auth\":\"bWU6c2U6Y3JldA==\"}}}");
    CHECK_INT(template_image_parse("10.0.0.1/a", &image, NULL), 0);
    numbered = template_image_policy(&image);
    CHECK_STR(
        numbered,
        "{\"preset\":\"internet\",\"rules\":[{\"cidr\":\"10.0.0.1/32\",\"action\":\"allow\"}]}");
}

static void of_a_configuration_the_environment_is_kept(void)
{
    static const char text[] = "{\"config\":{\"Env\":[\"A=1\",\"B=x=y\",\"bad\",\"1X=2\",\"=z\",5,"
                               "\"A=2\",\"D=\"],"
                               "\"User\":\"x\"}}";
    static const char *const nothing[] = {"{}", "{\"config\":null}", "{\"config\":{\"Env\":{}}}",
                                          "{\"config\":{\"Env\":null}}"};
    cleanup_template_config struct template_config config;
    cleanup_free char *env = NULL;
    struct err e = {0};

    template_config_init(&config);
    CHECK_INT(template_image_config(text, strlen(text), &config, NULL), 0);
    env = json_text(config.env);
    CHECK_STR(env, "{\"A\":\"2\",\"B\":\"x=y\",\"D\":\"\"}");
    CHECK(!config.user[0]);
    for (size_t i = 0; i < ARRAY_SIZE(nothing); i++) {
        CHECK_INT(template_image_config(nothing[i], strlen(nothing[i]), &config, NULL), 0);
    }
    CHECK_INT(template_image_config("[]", 2, &config, &e), -EBADMSG);
    CHECK_INT(template_image_config("{", 1, &config, &e), -EBADMSG);
    CHECK_STR(e.reason, "bad_image");
}

TEST_MAIN(T(names_have_a_registry), T(archives_have_a_hash_and_perhaps_a_tag),
          T(wrong_names_are_refused), T(fetching_reaches_the_registry_and_what_is_public),
          T(of_a_configuration_the_environment_is_kept))

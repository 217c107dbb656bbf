/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "gateway/template/log.h"
#include "gateway/template/recipe.h"

#include <string.h>

#define HASH64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static int parse(const char *text, struct template_recipe *ret, struct err *e)
{
    cleanup_json json_t *json = NULL;
    int r = json_parse_object(text, strlen(text), &json, e);

    return r < 0 ? r : template_recipe_from_json(json, ret, e);
}

static void references_have_a_name_and_perhaps_a_tag(void)
{
    static const struct {
        const char *text;
        const char *name;
        const char *tag;
    } cases[] = {{"a", "a", ""},        {"a_b-1:v1.0", "a_b-1", "v1.0"},
                 {"team/a", "a", ""},   {"t/a:B_c", "a", "B_c"},
                 {"", NULL, NULL},      {"A", NULL, NULL},
                 {"a:", NULL, NULL},    {"-a", NULL, NULL},
                 {"a:b:c", NULL, NULL}, {"a b", NULL, NULL},
                 {"t/", NULL, NULL}};
    struct template_ref ref;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct err e = {0};

        CHECK_INT(template_ref_parse(cases[i].text, &ref, &e), cases[i].name ? 0 : -EINVAL);
        if (cases[i].name) {
            CHECK_STR(ref.name, cases[i].name);
            CHECK_STR(ref.tag, cases[i].tag);
        } else {
            CHECK(e.msg[0]);
        }
    }
}

static void wrong_recipes_name_their_field(void)
{
    static const struct {
        const char *text;
        const char *field;
    } cases[] = {
        {"{}", "fromImage"},
        {"{\"fromImage\":\"a\",\"fromTemplate\":\"b\"}", "fromImage"},
        {"{\"fromImage\":5}", "fromImage"},
        {"{\"fromImage\":\"a\",\"fromImageRegistry\":{\"type\":\"registry\"}}",
         "fromImageRegistry"},
        {"{\"fromImage\":\"a b\"}", "fromImage"},
        {"{\"fromImage\":\"a\",\"fromImageRegistry\":5}", "fromImageRegistry"},
        {"{\"fromImage\":\"a\",\"fromImageRegistry\":{\"type\":\"x\"}}", "fromImageRegistry"},
        {"{\"fromImage\":\"a\",\"fromImageRegistry\":{\"type\":\"aws\",\"awsRegion\":\"b\"}}",
         "fromImageRegistry"},
        {"{\"fromImage\":\"a\",\"fromImageRegistry\":{\"username\":\"a:b\",\"password\":\"c\"}}",
         "fromImageRegistry"},
        {"{\"fromImage\":\"a\",\"fromImageRegistry\":{\"username\":\"a\",\"password\":\"\\u0001\"}"
         "}",
         "fromImageRegistry"},
        {"{\"fromTemplate\":\"a\",\"steps\":5}", "steps"},
        {"{\"fromTemplate\":\"a\",\"steps\":[5]}", "steps"},
        {"{\"fromTemplate\":\"a\",\"steps\":[{\"type\":\"ADD\",\"args\":[\"a\"]}]}", "steps"},
        {"{\"fromTemplate\":\"a\",\"steps\":[{\"type\":\"RUN\",\"args\":[\"\"]}]}", "steps"},
        {"{\"fromTemplate\":\"a\",\"steps\":[{\"type\":\"RUN\",\"args\":[\"a\",\"-u\"]}]}",
         "steps"},
        {"{\"fromTemplate\":\"a\",\"steps\":[{\"type\":\"ENV\",\"args\":[\"a\",\"b\",\"c\"]}]}",
         "steps"},
        {"{\"fromTemplate\":\"a\",\"steps\":[{\"type\":\"COPY\",\"args\":[\"a\",\"b\"]}]}",
         "steps"},
        {"{\"fromTemplate\":\"a\",\"steps\":[{\"type\":\"COPY\",\"filesHash\":\"" HASH64
         "\",\"args\":[\"/a\",\"b\"]}]}",
         "steps"},
        {"{\"fromTemplate\":\"a\",\"steps\":[{\"type\":\"COPY\",\"filesHash\":\"" HASH64
         "\",\"args\":[\"a\",\"b\",\"\",\"9\"]}]}",
         "steps"},
        {"{\"fromTemplate\":\"a\",\"steps\":[{\"type\":\"USER\",\"args\":[\"a;b\"]}]}", "steps"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct template_recipe recipe;
        struct err e = {0};

        CHECK_INT(parse(cases[i].text, &recipe, &e), -EINVAL);
        CHECK_STR(e.field, cases[i].field);
    }
}

static void credentials_of_registries_are_taken(void)
{
    cleanup_template_recipe struct template_recipe one = {0};
    cleanup_template_recipe struct template_recipe two = {0};
    cleanup_template_recipe struct template_recipe none = {0};

    CHECK_INT(
        parse(
            "{\"fromImage\":\"a\",\"fromImageRegistry\":{\"type\":\"registry\",\"username\":\"u\","
            "\"password\":\"p\"}}",
            &one, NULL),
        0);
    CHECK_STR(one.registry_user, "u");
    CHECK_STR(one.registry_password, "p");
    CHECK_INT(parse("{\"fromImage\":\"a\",\"fromImageRegistry\":{\"type\":\"gcp\","
                    "\"serviceAccountJson\":\"{}\"}}",
                    &two, NULL),
              0);
    CHECK_STR(two.registry_user, "_json_key");
    CHECK_STR(two.registry_password, "{}");
    CHECK_INT(parse("{\"fromImage\":\"a\",\"fromImageRegistry\":{}}", &none, NULL), 0);
    CHECK(!none.registry_user && !none.registry_password);
}

static const char steps[] =
    "{\"fromTemplate\":\"base\",\"startCmd\":\"\",\"readyCmd\":\"true\",\"steps\":["
    "{\"type\":\"ENV\",\"args\":[\"A\",\"1\",\"B\",\"2\"]},"
    "{\"type\":\"WORKDIR\",\"args\":[\"app\"]},"
    "{\"type\":\"WORKDIR\",\"args\":[\"deep\"]},"
    "{\"type\":\"USER\",\"args\":[\"root\"]},"
    "{\"type\":\"COPY\",\"filesHash\":\"" HASH64 "\",\"args\":[\"a/*.txt\",\"x\",\"\",\"0644\"]},"
    "{\"type\":\"RUN\",\"args\":[\"make\"],\"force\":true}]}";

static void steps_change_what_comes_after(void)
{
    cleanup_template_recipe struct template_recipe recipe = {0};
    cleanup_template_config struct template_config config;
    cleanup_template_config struct template_config copy;
    cleanup_free char *path = NULL;
    cleanup_json json_t *json = NULL;
    struct template_step step;

    CHECK_INT(parse(steps, &recipe, NULL), 0);
    CHECK(recipe.parent && !recipe.image && !recipe.start_cmd && recipe.n_steps == 6);
    CHECK_STR(recipe.ready_cmd, "true");
    template_config_init(&config);
    for (size_t i = 0; i < recipe.n_steps; i++) {
        step = template_recipe_step(&recipe, i);
        CHECK_INT(template_config_apply(&config, &step, NULL), 0);
    }
    CHECK(step.type == TEMPLATE_STEP_RUN && step.force && template_step_has_layer(&step));
    CHECK_STR(template_step_arg(&step, 7), "");
    CHECK_STR(config.workdir, "/home/user/app/deep");
    CHECK_STR(config.user, "root");
    path = template_config_path(&config, "x");
    CHECK_STR(path, "/home/user/app/deep/x");
    json = template_config_to_json(&config);
    template_config_from_json(json, &copy);
    CHECK(json_equal(copy.env, config.env) && json_object_size(copy.env) == 2);
    CHECK_STR(copy.workdir, config.workdir);
    CHECK_STR(copy.user, config.user);
}

static void damaged_configs_are_empty_ones(void)
{
    cleanup_template_config struct template_config config;
    cleanup_json json_t *json = json_pack("{s:{s:i}, s:i}", "env", "A", 1, "user", 5);

    template_config_from_json(json, &config);
    CHECK(json_object_size(config.env) == 0 && !config.user[0] && !config.workdir[0]);
}

static void a_hash_is_of_all_that_led_to_it(void)
{
    cleanup_template_recipe struct template_recipe recipe = {0};
    char hash[3][TEMPLATE_HASH_SIZE];
    struct template_step step;

    CHECK_INT(parse(steps, &recipe, NULL), 0);
    step = template_recipe_step(&recipe, 4);
    template_hash_base("one", hash[0]);
    template_hash_base("one", hash[1]);
    template_hash_base("two", hash[2]);
    CHECK(template_hash_valid(hash[0]) && !template_hash_valid("x") && !template_hash_valid(NULL));
    CHECK(str_eq(hash[0], hash[1]) && !str_eq(hash[0], hash[2]));
    template_hash_step(hash[0], &step);
    template_hash_step(hash[1], &step);
    template_hash_step(hash[2], &step);
    CHECK(str_eq(hash[0], hash[1]) && !str_eq(hash[0], hash[2]));
    step.files_hash = "other";
    template_hash_step(hash[1], &step);
    template_hash_step(hash[0], &(struct template_step){step.type, step.args, NULL, false});
    CHECK(!str_eq(hash[0], hash[1]));
}

static void a_log_has_lines_and_an_end(void)
{
    CLEANUP(build_log_freep) struct build_log *log = build_log_new();
    cleanup_json json_t *first = NULL;
    cleanup_json json_t *rest = NULL;
    cleanup_json json_t *all = NULL;
    static char much[1000];

    build_log_step(log, "1");
    build_log_output(log, "a", 1, false);
    build_log_output(log, "b\nc\xff", 4, false);
    build_log_output(log, "e\n", 2, true);
    build_log_flush(log);
    first = build_log_entries(log, 0, 2);
    CHECK_INT((int)json_array_size(first), 2);
    CHECK_STR(json_get_string(json_array_get(first, 0), "message", ""), "ab");
    CHECK_STR(json_get_string(json_array_get(first, 0), "step", ""), "1");
    CHECK_STR(json_get_string(json_array_get(first, 1), "level", ""), "warn");
    rest = build_log_entries(log, 2, 10);
    CHECK_INT((int)json_array_size(rest), 1);
    CHECK_STR(json_get_string(json_array_get(rest, 0), "message", ""), "c?");
    memset(much, 'x', sizeof(much));
    for (int i = 0; i < 5000; i++) {
        build_log_output(log, much, sizeof(much), false);
        build_log_output(log, "\n", 1, false);
    }
    build_log_step(log, "2");
    build_log_say(log, "info", "%s", "the end");
    all = build_log_entries(log, 0, SIZE_MAX);
    CHECK(json_array_size(all) < 2000);
    CHECK_STR(json_get_string(json_array_get(all, json_array_size(all) - 1), "message", ""),
              "the end");
    json_decref(first);
    first = build_log_tail(log, 5);
    CHECK_INT((int)json_array_size(first), 1);
}

TEST_MAIN(T(references_have_a_name_and_perhaps_a_tag), T(wrong_recipes_name_their_field),
          T(credentials_of_registries_are_taken), T(steps_change_what_comes_after),
          T(damaged_configs_are_empty_ones), T(a_hash_is_of_all_that_led_to_it),
          T(a_log_has_lines_and_an_end))

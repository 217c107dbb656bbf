/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/template/recipe.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A recipe that is accepted can be gone through: every step has a hash, its paths are bounded, its configuration comes back. */
static void go_through(const struct template_recipe *recipe)
{
    cleanup_template_config struct template_config config;
    cleanup_template_config struct template_config copy;
    cleanup_json json_t *json = NULL;
    char hash[TEMPLATE_HASH_SIZE];

    ASSERT(!recipe->image != !recipe->parent);
    template_config_init(&config);
    template_hash_base("base", hash);
    for (size_t i = 0; i < recipe->n_steps; i++) {
        struct template_step step = template_recipe_step(recipe, i);
        struct err e = {0};

        template_hash_step(hash, &step);
        ASSERT(template_hash_valid(hash));
        if (template_config_apply(&config, &step, &e) < 0) {
            ASSERT(e.msg[0]);
            break;
        }
        ASSERT(!config.workdir[0] || config.workdir[0] == '/');
        ASSERT(step.type != TEMPLATE_STEP_COPY || template_hash_valid(step.files_hash));
    }
    json = template_config_to_json(&config);
    template_config_from_json(json, &copy);
    ASSERT(json_equal(config.env, copy.env) && str_eq(config.workdir, copy.workdir));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_template_recipe struct template_recipe recipe = {0};
    cleanup_json json_t *json = NULL;
    struct err e = {0};

    if (json_parse_untrusted(data, size, &json, NULL) < 0) {
        return 0;
    }
    if (template_recipe_from_json(json, &recipe, &e) == 0) {
        go_through(&recipe);
    } else {
        ASSERT(e.field[0] && e.msg[0]);
    }
    return 0;
}

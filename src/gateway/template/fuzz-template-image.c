/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/template/image.h"

#include "model/netpolicy.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A name that is accepted is no option, no path and no other transport, and a policy can be made of it. */
static void name(const char *text)
{
    cleanup_free char *policy = NULL;
    cleanup_json json_t *json = NULL;
    struct template_image image;
    struct netpolicy *checked = NULL;
    struct err e = {0};

    if (template_image_parse(text, &image, &e) < 0) {
        ASSERT(e.field[0] && e.msg[0]);
        return;
    }
    ASSERT(!image.archive[0] == (image.host[0] != '\0'));
    if (image.archive[0]) {
        ASSERT(template_hash_valid(image.archive) && !strpbrk(image.name, "/: "));
        return;
    }
    ASSERT(image.name[0] && image.name[0] != '-' && image.name[0] != '/' &&
           !strpbrk(image.name, " \n'\"$`\\"));
    policy = template_image_policy(&image);
    ASSERT(json_parse_object(policy, strlen(policy), &json, NULL) == 0 &&
           netpolicy_from_json(json, &checked, NULL) == 0);
    netpolicy_unref(checked);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_template_config struct template_config config;
    cleanup_free char *text = xmalloc(size + 1);

    template_config_init(&config);
    memcpy(text, data, size);
    text[size] = '\0';
    name(text);
    if (template_image_config(text, size, &config, NULL) == 0) {
        ASSERT(env_check("env", config.env, NULL) == 0);
    }
    return 0;
}

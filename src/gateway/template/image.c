/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/template/image.h"

#include "base/base64.h"
#include "model/netpolicy.h"

#include <stdio.h>
#include <string.h>

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@"
#define HOST_CHARS "abcdefghijklmnopqrstuvwxyz0123456789.-"
#define ENV_MAX 256 /* entries of an image that are looked at */

#define E2B_BASE_IMAGE "e2bdev/base"

bool template_image_is_base(const char *text)
{
    return str_eq(text, E2B_BASE_IMAGE) || str_starts(text, E2B_BASE_IMAGE ":");
}

static int bad(const char *text, const char *why, struct err *e)
{
    return err_field(e, -EINVAL, "invalid_field", "fromImage", "'%.200s' is no image: %s", text,
                     why);
}

static int parse_archive(const char *text, struct template_image *ret, struct err *e)
{
    const char *hash = text + strlen(TEMPLATE_IMAGE_ARCHIVE);
    size_t len = strcspn(hash, ":");
    const char *tag = hash[len] ? hash + len + 1 : "";

    if (len < sizeof(ret->archive)) {
        memcpy(ret->archive, hash, len);
    }
    if (!template_hash_valid(ret->archive)) {
        return bad(text, "after '" TEMPLATE_IMAGE_ARCHIVE "' comes the hash of an upload", e);
    }
    if (hash[len] && !template_tag_valid(tag)) {
        return bad(text, "its tag may have letters, digits, '-', '_' and '.'", e);
    }
    snprintf(ret->name, sizeof(ret->name), "%s", tag);
    return 0;
}

/* What stands before the first '/', where that is a registry and not a name on Docker Hub. */
static int parse_host(const char *text, struct template_image *ret, struct err *e)
{
    size_t len = strcspn(ret->name, "/");
    char host[TEMPLATE_IMAGE_HOST_SIZE] = "";
    uint64_t port = 0;
    char *colon;

    if (ret->name[len] == '/' && len < sizeof(host)) {
        memcpy(host, ret->name, len);
    }
    if (!strpbrk(host, ".:") && !str_eq(host, "localhost")) {
        snprintf(ret->host, sizeof(ret->host), IMAGE_HUB);
        return ret->plain ? bad(text, "'http://' comes before a registry's name", e) : 0;
    }
    colon = strchr(host, ':');
    if (colon) {
        *colon = '\0';
        if (str_to_u64(colon + 1, UINT16_MAX, &port) < 0 || port == 0) {
            return bad(text, "its registry's port is none", e);
        }
    }
    if (!host[0] || host[0] == '-' || host[strspn(host, HOST_CHARS)]) {
        return bad(text, "its registry's name is none", e);
    }
    snprintf(ret->host, sizeof(ret->host), "%s", host);
    ret->port = (unsigned)port;
    return 0;
}

/* A policy can be made of it, so that nothing fails for that later. */
static int check_policy(const char *text, const struct template_image *image, struct err *e)
{
    cleanup_free char *policy = template_image_policy(image);
    cleanup_json json_t *json = NULL;
    struct netpolicy *checked = NULL;
    int r = json_parse_object(policy, strlen(policy), &json, NULL);

    r = r < 0 ? r : netpolicy_from_json(json, &checked, NULL);
    netpolicy_unref(checked);
    return r < 0 ? bad(text, "its registry's name is none", e) : 0;
}

int template_image_parse(const char *text, struct template_image *ret, struct err *e)
{
    struct template_image image = {0};
    const char *name = text;
    int r;

    if (str_starts(text, TEMPLATE_IMAGE_ARCHIVE)) {
        r = parse_archive(text, &image, e);
    } else {
        image.plain = str_starts(text, "http://");
        name += image.plain ? strlen("http://") : 0;
        if (!name[0] || strchr("._-/:@", name[0]) || name[strspn(name, NAME_CHARS)] ||
            str_copy(image.name, sizeof(image.name), name) < 0 || strstr(name, "//") ||
            strchr("/:@", name[strlen(name) - 1])) {
            return bad(text, "write [REGISTRY/]NAME[:TAG][@DIGEST]", e);
        }
        r = parse_host(text, &image, e);
        r = r < 0 ? r : check_policy(text, &image, e);
    }
    if (r == 0) {
        *ret = image;
    }
    return r;
}

static bool is_address(const char *host)
{
    return host[strspn(host, "0123456789.")] == '\0';
}

char *template_image_policy(const struct template_image *image)
{
    cleanup_free char *network =
        xasprintf("%s%s", image->host, is_address(image->host) ? "/32" : "");
    cleanup_json json_t *rule = json_pack("{s:s, s:s}", is_address(image->host) ? "cidr" : "host",
                                          network, "action", "allow");
    cleanup_json json_t *policy = NULL;

    ASSERT(rule);
    if (image->port) {
        char port[12];

        snprintf(port, sizeof(port), "%u", image->port);
        json_object_set_new(rule, "ports", json_string(port));
    }
    policy = json_pack("{s:s, s:[O]}", "preset", "internet", "rules", rule);
    ASSERT(policy);
    return json_text(policy);
}

char *template_image_auth(const struct template_image *image, const char *user,
                          const char *password)
{
    cleanup_buf struct buf pair = BUF_INIT(2 * TEMPLATE_REGISTRY_TEXT_MAX + 2);
    cleanup_buf struct buf coded = BUF_INIT(4 * TEMPLATE_REGISTRY_TEXT_MAX);
    cleanup_free char *host =
        image->port ? xasprintf("%s:%u", image->host, image->port) : xstrdup(image->host);
    cleanup_json json_t *auth = NULL;
    int r = buf_printf(&pair, "%s:%s", user, password);

    r = r < 0 ? r : base64_encode(pair.data, pair.len, &coded);
    ASSERT(r == 0); /* both are bounded */
    auth = json_pack("{s:{s:{s:s}}}", "auths", host, "auth", buf_str(&coded));
    ASSERT(auth);
    explicit_bzero(pair.data, pair.len);
    explicit_bzero(coded.data, coded.len);
    return json_text(auth);
}

static void add_variable(const char *text, struct template_config *config)
{
    const char *equals = strchr(text, '=');
    cleanup_free char *name = NULL;
    cleanup_json json_t *env = NULL;

    if (!equals || equals == text) {
        return;
    }
    name = xstrndup(text, (size_t)(equals - text));
    env = json_deep_copy(config->env);
    if (json_object_set_new(env, name, json_string(equals + 1)) == 0 &&
        env_check("env", env, NULL) == 0) {
        json_decref(config->env);
        config->env = json_incref(env);
    }
}

int template_image_config(const char *text, size_t len, struct template_config *ret, struct err *e)
{
    cleanup_json json_t *json = NULL;
    json_t *item;
    size_t i;

    if (len > TEMPLATE_IMAGE_CONFIG_MAX || json_parse_untrusted(text, len, &json, NULL) < 0 ||
        !json_is_object(json)) {
        return err_set(e, -EBADMSG, "bad_image", "the image's configuration cannot be read");
    }
    json_array_foreach(json_object_get(json_object_get(json, "config"), "Env"), i, item)
    {
        if (json_is_string(item) && i < ENV_MAX &&
            strlen(json_string_value(item)) == json_string_length(item)) {
            add_variable(json_string_value(item), ret);
        }
    }
    return 0;
}

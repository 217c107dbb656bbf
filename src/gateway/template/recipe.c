/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/template/recipe.h"

#include "base/id.h"
#include "gateway/template/image.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t min_args;
    size_t max_args;
} types[] = {
    [TEMPLATE_STEP_RUN] = {"RUN", 1, 2},
    [TEMPLATE_STEP_COPY] = {"COPY", 2, 4},
    [TEMPLATE_STEP_ENV] = {"ENV", 2, TEMPLATE_STEP_ARGS_MAX},
    [TEMPLATE_STEP_WORKDIR] = {"WORKDIR", 1, 1},
    [TEMPLATE_STEP_USER] = {"USER", 1, 1},
};
_Static_assert(ARRAY_SIZE(types) == TEMPLATE_STEP_COUNT_, "each type has its row");

/* --- names --- */

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

bool template_tag_valid(const char *tag)
{
    size_t len = strlen(tag);

    return len >= 1 && len < TEMPLATE_TAG_SIZE && strspn(tag, LOWER UPPER DIGITS "_.-") == len;
}

bool template_hash_valid(const char *hash)
{
    return hash && strlen(hash) == TEMPLATE_HASH_SIZE - 1 &&
           strspn(hash, DIGITS "abcdef") == TEMPLATE_HASH_SIZE - 1;
}

static bool name_valid(const char *name)
{
    size_t len = strlen(name);

    return len >= 1 && len < TEMPLATE_NAME_SIZE && strchr(LOWER DIGITS, name[0]) &&
           strspn(name, LOWER DIGITS "_-") == len;
}

int template_ref_parse(const char *text, struct template_ref *ret, struct err *e)
{
    const char *slash = strrchr(text, '/');
    const char *name = slash ? slash + 1 : text;
    const char *colon = strchr(name, ':');
    size_t len = colon ? (size_t)(colon - name) : strlen(name);
    struct template_ref ref = {0};

    if (len < sizeof(ref.name)) {
        memcpy(ref.name, name, len);
    }
    if (!name_valid(ref.name)) {
        return err_field(e, -EINVAL, "invalid_field", "name",
                         "'%.100s' is no name of a template: use a-z, 0-9, '-' and '_', at most %d",
                         text, TEMPLATE_NAME_MAX);
    }
    if (colon && !template_tag_valid(colon + 1)) {
        return err_field(e, -EINVAL, "invalid_field", "tags",
                         "'%.100s' is no tag: use letters, digits, '-', '_' and '.', at most %d",
                         colon + 1, TEMPLATE_TAG_SIZE - 1);
    }
    if (colon) {
        snprintf(ref.tag, sizeof(ref.tag), "%s", colon + 1);
    }
    *ret = ref;
    return 0;
}

/* --- recipes --- */

static int bad_step(size_t i, const char *what, struct err *e)
{
    return err_field(e, -EINVAL, "invalid_field", "steps", "step %zu: %s", i + 1, what);
}

/* The object's string without a NUL in it, not longer than max; NULL when absent, null or empty. */
static int read_text(json_t *object, const char *name, size_t max, const char **ret, struct err *e)
{
    json_t *value = json_object_get(object, name);

    *ret = NULL;
    if (!value || json_is_null(value)) {
        return 0;
    }
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value) ||
        json_string_length(value) > max) {
        return err_field(e, -EINVAL, "invalid_field", name,
                         "'%s' must be a string of at most %zu bytes", name, max);
    }
    *ret = json_string_length(value) ? json_string_value(value) : NULL;
    return 0;
}

static bool find_type(const char *name, enum template_step_type *ret)
{
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        if (str_eq(types[i].name, name)) {
            *ret = (enum template_step_type)i;
            return true;
        }
    }
    return false;
}

static bool args_fine(json_t *args)
{
    json_t *arg;
    size_t i;

    json_array_foreach(args, i, arg)
    {
        if (!json_is_string(arg) || json_string_length(arg) > TEMPLATE_ARG_MAX ||
            strlen(json_string_value(arg)) != json_string_length(arg)) {
            return false;
        }
    }
    return true;
}

static bool mode_fine(const char *mode)
{
    return strlen(mode) <= 5 && mode[strspn(mode, "01234567")] == '\0';
}

/* A user is a name or a number; what the guest's shell gets must not be taken for an option. */
static bool user_fine(const char *user)
{
    return strlen(user) < TEMPLATE_USER_SIZE && user[0] != '-' &&
           user[strspn(user, LOWER UPPER DIGITS "_.-:")] == '\0';
}

static int check_copy(size_t i, const struct template_step *step, struct err *e)
{
    const char *from = template_step_arg(step, 0);

    if (!template_hash_valid(step->files_hash)) {
        return bad_step(i, "COPY needs 'filesHash', 64 hex digits, of files that were uploaded", e);
    }
    if (from[0] == '/' || str_eq(from, "..") || str_starts(from, "../") || strstr(from, "/../") ||
        strlen(from) >= TEMPLATE_PATH_MAX) {
        return bad_step(i, "the source of COPY must stay within the uploaded files", e);
    }
    if (!template_step_arg(step, 1)[0] || strlen(template_step_arg(step, 1)) >= TEMPLATE_PATH_MAX) {
        return bad_step(i, "COPY needs a destination", e);
    }
    return user_fine(template_step_arg(step, 2)) && mode_fine(template_step_arg(step, 3))
               ? 0
               : bad_step(i, "COPY's owner or mode cannot be used", e);
}

static int check_meaning(size_t i, const struct template_step *step, struct err *e)
{
    const char *first = template_step_arg(step, 0);
    bool fine = true;

    switch (step->type) {
    case TEMPLATE_STEP_RUN:
        fine = first[0] && user_fine(template_step_arg(step, 1));
        break;
    case TEMPLATE_STEP_COPY:
        return check_copy(i, step, e);
    case TEMPLATE_STEP_ENV:
        fine = json_array_size(step->args) % 2 == 0;
        break;
    case TEMPLATE_STEP_WORKDIR:
        fine = first[0] && strlen(first) < TEMPLATE_PATH_MAX;
        break;
    case TEMPLATE_STEP_USER:
        fine = first[0] && user_fine(first);
        break;
    case TEMPLATE_STEP_COUNT_:
        fine = false;
        break;
    }
    return fine ? 0 : bad_step(i, "its arguments cannot be used", e);
}

static int check_step(size_t i, json_t *object, struct err *e)
{
    json_t *args = json_object_get(object, "args");
    json_t *hash = json_object_get(object, "filesHash");
    struct template_step step = {.args = args, .files_hash = json_string_value(hash)};

    if (!json_is_object(object) || !find_type(json_get_string(object, "type", ""), &step.type)) {
        return bad_step(i, "'type' must be RUN, COPY, ENV, WORKDIR or USER", e);
    }
    if (!json_is_array(args) || json_array_size(args) < types[step.type].min_args ||
        json_array_size(args) > types[step.type].max_args || !args_fine(args)) {
        return bad_step(i, "'args' must be as many strings as its type takes", e);
    }
    return check_meaning(i, &step, e);
}

static int check_steps(json_t *json, size_t *ret_n, struct err *e)
{
    json_t *steps = json_object_get(json, "steps");
    json_t *step;
    size_t i;

    *ret_n = json_array_size(steps);
    if (steps && !json_is_null(steps) && !json_is_array(steps)) {
        return err_field(e, -EINVAL, "invalid_field", "steps", "'steps' must be an array");
    }
    if (*ret_n > TEMPLATE_STEPS_MAX) {
        return err_field(e, -EINVAL, "invalid_field", "steps", "there may be at most %d steps",
                         TEMPLATE_STEPS_MAX);
    }
    json_array_foreach(steps, i, step)
    {
        int r = check_step(i, step, e);

        if (r < 0) {
            return r;
        }
    }
    return 0;
}

/* Printable, in one piece, and of a size that its buffers hold. */
static int read_credential(json_t *object, const char *name, const char **ret, struct err *e)
{
    json_t *value = json_object_get(object, name);
    const char *text = json_string_value(value);
    bool fine = text && text[0] && strlen(text) == json_string_length(value) &&
                strlen(text) <= TEMPLATE_REGISTRY_TEXT_MAX;

    for (const char *c = text; fine && *c; c++) {
        fine = (unsigned char)*c >= ' ' || *c == '\n'; /* a key may have lines */
    }
    *ret = text;
    return fine ? 0
                : err_field(e, -EINVAL, "invalid_field", "fromImageRegistry",
                            "'fromImageRegistry.%s' must be a string of 1 to %d bytes", name,
                            TEMPLATE_REGISTRY_TEXT_MAX);
}

/* What to say to the registry. Google's takes a service account's key as a password; Amazon's wants one made of its keys. */
static int read_registry(struct template_recipe *recipe, struct err *e)
{
    json_t *object = json_object_get(recipe->json, "fromImageRegistry");
    const char *type = json_get_string(object, "type", "");
    int r;

    if (json_object_size(object) == 0 &&
        (!object || json_is_object(object) || json_is_null(object))) {
        return 0;
    }
    if (str_eq(type, "aws")) {
        return err_field(
            e, -EINVAL, "not_supported", "fromImageRegistry",
            "keys of AWS are not taken here: give the user 'AWS' and the password that "
            "'aws ecr get-login-password' prints");
    }
    if (str_eq(type, "gcp")) {
        recipe->registry_user = "_json_key";
        return read_credential(object, "serviceAccountJson", &recipe->registry_password, e);
    }
    if (type[0] && !str_eq(type, "registry")) {
        return err_field(e, -EINVAL, "invalid_field", "fromImageRegistry",
                         "'fromImageRegistry.type' must be 'registry', 'gcp' or 'aws'");
    }
    r = read_credential(object, "username", &recipe->registry_user, e);
    if (r == 0 && strchr(recipe->registry_user, ':')) {
        return err_field(e, -EINVAL, "invalid_field", "fromImageRegistry",
                         "'fromImageRegistry.username' must have no ':'");
    }
    return r < 0 ? r : read_credential(object, "password", &recipe->registry_password, e);
}

static int check_base(struct template_recipe *recipe, struct err *e)
{
    struct template_image image;
    int r = 0;

    if (!recipe->image == !recipe->parent) {
        return err_field(e, -EINVAL, "invalid_field", "fromImage",
                         "say one of 'fromImage' and 'fromTemplate'");
    }
    if (recipe->image && !template_image_is_base(recipe->image)) {
        r = template_image_parse(recipe->image, &image, e);
    }
    return r < 0 ? r : read_registry(recipe, e);
}

int template_recipe_from_json(json_t *json, struct template_recipe *ret, struct err *e)
{
    struct template_recipe recipe = {.json = json, .force = json_get_bool(json, "force", false)};
    int r = read_text(json, "fromImage", TEMPLATE_IMAGE_MAX, &recipe.image, e);

    if (r == 0) {
        r = read_text(json, "fromTemplate", TEMPLATE_IMAGE_MAX, &recipe.parent, e);
    }
    if (r == 0) {
        r = read_text(json, "startCmd", TEMPLATE_ARG_MAX, &recipe.start_cmd, e);
    }
    if (r == 0) {
        r = read_text(json, "readyCmd", TEMPLATE_ARG_MAX, &recipe.ready_cmd, e);
    }
    if (r == 0) {
        r = check_base(&recipe, e);
    }
    if (r == 0) {
        r = check_steps(json, &recipe.n_steps, e);
    }
    if (r < 0) {
        return r;
    }
    json_incref(json);
    *ret = recipe;
    return 0;
}

void template_recipe_done(struct template_recipe *recipe)
{
    json_decref(recipe->json);
    *recipe = (struct template_recipe){0};
}

struct template_step template_recipe_step(const struct template_recipe *recipe, size_t i)
{
    json_t *object = json_array_get(json_object_get(recipe->json, "steps"), i);
    struct template_step step = {
        .args = json_object_get(object, "args"),
        .files_hash = json_get_string(object, "filesHash", NULL),
        .force = json_get_bool(object, "force", false),
    };

    ASSERT(i < recipe->n_steps && find_type(json_get_string(object, "type", ""), &step.type));
    return step;
}

const char *template_step_arg(const struct template_step *step, size_t i)
{
    const char *arg = json_string_value(json_array_get(step->args, i));

    return arg ? arg : "";
}

const char *template_step_name(const struct template_step *step)
{
    return types[step->type].name;
}

bool template_step_has_layer(const struct template_step *step)
{
    return step->type == TEMPLATE_STEP_RUN || step->type == TEMPLATE_STEP_COPY ||
           step->type == TEMPLATE_STEP_WORKDIR;
}

/* --- what they say of what comes after --- */

void template_config_init(struct template_config *config)
{
    *config = (struct template_config){.env = json_object()};
}

void template_config_done(struct template_config *config)
{
    json_decref(config->env);
    config->env = NULL;
}

char *template_config_path(const struct template_config *config, const char *path)
{
    const char *from = config->workdir[0] ? config->workdir : TEMPLATE_HOME;

    if (path[0] == '/') {
        return xstrdup(path);
    }
    if (strlen(from) + 1 + strlen(path) >= TEMPLATE_PATH_MAX) {
        return NULL;
    }
    return xasprintf("%s/%s", str_eq(from, "/") ? "" : from, path);
}

static int apply_env(struct template_config *config, const struct template_step *step,
                     struct err *e)
{
    cleanup_json json_t *env = json_deep_copy(config->env);
    int r;

    for (size_t i = 0; i + 1 < json_array_size(step->args); i += 2) {
        r = json_object_set(env, template_step_arg(step, i), json_array_get(step->args, i + 1));
        if (r < 0) {
            return err_field(e, -EINVAL, "invalid_field", "steps", "a name of ENV is not UTF-8");
        }
    }
    r = env_check("steps", env, e);
    if (r < 0) {
        return r;
    }
    json_decref(config->env);
    config->env = json_incref(env);
    return 0;
}

int template_config_apply(struct template_config *config, const struct template_step *step,
                          struct err *e)
{
    cleanup_free char *path = NULL;

    switch (step->type) {
    case TEMPLATE_STEP_ENV:
        return apply_env(config, step, e);
    case TEMPLATE_STEP_USER:
        snprintf(config->user, sizeof(config->user), "%s", template_step_arg(step, 0));
        return 0;
    case TEMPLATE_STEP_WORKDIR:
        path = template_config_path(config, template_step_arg(step, 0));
        if (!path || str_copy(config->workdir, sizeof(config->workdir), path) < 0) {
            return err_field(e, -EINVAL, "invalid_field", "steps",
                             "the working folder's name is too long");
        }
        return 0;
    case TEMPLATE_STEP_RUN:
    case TEMPLATE_STEP_COPY:
    case TEMPLATE_STEP_COUNT_:
        return 0;
    }
    return 0;
}

json_t *template_config_to_json(const struct template_config *config)
{
    json_t *object = json_pack("{s:O, s:s, s:s}", "env", config->env, "user", config->user,
                               "workdir", config->workdir);

    ASSERT(object);
    return object;
}

void template_config_from_json(json_t *object, struct template_config *ret)
{
    json_t *env = json_object_get(object, "env");

    template_config_init(ret);
    if (env && env_check("env", env, NULL) == 0) {
        json_decref(ret->env);
        ret->env = json_deep_copy(env);
    }
    snprintf(ret->user, sizeof(ret->user), "%s", json_get_string(object, "user", ""));
    snprintf(ret->workdir, sizeof(ret->workdir), "%s", json_get_string(object, "workdir", ""));
}

/* --- layers --- */

void template_hash_base(const char *text, char ret[static TEMPLATE_HASH_SIZE])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;

    ASSERT(EVP_Digest(text, strlen(text), digest, &len, EVP_sha256(), NULL) == 1 && len == 32);
    hex_encode(digest, len, ret);
}

void template_hash_step(char hash[static TEMPLATE_HASH_SIZE], const struct template_step *step)
{
    cleanup_json json_t *what =
        json_pack("{s:s, s:s, s:O, s:s}", "after", hash, "type", template_step_name(step), "args",
                  step->args, "files", step->files_hash ? step->files_hash : "");
    cleanup_free char *text = NULL;

    ASSERT(what);
    text = json_text(what);
    template_hash_base(text, hash);
}

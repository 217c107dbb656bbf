/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Templates that clients build: what one is made from, its steps, and what the steps say of those that come after
 * them and of the commands of sandboxes made from it. Pure; build.h performs it.
 *
 *     {"fromImage" | "fromTemplate": "...", "startCmd": "...", "readyCmd": "...", "force": false,
 *      "fromImageRegistry": {"type": "registry", "username": "...", "password": "..."},
 *      "steps": [{"type": "RUN", "args": ["make", "root"], "force": false},
 *                {"type": "COPY", "args": ["src", "/dest", "user", "0644"], "filesHash": "64 hex digits"}, ...]}
 *
 *     type      args
 *     RUN       command, user?
 *     COPY      source in the archive (a glob), destination, owner? ("": the user so far), mode? (octal; "": as it is)
 *     ENV       name, value, name, value, ...
 *     WORKDIR   folder; made when it is not there
 *     USER      name
 *
 * A layer is the disk after a step. Its hash is that of the layer before it, the step's type, arguments and hash of
 * files; ENV, WORKDIR and USER are steps like others, so what they change is in the hashes of those after them.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "database/templates.h"
#include "model/names.h"

#define TEMPLATE_STEPS_MAX 256
#define TEMPLATE_STEP_ARGS_MAX (2 * ENV_PAIRS_MAX)
#define TEMPLATE_ARG_MAX \
    65536 /* a script that somebody wrote into a RUN; execve(2) takes twice that */
#define TEMPLATE_PATH_MAX 1024 /* with its NUL */
#define TEMPLATE_USER_SIZE 64
#define TEMPLATE_TAGS_MAX 16
#define TEMPLATE_IMAGE_MAX 512
#define TEMPLATE_HOME "/home/user" /* where relative paths begin when no WORKDIR was said */
#define TEMPLATE_DEFAULT_TAG "default"

/* [NAMESPACE/]NAME[:TAG] */
struct template_ref {
    char name[TEMPLATE_NAME_SIZE];
    char tag[TEMPLATE_TAG_SIZE]; /* "": none was said */
};
/* [a-z0-9][a-z0-9_-]{0,62}, as E2B has them, and the tag [A-Za-z0-9_.-]{1,64}. -EINVAL. */
MUST_CHECK int template_ref_parse(const char *text, struct template_ref *ret, struct err *e);
bool template_tag_valid(const char *tag);
/* 64 lower-case hex digits. Takes any string, or NULL. */
bool template_hash_valid(const char *hash);

enum template_step_type {
    TEMPLATE_STEP_RUN,
    TEMPLATE_STEP_COPY,
    TEMPLATE_STEP_ENV,
    TEMPLATE_STEP_WORKDIR,
    TEMPLATE_STEP_USER,
    TEMPLATE_STEP_COUNT_,
};

struct template_recipe {
    json_t *json;                  /* owned: the object as it was said */
    const char *image;             /* borrowed from json; NULL: from a template */
    const char *parent;            /* borrowed from json; NULL: from an image */
    const char *registry_user;     /* borrowed from json; NULL: without credentials */
    const char *registry_password; /* borrowed from json */
    const char *start_cmd;         /* borrowed from json; NULL: none */
    const char *ready_cmd;         /* borrowed from json; NULL: none */
    bool force;                    /* no layer is taken from the cache */
    size_t n_steps;
};

/* Checks everything; json is kept by reference. -EINVAL names the field. */
MUST_CHECK int template_recipe_from_json(json_t *json, struct template_recipe *ret, struct err *e);
void template_recipe_done(struct template_recipe *recipe);
#define cleanup_template_recipe CLEANUP(template_recipe_done)

/* One step of a checked recipe; everything is borrowed from it. */
struct template_step {
    enum template_step_type type;
    json_t *args;
    const char *files_hash; /* NULL: none */
    bool force;             /* neither it nor what comes after it is taken from the cache */
};
struct template_step template_recipe_step(const struct template_recipe *recipe, size_t i);
/* "" when there are not so many. */
const char *template_step_arg(const struct template_step *step, size_t i);
const char *template_step_name(const struct template_step *step);
/* Does it change the disk, so that there is a layer after it? */
bool template_step_has_layer(const struct template_step *step);

/* What later steps and the sandboxes' commands start with. */
struct template_config {
    json_t *env;                     /* owned: an object of strings */
    char user[TEMPLATE_USER_SIZE];   /* "": the base's default */
    char workdir[TEMPLATE_PATH_MAX]; /* "": the user's home */
};
void template_config_init(struct template_config *config);
void template_config_done(struct template_config *config);
#define cleanup_template_config CLEANUP(template_config_done)
/* -EINVAL: the environment or the folder's name becomes too large. */
MUST_CHECK int template_config_apply(struct template_config *config,
                                     const struct template_step *step, struct err *e);
/* {"env","user","workdir"}; the caller ends it with json_decref(). */
json_t *template_config_to_json(const struct template_config *config);
/* What is missing or damaged in the object stays as after template_config_init(). */
void template_config_from_json(json_t *object, struct template_config *ret);
/* path as it is when it is absolute, else beneath the working folder. The caller frees; NULL: too long. */
char *template_config_path(const struct template_config *config, const char *path);

/* The first of a chain: hash of a text that says what the base is. */
void template_hash_base(const char *text, char ret[static TEMPLATE_HASH_SIZE]);
/* hash becomes that of the layer after the step. */
void template_hash_step(char hash[static TEMPLATE_HASH_SIZE], const struct template_step *step);

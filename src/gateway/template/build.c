/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/template/build.h"

#include "base/clock.h"
#include "base/log.h"
#include "gateway/template/import.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ARCHIVE "/.space-copy"
#define READY_PAUSE_MS 1000
/* Of the layers that a build starts from. */
#define NONE SIZE_MAX

/* A build on its way. */
struct way {
    struct build *build;
    struct builder builder;
    struct template_config config;      /* owned: after the steps so far */
    char (*hashes)[TEMPLATE_HASH_SIZE]; /* owned: of the layer after each step */
    char *image_config;     /* owned: JSON text of what the image says; NULL: from none */
    size_t cached;          /* the step whose layer it starts from; NONE: the base */
    struct layer_row point; /* owned: the layer that is the disk now; hash "": none is */
    bool has_layers;        /* the builder's sandbox holds some */
};

void build_base_done(struct build_base *base)
{
    template_config_done(&base->config);
}

static int64_t now_ms(const struct way *w)
{
    return control_now_ms(w->build->world->control);
}

/* --- where it starts --- */

static void hash_steps(struct way *w)
{
    const struct template_recipe *recipe = w->build->recipe;
    char hash[TEMPLATE_HASH_SIZE];

    memcpy(hash, w->build->base->hash, sizeof(hash));
    w->hashes = xcalloc(recipe->n_steps + 1, sizeof(*w->hashes));
    for (size_t i = 0; i < recipe->n_steps; i++) {
        struct template_step step = template_recipe_step(recipe, i);

        template_hash_step(hash, &step);
        memcpy(w->hashes[i], hash, sizeof(hash));
    }
}

/* How many of the first steps may come from the cache. */
static size_t cacheable(const struct template_recipe *recipe)
{
    size_t n = 0;

    while (!recipe->force && n < recipe->n_steps && !template_recipe_step(recipe, n).force) {
        n++;
    }
    return n;
}

/* Is it there on the node? */
static int check_snapshot(struct way *w, const struct layer_row *layer, struct err *e)
{
    cleanup_free char *rest = xasprintf("/snapshots/%s", layer->snapshot);
    struct pollfd watch = {.fd = w->build->world->stop_fd, .events = POLLIN};
    const struct control_ask ask = {.method = "GET", .rest = rest, .watch = &watch};

    return control_ask(w->build->world->control, w->build->world->actor, layer->sandbox, &ask, NULL,
                       e);
}

/* 1: the layer is known and there, and *ret; one that is gone is forgotten. */
static int look_up(struct way *w, const char *hash, struct layer_row *ret, struct err *e)
{
    const struct builder_world *world = w->build->world;
    const char *project = world->actor->project;
    cleanup_layer_row struct layer_row layer = {0};
    struct err why = {0};
    int r = db_layer_use(world->db, project, hash, now_ms(w), &layer, &why);

    if (r == -ENOENT) {
        return 0;
    }
    r = r < 0 ? r : check_snapshot(w, &layer, &why);
    if (r == 0) {
        *ret = layer;
        layer = (struct layer_row){0};
        return 1;
    }
    r = r == -ENOENT ? db_layer_forget(world->db, project, hash, &why) : r;
    return r < 0 ? err_set(e, r, why.reason, "looking for layers: %s", why.msg) : 0;
}

/* The last layer of a step that is known. */
static int find_layer(struct way *w, struct err *e)
{
    w->cached = NONE;
    for (size_t i = cacheable(w->build->recipe); i-- > 0;) {
        struct template_step step = template_recipe_step(w->build->recipe, i);
        int r = template_step_has_layer(&step) ? look_up(w, w->hashes[i], &w->point, e) : 0;

        if (r > 0) {
            w->cached = i;
        }
        if (r != 0) {
            return MIN(r, 0);
        }
    }
    return 0;
}

/* What the image says of its sandboxes; its layer, when no later one is known, is where the build starts. */
static int find_image(struct way *w, struct err *e)
{
    cleanup_layer_row struct layer_row layer = {0};
    cleanup_json json_t *config = NULL;
    int r = w->build->recipe->force ? 0 : look_up(w, w->build->base->hash, &layer, e);

    if (r <= 0) {
        layer_row_done(&w->point); /* its image is gone: all is made anew */
        w->cached = NONE;
        return r;
    }
    r = json_parse_object(layer.config ? layer.config : "",
                          strlen(layer.config ? layer.config : ""), &config, e);
    if (r < 0) {
        return r;
    }
    template_config_done(&w->config);
    template_config_from_json(config, &w->config);
    w->image_config = TAKE_PTR(layer.config);
    if (w->cached == NONE) {
        w->point = layer;
        layer = (struct layer_row){0};
    }
    return 0;
}

/* The row names the sandbox from its first moment on: after a crash it is found by that. */
static int note_sandbox(struct way *w, struct err *e)
{
    snprintf(w->build->row->sandbox, sizeof(w->build->row->sandbox), "%s", w->builder.id);
    return db_build_update(w->build->world->db, w->build->row, e);
}

/* The disk as it is now becomes the layer of that hash. */
static int keep_layer(struct way *w, const char *hash, const char *config, struct err *e)
{
    cleanup_layer_row struct layer_row layer = {.used_at_ms = now_ms(w),
                                                .config = config ? xstrdup(config) : NULL};
    int r = builder_snapshot(&w->builder, /* full */ false, layer.snapshot, e);

    if (r < 0) {
        return err_wrap(e, r, "keeping the layer");
    }
    snprintf(layer.hash, sizeof(layer.hash), "%s", hash);
    snprintf(layer.project, sizeof(layer.project), "%s", w->build->world->actor->project);
    snprintf(layer.sandbox, sizeof(layer.sandbox), "%s", w->builder.id);
    r = db_layer_put(w->build->world->db, &layer, e);
    if (r == 0) {
        layer_row_done(&w->point);
        w->point = layer;
        layer = (struct layer_row){0};
        w->has_layers = true;
    }
    return r;
}

/* A new sandbox becomes the image, and leaves a layer. */
static int become_image(struct way *w, struct err *e)
{
    const struct import import = {&w->builder, w->build->recipe, w->build->files, w->build->log};
    cleanup_json json_t *json = NULL;
    struct template_config config;
    int r;

    template_config_init(&config);
    r = builder_make(&w->builder, w->build->base->node_template, &w->build->row->shape, e);
    r = r < 0 ? r : note_sandbox(w, e);
    r = r < 0 ? r : image_import(&import, &config, e);
    if (r < 0) {
        template_config_done(&config);
        return r;
    }
    template_config_done(&w->config);
    w->config = config;
    json = template_config_to_json(&config);
    w->image_config = json_text(json);
    return keep_layer(w, w->build->base->hash, w->image_config, e);
}

/* The sandbox, when the first step needs it. */
static int want_builder(struct way *w, struct err *e)
{
    const struct build_base *base = w->build->base;
    int r;

    if (w->builder.id[0]) {
        return 0;
    }
    if (w->point.hash[0]) {
        r = builder_fork(&w->builder, w->point.sandbox, w->point.snapshot, e);
    } else if (base->image) {
        return become_image(w, e);
    } else if (base->node_template[0]) {
        r = builder_make(&w->builder, base->node_template, &w->build->row->shape, e);
    } else {
        r = builder_fork(&w->builder, base->sandbox, base->snapshot, e);
    }
    return r < 0 ? r : note_sandbox(w, e);
}

/* --- steps --- */

static const char *user_of(const struct way *w)
{
    return w->config.user[0] ? w->config.user : w->builder.default_user;
}

static int finished(struct way *w, int status, struct err *e)
{
    build_log_flush(w->build->log);
    return status == 0 ? 0
                       : err_set(e, -ECHILD, "step_failed", "the command exited with %d", status);
}

/* As E2B's clients run commands: in a login shell; bash where there is one. */
static int run_shell(struct way *w, const char *line, const char *user, bool detached,
                     int *ret_status, struct err *e)
{
    const char *const argv[] = {w->builder.shell_is_bash ? "/bin/bash" : "/bin/sh", "-l", "-c",
                                line, NULL};
    const struct builder_command command = {.argv = argv,
                                            .env = w->config.env,
                                            .user = user[0] ? user : user_of(w),
                                            .cwd = w->config.workdir,
                                            .timeout_ms = detached ? 0 : BUILD_STEP_MS,
                                            .detached = detached,
                                            .output = build_log_output,
                                            .ctx = w->build->log};

    return builder_run(&w->builder, &command, ret_status, e);
}

/* A script of ours as root; its arguments are $1, $2, ... */
static int run_script(struct way *w, const char *script, const char *const args[static 5],
                      struct err *e)
{
    const char *const argv[] = {"/bin/sh", "-c",    script,  "sh",    args[0],
                                args[1],   args[2], args[3], args[4], NULL};
    const struct builder_command command = {.argv = argv,
                                            .user = "root",
                                            .cwd = "/",
                                            .timeout_ms = BUILD_STEP_MS,
                                            .output = build_log_output,
                                            .ctx = w->build->log};
    int status = 0;
    int r = builder_run(&w->builder, &command, &status, e);

    return r < 0 ? r : finished(w, status, e);
}

static int run(struct way *w, const struct template_step *step, struct err *e)
{
    int status = 0;
    int r = run_shell(w, template_step_arg(step, 0), template_step_arg(step, 1),
                      /* detached */ false, &status, e);

    return r < 0 ? r : finished(w, status, e);
}

/*
 * The archive is unpacked apart, then what the source matches goes to the destination: the content of a folder into the
 * folder, a file to the name, or into the folder when there are several or the name ends with '/'. Only globbing is
 * left of what a shell does to unquoted text: IFS is empty.
 */
static const char copy_script[] =
    "set -e; umask 022; from=$1; to=$2; owner=$3; mode=$4; d=/.space-unpacked\n"
    "trap 'rm -rf \"$d\" " ARCHIVE "' EXIT\n"
    "rm -rf \"$d\"; mkdir -m 700 \"$d\"; z=\n"
    "if gzip -t " ARCHIVE " 2>/dev/null; then z=z; fi\n" /* not all see it by themselves */
    "tar -x${z}of " ARCHIVE " -C \"$d\"\n"
    "chown -hR \"$owner\" \"$d\"\n"
    "if [ -n \"$mode\" ]; then find \"$d\" -type f -exec chmod \"$mode\" {} +; fi\n"
    "cd \"$d\"; IFS=; set -- $from\n"
    "if [ $# = 1 ] && [ ! -e \"$1\" ] && [ ! -L \"$1\" ]; then\n"
    "  case $from in *'**'*) set -- .;; *) echo \"nothing matches '$from'\" >&2; exit 1;; esac\n"
    "fi\n"
    "folder() { [ -d \"$1\" ] || { mkdir -p \"$1\"; chown \"$owner\" \"$1\"; }; }\n"
    "n=$#\n"
    "for one in \"$@\"; do\n"
    "  if [ -d \"$one\" ] && [ ! -L \"$one\" ]; then\n"
    "    folder \"$to\"; cp -a \"$one/.\" \"$to/\"\n"
    "  elif [ $n -gt 1 ] || [ -d \"$to\" ] || [ \"$to\" != \"${to%/}\" ]; then\n"
    "    folder \"$to\"; cp -a \"$one\" \"$to/\"\n"
    "  else\n"
    "    folder \"$(dirname \"$to\")\"; cp -a \"$one\" \"$to\"\n"
    "  fi\n"
    "done\n";

static int copy(struct way *w, const struct template_step *step, struct err *e)
{
    const char *owner = template_step_arg(step, 2);
    cleanup_free char *to = template_config_path(&w->config, template_step_arg(step, 1));
    cleanup_close int fd = FD_NONE;
    int r;

    if (!to) {
        return err_set(e, -EINVAL, "invalid_field", "the destination's name is too long");
    }
    r = files_get(w->build->files, w->build->world->actor->project, step->files_hash, &fd, e);
    if (r == 0) {
        r = builder_upload(&w->builder, fd, ARCHIVE, e);
    }
    return r < 0 ? r
                 : run_script(w, copy_script,
                              (const char *const[]){template_step_arg(step, 0), to,
                                                    owner[0] ? owner : user_of(w),
                                                    template_step_arg(step, 3), NULL},
                              e);
}

static int workdir(struct way *w, struct err *e)
{
    static const char script[] = "[ -d \"$1\" ] || { mkdir -p \"$1\" && chown \"$2\" \"$1\"; }";

    return run_script(w, script,
                      (const char *const[]){w->config.workdir, user_of(w), NULL, NULL, NULL}, e);
}

static int perform(struct way *w, size_t i, const struct template_step *step, struct err *e)
{
    int r = want_builder(w, e);

    if (r < 0) {
        return r;
    }
    switch (step->type) {
    case TEMPLATE_STEP_RUN:
        r = run(w, step, e);
        break;
    case TEMPLATE_STEP_COPY:
        r = copy(w, step, e);
        break;
    case TEMPLATE_STEP_WORKDIR:
        r = workdir(w, e);
        break;
    case TEMPLATE_STEP_ENV:
    case TEMPLATE_STEP_USER:
    case TEMPLATE_STEP_COUNT_:
        break;
    }
    return r < 0 ? r : keep_layer(w, w->hashes[i], /* config */ NULL, e);
}

static int take_step(struct way *w, size_t i, struct err *e)
{
    const struct template_step step = template_recipe_step(w->build->recipe, i);
    cleanup_free char *args = json_text(step.args);
    bool known = w->cached != NONE && i <= w->cached;
    char number[BUILD_LOG_STEP_SIZE];
    int r;

    snprintf(number, sizeof(number), "%zu", i + 1);
    build_log_step(w->build->log, number);
    build_log_say(w->build->log, "info", "%s[%zu/%zu] %s %.2000s", known ? "CACHED " : "", i + 1,
                  w->build->recipe->n_steps, template_step_name(&step), args);
    r = template_config_apply(&w->config, &step, e);
    return r < 0 || known || !template_step_has_layer(&step) ? r : perform(w, i, &step, e);
}

/* --- the end --- */

static int pause_ms(struct way *w, int ms, struct err *e)
{
    struct pollfd stop = {.fd = w->build->world->stop_fd, .events = POLLIN};

    return poll(&stop, 1, ms) > 0 ? err_set(e, -ECANCELED, "canceled", "the build was called off")
                                  : 0;
}

static int wait_ready(struct way *w, struct err *e)
{
    const struct template_recipe *recipe = w->build->recipe;
    uint64_t deadline_ns = deadline_in_ms(BUILD_READY_MS);
    int status = 1;
    int r = 0;

    if (!recipe->ready_cmd) {
        return pause_ms(w, BUILD_START_ALONE_MS, e);
    }
    build_log_say(w->build->log, "info", "waiting for the ready command: %.1000s",
                  recipe->ready_cmd);
    while (r == 0) {
        r = run_shell(w, recipe->ready_cmd, "", /* detached */ false, &status, e);
        build_log_flush(w->build->log);
        if (r < 0 || status == 0) {
            return r;
        }
        r = recipe->start_cmd
                ? builder_check_started(&w->builder, build_log_output, w->build->log, e)
                : 0;
        build_log_flush(w->build->log);
        if (r < 0) {
            return r;
        }
        if (deadline_passed(deadline_ns)) {
            return err_set(e, -ETIMEDOUT, "not_ready",
                           "the ready command did not succeed within %lld s",
                           BUILD_READY_MS / 1000);
        }
        r = pause_ms(w, READY_PAUSE_MS, e);
    }
    return r;
}

static int start(struct way *w, struct err *e)
{
    const struct template_recipe *recipe = w->build->recipe;
    int status = 0;
    int r = want_builder(w, e);

    if (r == 0 && recipe->start_cmd) {
        build_log_say(w->build->log, "info", "starting: %.1000s", recipe->start_cmd);
        r = run_shell(w, recipe->start_cmd, "", /* detached */ true, &status, e);
    }
    return r < 0 ? r : wait_ready(w, e);
}

/* The snapshot that sandboxes are made from, where no layer is it. */
static int take_last(struct way *w, struct err *e)
{
    bool live = w->build->recipe->start_cmd != NULL;
    int r = want_builder(w, e);

    if (r == 0) {
        r = builder_cut_off(&w->builder, e);
    }
    if (r == 0) {
        r = builder_snapshot(&w->builder, live, w->point.snapshot, e);
    }
    if (r == 0) {
        snprintf(w->point.sandbox, sizeof(w->point.sandbox), "%s", w->builder.id);
        w->has_layers = true;
    }
    return r;
}

static int finalize(struct way *w, struct err *e)
{
    const struct template_recipe *recipe = w->build->recipe;
    struct build_row *row = w->build->row;
    cleanup_json json_t *config = template_config_to_json(&w->config);
    cleanup_json json_t *was = NULL;
    bool acts = recipe->start_cmd || recipe->ready_cmd;
    int r;

    build_log_step(w->build->log, "finalize");
    r = acts ? start(w, e) : 0;
    if (r == 0 && (acts || !w->point.snapshot[0])) {
        r = take_last(w, e);
    }
    if (r == 0 && w->builder.id[0]) {
        r = builder_cut_off(&w->builder, e);
    }
    if (r < 0) {
        return r;
    }
    snprintf(row->sandbox, sizeof(row->sandbox), "%s", w->point.sandbox);
    snprintf(row->snapshot, sizeof(row->snapshot), "%s", w->point.snapshot);
    if (!str_empty(row->config) &&
        json_parse_object(row->config, strlen(row->config), &was, NULL) == 0) {
        json_object_update_missing(config, was);
    }
    json_object_set_new(config, "live", json_boolean(recipe->start_cmd != NULL));
    free(row->config);
    row->config = json_text(config);
    return 0;
}

static int all_steps(struct way *w, struct err *e)
{
    int r;

    build_log_step(w->build->log, "base");
    hash_steps(w);
    r = find_layer(w, e);
    if (r == 0 && w->build->base->image) {
        r = find_image(w, e);
    }
    if (r == 0 && w->cached == NONE && !(w->build->base->image && w->point.hash[0])) {
        r = want_builder(w, e); /* what is wrong with the base is the base's fault, not a step's */
    }
    for (size_t i = 0; r == 0 && i < w->build->recipe->n_steps; i++) {
        r = take_step(w, i, e);
    }
    return r < 0 ? r : finalize(w, e);
}

int build_perform(struct build *build, struct err *e)
{
    struct way w = {.build = build, .builder = {.world = build->world}};
    cleanup_json json_t *config = template_config_to_json(&build->base->config);
    struct err why = {0};
    int r;

    template_config_from_json(config, &w.config);
    r = all_steps(&w, &why);
    build_log_flush(build->log);
    if (w.builder.id[0] && !w.has_layers) {
        builder_remove(&w.builder);
        build->row->sandbox[0] = '\0';
    } else if (w.builder.id[0]) {
        struct err late = {0};

        if (r < 0) {
            IGNORE_RESULT(builder_cut_off(&w.builder, NULL)); /* it is stopped in a moment */
        }
        if (builder_rest(&w.builder, &late) < 0) {
            log_warn(&(struct log_ctx){.sandbox = w.builder.id},
                     "a build's sandbox does not stop: %s", late.msg);
        }
    }
    template_config_done(&w.config);
    layer_row_done(&w.point);
    free(w.image_config);
    free(w.hashes);
    if (r < 0 && e) {
        *e = why;
    }
    return r;
}

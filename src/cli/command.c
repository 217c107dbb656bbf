/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"

#include <string.h>

#include "base/clock.h"
#include "base/json.h"

#define COMMAND_KILL_MS 3000u
#define COMMAND_SIGNAL_MS 5000u

void command_end_done(struct command_end *end)
{
    json_decref(end->command);
    *end = (struct command_end){0};
}

static int command_text(json_t *body, const char *name, const char *value, struct err *e)
{
    json_t *text = NULL;
    int r;

    if (!value) {
        return 0;
    }
    r = cli_json_text(value, name, &text, e);
    if (r == 0) {
        json_object_set_new(body, name, text);
    }
    return r;
}

int command_body(const struct args *a, const char *const *argv, size_t n, json_t **ret,
                 struct err *e)
{
    cleanup_json json_t *body = json_object();
    json_t *list = json_array();
    unsigned char random[(COMMAND_TAG_SIZE - 1) / 2];
    char tag[COMMAND_TAG_SIZE];
    json_t *env = NULL;
    int r;

    ASSERT(body && list);
    json_object_set_new(body, "argv", list);
    for (size_t i = 0; i < n; i++) {
        json_t *text = NULL;

        r = cli_json_text(argv[i], "every argument", &text, e);
        if (r < 0) {
            return r;
        }
        json_array_append_new(list, text);
    }
    r = cli_pairs(&a->env, "env", &env, e);
    if (r < 0) {
        return r;
    }
    json_object_set_new(body, "env", env);
    r = command_text(body, "user", a->user, e);
    r = r < 0 ? r : command_text(body, "cwd", a->cwd, e);
    if (r < 0) {
        return r;
    }
    if (a->timeout_s > 0) {
        json_object_set_new(body, "timeout_ms", json_integer((json_int_t)a->timeout_s * 1000));
    }
    random_bytes(random, sizeof(random));
    hex_encode(random, sizeof(random), tag);
    json_object_set_new(body, "tag", json_string(tag));
    *ret = TAKE_PTR(body);
    return 0;
}

const char *command_tag(json_t *body)
{
    return json_get_string(body, "tag", "");
}

int command_by_tag(struct cli *cli, const char *sandbox, const char *tag, char ret[static ID_SIZE],
                   struct err *e)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/commands", sandbox);
    cleanup_json json_t *answer = NULL;
    const json_t *list;
    int r;

    r = cli_call(cli, "GET", target, /* body */ NULL, &answer, e);
    if (r < 0) {
        return r;
    }
    list = json_object_get(answer, "commands");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *c = json_array_get(list, i);
        const char *id = json_get_string(c, "id", "");

        if (str_eq(json_get_string(c, "tag", ""), tag) && id_valid(ID_COMMAND, id)) {
            return str_copy(ret, ID_SIZE, id);
        }
    }
    return err_set(e, -ENOENT, "not_started",
                   "the connection broke before the command was started; try again");
}

int command_signal(struct cli *cli, const char *sandbox, const char *id, int signo, struct err *e)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/commands/%s/signal", sandbox, id);
    cleanup_json json_t *body = NULL;
    char name[16];

    sigs_name(signo, name, sizeof(name));
    body = json_pack("{s:s, s:b}", "signal", name, "tree", sigs_is_end(signo));
    ASSERT(body);
    struct http_json_opts opts = {.method = "POST",
                                  .target = target,
                                  .body = body,
                                  .deadline_ns = deadline_in_ms(COMMAND_SIGNAL_MS)};
    return cli_call_opts(cli, &opts, /* ret */ NULL, e);
}

void command_kill(struct cli *cli, const char *sandbox, const char *id)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/commands/%s", sandbox, id);
    struct http_json_opts opts = {
        .method = "DELETE", .target = target, .deadline_ns = deadline_in_ms(COMMAND_KILL_MS)};
    struct err e = {0};

    if (cli_call_opts(cli, &opts, /* ret */ NULL, &e) < 0 && e.code != -ENOENT) {
        ui_warn(&cli->ui, "the command may still be running: %s", e.msg);
    }
}

int command_exit_code(const struct cli *cli, json_t *command)
{
    const char *error = json_get_string(command, "error", NULL);
    int64_t code = json_get_int(command, "exit_code", -1);

    if (error) {
        ui_warn(&cli->ui, "%s", error);
    }
    if (json_get_bool(command, "timed_out", false)) {
        ui_warn(&cli->ui, "the command took longer than --timeout allows and was killed");
    }
    if (json_get_bool(command, "oom_killed", false)) {
        ui_warn(
            &cli->ui,
            "the command ran out of memory and was killed; give the sandbox more with --memory");
    }
    return code >= 0 && code <= 255 ? (int)code : CLI_EXIT_SPACE;
}

bool command_error_is_passing(const struct err *e)
{
    int status;

    switch (e->code) {
    case -ECONNRESET:
    case -ECONNREFUSED:
    case -EPIPE:
    case -ETIMEDOUT:
    case -ENETUNREACH:
    case -EHOSTUNREACH:
        return true;
    default:
        break;
    }
    if (str_eq(e->reason, "bad_answer")) {
        return false;
    }
    status = err_http_status(e);
    return status == 502 || status == 503 || status == 504;
}

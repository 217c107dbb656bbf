/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/scratch.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/sandbox.h"

int scratch_open(struct scratch *s, struct cli *cli, struct err *e)
{
    *s = (struct scratch){.cli = cli, .sigs = SIGS_INIT};
    return sigs_open(&s->sigs, /* with_window */ false, e);
}

void scratch_drop(struct scratch *s)
{
    cleanup_free char *target = NULL;
    struct err e = {0};
    int r;

    ASSERT(s->n_made > 0);
    target = s->made[--s->n_made];
    r = cli_call(s->cli, "DELETE", target, /* body */ NULL, /* ret */ NULL, &e);
    if (r < 0 && r != -ENOENT) {
        ui_warn(&s->cli->ui, "%s could not be removed: %s", strrchr(target, '/') + 1, e.msg);
    }
}

void scratch_close(struct scratch *s)
{
    while (s->n_made > 0) {
        scratch_drop(s);
    }
    sigs_done(&s->sigs);
}

int scratch_call(struct scratch *s, const char *method, const char *target, const json_t *body,
                 json_t **ret, struct err *e)
{
    const struct pollfd watch = {.fd = s->sigs.end_fd, .events = POLLIN};
    struct http_json_opts opts = {.method = method,
                                  .target = target,
                                  .body = body,
                                  .watch = &watch,
                                  .deadline_ns = deadline_in_ms(CLI_CREATE_TIMEOUT_MS)};

    return cli_call_opts(s->cli, &opts, ret, e);
}

/* Remembers what must go. */
static int keep_track(struct scratch *s, const char *what, const char *id, enum id_kind kind,
                      struct err *e)
{
    ASSERT(s->n_made < SCRATCH_MAX);
    if (!id_valid(kind, id)) {
        return err_set(e, -EBADMSG, "bad_answer", "the service made something without a valid id");
    }
    s->made[s->n_made++] = xasprintf("%s/%s", what, id);
    return 0;
}

int scratch_fork(struct scratch *s, const char *sandbox, const char *snapshot,
                 char ret[static ID_SIZE], struct err *e)
{
    const struct pollfd watch = {.fd = s->sigs.end_fd, .events = POLLIN};
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/fork", sandbox);
    cleanup_json json_t *body = json_pack("{s:s, s:i, s:{s:s}}", "snapshot", snapshot, "timeout_s",
                                          SCRATCH_LIFE_S, "metadata", "made-by", "space");
    cleanup_json json_t *answer = NULL;
    const char *id;
    int r;

    r = sandbox_post_once(s->cli, target, body, &watch, &answer, e);
    if (r < 0) {
        return r;
    }
    id = json_get_string(json_array_get(json_object_get(answer, "sandboxes"), 0), "id", "");
    r = keep_track(s, "/v1/sandboxes", id, ID_SANDBOX, e);
    return r < 0 ? r : str_copy(ret, ID_SIZE, id);
}

int scratch_snapshot(struct scratch *s, const char *sandbox, char ret[static ID_SIZE],
                     struct err *e)
{
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/snapshots", sandbox);
    cleanup_json json_t *body = json_pack("{s:s}", "kind", "disk");
    cleanup_json json_t *answer = NULL;
    const char *id;
    int r;

    r = scratch_call(s, "POST", target, body, &answer, e);
    if (r < 0) {
        return r;
    }
    id = json_get_string(answer, "id", "");
    r = keep_track(s, target, id, ID_SNAPSHOT, e);
    return r < 0 ? r : str_copy(ret, ID_SIZE, id);
}

int scratch_failed(struct scratch *s, const struct err *e)
{
    int signo = sigs_read(&s->sigs);

    if (e->code == -ECANCELED) {
        return CLI_EXIT_SIGNAL + (signo > 0 ? signo : SIGINT);
    }
    ui_error(&s->cli->ui, e);
    return CLI_EXIT_FAILED;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `space bisect`: from which snapshot on does a test fail? A binary search over the path of snapshots that led to the
 * present (past.h), and the present itself; each one looked at becomes a sandbox of its own for as long as the test runs
 * in it, so the sandbox itself is not touched.
 *
 * The test says 0 for good, 1 to 124 for bad; so does the end of its --timeout. Other codes mean that it could not be run (126, 127 of the shell,
 * 128 and more of a signal), and end the search: a guess would send it the wrong way.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/past.h"
#include "cli/progress.h"
#include "cli/scratch.h"
#include "cli/verbs.h"

#define BAD_MAX 124
#define OUTPUT_MAX 65536
#define TEST_MS (SCRATCH_LIFE_S * 1000u) /* the sandbox that it runs in lives no longer */

struct bisect {
    struct scratch scratch;
    char sandbox[ID_SIZE];
    char present[ID_SIZE]; /* a snapshot of the present, for the time of the search */
    json_t *snapshots;     /* owned: oldest first; the last is the present */
    json_t *command;       /* owned: the body of each run */
    json_t *tested;        /* owned: what was found, in order */
};

static void bisect_done(struct bisect *b)
{
    scratch_close(&b->scratch);
    json_decref(b->snapshots);
    json_decref(b->command);
    json_decref(b->tested);
}

static json_t *at(const struct bisect *b, size_t i)
{
    return json_array_get(b->snapshots, i);
}

static const char *id_at(const struct bisect *b, size_t i)
{
    return json_get_string(at(b, i), "id", "");
}

static int read_snapshots(struct bisect *b, struct err *e)
{
    int r = past_read(&b->scratch, b->sandbox, &b->snapshots, e);

    if (r < 0) {
        return r;
    }
    if (json_array_size(b->snapshots) == 0) {
        return err_set(e, -ENOENT, "no_snapshots",
                       "the sandbox has no snapshots to look through; have them taken with "
                       "'space snapshot' or a policy");
    }
    return 0;
}

/* The present is the last point: what has just been broken is in no snapshot yet. */
static int add_present(struct bisect *b, struct err *e)
{
    int r = scratch_snapshot(&b->scratch, b->sandbox, b->present, e);

    if (r < 0) {
        return err_wrap(e, r, "taking a snapshot of the present");
    }
    json_array_append_new(b->snapshots, json_pack("{s:s, s:s, s:s}", "id", "present", "kind",
                                                  "disk", "sandbox", b->sandbox));
    return 0;
}

static int make_fork(struct bisect *b, size_t i, char ret[static ID_SIZE], struct err *e)
{
    bool present = i + 1 == json_array_size(b->snapshots);
    int r = scratch_fork(&b->scratch, json_get_string(at(b, i), "sandbox", b->sandbox),
                         present ? b->present : id_at(b, i), ret, e);

    return r < 0 ? err_wrap(e, r, "forking from %s%s", present ? "the " : "snapshot ", id_at(b, i))
                 : 0;
}

static int run_test(struct bisect *b, const char *sandbox, json_t **ret, struct err *e)
{
    const struct pollfd watch = {.fd = b->scratch.sigs.end_fd, .events = POLLIN};
    cleanup_free char *target = xasprintf("/v1/sandboxes/%s/run", sandbox);
    struct http_json_opts opts = {.method = "POST",
                                  .target = target,
                                  .body = b->command,
                                  .watch = &watch,
                                  .deadline_ns = deadline_in_ms(TEST_MS)};

    return cli_call_opts(b->scratch.cli, &opts, ret, e);
}

static void show_output(const struct bisect *b, json_t *result)
{
    static const char *const streams[] = {"stdout", "stderr"};

    for (size_t i = 0; i < ARRAY_SIZE(streams); i++) {
        const char *text = json_get_string(result, streams[i], "");

        if (text[0] && b->scratch.cli->args->verbose) {
            cleanup_free char *clean = ui_clean(text, strlen(text), /* lines */ true);

            fprintf(stderr, "%s%s", clean, clean[strlen(clean) - 1] == '\n' ? "" : "\n");
        }
    }
}

static int judge(struct bisect *b, size_t i, json_t *result, bool *ret_good, struct err *e)
{
    int64_t code = json_get_int(result, "exit_code", -1);
    bool timed_out = json_get_bool(result, "timed_out", false);

    show_output(b, result);
    if (!timed_out && (code < 0 || code > BAD_MAX)) {
        const char *why = json_get_string(result, "error", NULL);

        return err_set(e, -ENOEXEC, "test_not_run",
                       "the test could not be run in %s: it ended with %" PRId64 "%s%.200s",
                       id_at(b, i), code, why ? ", " : "", why ? why : "");
    }
    *ret_good = code == 0 && !timed_out;
    json_array_append_new(b->tested, json_pack("{s:s, s:b, s:I}", "id", id_at(b, i), "good",
                                               *ret_good, "exit_code", (json_int_t)code));
    return 0;
}

static int test(struct bisect *b, size_t i, bool *ret_good, struct err *e)
{
    CLEANUP(progress_endp)
    struct progress *progress = progress_start(&b->scratch.cli->ui, "testing %s", id_at(b, i));
    cleanup_json json_t *result = NULL;
    char id[ID_SIZE];
    char line[100];
    int r;

    r = make_fork(b, i, id, e);
    if (r < 0) {
        return r;
    }
    r = run_test(b, id, &result, e);
    scratch_drop(&b->scratch);
    if (r == 0) {
        r = judge(b, i, result, ret_good, e);
    }
    if (r == 0 && !b->scratch.cli->args->quiet) {
        snprintf(line, sizeof(line), "%s is %s", id_at(b, i), *ret_good ? "good" : "bad");
        progress_end(TAKE_PTR(progress));
        ui_note(&b->scratch.cli->ui, "%s", line);
    }
    return r;
}

/* *ret is the first bad one; the number of snapshots when all are good. */
static int search(struct bisect *b, size_t *ret, struct err *e)
{
    size_t n = json_array_size(b->snapshots);
    size_t good = 0; /* known to be good: all before */
    size_t bad = n;  /* known to be bad: this and, as it is taken, all after */
    bool is_good = false;
    int r;

    r = test(b, n - 1, &is_good, e); /* nothing to find is found out first */
    if (r < 0) {
        return r;
    }
    if (is_good) {
        *ret = n;
        return 0;
    }
    bad = n - 1;
    while (good < bad) {
        size_t middle = good + (bad - good) / 2;

        r = test(b, middle, &is_good, e);
        if (r < 0) {
            return r;
        }
        if (is_good) {
            good = middle + 1;
        } else {
            bad = middle;
        }
    }
    *ret = bad;
    return 0;
}

/* A snapshot that was taken before a command knows which: what made it bad came after the last good one. */
static const char *culprit(const struct bisect *b, size_t bad)
{
    const char *command = bad > 0 ? json_get_string(at(b, bad - 1), "command", NULL) : NULL;

    return command && command[0] ? command : NULL;
}

static int report(struct bisect *b, size_t bad)
{
    struct cli *cli = b->scratch.cli;
    bool found = bad < json_array_size(b->snapshots);
    const char *command = found ? culprit(b, bad) : NULL;
    cleanup_json json_t *doc = NULL;

    if (cli->args->json) {
        doc = json_pack("{s:O?, s:O?, s:s?, s:O}", "first_bad", found ? at(b, bad) : NULL,
                        "last_good", bad > 0 ? at(b, bad - 1) : NULL, "command", command, "tested",
                        b->tested);
        cli_print_json(cli, doc);
        return found ? CLI_EXIT_OK : CLI_EXIT_FAILED;
    }
    if (!found) {
        ui_note(&cli->ui, "the test passes in the present: there is nothing to find");
        return CLI_EXIT_FAILED;
    }
    printf("%s\n", id_at(b, bad));
    if (bad == 0) {
        ui_note(&cli->ui, "that is the oldest one: it may have been so before");
    } else if (command) {
        ui_note(&cli->ui, "between it and the last good one, %s, command %s ran", id_at(b, bad - 1),
                command);
    } else {
        ui_note(&cli->ui, "the last good one is %s", id_at(b, bad - 1));
    }
    return CLI_EXIT_OK;
}

static int prepare(struct bisect *b, struct cli *cli, struct err *e)
{
    const struct args *a = cli->args;
    int r = scratch_open(&b->scratch, cli, e);

    b->tested = json_array();
    r = r < 0 ? r : command_body(a, a->command, a->n_command, &b->command, e);
    if (r == 0) {
        json_object_del(b->command, "tag");
        json_object_del(b->command, "pty");
        json_object_del(b->command, "stdin"); /* there is none in a run without input */
        json_object_set_new(b->command, "max_output_bytes", json_integer(OUTPUT_MAX));
    }
    r = r < 0 ? r : cli_connect(cli, e);
    r = r < 0 ? r : cli_sandbox_id(cli, a->operands[0], b->sandbox, e);
    r = r < 0 ? r : read_snapshots(b, e);
    return r < 0 ? r : add_present(b, e);
}

int verb_bisect(struct cli *cli)
{
    CLEANUP(bisect_done) struct bisect b = {.scratch.sigs = SIGS_INIT};
    struct err e = {0};
    size_t bad = 0;
    int r;

    if (cli->args->n_command == 0) {
        err_set(&e, -EINVAL, "usage", "the test is missing: space bisect SANDBOX -- COMMAND");
        ui_error(&cli->ui, &e);
        return CLI_EXIT_USAGE;
    }
    r = prepare(&b, cli, &e);
    r = r < 0 ? r : search(&b, &bad, &e);
    return r < 0 ? scratch_failed(&b.scratch, &e) : report(&b, bad);
}

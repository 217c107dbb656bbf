/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cp.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/verbs.h"

/* One side of a copy. */
struct cp_side {
    char *sandbox; /* owned: as given; NULL: this machine */
    const char *path;
};

int cp_split(const char *pair, const char *option, char **ret_source, char **ret_target,
             struct err *e)
{
    const char *colon = strchr(pair, ':');

    if (!colon || colon == pair || !colon[1]) {
        return err_set(e, -EINVAL, "usage", "'--%s' wants SOURCE:TARGET, not '%s'", option, pair);
    }
    *ret_source = xstrndup(pair, (size_t)(colon - pair));
    *ret_target = xstrdup(colon + 1);
    return 0;
}

/* "s4k2:/path" is in a sandbox; what has a '/' or '.' before the colon, or no colon, is here. */
static struct cp_side cp_side_parse(const char *text)
{
    size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789");

    if (len > 0 && text[len] == ':') {
        return (struct cp_side){.sandbox = xstrndup(text, len), .path = text + len + 1};
    }
    return (struct cp_side){.path = text};
}

int cp_one(struct cli *cli, const char *sandbox, const struct sigs *sigs, bool in,
           const char *source, const char *target, struct cp_result *ret, struct err *e)
{
    struct copy copy;
    int r;

    copy_init(&copy, cli, sandbox, sigs);
    copy.progress = progress_start(&cli->ui, "copying %s", source);
    if (in) {
        r = str_eq(source, "-") ? copy_in_stdin(&copy, target, e)
                                : copy_in(&copy, source, target, e);
    } else {
        r = str_eq(target, "-") ? copy_out_stdout(&copy, source, e)
                                : copy_out(&copy, source, target, e);
    }
    progress_end(TAKE_PTR(copy.progress));
    ret->files += copy.files;
    ret->bytes += copy.bytes;
    ret->n_errors += copy.n_errors;
    copy_done(&copy);
    return r;
}

static int cp_usage(struct cli *cli, const char *text)
{
    struct err e = {0};

    err_set(&e, -EINVAL, "usage", "%s", text);
    ui_error(&cli->ui, &e);
    return CLI_EXIT_USAGE;
}

static void cp_report(struct cli *cli, const struct cp_result *result, uint64_t started_ns)
{
    double seconds = (double)(clock_now_ns() - started_ns) / (double)NS_PER_S;
    char size[32];

    if (cli->args->json) {
        cleanup_json json_t *doc = json_pack(
            "{s:I, s:I, s:I, s:f}", "files", (json_int_t)result->files, "bytes",
            (json_int_t)result->bytes, "errors", (json_int_t)result->n_errors, "seconds", seconds);

        cli_print_json(cli, doc);
        return;
    }
    ui_size(result->bytes, size, sizeof(size));
    ui_note(&cli->ui, "%" PRIu64 " %s, %s in %.1f s", result->files,
            result->files == 1 ? "file" : "files", size, seconds);
}

/* All sources to the target, with the signals taken. */
static int cp_all(struct cli *cli, const struct cp_side *sources, size_t n,
                  const struct cp_side *target)
{
    const char *named = target->sandbox ? target->sandbox : sources[0].sandbox;
    bool in = target->sandbox != NULL;
    bool to_stdout = !in && str_eq(target->path, "-");
    uint64_t started_ns = clock_now_ns();
    struct cp_result result = {0};
    struct sigs sigs = SIGS_INIT;
    struct err e = {0};
    char id[ID_SIZE];
    int r;

    r = cli_connect(cli, &e);
    r = r < 0 ? r : cli_sandbox_id(cli, named, id, &e);
    r = r < 0 ? r : sigs_open(&sigs, /* with_window */ false, &e);
    for (size_t i = 0; i < n && r == 0; i++) {
        /* Several sources need a folder: the slash says that it must be one. */
        cleanup_free char *into =
            n > 1 ? copy_join(*target->path ? target->path : ".", "") : xstrdup(target->path);

        r = cp_one(cli, id, &sigs, in, sources[i].path, to_stdout ? "-" : into, &result, &e);
    }
    sigs_done(&sigs);
    if (r < 0) {
        ui_error(&cli->ui, &e);
        return r == -ECANCELED ? CLI_EXIT_SIGNAL + SIGINT : CLI_EXIT_FAILED;
    }
    /* Standard output that is the file has no place for anything else. */
    if (!to_stdout) {
        cp_report(cli, &result, started_ns);
    }
    return result.n_errors > 0 ? CLI_EXIT_FAILED : CLI_EXIT_OK;
}

static const char *cp_check(const struct cp_side *sources, size_t n, const struct cp_side *target)
{
    for (size_t i = 0; i < n; i++) {
        if (target->sandbox && sources[i].sandbox) {
            return "both sides are in a sandbox; copy to here first";
        }
        if (!target->sandbox && !sources[i].sandbox) {
            return "neither side is in a sandbox; write SANDBOX:PATH for the one that is";
        }
        if (!target->sandbox && !str_eq(sources[i].sandbox, sources[0].sandbox)) {
            return "the sources are in different sandboxes; copy from one at a time";
        }
    }
    if (n > 1 && !target->sandbox && str_eq(target->path, "-")) {
        return "only one file can be copied to standard output";
    }
    return NULL;
}

int verb_cp(struct cli *cli)
{
    const struct args *a = cli->args;
    size_t n = a->n_operands - 1;
    struct cp_side *sides = xnew_n(struct cp_side, a->n_operands);
    const char *wrong;
    int code;

    for (size_t i = 0; i <= n; i++) {
        sides[i] = cp_side_parse(a->operands[i]);
    }
    wrong = cp_check(sides, n, &sides[n]);
    code = wrong ? cp_usage(cli, wrong) : cp_all(cli, sides, n, &sides[n]);
    for (size_t i = 0; i <= n; i++) {
        free(sides[i].sandbox);
    }
    free(sides);
    return code;
}

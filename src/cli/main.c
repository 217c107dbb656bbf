/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `space`: finds the verb, parses its options by its tables, runs it. Options of the client (--url, --json, ...) may
 * stand before the verb too.
 */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli/help.h"

static const struct opt before_opts[] = {
    {.name = "version",
     .letter = 'V',
     .kind = OPT_FLAG,
     .help = "show the version",
     .offset = offsetof(struct args, once)},
    OPT_END,
};

/* Options in front of the verb: how many words they take, or a negative errno. */
static int main_leading_options(size_t argc, const char *const *argv, struct args *args,
                                struct err *e)
{
    size_t words;
    const struct verb *any = verb_find((const char *const[]){"ls", NULL}, &words);
    struct opt_set set = {
        .tables = {any->opts.tables[1], before_opts}, .has_command = true, .lead = 0};
    struct args before = {0};
    int r;

    r = opt_parse(&set, argc, argv, &before, e);
    if (r == 0) {
        r = (int)(argc - before.n_command);
        args->url = before.url;
        args->key = before.key;
        args->json = before.json;
        args->quiet = before.quiet;
        args->help = before.help;
        args->once = before.once;
    }
    args_done(&before);
    return r;
}

static int main_usage(struct cli *cli, const struct err *e, const struct verb *v)
{
    ui_error(&cli->ui, e);
    if (!cli->ui.json) {
        if (v) {
            fprintf(stderr, "Usage: space %s [OPTION...]%s%s\nSee 'space %s --help'.\n", v->name,
                    v->operands[0] ? " " : "", v->operands, v->name);
        } else {
            fputs("See 'space help'.\n", stderr);
        }
    }
    return v && v->command_codes ? CLI_EXIT_SPACE : CLI_EXIT_USAGE;
}

static int main_no_verb(struct cli *cli, const char *const *argv)
{
    struct err e = {0};
    const char *near;

    if (!argv[0]) {
        help_overview(cli->args->help ? stdout : stderr);
        return cli->args->help ? CLI_EXIT_OK : CLI_EXIT_USAGE;
    }
    if (verb_is_prefix(argv[0])) {
        bool asked = argv[1] && (str_eq(argv[1], "--help") || str_eq(argv[1], "-h"));

        if (argv[1] && !asked) {
            err_set(&e, -EINVAL, "usage", "there is no '%s %s'", argv[0], argv[1]);
            ui_error(&cli->ui, &e);
        }
        help_family(asked ? stdout : stderr, argv[0]);
        return asked ? CLI_EXIT_OK : CLI_EXIT_USAGE;
    }
    near = verb_nearest(argv[0]);
    if (near) {
        err_set(&e, -EINVAL, "usage", "there is no verb '%s'; did you mean '%s'?", argv[0], near);
    } else {
        err_set(&e, -EINVAL, "usage", "there is no verb '%s'", argv[0]);
    }
    return main_usage(cli, &e, /* verb */ NULL);
}

static int main_run(struct cli *cli, const struct verb *v, size_t argc, const char *const *argv,
                    struct args *args)
{
    struct err e = {0};
    int code;

    cli->verb = v;
    if (opt_parse(&v->opts, argc, argv, args, &e) < 0) {
        cli->ui.json = args->json;
        return main_usage(cli, &e, v);
    }
    cli->ui.json = args->json;
    cli->ui.quiet = args->quiet;
    if (args->help) {
        help_verb(stdout, v);
        return CLI_EXIT_OK;
    }
    code = v->run(cli);
    /* Output that did not reach its file or pipe is a failure of ours (a full disk, a reader that left). */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code == CLI_EXIT_OK) {
        code = v->command_codes ? CLI_EXIT_SPACE : CLI_EXIT_FAILED;
    }
    return code;
}

int main(int argc, char **argv)
{
    const char *const *words = (const char *const *)argv + (argc > 0);
    size_t n = argc > 0 ? (size_t)argc - 1 : 0;
    struct args args = {0};
    struct cli cli = {.args = &args};
    struct err e = {0};
    const struct verb *v;
    size_t verb_words = 0;
    int code;
    int r;

    signal(SIGPIPE, SIG_IGN);
    ui_init(&cli.ui);
    r = main_leading_options(n, words, &args, &e);
    cli.ui.json = args.json;
    if (r < 0) {
        return main_usage(&cli, &e, /* verb */ NULL);
    }
    words += r;
    n -= (size_t)r;
    if (args.once) {
        printf("space %s\n", SPACE_VERSION);
        return CLI_EXIT_OK;
    }
    v = verb_find(words, &verb_words);
    code = v ? main_run(&cli, v, n - verb_words, words + verb_words, &args)
             : main_no_verb(&cli, words);
    cli_done(&cli);
    args_done(&args);
    return code;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/help.h"

#include <string.h>
#include <unistd.h>

#include "base/json.h"

#define HELP_WIDTH 100u
#define HELP_MARGIN 30u

/* Words of `text` in lines of at most HELP_WIDTH, the first one starting at column `at`. */
static void help_wrap(FILE *out, const char *text, size_t at, size_t margin)
{
    size_t column = at;

    while (*text) {
        size_t word = strcspn(text, " \n");
        bool first = column == margin;

        if (!first && column + 1 + word > HELP_WIDTH) {
            fprintf(out, "\n%*s", (int)margin, "");
            column = margin;
            first = true;
        }
        fprintf(out, "%s%.*s", first ? "" : " ", (int)word, text);
        column += word + (first ? 0 : 1);
        text += word;
        if (*text == '\n') {
            fputc('\n', out);
            text++;
            if (*text == '\n') {
                fputc('\n', out);
                text++;
            }
            column = margin;
            fprintf(out, "%*s", (int)margin, "");
        } else if (*text == ' ') {
            text++;
        }
    }
    fputc('\n', out);
}

static void help_row(FILE *out, const char *left, const char *right)
{
    size_t len = strlen(left);

    fprintf(out, "  %s", left);
    if (len + 3 > HELP_MARGIN) {
        fprintf(out, "\n%*s", (int)HELP_MARGIN, "");
    } else {
        fprintf(out, "%*s", (int)(HELP_MARGIN - len - 2), "");
    }
    help_wrap(out, right, HELP_MARGIN, HELP_MARGIN);
}

static void help_verb_row(FILE *out, const struct verb *v)
{
    cleanup_free char *left = xasprintf("%s%s%s", v->name, v->operands[0] ? " " : "", v->operands);

    help_row(out, left, v->summary);
}

void help_overview(FILE *out)
{
    fputs("Usage: space VERB [OPTION...] [OPERAND...]\n\nRun programs in sandboxes: small virtual "
          "machines with "
          "a kernel of their own.\n",
          out);
    for (enum verb_group g = 0; g < VERB_GROUP_COUNT_; g++) {
        fprintf(out, "\n%s:\n", verb_group_title(g));
        for (size_t i = 0; i < n_verbs; i++) {
            if (verbs[i].group == g) {
                help_verb_row(out, &verbs[i]);
            }
        }
    }
    fputs("\n'space VERB --help' says all about a verb. A sandbox may be named by the start of its "
          "id.\n",
          out);
}

void help_family(FILE *out, const char *word)
{
    size_t len = strlen(word);

    fprintf(out, "Usage: space %s VERB [OPTION...]\n\n", word);
    for (size_t i = 0; i < n_verbs; i++) {
        if (strncmp(verbs[i].name, word, len) == 0 && verbs[i].name[len] == ' ') {
            help_verb_row(out, &verbs[i]);
        }
    }
}

static bool help_option(const struct opt *o, void *ctx)
{
    FILE *out = ctx;
    char letter[] = {'-', o->letter, ',', ' ', '\0'};
    cleanup_free char *left = xasprintf("%s--%s%s%s", o->letter ? letter : "    ", o->name,
                                        o->arg ? " " : "", o->arg ? o->arg : "");

    help_row(out, left, o->help);
    return false;
}

static void help_examples(FILE *out, const char *lines)
{
    fputs("\nExamples:\n", out);
    while (*lines) {
        size_t len = strcspn(lines, "\n");

        fprintf(out, "  %.*s\n", (int)len, lines);
        lines += len + (lines[len] ? 1 : 0);
    }
}

void help_verb(FILE *out, const struct verb *v)
{
    cleanup_free char *summary = xstrdup(v->summary);

    fprintf(out, "Usage: space %s [OPTION...]%s%s\n\n", v->name, v->operands[0] ? " " : "",
            v->operands);
    summary[0] = (char)(summary[0] - 'a' + 'A');
    help_wrap(out, summary, 0, 0);
    if (v->about) {
        fputc('\n', out);
        help_wrap(out, v->about, 0, 0);
    }
    fputs("\nOptions:\n", out);
    opt_each(&v->opts, help_option, out);
    if (v->examples) {
        help_examples(out, v->examples);
    }
    fputs("\nExit codes:\n", out);
    if (v->command_codes) {
        fputs("  the command's own; 128 + N when signal N ended it; 126 when it cannot be "
              "executed, 127 when it\n"
              "  is not there; 125 when SPACE itself failed or the options are wrong\n",
              out);
    } else {
        fputs("  0 done; 1 failed; 2 the options are wrong\n", out);
    }
}

static bool help_option_json(const struct opt *o, void *ctx)
{
    char letter[] = {o->letter, '\0'};
    json_t *row = json_pack("{s:s, s:s, s:b, s:s}", "name", o->name, "help", o->help, "repeatable",
                            o->kind == OPT_LIST, "letter", letter);

    ASSERT(row);
    json_object_set_new(row, "value", o->arg ? json_string(o->arg) : json_null());
    json_array_append_new(ctx, row);
    return false;
}

json_t *help_json(void)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n_verbs; i++) {
        const struct verb *v = &verbs[i];
        json_t *options = json_array();
        json_t *row =
            json_pack("{s:s, s:s, s:s, s:s, s:b, s:o}", "name", v->name, "operands", v->operands,
                      "summary", v->summary, "group", verb_group_title(v->group),
                      "command_exit_codes", v->command_codes, "options", options);

        ASSERT(row);
        json_object_set_new(row, "about", v->about ? json_string(v->about) : json_null());
        json_object_set_new(row, "examples", v->examples ? json_string(v->examples) : json_null());
        opt_each(&v->opts, help_option_json, options);
        json_array_append_new(list, row);
    }
    return json_pack("{s:o}", "verbs", list);
}

int verb_help(struct cli *cli)
{
    const struct args *a = cli->args;
    const struct verb *v;
    size_t words;

    if (a->json) {
        cleanup_json json_t *doc = help_json();

        cli_print_json(cli, doc);
        return CLI_EXIT_OK;
    }
    if (a->n_operands == 0) {
        help_overview(stdout);
        return CLI_EXIT_OK;
    }
    v = verb_find((const char *const *)a->operands, &words);
    if (v) {
        help_verb(stdout, v);
        return CLI_EXIT_OK;
    }
    if (verb_is_prefix(a->operands[0])) {
        help_family(stdout, a->operands[0]);
        return CLI_EXIT_OK;
    }
    ui_error(&cli->ui, &(struct err){.code = -EINVAL,
                                     .reason = "usage",
                                     .msg = "there is no such verb; see 'space help'"});
    return CLI_EXIT_USAGE;
}

int verb_version(struct cli *cli)
{
    if (cli->args->json) {
        cleanup_json json_t *doc = json_pack("{s:s}", "version", SPACE_VERSION);

        cli_print_json(cli, doc);
        return CLI_EXIT_OK;
    }
    printf("space %s\n", SPACE_VERSION);
    return CLI_EXIT_OK;
}

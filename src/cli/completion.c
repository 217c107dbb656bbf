/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion for bash: a short script that asks us. It knows no verb and no option itself; those come from the table
 * through `space completion bash --verbs [VERB]`, ids from `space ls -q`, so that it never grows old.
 */
#include <stdio.h>
#include <string.h>

#include "cli/help.h"

static const char script[] =
    "# bash completion for space; made by 'space completion bash'\n"
    "_space()\n"
    "{\n"
    "    local current=${COMP_WORDS[COMP_CWORD]} verb='' word i\n"
    "    COMPREPLY=()\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        [[ $word == -- ]] && return\n"
    "        [[ $word == -* ]] && continue\n"
    "        verb=$word\n"
    "        case $word in\n"
    "        key | template) verb+=\" ${COMP_WORDS[i + 1]}\" ;;\n"
    "        snapshot) ((i + 1 < COMP_CWORD)) && [[ ${COMP_WORDS[i + 1]} == [a-rt-z]* ]] &&\n"
    "            verb+=\" ${COMP_WORDS[i + 1]}\" ;;\n"
    "        esac\n"
    "        break\n"
    "    done\n"
    "    if [[ -z $verb || $verb == *' '\"$current\" ]]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W \"$(space completion bash --verbs ${verb%% *} "
    "2>/dev/null)\" -- \"$current\")\n"
    "        return\n"
    "    fi\n"
    "    case $current in\n"
    "    -*) mapfile -t COMPREPLY < <(compgen -W \"$(space completion bash --options $verb "
    "2>/dev/null)\" -- \"$current\") ;;\n"
    "    *)\n"
    "        case $verb in\n"
    "        cp) compopt -o default ;;\n"
    "        snapshot)\n"
    "            mapfile -t COMPREPLY < <(compgen -W \"$(space ls -q 2>/dev/null) $(space "
    "completion bash --verbs snapshot)\" -- \"$current\") ;;\n"
    "        exec | shell | info | rm | stop | start | logs | top | ps | kill | pause | resume | "
    "\\\n"
    "        snapshot' '* | rollback | fork | diff | bisect | policy | history | trace)\n"
    "            mapfile -t COMPREPLY < <(compgen -W \"$(space ls -q 2>/dev/null)\" -- "
    "\"$current\") ;;\n"
    "        esac ;;\n"
    "    esac\n"
    "}\n"
    "complete -F _space space\n";

/* First words of all verbs, or the second words after this first one. */
static void print_verbs(const char *first)
{
    size_t len = first ? strlen(first) : 0;
    const char *last = "";

    for (size_t i = 0; i < n_verbs; i++) {
        const char *name = verbs[i].name;
        size_t word = strcspn(name, " ");

        if (first) {
            if (strncmp(name, first, len) == 0 && name[len] == ' ') {
                printf("%s\n", name + len + 1);
            }
        } else if (strncmp(name, last, word) != 0 || last[word] != ' ') {
            printf("%.*s\n", (int)word, name);
        }
        last = name;
    }
}

static bool print_option(const struct opt *o, void *ctx)
{
    (void)ctx;
    printf("--%s\n", o->name);
    return false;
}

int verb_completion(struct cli *cli)
{
    const struct args *a = cli->args;
    const struct verb *v;
    size_t words;

    if (!str_eq(a->operands[0], "bash")) {
        ui_error(&cli->ui,
                 &(struct err){.code = -EINVAL,
                               .reason = "usage",
                               .msg = "completion is there for bash only: space completion bash"});
        return CLI_EXIT_USAGE;
    }
    if (a->verbs_only) {
        print_verbs(a->n_operands > 1 ? a->operands[1] : NULL);
        return CLI_EXIT_OK;
    }
    if (a->options_only) {
        v = verb_find((const char *const *)a->operands + 1, &words);
        if (v) {
            opt_each(&v->opts, print_option, /* ctx */ NULL);
        }
        return CLI_EXIT_OK;
    }
    fputs(script, stdout);
    return CLI_EXIT_OK;
}

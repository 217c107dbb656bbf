/* SPDX-License-Identifier: Apache-2.0 */
/* Which node a sandbox would go to, and why. */
#include <inttypes.h>

#include "base/json.h"
#include "cli/sandbox.h"
#include "cli/verbs.h"

/* About the sandbox that is named, else about a new one of the shape in the options. */
static int explain_body(struct cli *cli, json_t **ret, struct err *e)
{
    char id[ID_SIZE];
    int r;

    if (cli->args->n_operands == 0) {
        return sandbox_shape_body(cli->args, ret, e);
    }
    r = cli_sandbox_id(cli, cli->args->operands[0], id, e);
    if (r == 0) {
        *ret = json_pack("{s:s}", "sandbox", id);
    }
    return r;
}

static void explain_table(struct cli *cli, json_t *answer)
{
    static const struct table_column columns[] = {{.title = "NODE"},
                                                  {.title = "FITS"},
                                                  {.title = "SCORE", .right = true},
                                                  {.title = "WHY", .cut = true}};
    json_t *nodes = json_object_get(answer, "nodes");
    const char *chosen = json_get_string(answer, "chosen", NULL);
    struct table t;

    table_init(&t, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        json_t *node = json_array_get(nodes, i);

        table_cell(&t, json_get_string(node, "node", NULL));
        table_cell(&t, json_get_bool(node, "fits", false) ? "yes" : "no");
        if (json_is_integer(json_object_get(node, "score"))) {
            table_cellf(&t, "%" PRId64, json_get_int(node, "score", 0));
        } else {
            table_cell(&t, NULL);
        }
        table_cell(&t, json_get_string(node, "explanation", NULL));
    }
    table_print(&t, &cli->ui, stdout, ui_width(&cli->ui));
    table_done(&t);
    if (!cli->args->quiet && chosen) {
        ui_note(&cli->ui, "'%s' would be asked first", chosen);
    } else if (!cli->args->quiet) {
        ui_note(&cli->ui, "no node takes sandboxes just now");
    }
}

int verb_schedule_explain(struct cli *cli)
{
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *answer = NULL;
    struct err e = {0};
    int r = cli_connect(cli, &e);

    r = r < 0 ? r : explain_body(cli, &body, &e);
    r = r < 0 ? r : cli_call(cli, "POST", "/v1/schedule/explain", body, &answer, &e);
    if (r < 0) {
        ui_error(&cli->ui, &e);
        return CLI_EXIT_FAILED;
    }
    if (cli->args->json) {
        cli_print_json(cli, answer);
    } else {
        explain_table(cli, answer);
    }
    return CLI_EXIT_OK;
}

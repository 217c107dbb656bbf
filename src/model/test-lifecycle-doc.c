/* SPDX-License-Identifier: Apache-2.0 */

/*
 * docs/lifecycle.md shows the table of states that the code uses, between two marks. This program makes that part
 * and compares; with --print it prints it, for who has changed the table.
 */
#include "base/buf.h"
#include "base/fs.h"
#include "base/test.h"
#include "model/sandbox-state.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define BEGIN "<!-- states: made by test-lifecycle-doc --print -->\n"
#define END "<!-- end of states -->\n"
#define DOC_MAX (256u << 10)

static const char *doc_path;

static void add(struct buf *b, const char *text)
{
    ASSERT(buf_add_str(b, text) == 0);
}

static void add_moves(struct buf *b, enum sandbox_state from, unsigned by)
{
    const char *before = " ";

    for (unsigned to = 0; to < SANDBOX_STATE_COUNT_; to++) {
        if (sandbox_state_may_move(from, (enum sandbox_state)to, by)) {
            add(b, before);
            add(b, sandbox_state_name((enum sandbox_state)to));
            before = ", ";
        }
    }
    add(b, " |");
}

static void add_table(struct buf *b)
{
    add(b, "| from | a client moves it to | a policy moves it to | the node moves it to |\n"
           "|---|---|---|---|\n");
    for (unsigned from = 0; from < SANDBOX_STATE_COUNT_; from++) {
        add(b, "| ");
        add(b, sandbox_state_name((enum sandbox_state)from));
        add(b, " |");
        add_moves(b, (enum sandbox_state)from, SANDBOX_BY_CLIENT);
        add_moves(b, (enum sandbox_state)from, SANDBOX_BY_POLICY);
        add_moves(b, (enum sandbox_state)from, SANDBOX_BY_NODE);
        add(b, "\n");
    }
}

static bool is_drawn(enum sandbox_state state)
{
    return state != SANDBOX_STATE_FAILED && state != SANDBOX_STATE_DELETING &&
           state != SANDBOX_STATE_DELETED;
}

static void add_arrow(struct buf *b, enum sandbox_state from, enum sandbox_state to)
{
    bool asked = sandbox_state_may_move(from, to, SANDBOX_BY_CLIENT) ||
                 sandbox_state_may_move(from, to, SANDBOX_BY_POLICY);

    if (!asked && !sandbox_state_may_move(from, to, SANDBOX_BY_NODE)) {
        return;
    }
    ASSERT(buf_printf(b, "    %s --> %s: %s\n", sandbox_state_name(from), sandbox_state_name(to),
                      asked ? "asked" : "node") == 0);
}

/* The ways to failed and deleting lead from nearly everywhere: drawn, they would hide the rest. */
static void add_drawing(struct buf *b)
{
    add(b, "```mermaid\nstateDiagram-v2\n    [*] --> creating\n");
    for (unsigned from = 0; from < SANDBOX_STATE_COUNT_; from++) {
        for (unsigned to = 0; to < SANDBOX_STATE_COUNT_; to++) {
            if (is_drawn((enum sandbox_state)from) && is_drawn((enum sandbox_state)to)) {
                add_arrow(b, (enum sandbox_state)from, (enum sandbox_state)to);
            }
        }
    }
    add(b, "```\n");
}

static void make_part(struct buf *b)
{
    add(b, BEGIN "\n");
    add_table(b);
    add(b, "\n");
    add_drawing(b);
    add(b, "\n" END);
}

static void document_shows_the_table(void)
{
    cleanup_buf struct buf want = BUF_INIT(DOC_MAX);
    cleanup_buf struct buf doc = BUF_INIT(DOC_MAX);

    make_part(&want);
    REQUIRE(fs_read_file(AT_FDCWD, doc_path, &doc) == 0);
    if (!strstr(buf_str(&doc), buf_str(&want))) {
        TEST_FAIL("%s does not show the table of model/sandbox-state.c: put there what this "
                  "program prints with --print",
                  doc_path);
    }
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {T(document_shows_the_table)};

    if (argc > 1 && str_eq(argv[1], "--print")) {
        cleanup_buf struct buf part = BUF_INIT(DOC_MAX);

        make_part(&part);
        fputs(buf_str(&part), stdout);
        return 0;
    }
    ASSERT(argc == 2);
    doc_path = argv[1];
    return test_run_all(cases, ARRAY_SIZE(cases), 1, argv);
}

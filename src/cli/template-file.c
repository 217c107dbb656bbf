/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/template-file.h"

#include <string.h>

struct reading {
    json_t *recipe; /* owned */
    json_t *steps;  /* borrowed from it */
    size_t line;    /* counts from 1 */
};

static int wrong(const struct reading *rd, const char *what, struct err *e)
{
    return err_set(e, -EINVAL, "invalid_file", "line %zu: %s", rd->line, what);
}

/* The next word of *at, which moves behind it and the spaces after it. The caller frees. */
static char *take_word(const char **at)
{
    size_t len = strcspn(*at, " \t");
    char *word = xstrndup(*at, len);

    *at += len;
    *at += strspn(*at, " \t");
    return word;
}

static int add_step(struct reading *rd, const char *type, json_t *args_take, struct err *e)
{
    cleanup_json json_t *args = args_take;
    json_t *step = args ? json_pack("{s:s, s:O}", "type", type, "args", args) : NULL;

    if (!step) {
        return wrong(rd, "this is not UTF-8", e);
    }
    if (json_array_size(rd->steps) >= TEMPLATE_FILE_STEPS_MAX) {
        json_decref(step);
        return wrong(rd, "these are too many steps", e);
    }
    json_array_append_new(rd->steps, step);
    return 0;
}

static int take_copy(struct reading *rd, const char *rest, struct err *e)
{
    cleanup_free char *from = take_word(&rest);
    cleanup_free char *to = take_word(&rest);

    if (!to[0] || rest[0]) {
        return wrong(rd, "COPY takes a source and a destination", e);
    }
    return add_step(rd, "COPY", json_pack("[s, s, s, s]", from, to, "", ""), e);
}

static int take_env(struct reading *rd, const char *rest, struct err *e)
{
    const char *equals = strchr(rest, '=');
    cleanup_free char *name = NULL;

    if (!equals || equals == rest) {
        return wrong(rd, "ENV takes NAME=VALUE", e);
    }
    name = xstrndup(rest, (size_t)(equals - rest));
    return add_step(rd, "ENV", json_pack("[s, s]", name, equals + 1), e);
}

/* What stands once in a file. */
static int take_single(struct reading *rd, const char *field, const char *rest, struct err *e)
{
    json_t *value = json_string(rest);

    if (!value) {
        return wrong(rd, "this is not UTF-8", e);
    }
    if (json_object_get(rd->recipe, field)) {
        json_decref(value);
        return wrong(rd, "this was said before", e);
    }
    json_object_set_new(rd->recipe, field, value);
    return 0;
}

static int take_line(struct reading *rd, const char *line, struct err *e)
{
    static const char *const singles[][2] = {
        {"FROM", "from"}, {"START", "start"}, {"READY", "ready"}};
    static const char *const plain[] = {"RUN", "WORKDIR", "USER"};
    cleanup_free char *word = NULL;

    line += strspn(line, " \t");
    if (!line[0] || line[0] == '#') {
        return 0;
    }
    word = take_word(&line);
    if (!line[0]) {
        return wrong(rd, "something is missing after the first word", e);
    }
    for (size_t i = 0; i < ARRAY_SIZE(singles); i++) {
        if (str_eq(word, singles[i][0])) {
            return take_single(rd, singles[i][1], line, e);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(plain); i++) {
        if (str_eq(word, plain[i])) {
            return add_step(rd, plain[i], json_pack("[s]", line), e);
        }
    }
    if (str_eq(word, "COPY")) {
        return take_copy(rd, line, e);
    }
    return str_eq(word, "ENV")
               ? take_env(rd, line, e)
               : wrong(rd, "a line begins with FROM, RUN, COPY, ENV, WORKDIR, USER, START or READY",
                       e);
}

/* One line with those that it goes on in; *at moves behind it. The caller frees. */
static char *join_lines(const char **at, size_t *ret_n)
{
    cleanup_buf struct buf line = BUF_INIT(TEMPLATE_FILE_MAX + 1u);
    bool more = true;

    *ret_n = 0;
    while (more && **at) {
        size_t len = strcspn(*at, "\n");
        size_t keep = len > 0 && (*at)[len - 1] == '\r' ? len - 1 : len;

        more = keep > 0 && (*at)[keep - 1] == '\\';
        IGNORE_RESULT(buf_add(&line, *at, more ? keep - 1 : keep)); /* the text is bounded */
        *at += len + ((*at)[len] == '\n');
        ++*ret_n;
    }
    return xstrdup(buf_str(&line));
}

int template_file_parse(const char *text, json_t **ret, struct err *e)
{
    struct reading rd = {.recipe = json_object(), .steps = json_array(), .line = 1};
    int r = strlen(text) > TEMPLATE_FILE_MAX ? wrong(&rd, "the file is too large", e) : 0;

    json_object_set_new(rd.recipe, "steps", rd.steps);
    while (r == 0 && *text) {
        size_t n = 0;
        cleanup_free char *line = join_lines(&text, &n);

        r = take_line(&rd, line, e);
        rd.line += n;
    }
    if (r < 0) {
        json_decref(rd.recipe);
        return r;
    }
    *ret = rd.recipe;
    return 0;
}

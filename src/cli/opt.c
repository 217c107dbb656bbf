/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/opt.h"

#include <limits.h>
#include <string.h>

#define NEAREST_WORD_MAX 32u

struct opt_parser {
    const struct opt_set *set;
    size_t argc;
    const char *const *argv;
    size_t at;
    struct args *args;
};

bool opt_each(const struct opt_set *set, opt_each_fn fn, void *ctx)
{
    for (size_t i = 0; i < OPT_TABLES_MAX && set->tables[i]; i++) {
        for (const struct opt *o = set->tables[i]; o->name; o++) {
            if (fn(o, ctx)) {
                return true;
            }
        }
    }
    return false;
}

struct opt_wanted {
    const char *name;
    size_t name_len;
    char letter;
    const struct opt *found;
};

static bool opt_is_wanted(const struct opt *o, void *ctx)
{
    struct opt_wanted *w = ctx;
    bool same;

    same = w->letter
               ? o->letter == w->letter
               : strlen(o->name) == w->name_len && strncmp(o->name, w->name, w->name_len) == 0;
    if (same) {
        w->found = o;
    }
    return same;
}

/* Levenshtein's distance over short words; anything longer counts as far away. */
static unsigned word_distance(const char *a, const char *b)
{
    unsigned row[NEAREST_WORD_MAX + 1];
    size_t na = strlen(a);
    size_t nb = strlen(b);

    if (na > NEAREST_WORD_MAX || nb > NEAREST_WORD_MAX) {
        return UINT_MAX;
    }
    for (unsigned j = 0; j <= nb; j++) {
        row[j] = j;
    }
    for (unsigned i = 1; i <= na; i++) {
        unsigned diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned above = row[j];
            unsigned best = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);

            best = MIN(best, above + 1);
            best = MIN(best, row[j - 1] + 1);
            diagonal = above;
            row[j] = best;
        }
    }
    return row[nb];
}

const char *opt_nearest(const char *word, const char *const *names)
{
    const char *best = NULL;
    unsigned best_distance = UINT_MAX;
    unsigned allowed = strlen(word) <= 3 ? 1 : 2;

    for (size_t i = 0; names[i]; i++) {
        unsigned d = word_distance(word, names[i]);

        if (d < best_distance) {
            best_distance = d;
            best = names[i];
        }
    }
    return best_distance <= allowed ? best : NULL;
}

struct opt_names {
    const char **names;
    size_t n;
    size_t max;
};

static bool opt_collect_name(const struct opt *o, void *ctx)
{
    struct opt_names *names = ctx;

    if (names->n + 1 < names->max) {
        names->names[names->n++] = o->name;
    }
    return false;
}

static int opt_unknown(const struct opt_set *set, const char *word, size_t len, struct err *e)
{
    const char *list[128] = {0};
    struct opt_names names = {.names = list, .max = ARRAY_SIZE(list)};
    cleanup_free char *name = xstrndup(word, len);
    const char *near;

    opt_each(set, opt_collect_name, &names);
    near = opt_nearest(name, list);
    if (near) {
        return err_set(e, -EINVAL, "usage", "there is no option '--%s'; did you mean '--%s'?", name,
                       near);
    }
    return err_set(e, -EINVAL, "usage", "there is no option '--%s'", name);
}

int opt_parse_mib(const char *text, uint64_t *ret)
{
    static const struct {
        const char *unit;
        uint64_t mib;
    } units[] = {{"", 1},      {"m", 1},           {"mi", 1},           {"mib", 1},
                 {"mb", 1},    {"g", 1024},        {"gi", 1024},        {"gib", 1024},
                 {"gb", 1024}, {"t", 1024 * 1024}, {"tib", 1024 * 1024}};
    size_t digits = strspn(text, "0123456789");
    cleanup_free char *number = xstrndup(text, digits);
    uint64_t value;
    int r;

    r = str_to_u64(number, UINT32_MAX, &value);
    if (r < 0) {
        return r;
    }
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (strcasecmp(text + digits, units[i].unit) == 0) {
            *ret = value * units[i].mib;
            return 0;
        }
    }
    return -EINVAL;
}

int opt_parse_seconds(const char *text, uint64_t *ret)
{
    static const struct {
        const char *unit;
        uint64_t seconds;
    } units[] = {{"", 1}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    size_t digits = strspn(text, "0123456789");
    cleanup_free char *number = xstrndup(text, digits);
    uint64_t value;
    int r;

    r = str_to_u64(number, UINT32_MAX, &value);
    if (r < 0) {
        return r;
    }
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (str_eq(text + digits, units[i].unit)) {
            *ret = value * units[i].seconds;
            return 0;
        }
    }
    return -EINVAL;
}

static int opt_list_add(struct text_list *list, const char *value)
{
    if (list->n >= OPT_LIST_MAX) {
        return -E2BIG;
    }
    list->items = xrealloc(list->items, (list->n + 1) * sizeof(*list->items));
    list->items[list->n++] = value;
    return 0;
}

static int opt_store(const struct opt *o, const char *value, struct args *args, struct err *e)
{
    void *place = (char *)args + o->offset;
    int r;

    switch (o->kind) {
    case OPT_FLAG:
        *(bool *)place = true;
        return 0;
    case OPT_TEXT:
        *(const char **)place = value;
        return 0;
    case OPT_LIST:
        r = opt_list_add(place, value);
        return r < 0 ? err_set(e, r, "usage", "'--%s' is given more than %u times", o->name,
                               OPT_LIST_MAX)
                     : 0;
    case OPT_NUMBER:
        r = str_to_u64(value, UINT32_MAX, place);
        return r < 0
                   ? err_set(e, -EINVAL, "usage", "'--%s' wants a number, not '%s'", o->name, value)
                   : 0;
    case OPT_MIB:
        r = opt_parse_mib(value, place);
        return r < 0 ? err_set(e, -EINVAL, "usage",
                               "'--%s' wants a size such as 512M or 2G, not '%s'", o->name, value)
                     : 0;
    case OPT_SECONDS:
        r = opt_parse_seconds(value, place);
        if (r < 0) {
            return err_set(e, -EINVAL, "usage",
                           "'--%s' wants a time such as 90s, 5m or 2h, not '%s'", o->name, value);
        }
        if (place == &args->timeout_s) {
            args->timeout_given = true;
        }
        return 0;
    case OPT_KIND_COUNT_:
        break;
    }
    ASSERT(!"a kind of option without a case");
    return -EINVAL;
}

static int opt_parse_long(struct opt_parser *p, const char *word, struct err *e)
{
    const char *equals = strchr(word, '=');
    struct opt_wanted w = {.name = word,
                           .name_len = equals ? (size_t)(equals - word) : strlen(word)};

    if (!opt_each(p->set, opt_is_wanted, &w)) {
        return opt_unknown(p->set, word, w.name_len, e);
    }
    if (w.found->kind == OPT_FLAG) {
        if (equals) {
            return err_set(e, -EINVAL, "usage", "'--%s' takes no value", w.found->name);
        }
        return opt_store(w.found, NULL, p->args, e);
    }
    if (equals) {
        return opt_store(w.found, equals + 1, p->args, e);
    }
    if (p->at >= p->argc) {
        return err_set(e, -EINVAL, "usage", "'--%s' wants a value: --%s %s", w.found->name,
                       w.found->name, w.found->arg);
    }
    return opt_store(w.found, p->argv[p->at++], p->args, e);
}

static int opt_parse_letters(struct opt_parser *p, const char *letters, struct err *e)
{
    for (const char *c = letters; *c; c++) {
        struct opt_wanted w = {.letter = *c};
        int r;

        if (!opt_each(p->set, opt_is_wanted, &w)) {
            return err_set(e, -EINVAL, "usage", "there is no option '-%c'", *c);
        }
        if (w.found->kind == OPT_FLAG) {
            r = opt_store(w.found, NULL, p->args, e);
            if (r < 0) {
                return r;
            }
            continue;
        }
        if (c[1]) {
            return opt_store(w.found, c + 1, p->args, e);
        }
        if (p->at >= p->argc) {
            return err_set(e, -EINVAL, "usage", "'-%c' wants a value: -%c %s", *c, *c,
                           w.found->arg);
        }
        return opt_store(w.found, p->argv[p->at++], p->args, e);
    }
    return 0;
}

static void opt_rest_is_command(struct opt_parser *p)
{
    if (p->at < p->argc) {
        p->args->command = p->argv + p->at;
        p->args->n_command = p->argc - p->at;
    }
    p->at = p->argc;
}

static int opt_count_operands(const struct opt_set *set, const struct args *args, struct err *e)
{
    unsigned min = set->has_command ? set->lead : set->min_pos;
    unsigned max = set->has_command ? set->lead : set->max_pos;

    if (args->help) {
        return 0;
    }
    if (args->n_operands < min) {
        return err_set(e, -EINVAL, "usage", "%s is missing",
                       args->n_operands ? "an operand" : "the operand");
    }
    if (args->n_operands > max) {
        return err_set(e, -EINVAL, "usage", "'%s' is one operand too many", args->operands[max]);
    }
    return 0;
}

int opt_parse(const struct opt_set *set, size_t argc, const char *const *argv, struct args *args,
              struct err *e)
{
    struct opt_parser p = {.set = set, .argc = argc, .argv = argv, .args = args};
    bool only_operands = false;

    args->operands = xnew_n(const char *, argc + 1);
    while (p.at < argc) {
        const char *word = argv[p.at];
        bool is_option = !only_operands && word[0] == '-' && word[1];
        int r;

        if (is_option && str_eq(word, "--")) {
            p.at++;
            only_operands = true;
            if (set->has_command && args->n_operands >= set->lead) {
                opt_rest_is_command(&p);
            }
            continue;
        }
        if (!is_option) {
            if (set->has_command && args->n_operands >= set->lead) {
                opt_rest_is_command(&p);
                continue;
            }
            p.at++;
            args->operands[args->n_operands++] = word;
            continue;
        }
        p.at++;
        r = word[1] == '-' ? opt_parse_long(&p, word + 2, e) : opt_parse_letters(&p, word + 1, e);
        if (r < 0) {
            return r;
        }
    }
    return opt_count_operands(set, args, e);
}

void args_done(struct args *args)
{
    free(args->env.items);
    free(args->metadata.items);
    free(args->copy_in.items);
    free(args->copy_out.items);
    free(args->methods.items);
    free(args->surfaces.items);
    free(args->host_keys.items);
    free(args->commands.items);
    free(args->operands);
    *args = (struct args){0};
}

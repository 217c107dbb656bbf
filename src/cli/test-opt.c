/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "cli/opt.h"

#include <limits.h>

static const struct opt table[] = {
    {.name = "json", .kind = OPT_FLAG, .help = "x", .offset = offsetof(struct args, json)},
    {.name = "tty",
     .letter = 't',
     .kind = OPT_FLAG,
     .help = "x",
     .offset = offsetof(struct args, tty)},
    {.name = "interactive",
     .letter = 'i',
     .kind = OPT_FLAG,
     .help = "x",
     .offset = offsetof(struct args, interactive)},
    {.name = "user",
     .letter = 'u',
     .kind = OPT_TEXT,
     .arg = "U",
     .help = "x",
     .offset = offsetof(struct args, user)},
    {.name = "env",
     .letter = 'e',
     .kind = OPT_LIST,
     .arg = "E",
     .help = "x",
     .offset = offsetof(struct args, env)},
    {.name = "limit",
     .kind = OPT_NUMBER,
     .arg = "N",
     .help = "x",
     .offset = offsetof(struct args, limit)},
    {.name = "memory",
     .kind = OPT_MIB,
     .arg = "S",
     .help = "x",
     .offset = offsetof(struct args, memory_mib)},
    {.name = "timeout",
     .kind = OPT_SECONDS,
     .arg = "T",
     .help = "x",
     .offset = offsetof(struct args, timeout_s)},
    OPT_END,
};
static const struct opt_set plain = {.tables = {table}, .max_pos = UINT_MAX};
static const struct opt_set exec_like = {.tables = {table}, .has_command = true, .lead = 1};

static struct args args;
static struct err error;

/* Keeps the words, for the arguments point to them. */
static int parse(const struct opt_set *set, const char *const *argv)
{
    static const char *words[16];
    size_t n = 0;

    while (argv[n]) {
        words[n] = argv[n];
        n++;
    }
    words[n] = NULL;
    args_done(&args);
    error = (struct err){0};
    return opt_parse(set, n, words, &args, &error);
}

#define PARSE(set, ...) parse(set, (const char *const[]){__VA_ARGS__, NULL})

static void every_form_of_a_value_is_taken(void)
{
    CHECK_INT(PARSE(&plain, "--user", "a"), 0);
    CHECK_STR(args.user, "a");
    CHECK_INT(PARSE(&plain, "--user=b=c"), 0);
    CHECK_STR(args.user, "b=c");
    CHECK_INT(PARSE(&plain, "--user="), 0);
    CHECK_STR(args.user, "");
    CHECK_INT(PARSE(&plain, "-uc"), 0);
    CHECK_STR(args.user, "c");
    CHECK_INT(PARSE(&plain, "-u", "-x"), 0);
    CHECK_STR(args.user, "-x");
    CHECK_INT(PARSE(&plain, "-itud"), 0);
    CHECK(args.interactive && args.tty);
    CHECK_STR(args.user, "d");
    CHECK_INT(PARSE(&plain, "-e", "A=1", "--env=B=2", "x"), 0);
    CHECK_INT(args.env.n, 2);
    CHECK_STR(args.env.items[1], "B=2");
}

static void operands_and_options_mix(void)
{
    CHECK_INT(PARSE(&plain, "a", "--json", "b", "--", "--json", "-"), 0);
    CHECK(args.json);
    CHECK_INT(args.n_operands, 4);
    CHECK_STR(args.operands[2], "--json");
    CHECK_INT(PARSE(&plain, "-"), 0);
    CHECK_STR(args.operands[0], "-");
}

static void the_command_is_not_ours(void)
{
    CHECK_INT(PARSE(&exec_like, "id", "-i", "--", "cmd", "--json", "--"), 0);
    CHECK(args.interactive && !args.json);
    CHECK_STR(args.operands[0], "id");
    CHECK_INT(args.n_command, 3);
    CHECK_STR(args.command[0], "cmd");
    CHECK_INT(PARSE(&exec_like, "-t", "id", "cmd", "-t", "--bogus"), 0);
    CHECK_INT(args.n_command, 3);
    CHECK_INT(PARSE(&exec_like, "--", "id", "cmd"), 0);
    CHECK_STR(args.operands[0], "id");
    CHECK_INT(args.n_command, 1);
    CHECK_INT(PARSE(&exec_like, "id"), 0);
    CHECK_INT(args.n_command, 0);
    CHECK_INT(PARSE(&exec_like, "--json"), -EINVAL);
}

static void mistakes_are_named(void)
{
    static const struct {
        const char *argv[4];
        const char *part;
    } cases[] = {
        {{"--jsom"}, "did you mean '--json'"},
        {{"--zzzzzz"}, "no option '--zzzzzz'"},
        {{"-q"}, "'-q'"},
        {{"--user"}, "--user U"},
        {{"-u"}, "-u U"},
        {{"--json=1"}, "no value"},
        {{"--limit", "-1"}, "number"},
        {{"--limit", "4294967296"}, "number"},
        {{"--memory", "12X"}, "512M"},
        {{"--memory", ""}, "512M"},
        {{"--timeout", "5y"}, "90s"},
        {{"--=x"}, "no option"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CHECK_INT(parse(&plain, cases[i].argv), -EINVAL);
        CHECK(strstr(error.msg, cases[i].part) != NULL);
        CHECK_STR(error.reason, "usage");
    }
}

static void sizes_and_times(void)
{
    static const struct {
        const char *text;
        uint64_t mib;
    } sizes[] = {{"512", 512},   {"512M", 512},       {"2g", 2048},
                 {"2GiB", 2048}, {"1T", 1024 * 1024}, {"0", 0}};
    static const struct {
        const char *text;
        uint64_t seconds;
    } times[] = {{"90", 90}, {"90s", 90}, {"5m", 300}, {"2h", 7200}, {"3d", 259200}};
    uint64_t value = 1;

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        CHECK_INT(opt_parse_mib(sizes[i].text, &value), 0);
        CHECK_INT(value, sizes[i].mib);
    }
    for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
        CHECK_INT(opt_parse_seconds(times[i].text, &value), 0);
        CHECK_INT(value, times[i].seconds);
    }
    CHECK(opt_parse_mib("-1", &value) < 0);
    CHECK(opt_parse_mib("99999999999999999999", &value) < 0);
    CHECK(opt_parse_mib("1.5G", &value) < 0);
    CHECK(opt_parse_seconds("5M", &value) < 0);
    CHECK(opt_parse_seconds(" 5", &value) < 0);
}

static void a_timeout_of_zero_is_a_timeout(void)
{
    CHECK_INT(PARSE(&plain, "--timeout", "0"), 0);
    CHECK(args.timeout_given && args.timeout_s == 0);
    CHECK_INT(PARSE(&plain, "--memory", "0"), 0);
    CHECK(!args.timeout_given);
    args_done(&args);
}

TEST_MAIN(T(every_form_of_a_value_is_taken), T(operands_and_options_mix),
          T(the_command_is_not_ours), T(mistakes_are_named), T(sizes_and_times),
          T(a_timeout_of_zero_is_a_timeout))

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/command-spec.h"

#include "base/json.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

void strings_free(char **strings)
{
    if (!strings) {
        return;
    }
    for (char **s = strings; *s; s++) {
        free(*s);
    }
    free(strings);
}

void command_spec_done(struct command_spec *s)
{
    strings_free(s->argv);
    strings_free(s->env);
    free(s->cwd);
    free(s->user);
    free(s->tag);
    memset(s, 0, sizeof(*s));
}

/* One string towards the whole; total counts what has been taken so far. */
static int take_size(const char *field, size_t len, size_t *total, struct err *e)
{
    if (len + 1 > COMMAND_STRING_MAX) {
        return err_field(
            e, -EINVAL, "argument_too_long", field,
            "one string of '%s' has %zu bytes, at most %u fit: pass it by standard input or a file",
            field, len, COMMAND_STRING_MAX - 1);
    }
    *total += len + 1;
    if (*total > COMMAND_STRINGS_MAX) {
        return err_field(
            e, -EINVAL, "arguments_too_long", field,
            "arguments and environment have more than %u bytes together: pass a file instead",
            COMMAND_STRINGS_MAX);
    }
    return 0;
}

static int parse_argv(json_t *array, size_t *total, char ***ret, struct err *e)
{
    CLEANUP(strings_freep) char **argv = NULL;
    size_t n = json_array_size(array);
    size_t i;
    json_t *item;

    if (n == 0) {
        return err_field(e, -EINVAL, "invalid_field", "argv", "'argv' must name a program");
    }
    if (n > COMMAND_ARGS_MAX) {
        return err_field(e, -EINVAL, "too_many_arguments", "argv",
                         "'argv' has %zu strings, at most %d are allowed", n, COMMAND_ARGS_MAX);
    }
    argv = xnew_n(char *, n + 1);
    json_array_foreach(array, i, item)
    {
        int r;

        if (!json_is_string(item)) {
            return err_field(e, -EINVAL, "invalid_field", "argv", "'argv' must hold strings only");
        }
        r = take_size("argv", json_string_length(item), total, e);
        if (r < 0) {
            return r;
        }
        argv[i] = xstrdup(json_string_value(item));
    }
    if (argv[0][0] == '\0') {
        return err_field(e, -EINVAL, "invalid_field", "argv",
                         "'argv' must name a program, its first string is empty");
    }
    *ret = TAKE_PTR(argv);
    return 0;
}

static int parse_shell(json_t *line, size_t *total, char ***ret, struct err *e)
{
    char **argv;
    int r = take_size("shell", json_string_length(line), total, e);

    if (r < 0) {
        return r;
    }
    argv = xnew_n(char *, 4);
    argv[0] = xstrdup("/bin/sh");
    argv[1] = xstrdup("-c");
    argv[2] = xstrdup(json_string_value(line));
    *ret = argv;
    return 0;
}

static int parse_program(json_t *object, size_t *total, char ***ret, struct err *e)
{
    json_t *argv = json_object_get(object, "argv");
    json_t *shell = json_object_get(object, "shell");

    if (argv && shell) {
        return err_field(e, -EINVAL, "invalid_field", "shell", "give 'argv' or 'shell', not both");
    }
    if (argv) {
        return parse_argv(argv, total, ret, e);
    }
    if (shell) {
        return parse_shell(shell, total, ret, e);
    }
    return err_field(e, -EINVAL, "missing_field", "argv",
                     "'argv' is missing: give an array of strings, or 'shell'");
}

static int parse_env(json_t *map, size_t *total, char ***ret, struct err *e)
{
    CLEANUP(strings_freep) char **env = NULL;
    size_t n = json_object_size(map);
    size_t i = 0;
    const char *name;
    json_t *value;

    if (n > COMMAND_ENV_MAX) {
        return err_field(e, -EINVAL, "too_many_variables", "env",
                         "'env' has %zu variables, at most %d are allowed", n, COMMAND_ENV_MAX);
    }
    env = xnew_n(char *, n + 1);
    json_object_foreach(map, name, value)
    {
        int r;

        if (!*name || strchr(name, '=')) {
            return err_field(e, -EINVAL, "invalid_field", "env",
                             "'%.60s' in 'env' cannot be the name of a variable", name);
        }
        r = take_size("env", strlen(name) + 1 + json_string_length(value), total, e);
        if (r < 0) {
            return r;
        }
        env[i++] = xasprintf("%s=%s", name, json_string_value(value));
    }
    *ret = TAKE_PTR(env);
    return 0;
}

/* An optional string with a ceiling; "" and null count as absent. */
static int parse_text(json_t *object, const char *name, size_t max, char **ret, struct err *e)
{
    json_t *value = json_object_get(object, name);
    size_t len = json_string_length(value);

    if (len > max) {
        return err_field(e, -EINVAL, "invalid_field", name,
                         "'%s' has %zu bytes, at most %zu are allowed", name, len, max);
    }
    *ret = len > 0 ? xstrdup(json_string_value(value)) : NULL;
    return 0;
}

int pty_size_parse(json_t *object, struct pty_size *ret, struct err *e)
{
    static const struct json_field fields[] = {
        {"rows", JSON_FIELD_INT, 0},
        {"cols", JSON_FIELD_INT, 0},
    };
    int64_t rows;
    int64_t cols;
    int r = json_check_object(object, fields, ARRAY_SIZE(fields), e);

    if (r == 0) {
        r = json_get_bounded(object, "rows", (struct json_bounds){1, UINT16_MAX, 24}, &rows, e);
    }
    if (r == 0) {
        r = json_get_bounded(object, "cols", (struct json_bounds){1, UINT16_MAX, 80}, &cols, e);
    }
    if (r < 0) {
        return r;
    }
    *ret = (struct pty_size){.rows = (uint16_t)rows, .cols = (uint16_t)cols};
    return 0;
}

static int parse_rest(json_t *object, struct command_spec *s, struct err *e)
{
    json_t *pty = json_object_get(object, "pty");
    int64_t timeout_ms;
    int r = parse_text(object, "cwd", COMMAND_PATH_MAX - 1, &s->cwd, e);

    if (r == 0) {
        r = parse_text(object, "user", COMMAND_USER_MAX, &s->user, e);
    }
    if (r == 0) {
        r = parse_text(object, "tag", COMMAND_TAG_MAX, &s->tag, e);
    }
    if (r == 0) {
        r = json_get_bounded(object, "timeout_ms",
                             (struct json_bounds){0, COMMAND_TIMEOUT_MAX_MS, 0}, &timeout_ms, e);
    }
    if (r == 0 && json_is_object(pty)) {
        s->pty = true;
        r = pty_size_parse(pty, &s->size, e);
    }
    if (r < 0) {
        return r;
    }
    s->timeout_ms = (uint64_t)timeout_ms;
    s->stdin_open = s->pty || json_get_bool(object, "stdin", false);
    return 0;
}

int command_spec_parse(json_t *object, struct command_spec *ret, struct err *e)
{
    static const struct json_field fields[] = {
        {"argv", JSON_FIELD_ARRAY, 0},
        {"shell", JSON_FIELD_STRING, 0},
        {"env", JSON_FIELD_STRING_MAP, JSON_NULLABLE},
        {"cwd", JSON_FIELD_STRING, JSON_NULLABLE},
        {"user", JSON_FIELD_STRING, JSON_NULLABLE},
        {"stdin", JSON_FIELD_BOOL, 0},
        {"timeout_ms", JSON_FIELD_INT, 0},
        {"pty", JSON_FIELD_OBJECT, JSON_NULLABLE},
        {"tag", JSON_FIELD_STRING, JSON_NULLABLE},
    };
    cleanup_command_spec struct command_spec s = {0};
    size_t total = 0;
    int r = json_check_object(object, fields, ARRAY_SIZE(fields), e);

    if (r == 0) {
        r = parse_program(object, &total, &s.argv, e);
    }
    if (r == 0) {
        r = parse_env(json_object_get(object, "env"), &total, &s.env, e);
    }
    if (r == 0) {
        r = parse_rest(object, &s, e);
    }
    if (r < 0) {
        return r;
    }
    *ret = s;
    memset(&s, 0, sizeof(s)); /* handed over */
    return 0;
}

static size_t strings_count(char *const *strings)
{
    size_t n = 0;

    while (strings && strings[n]) {
        n++;
    }
    return n;
}

/* Where the variable of this "K=V" stands in env, or n. */
static size_t env_find(char *const *env, size_t n, const char *variable)
{
    size_t name_len = strcspn(variable, "=");

    for (size_t i = 0; i < n; i++) {
        if (strncmp(env[i], variable, name_len) == 0 && env[i][name_len] == '=') {
            return i;
        }
    }
    return n;
}

static size_t env_put(char **env, size_t n, const char *variable)
{
    size_t i = env_find(env, n, variable);

    free(env[i]);
    env[i] = xstrdup(variable);
    return i == n ? n + 1 : n;
}

char **command_env(char *const *base, char *const *over, bool pty)
{
    size_t n_base = strings_count(base);
    size_t n_over = strings_count(over);
    char **env = xnew_n(char *, n_base + n_over + 2);
    size_t n = 0;

    for (size_t i = 0; i < n_base; i++) {
        n = env_put(env, n, base[i]);
    }
    for (size_t i = 0; i < n_over; i++) {
        n = env_put(env, n, over[i]);
    }
    if (pty && env_find(env, n, "TERM=") == n) {
        env[n] = xstrdup("TERM=xterm-256color");
    }
    return env;
}

void signal_name(int signo, char ret[static SIGNAL_NAME_SIZE])
{
    const char *name = sigabbrev_np(signo);

    if (name) {
        snprintf(ret, SIGNAL_NAME_SIZE, "%s", name);
    } else if (signo >= SIGRTMIN && signo <= SIGRTMAX) {
        snprintf(ret, SIGNAL_NAME_SIZE, "RTMIN+%d", signo - SIGRTMIN);
    } else {
        snprintf(ret, SIGNAL_NAME_SIZE, "%d", signo);
    }
}

int signal_parse(json_t *value, int *ret, struct err *e)
{
    const char *s = json_string_value(value);
    json_int_t number = json_integer_value(value);

    if (json_is_integer(value) && number >= 1 && number <= SIGRTMAX) {
        *ret = (int)number;
        return 0;
    }
    if (s && str_starts(s, "SIG")) {
        s += strlen("SIG");
    }
    for (int signo = 1; s && signo <= SIGRTMAX; signo++) {
        char name[SIGNAL_NAME_SIZE];

        signal_name(signo, name);
        if (str_eq(name, s)) {
            *ret = signo;
            return 0;
        }
    }
    return err_field(e, -EINVAL, "invalid_field", "signal",
                     "'signal' must be a name like \"TERM\" or a number from 1 to %d", SIGRTMAX);
}

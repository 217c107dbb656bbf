/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/command-spec.h"

#include "base/json.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is accepted is within every limit, and can be started; what is refused says why and names a field. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_command_spec struct command_spec spec = {0};
    CLEANUP(strings_freep) char **env = NULL;
    cleanup_json json_t *object = NULL;
    char *base[] = {(char[]){"PATH=/bin"}, (char[]){"A=1"}, NULL};
    struct err e = {0};
    size_t total = 0;
    size_t n = 0;
    int signo = 0;

    if (json_parse_object(data, size, &object, &e) < 0) {
        return 0;
    }
    if (signal_parse(json_object_get(object, "signal"), &signo, NULL) == 0) {
        char name[SIGNAL_NAME_SIZE];
        cleanup_json json_t *again = NULL;
        int same = 0;

        signal_name(signo, name);
        again = json_string(name);
        ASSERT(signo >= 1 && signal_parse(again, &same, &e) == 0 && same == signo);
    }
    if (command_spec_parse(object, &spec, &e) < 0) {
        ASSERT(e.code == -EINVAL && e.msg[0] && e.reason[0]);
        return 0;
    }
    ASSERT(spec.argv && spec.argv[0] && spec.argv[0][0]);
    for (n = 0; spec.argv[n]; n++) {
        total += strlen(spec.argv[n]) + 1;
    }
    ASSERT(n <= COMMAND_ARGS_MAX);
    for (n = 0; spec.env[n]; n++) {
        total += strlen(spec.env[n]) + 1;
        ASSERT(strchr(spec.env[n], '=') > spec.env[n]);
    }
    ASSERT(n <= COMMAND_ENV_MAX && total <= COMMAND_STRINGS_MAX + 16);
    ASSERT(!spec.cwd || (spec.cwd[0] && strlen(spec.cwd) < COMMAND_PATH_MAX));
    ASSERT(!spec.tag || strlen(spec.tag) <= COMMAND_TAG_MAX);
    ASSERT(spec.timeout_ms <= COMMAND_TIMEOUT_MAX_MS);
    ASSERT(!spec.pty || (spec.stdin_open && spec.size.rows > 0 && spec.size.cols > 0));
    env = command_env(base, spec.env, spec.pty);
    for (size_t i = 0; env[i]; i++) {
        size_t len = strcspn(env[i], "=");

        for (size_t k = i + 1; env[k]; k++) {
            ASSERT(strncmp(env[i], env[k], len) != 0 || env[k][len] != '='); /* no name twice */
        }
    }
    return 0;
}

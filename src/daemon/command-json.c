/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/command-json.h"

static json_t *text_or_null(const char *s)
{
    return s ? json_string(s) : json_null();
}

json_t *command_json(const struct command *c)
{
    json_t *object = json_object();
    json_t *argv = json_array();
    char signal[SIGNAL_NAME_SIZE];
    struct command_view v;
    bool exited;

    command_view(c, &v);
    exited = v.state >= COMMAND_DRAINING;
    for (char *const *arg = v.argv; *arg; arg++) {
        json_array_append_new(argv, json_string(*arg)); /* came as JSON: valid UTF-8 */
    }
    signal_name(v.signo, signal);
    json_object_set_new(object, "id", json_string(v.id));
    json_object_set_new(object, "pid", json_integer(v.pid));
    json_object_set_new(object, "argv", argv);
    json_object_set_new(object, "user", text_or_null(v.user));
    json_object_set_new(object, "cwd", text_or_null(v.cwd));
    json_object_set_new(object, "tag", text_or_null(v.tag));
    json_object_set_new(object, "pty", json_boolean(v.pty));
    json_object_set_new(object, "state", json_string(exited ? "exited" : "running"));
    json_object_set_new(object, "started_at_ms", json_integer((json_int_t)v.started_at_ms));
    json_object_set_new(object, "ended_at_ms",
                        exited ? json_integer((json_int_t)v.ended_at_ms) : json_null());
    json_object_set_new(object, "exit_code", exited ? json_integer(v.exit_code) : json_null());
    json_object_set_new(object, "signal",
                        exited && v.signo > 0 ? json_string(signal) : json_null());
    json_object_set_new(object, "timed_out", json_boolean(v.timed_out));
    json_object_set_new(object, "oom_killed", json_boolean(v.oom_killed));
    json_object_set_new(object, "error", text_or_null(v.error));
    json_object_set_new(object, "output_bytes", json_integer((json_int_t)v.output_bytes));
    json_object_set_new(object, "output_offset", json_integer((json_int_t)v.output_offset));
    return object;
}

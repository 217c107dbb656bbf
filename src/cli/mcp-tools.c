/* SPDX-License-Identifier: Apache-2.0 */
/* The tools: what each wants, and the request of the public API that it is. */
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "cli/mcp.h"
#include "wire/websocket.h"

#define READ_DEFAULT (256 * 1024)
#define READ_MAX (4 * 1024 * 1024)
#define OUTPUT_DEFAULT (64 * 1024)
/* Nothing that a tool asks for takes longer but a command with a longer timeout of its own. */
#define CALL_MS 600000u
#define COMMAND_MS_DEFAULT 120000
#define COMMAND_MS_MAX 86400000

static void say(struct mcp_call *c, const char *text)
{
    json_array_append_new(c->content, json_pack("{s:s, s:s}", "type", "text", "text", text));
}

/* The answer as it is, as text and as an object. */
static void say_json_take(struct mcp_call *c, json_t *answer)
{
    cleanup_free char *text = json_dumps(answer, JSON_INDENT(1) | JSON_ENCODE_ANY);

    ASSERT(text);
    say(c, text);
    c->structured = answer;
}

static const char *arg(const struct mcp_call *c, const char *name)
{
    return json_get_string(c->args, name, NULL);
}

/* Those of the arguments that the API knows under the same name. */
static json_t *pick(const struct mcp_call *c, const char *const *names)
{
    json_t *body = json_object();

    ASSERT(body);
    for (; *names; names++) {
        json_t *value = json_object_get(c->args, *names);

        if (value) {
            json_object_set(body, *names, value);
        }
    }
    return body;
}

/* rest follows the sandbox's id. body is taken over. */
static int ask_take(struct mcp_call *c, const char *method, const char *rest, json_t *body_take,
                    json_t **ret, struct err *e)
{
    cleanup_json json_t *body = body_take;
    cleanup_free char *target = NULL;
    struct http_json_opts opts = {
        .method = method, .body = body, .deadline_ns = deadline_in_ms(CALL_MS), .watch = &c->watch};
    char id[ID_SIZE];
    int r = cli_sandbox_id(c->cli, arg(c, "sandbox"), id, e);

    if (r < 0) {
        return r;
    }
    target = xasprintf("/v1/sandboxes/%s%s", id, rest);
    opts.target = target;
    return cli_call_opts(c->cli, &opts, ret, e);
}

static int ask_and_say(struct mcp_call *c, const char *method, const char *rest, json_t *body_take,
                       struct err *e)
{
    json_t *answer = NULL;
    int r = ask_take(c, method, rest, body_take, &answer, e);

    if (r == 0 && answer) {
        say_json_take(c, answer);
    }
    return r;
}

/* ---- sandboxes ---- */

static int run_create(struct mcp_call *c, struct err *e)
{
    static const char *const names[] = {"template", "vcpus",    "memory_mib", "disk_mib",
                                        "env",      "metadata", "timeout_s",  NULL};
    cleanup_json json_t *body = pick(c, names);
    json_t *answer = NULL;
    int r = cli_call_opts(c->cli,
                          &(struct http_json_opts){.method = "POST",
                                                   .target = "/v1/sandboxes",
                                                   .body = body,
                                                   .deadline_ns = deadline_in_ms(CALL_MS),
                                                   .watch = &c->watch},
                          &answer, e);

    if (r == 0) {
        say_json_take(c, answer);
    }
    return r;
}

static int run_list(struct mcp_call *c, struct err *e)
{
    json_t *list = NULL;
    int r = cli_list(c->cli, "/v1/sandboxes", "sandboxes", 0, &list, e);

    if (r == 0) {
        say_json_take(c, json_pack("{s:o}", "sandboxes", list));
    }
    return r;
}

static int run_delete(struct mcp_call *c, struct err *e)
{
    int r = ask_take(c, "DELETE", "", NULL, /* ret */ NULL, e);

    if (r == 0) {
        say(c, "deleted");
    }
    return r;
}

/* ---- commands ---- */

static void say_stream(struct mcp_call *c, json_t *answer, const char *name)
{
    cleanup_free char *encoded = xasprintf("%s_base64", name);
    const char *text = json_get_string(answer, name, NULL);
    const char *base64 = json_get_string(answer, encoded, NULL);
    cleanup_free char *words = NULL;

    if (base64 && *base64) {
        words = xasprintf("[%s is not text; in base64]\n%s", name, base64);
    } else if (text && *text) {
        words = xasprintf("[%s]\n%s", name, text);
    }
    if (words) {
        say(c, words);
    }
}

static int run_run(struct mcp_call *c, struct err *e)
{
    static const char *const names[] = {"argv", "env", "cwd", "user", "stdin", "timeout_ms", NULL};
    const char *command = arg(c, "command");
    json_t *body = pick(c, names);
    json_t *answer = NULL;
    cleanup_free char *end = NULL;
    const char *error;
    int r;

    if (!command == !json_object_get(body, "argv")) {
        json_decref(body);
        return err_set(e, -EINVAL, "invalid_request", "give one of 'command' and 'argv'");
    }
    if (command) {
        json_object_set_new(body, "shell", json_string(command));
    }
    if (!json_object_get(body, "timeout_ms")) {
        json_object_set_new(body, "timeout_ms", json_integer(COMMAND_MS_DEFAULT));
    }
    json_object_set_new(body, "max_output_bytes", json_integer(OUTPUT_DEFAULT));
    r = ask_take(c, "POST", "/run", body, &answer, e);
    if (r < 0) {
        return r;
    }
    say_stream(c, answer, "stdout");
    say_stream(c, answer, "stderr");
    error = json_get_string(answer, "error", NULL);
    end = xasprintf("[exit code %lld%s%s%s%s]", (long long)json_get_int(answer, "exit_code", -1),
                    json_get_bool(answer, "timed_out", false) ? ", it took too long" : "",
                    json_get_bool(answer, "oom_killed", false) ? ", out of memory" : "",
                    json_get_bool(answer, "truncated", false) ? ", output was cut" : "",
                    error ? ", it could not be started" : "");
    say(c, end);
    c->structured = answer;
    return 0;
}

/* ---- files ---- */

/* A stream up to max bytes; *ret_more: there was more. */
static int read_some(struct mcp_call *c, const char *target, size_t max, struct buf *out,
                     bool *ret_more, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct http_call_opts opts = {
        .target = target, .deadline_ns = deadline_in_ms(CALL_MS), .watch = &c->watch};
    int r = http_call_new(c->cli->client, &opts, &call, e);

    r = r < 0 ? r : http_call_check(call, e);
    *ret_more = false;
    while (r == 0) {
        size_t want = MIN(max + 1 - out->len, (size_t)65536);
        void *room = NULL;
        ssize_t n;

        if (buf_reserve(out, want, &room) < 0) {
            return err_set(e, -E2BIG, "too_large", "the file is too large");
        }
        n = http_call_read(call, room, want, e);
        if (n <= 0) {
            return (int)n;
        }
        buf_commit(out, (size_t)n);
        if (out->len > max) {
            out->len = max;
            *ret_more = true;
            return 0;
        }
    }
    return r < 0 ? cli_explain(c->cli, e) : r;
}

static const char *image_type(const struct buf *b)
{
    static const struct {
        const char *start;
        size_t len;
        const char *type;
    } known[] = {
        {"\x89PNG\r\n\x1a\n", 8, "image/png"},
        {"\xff\xd8\xff", 3, "image/jpeg"},
        {"GIF8", 4, "image/gif"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        if (b->len >= known[i].len && memcmp(b->data, known[i].start, known[i].len) == 0) {
            return known[i].type;
        }
    }
    return NULL;
}

/* Text as text, an image as an image, all else as a resource in base64. */
static int say_bytes(struct mcp_call *c, const char *path, const struct buf *b, struct err *e)
{
    cleanup_buf struct buf encoded = BUF_INIT(2 * READ_MAX);
    cleanup_free char *uri = NULL;
    const char *image = image_type(b);
    int r;

    if (!image && websocket_utf8_valid(b->data, b->len) &&
        (b->len == 0 || !memchr(b->data, '\0', b->len))) {
        json_array_append_new(c->content, json_pack("{s:s, s:s%}", "type", "text", "text",
                                                    b->len ? (const char *)b->data : "", b->len));
        return 0;
    }
    r = base64_encode(b->data, b->len, &encoded);
    if (r < 0) {
        return err_wrap(e, r, "'%s'", path);
    }
    if (image) {
        json_array_append_new(c->content, json_pack("{s:s, s:s, s:s}", "type", "image", "data",
                                                    buf_str(&encoded), "mimeType", image));
        return 0;
    }
    uri = xasprintf("file://%s", path);
    json_array_append_new(c->content,
                          json_pack("{s:s, s:{s:s, s:s, s:s}}", "type", "resource", "resource",
                                    "uri", uri, "mimeType", "application/octet-stream", "blob",
                                    buf_str(&encoded)));
    return 0;
}

static int run_read_file(struct mcp_call *c, struct err *e)
{
    size_t max = (size_t)json_get_int(c->args, "max_bytes", READ_DEFAULT);
    cleanup_buf struct buf data = BUF_INIT(READ_MAX + 1);
    cleanup_free char *target = NULL;
    char id[ID_SIZE];
    bool more = false;
    int r = cli_sandbox_id(c->cli, arg(c, "sandbox"), id, e);

    r = r < 0 ? r : cli_target(id, "files", arg(c, "path"), arg(c, "user"), &target, e);
    r = r < 0 ? r : read_some(c, target, max, &data, &more, e);
    r = r < 0 ? r : say_bytes(c, arg(c, "path"), &data, e);
    if (r == 0 && more) {
        say(c, "[the file goes on: give a larger max_bytes, or read parts of it with a command]");
    }
    return r;
}

static int run_write_file(struct mcp_call *c, struct err *e)
{
    const char *text = arg(c, "content");
    const char *base64 = arg(c, "content_base64");
    cleanup_buf struct buf data = BUF_INIT(MCP_LINE_MAX);
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct http_call_opts opts = {.method = "PUT",
                                  .content_type = "application/octet-stream",
                                  .deadline_ns = deadline_in_ms(CALL_MS),
                                  .watch = &c->watch};
    cleanup_free char *target = NULL;
    cleanup_free char *answer = NULL;
    char id[ID_SIZE];
    size_t len = 0;
    json_t *json = NULL;
    int r;

    if (!text == !base64) {
        return err_set(e, -EINVAL, "invalid_request", "give one of 'content' and 'content_base64'");
    }
    r = text ? buf_add(&data, text, json_string_length(json_object_get(c->args, "content")))
             : base64_decode(base64, strlen(base64), &data);
    if (r < 0) {
        return err_set(e, -EINVAL, "invalid_request", "'content_base64' is not base64");
    }
    r = cli_sandbox_id(c->cli, arg(c, "sandbox"), id, e);
    r = r < 0 ? r : cli_target(id, "files", arg(c, "path"), arg(c, "user"), &target, e);
    if (r < 0) {
        return r;
    }
    opts.target = target;
    opts.body_length = (int64_t)data.len;
    r = http_call_new(c->cli->client, &opts, &call, e);
    if (r == 0 && data.len > 0) {
        r = http_call_write(call, data.data, data.len, e);
        r = r == -EPIPE ? 0 : r; /* the answer says why */
    }
    r = r < 0 ? r : http_call_check(call, e);
    r = r < 0 ? r : http_call_all(call, CLI_JSON_MAX, &answer, &len, e);
    r = r < 0 ? r : json_parse_object(answer, len, &json, e);
    if (r < 0) {
        return cli_explain(c->cli, e);
    }
    say_json_take(c, json);
    return 0;
}

static int run_list_files(struct mcp_call *c, struct err *e)
{
    cleanup_free char *what =
        xasprintf("files/list?depth=%lld&limit=1000", (long long)json_get_int(c->args, "depth", 1));
    cleanup_free char *target = NULL;
    char id[ID_SIZE];
    int r = cli_sandbox_id(c->cli, arg(c, "sandbox"), id, e);

    r = r < 0 ? r : cli_target(id, what, arg(c, "path"), arg(c, "user"), &target, e);
    return r < 0 ? r : ask_and_say(c, "GET", target + strlen("/v1/sandboxes/") + ID_LEN, NULL, e);
}

/* ---- time, ports ---- */

static int run_snapshot(struct mcp_call *c, struct err *e)
{
    static const char *const names[] = {"kind", "name", NULL};
    json_t *body = pick(c, names);

    if (!json_object_get(body, "kind")) {
        json_object_set_new(body, "kind", json_string("disk"));
    }
    return ask_and_say(c, "POST", "/snapshots", body, e);
}

static int run_fork(struct mcp_call *c, struct err *e)
{
    static const char *const names[] = {"count", "snapshot", NULL};

    return ask_and_say(c, "POST", "/fork", pick(c, names), e);
}

static int run_rollback(struct mcp_call *c, struct err *e)
{
    static const char *const names[] = {"snapshot", NULL};

    return ask_and_say(c, "POST", "/rollback", pick(c, names), e);
}

static int run_preview(struct mcp_call *c, struct err *e)
{
    cleanup_free char *rest = xasprintf("/ports/%lld", (long long)json_get_int(c->args, "port", 0));

    return ask_and_say(c, "GET", rest, NULL, e);
}

/* ---- the table ---- */

#define SANDBOX \
    { \
        "sandbox", "its id", JSON_REQUIRED, JSON_FIELD_STRING \
    }
#define PATH(flags_) \
    { \
        "path", "absolute, or relative to the user's home", flags_, JSON_FIELD_STRING \
    }
#define USER \
    { \
        "user", "act as this user (the template's)", 0, JSON_FIELD_STRING \
    }

/* clang-format off */
static const struct mcp_tool tools[] = {
    {"create", "Make a sandbox",
     "Makes an isolated Linux machine and waits until it runs. Its id is what the other tools want. It is deleted after "
     "timeout_s seconds (3600; 0: never).",
     {{"template", "what it starts from (debian)", 0, JSON_FIELD_STRING},
      {"vcpus", "virtual processors (1)", 0, JSON_FIELD_INT, 1, 8},
      {"memory_mib", "memory in MiB, a multiple of 64 (256)", 0, JSON_FIELD_INT, 128, 16384},
      {"disk_mib", "disk in MiB (4096)", 0, JSON_FIELD_INT, 64, 102400},
      {"env", "variables of every command", 0, JSON_FIELD_STRING_MAP},
      {"metadata", "labels to find it by", 0, JSON_FIELD_STRING_MAP},
      {"timeout_s", "seconds until it is deleted; 0: never (3600)", 0, JSON_FIELD_INT, 0, 315360000}},
     false, false, run_create},
    {"list", "List sandboxes", "All sandboxes of the key's project, newest first.", {{NULL}}, true, false, run_list},
    {"run", "Run a command",
     "Runs a command to its end and gives what it wrote and its exit code. Give 'command' for a line of /bin/sh, or "
     "'argv' for a program with its arguments. What a shell leaves in the background goes on; redirect its output, so "
     "that the call can end.",
     {SANDBOX,
      {"command", "a line for /bin/sh -c", 0, JSON_FIELD_STRING},
      {"argv", "the program and its arguments", 0, JSON_FIELD_ARRAY},
      {"cwd", "folder to run in (the user's home)", 0, JSON_FIELD_STRING},
      {"env", "more variables", 0, JSON_FIELD_STRING_MAP},
      {"stdin", "input as text", 0, JSON_FIELD_STRING},
      {"timeout_ms", "milliseconds until it is killed; 0: never (120000)", 0, JSON_FIELD_INT, 0, COMMAND_MS_MAX}},
     false, true, run_run},
    {"read_file", "Read a file", "Text comes as text, an image as an image, other bytes in base64.",
     {SANDBOX, PATH(JSON_REQUIRED), USER,
      {"max_bytes", "at most so much of it (262144)", 0, JSON_FIELD_INT, 1, READ_MAX}},
     true, false, run_read_file},
    {"write_file", "Write a file", "Replaces the whole file, or makes it and the folders above it. All of it or nothing.",
     {SANDBOX, PATH(JSON_REQUIRED), USER,
      {"content", "as text", 0, JSON_FIELD_STRING},
      {"content_base64", "as bytes, instead of content", 0, JSON_FIELD_STRING}},
     false, true, run_write_file},
    {"list_files", "List a folder", "Names, kinds, sizes and times of what is in it.",
     {SANDBOX, PATH(0), USER,
      {"depth", "so many levels below it (1)", 0, JSON_FIELD_INT, 1, 64}},
     true, false, run_list_files},
    {"snapshot", "Take a snapshot",
     "A point to go back to or to fork from. 'disk' holds files, 'full' also memory and running processes.",
     {SANDBOX,
      {"kind", "disk or full (disk)", 0, JSON_FIELD_STRING},
      {"name", "a name for it", 0, JSON_FIELD_STRING}},
     false, false, run_snapshot},
    {"fork", "Fork a sandbox",
     "Makes children that go on from where it is now, or from a snapshot: to try several ways at once.",
     {SANDBOX,
      {"count", "so many children (1)", 0, JSON_FIELD_INT, 1, 100},
      {"snapshot", "id of a snapshot to start from (the present)", 0, JSON_FIELD_STRING}},
     false, false, run_fork},
    {"rollback", "Go back to a snapshot",
     "The sandbox becomes what it was then; its id stays. The present is kept as a snapshot, named 'before' in the answer.",
     {SANDBOX, {"snapshot", "id of the snapshot", JSON_REQUIRED, JSON_FIELD_STRING}},
     false, true, run_rollback},
    {"preview", "Address of a server",
     "The address at which a browser reaches a server that listens on this port in the sandbox, loopback included.",
     {SANDBOX, {"port", "its TCP port", JSON_REQUIRED, JSON_FIELD_INT, 1, 65535}},
     true, false, run_preview},
    {"delete", "Delete a sandbox", "With its disk and its snapshots. There is no way back.",
     {SANDBOX}, false, true, run_delete},
};
/* clang-format on */

const struct mcp_tool *mcp_tool_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(tools); i++) {
        if (str_eq(tools[i].name, name)) {
            return &tools[i];
        }
    }
    return NULL;
}

static json_t *param_json(const struct mcp_param *p)
{
    static const char *const types[] = {
        [JSON_FIELD_STRING] = "string", [JSON_FIELD_INT] = "integer",
        [JSON_FIELD_BOOL] = "boolean",  [JSON_FIELD_OBJECT] = "object",
        [JSON_FIELD_ARRAY] = "array",   [JSON_FIELD_STRING_MAP] = "object",
    };
    json_t *schema = json_pack("{s:s, s:s}", "type", types[p->type], "description", p->about);

    ASSERT(schema);
    if (p->type == JSON_FIELD_INT) {
        json_object_set_new(schema, "minimum", json_integer(p->min));
        json_object_set_new(schema, "maximum", json_integer(p->max));
    } else if (p->type == JSON_FIELD_ARRAY) {
        json_object_set_new(schema, "items", json_pack("{s:s}", "type", "string"));
    } else if (p->type == JSON_FIELD_STRING_MAP) {
        json_object_set_new(schema, "additionalProperties", json_pack("{s:s}", "type", "string"));
    }
    return schema;
}

static json_t *tool_json(const struct mcp_tool *t)
{
    json_t *properties = json_object();
    json_t *required = json_array();
    json_t *out;

    for (const struct mcp_param *p = t->params; p < t->params + MCP_PARAMS_MAX && p->name; p++) {
        json_object_set_new(properties, p->name, param_json(p));
        if (p->flags & JSON_REQUIRED) {
            json_array_append_new(required, json_string(p->name));
        }
    }
    out = json_pack("{s:s, s:s, s:s, s:{s:s, s:o, s:o, s:b}, s:{s:b, s:b, s:b}}", "name", t->name,
                    "title", t->title, "description", t->about, "inputSchema", "type", "object",
                    "properties", properties, "required", required, "additionalProperties", 0,
                    "annotations", "readOnlyHint", t->read_only, "destructiveHint", t->destructive,
                    "openWorldHint", 0);
    ASSERT(out);
    return out;
}

json_t *mcp_tools_json(void)
{
    json_t *all = json_array();

    for (size_t i = 0; i < ARRAY_SIZE(tools); i++) {
        json_array_append_new(all, tool_json(&tools[i]));
    }
    return all;
}

int mcp_tool_check(const struct mcp_tool *t, json_t *args, struct err *e)
{
    struct json_field fields[MCP_PARAMS_MAX];
    size_t n = 0;
    int r;

    for (; n < MCP_PARAMS_MAX && t->params[n].name; n++) {
        fields[n] = (struct json_field){t->params[n].name, (enum json_field_type)t->params[n].type,
                                        t->params[n].flags};
    }
    r = json_check_object(args, fields, n, e);
    for (size_t i = 0; i < n && r == 0; i++) {
        const struct mcp_param *p = &t->params[i];
        int64_t value;

        if (p->type == JSON_FIELD_INT) {
            r = json_get_bounded(args, p->name, (struct json_bounds){p->min, p->max, p->min},
                                 &value, e);
        }
    }
    return r;
}

json_t *mcp_tool_run(const struct mcp_tool *t, struct cli *cli, json_t *args, struct pollfd watch)
{
    struct mcp_call c = {.cli = cli, .args = args, .watch = watch, .content = json_array()};
    struct err e = {0};
    json_t *result;
    int r = t->run(&c, &e);

    if (r == -ECANCELED && poll(&watch, 1, 0) > 0) {
        json_decref(c.content);
        json_decref(c.structured);
        return NULL;
    }
    if (r < 0) {
        cleanup_free char *words = xasprintf("%s: %s", err_reason(&e), e.msg);

        json_array_clear(c.content);
        say(&c, words);
    }
    result = json_pack("{s:o, s:b}", "content", c.content, "isError", r < 0);
    ASSERT(result);
    if (c.structured) {
        json_object_set_new(result, "structuredContent", c.structured);
    }
    return result;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs about templates: what the node has, and what the project builds. */
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/proc.h"
#include "cli/table.h"
#include "cli/template-file.h"
#include "cli/verbs.h"

#define HASH_SIZE 65
#define POLL_MS 300
#define TAR_MS (600 * 1000)
#define PASSWORD_MAX 16384u /* what the API takes */
#define LAYOUT "oci:"
#define PIECE (256u << 10)

static int failed(struct cli *cli, const struct err *e)
{
    ui_error(&cli->ui, e);
    return CLI_EXIT_FAILED;
}

/* "/v1/templates/NAME" + rest; the caller frees. */
static char *target_of(const char *name, const char *rest)
{
    cleanup_buf struct buf target = BUF_INIT(4096);
    int r = buf_add_str(&target, "/v1/templates/");

    r = r < 0 ? r : cli_encode(&target, name);
    r = r < 0 ? r : buf_add_str(&target, rest);
    return r < 0 ? xstrdup("/v1/templates/-") : buf_take(&target);
}

/* --- what COPY takes along --- */

/* Equal files make an equal archive. It has no name any more when this returns. */
static int pack(const char *context, const char *source, int *ret_fd, struct err *e)
{
    char path[] = "/tmp/space-template-XXXXXX";
    const char *const argv[] = {
        "/usr/bin/env", "tar",       "--create",        "--gzip",      "--sort=name", "--mtime=@0",
        "--owner=0",    "--group=0", "--numeric-owner", "--directory", context,       "--",
        source,         NULL};
    cleanup_close int fd = mkostemp(path, O_CLOEXEC);
    struct proc child;
    int status = 0;
    int r;

    if (fd < 0) {
        return err_wrap(e, -errno, "making a temporary file");
    }
    unlink(path);
    r = proc_spawn(
        &(struct proc_spec){
            .argv = argv, .stdin_fd = FD_NONE, .stdout_fd = fd, .stderr_fd = FD_NONE},
        &child, e);
    if (r == 0) {
        r = proc_wait(&child, deadline_in_ms(TAR_MS), &status);
        r = r < 0 ? err_wrap(e, r, "packing '%s'", source) : r;
    }
    if (r == 0 && status != 0) {
        return err_set(e, -EINVAL, "invalid_file", "'%s' beneath '%s' cannot be packed", source,
                       context);
    }
    if (r == 0) {
        *ret_fd = TAKE_FD(fd);
    }
    return r;
}

static int hash_of(int fd, char ret[static HASH_SIZE], struct err *e)
{
    cleanup_free char *data = xmalloc(PIECE);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    ssize_t n = 1;
    int ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 && lseek(fd, 0, SEEK_SET) == 0;

    while (ok && n > 0) {
        n = fs_read_full(fd, data, PIECE);
        ok = n >= 0 && EVP_DigestUpdate(ctx, data, (size_t)n) == 1;
    }
    ok = ok && EVP_DigestFinal_ex(ctx, digest, &len) == 1;
    EVP_MD_CTX_free(ctx);
    if (!ok) {
        return err_wrap(e, -EIO, "reading what was packed");
    }
    hex_encode(digest, len, ret);
    return 0;
}

static int send_file(struct cli *cli, int fd, const char *hash, struct err *e)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_free char *target = xasprintf("/v1/template-files/%s", hash);
    cleanup_free char *data = xmalloc(PIECE);
    struct stat st;
    ssize_t n = 1;
    int r = fstat(fd, &st) < 0 || lseek(fd, 0, SEEK_SET) < 0 ? -errno : 0;

    if (r < 0) {
        return err_wrap(e, r, "reading what was packed");
    }
    r = http_call_new(cli->client,
                      &(struct http_call_opts){.method = "PUT",
                                               .target = target,
                                               .content_type = "application/octet-stream",
                                               .body_length = (int64_t)st.st_size},
                      &call, e);
    while (r == 0 && n > 0) {
        n = fs_read_full(fd, data, PIECE);
        if (n < 0) {
            return err_wrap(e, (int)n, "reading what was packed");
        }
        r = n > 0 ? http_call_write(call, data, (size_t)n, e) : 0;
    }
    r = r < 0 ? r : http_call_end(call, e);
    r = r < 0 ? r : http_call_head(call, e);
    return r < 0 ? r : http_call_check(call, e);
}

static int send_files(struct cli *cli, const char *context, json_t *recipe, struct err *e)
{
    json_t *step;
    size_t i;

    json_array_foreach(json_object_get(recipe, "steps"), i, step)
    {
        const char *source = json_string_value(json_array_get(json_object_get(step, "args"), 0));
        cleanup_close int fd = FD_NONE;
        char hash[HASH_SIZE] = "";
        int r;

        if (!str_eq(json_get_string(step, "type", ""), "COPY")) {
            continue;
        }
        r = pack(context, source, &fd, e);
        r = r < 0 ? r : hash_of(fd, hash, e);
        r = r < 0 ? r : send_file(cli, fd, hash, e);
        if (r < 0) {
            return r;
        }
        json_object_set_new(step, "filesHash", json_string(hash));
    }
    return 0;
}

/* --- build --- */

static int read_recipe(const struct args *a, json_t **ret, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(TEMPLATE_FILE_MAX);
    cleanup_close int fd = FD_NONE;
    int r;

    if (!a->steps) {
        return template_file_parse("", ret, e);
    }
    fd = str_eq(a->steps, "-") ? fd_dup(STDIN_FILENO) : fs_open(a->steps, O_RDONLY, 0);
    r = fd < 0 ? fd : fs_read_fd(fd, &text);
    if (r < 0) {
        return err_wrap(e, r, "reading '%s'", a->steps);
    }
    return template_file_parse(buf_str(&text), ret, e);
}

static int put(json_t *body, const char *name, const char *text, struct err *e)
{
    json_t *value = NULL;
    int r = text ? cli_json_text(text, name, &value, e) : 0;

    if (value) {
        json_object_set_new(body, name, value);
    }
    return r;
}

static int body_of(const struct args *a, json_t *body, struct err *e)
{
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"vcpus", a->vcpus}, {"memory_mib", a->memory_mib}, {"disk_mib", a->disk_mib}};
    json_t *tags = json_array();
    int r = put(body, "name", a->operands[0], e);

    r = r < 0 ? r : put(body, "from", a->from, e);
    r = r < 0 ? r : put(body, "image", a->image, e);
    if (a->from || a->image) {
        json_object_del(body, a->from ? "image" : "from");
    } else if (!json_object_get(body, "from")) {
        r = r < 0 ? r : put(body, "from", "base", e);
    }
    for (size_t i = 0; i < a->tags.n && r == 0; i++) {
        json_t *tag = NULL;

        r = cli_json_text(a->tags.items[i], "tag", &tag, e);
        if (tag) {
            json_array_append_new(tags, tag);
        }
    }
    json_object_set_new(body, "tags", tags);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        if (numbers[i].value > 0) {
            json_object_set_new(body, numbers[i].name, json_integer((json_int_t)numbers[i].value));
        }
    }
    if (a->force) {
        json_object_set_new(body, "force", json_true());
    }
    return r;
}

/* "oci:DIR[:TAG]" is packed and sent, and named by its hash then. */
static int send_layout(struct cli *cli, json_t *recipe, struct err *e)
{
    const char *image = json_get_string(recipe, "image", "");
    cleanup_free char *folder = NULL;
    cleanup_free char *sent = NULL;
    cleanup_close int fd = FD_NONE;
    char hash[HASH_SIZE] = "";
    struct stat st;
    char *colon;
    int r;

    if (!str_starts(image, LAYOUT)) {
        return 0;
    }
    folder = xstrdup(image + strlen(LAYOUT));
    colon = stat(folder, &st) < 0 ? strrchr(folder, ':') : NULL;
    if (colon) {
        *colon = '\0';
    }
    r = pack(folder, ".", &fd, e);
    r = r < 0 ? r : hash_of(fd, hash, e);
    r = r < 0 ? r : send_file(cli, fd, hash, e);
    sent = xasprintf("oci-archive:%s%s%s", hash, colon ? ":" : "", colon ? colon + 1 : "");
    json_object_set_new(recipe, "image", json_string(sent));
    return r;
}

/* The first line of the file. */
static int put_registry(const struct args *a, json_t *body, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(PASSWORD_MAX);
    cleanup_close int fd = FD_NONE;
    json_t *registry;
    char *line;
    int r;

    if (!a->registry_user || !a->registry_password_file) {
        return !a->registry_user && !a->registry_password_file
                   ? 0
                   : err_set(e, -EINVAL, "usage",
                             "'--registry-user' and '--registry-password-file' go together");
    }
    fd = str_eq(a->registry_password_file, "-") ? fd_dup(STDIN_FILENO)
                                                : fs_open(a->registry_password_file, O_RDONLY, 0);
    r = fd < 0 ? fd : fs_read_fd(fd, &text);
    if (r < 0) {
        return err_wrap(e, r, "reading '%s'", a->registry_password_file);
    }
    line = buf_take(&text);
    line[strcspn(line, "\r\n")] = '\0';
    registry = json_pack("{s:s, s:s}", "username", a->registry_user, "password", line);
    explicit_bzero(line, strlen(line));
    free(line);
    if (!registry) {
        return err_set(e, -EINVAL, "usage", "the registry's user or password is not UTF-8");
    }
    json_object_set_new(body, "registry", registry);
    return 0;
}

static void print_log(const struct cli *cli, json_t *entries)
{
    json_t *entry;
    size_t i;

    json_array_foreach(entries, i, entry)
    {
        if (!cli->args->quiet) {
            fprintf(stderr, "%s\n", json_get_string(entry, "message", ""));
        }
    }
}

/* Until it has ended and all of its log has been shown; *ret is its object then. */
static int follow(struct cli *cli, const char *template, const char *build, json_t **ret,
                  struct err *e)
{
    size_t offset = 0;

    for (;;) {
        cleanup_free char *rest = xasprintf("/builds/%s?log_offset=%zu", build, offset);
        cleanup_free char *target = target_of(template, rest);
        cleanup_json json_t *now = NULL;
        const char *status;
        size_t n;
        int r = cli_call(cli, "GET", target, /* body */ NULL, &now, e);

        if (r < 0) {
            return r;
        }
        status = json_get_string(now, "status", "");
        n = json_array_size(json_object_get(now, "log"));
        print_log(cli, json_object_get(now, "log"));
        offset += n;
        if (n == 0 && (str_eq(status, "ready") || str_eq(status, "failed"))) {
            *ret = json_incref(now);
            return 0;
        }
        if (n == 0) {
            poll(NULL, 0, POLL_MS); /* the API has no event for it */
        }
    }
}

int verb_template_build(struct cli *cli)
{
    const struct args *a = cli->args;
    cleanup_json json_t *recipe = NULL;
    cleanup_json json_t *begun = NULL;
    cleanup_json json_t *ended = NULL;
    struct err e = {0};
    int r = read_recipe(a, &recipe, &e);

    r = r < 0 ? r : body_of(a, recipe, &e);
    r = r < 0 ? r : put_registry(a, recipe, &e);
    r = r < 0 ? r : cli_connect(cli, &e);
    r = r < 0 ? r : send_layout(cli, recipe, &e);
    r = r < 0 ? r : send_files(cli, a->context ? a->context : ".", recipe, &e);
    r = r < 0 ? r : cli_call(cli, "POST", "/v1/templates", recipe, &begun, &e);
    r = r < 0 ? r
              : follow(cli, json_get_string(begun, "template", ""),
                       json_get_string(begun, "build", ""), &ended, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (a->json) {
        cli_print_json(cli, ended);
    } else if (str_eq(json_get_string(ended, "status", ""), "ready")) {
        printf("%s\n", json_get_string(begun, "name", ""));
    }
    return str_eq(json_get_string(ended, "status", ""), "ready") ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}

/* --- the others --- */

int verb_template_rm(struct cli *cli)
{
    struct err e = {0};
    int code = CLI_EXIT_OK;
    int r = cli_connect(cli, &e);

    if (r < 0) {
        return failed(cli, &e);
    }
    for (size_t i = 0; i < cli->args->n_operands; i++) {
        cleanup_free char *target = target_of(cli->args->operands[i], "");

        r = cli_call(cli, "DELETE", target, /* body */ NULL, /* ret */ NULL, &e);
        if (r < 0 && !(r == -ENOENT && cli->args->force)) {
            code = failed(cli, &e);
        } else if (r == 0) {
            printf("%s\n", cli->args->operands[i]);
        }
    }
    return code;
}

static void print_builds(const struct cli *cli, json_t *shown)
{
    static const struct table_column columns[] = {{.title = "BUILD"},
                                                  {.title = "STATUS"},
                                                  {.title = "TAGS"},
                                                  {.title = "SANDBOX"},
                                                  {.title = "WHY", .cut = true}};
    struct table t;
    json_t *build;
    json_t *tag;
    size_t i;
    size_t k;

    table_init(&t, columns, ARRAY_SIZE(columns));
    json_array_foreach(json_object_get(shown, "build_list"), i, build)
    {
        cleanup_buf struct buf tags = BUF_INIT(2048);
        const char *id = json_get_string(build, "id", "");

        json_array_foreach(json_object_get(shown, "tags"), k, tag)
        {
            if (str_eq(json_get_string(tag, "build", ""), id) &&
                buf_printf(&tags, "%s%s", tags.len ? "," : "", json_get_string(tag, "tag", "")) <
                    0) {
                break;
            }
        }
        table_cell(&t, id);
        table_cell(&t, json_get_string(build, "status", NULL));
        table_cell(&t, buf_str(&tags));
        table_cell(&t, json_get_string(build, "sandbox", NULL));
        table_cell(&t, json_get_string(json_object_get(build, "reason"), "message", NULL));
    }
    table_print(&t, &cli->ui, stdout, ui_width(&cli->ui));
    table_done(&t);
}

int verb_template_inspect(struct cli *cli)
{
    cleanup_free char *target = target_of(cli->args->operands[0], "");
    cleanup_json json_t *shown = NULL;
    struct err e = {0};
    int r = cli_connect(cli, &e);

    r = r < 0 ? r : cli_call(cli, "GET", target, /* body */ NULL, &shown, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, shown);
    } else {
        print_builds(cli, shown);
    }
    return CLI_EXIT_OK;
}

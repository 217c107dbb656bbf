/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/conf.h"

#include <fcntl.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"

#define CONF_TAIL "space/config.json"

char *conf_path_root(void)
{
    const struct passwd *pw = getpwuid(0);

    return xasprintf("%s/.config/" CONF_TAIL, pw && !str_empty(pw->pw_dir) ? pw->pw_dir : "/root");
}

char *conf_path(void)
{
    const char *xdg = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");

    if (xdg && xdg[0] == '/') {
        return xasprintf("%s/" CONF_TAIL, xdg);
    }
    if (str_empty(home)) {
        const struct passwd *pw = getpwuid(getuid());

        home = pw ? pw->pw_dir : NULL;
    }
    return str_empty(home) ? NULL : xasprintf("%s/.config/" CONF_TAIL, home);
}

int conf_read(const char *path, struct conf *ret, struct err *e)
{
    static const struct json_field fields[] = {
        {"url", JSON_FIELD_STRING, 0},
        {"key", JSON_FIELD_STRING, 0},
        {"ca_file", JSON_FIELD_STRING, 0},
    };
    cleanup_buf struct buf text = BUF_INIT(CONF_FILE_MAX);
    cleanup_json json_t *doc = NULL;
    cleanup_close int fd = FD_NONE;
    struct stat st;
    const char *s;
    int r;

    fd = fs_open(path, O_RDONLY, 0);
    if (fd == -ENOENT || fd == -ENOTDIR) {
        return err_set(e, -ENOENT, NULL, "there is no file '%s'", path);
    }
    if (fd < 0) {
        return err_wrap(e, fd, "opening '%s'", path);
    }
    if (fstat(fd, &st) < 0) {
        return err_wrap(e, -errno, "reading '%s'", path);
    }
    r = fs_read_fd(fd, &text);
    if (r < 0) {
        return err_wrap(e, r, "reading '%s'", path);
    }
    r = json_parse_object(text.data, text.len, &doc, e);
    if (r < 0) {
        return err_wrap(e, r, "reading '%s'", path);
    }
    r = json_check_object(doc, fields, ARRAY_SIZE(fields), e);
    if (r < 0) {
        return err_wrap(e, r, "reading '%s'", path);
    }
    *ret = (struct conf){.exposed = (st.st_mode & 077) != 0};
    s = json_get_string(doc, "url", NULL);
    ret->url = s ? xstrdup(s) : NULL;
    s = json_get_string(doc, "key", NULL);
    ret->key = s ? xstrdup(s) : NULL;
    s = json_get_string(doc, "ca_file", NULL);
    ret->ca_file = s ? xstrdup(s) : NULL;
    return 0;
}

/* The user's own file; for root also root's own home when sudo kept another HOME. */
static int conf_read_default(struct conf *ret, struct err *e)
{
    cleanup_free char *path = conf_path();
    cleanup_free char *root_path = NULL;
    int r = path ? conf_read(path, ret, e) : -ENOENT;

    if (r != -ENOENT || geteuid() != 0) {
        return r;
    }
    root_path = conf_path_root();
    return conf_read(root_path, ret, e);
}

static const char *conf_env(const char *name)
{
    const char *value = getenv(name);

    return str_empty(value) ? NULL : value;
}

static void conf_replace(char **place, const char *value)
{
    if (value) {
        free(*place);
        *place = xstrdup(value);
    }
}

int conf_load(const char *url, const char *key, struct conf *ret, struct err *e)
{
    struct conf file = {0};
    struct err file_error = {0};
    int r;

    url = url ? url : conf_env("SPACE_URL");
    if (!key && conf_env("SPACE_API_KEY")) {
        key = conf_env("SPACE_API_KEY");
        ret->key_from = "SPACE_API_KEY";
    } else {
        ret->key_from = key ? "--key" : "the configuration file";
    }
    r = conf_read_default(&file, &file_error);
    if (r < 0 && r != -ENOENT && !(url && key)) {
        if (e) {
            *e = file_error;
        }
        return r;
    }
    if (url && file.url && !str_eq(url, file.url)) {
        free(TAKE_PTR(file.key));
    }
    conf_replace(&file.url, url);
    conf_replace(&file.key, key);
    conf_replace(&file.ca_file, conf_env("SPACE_CA_FILE"));
    if (!file.url) {
        file.url = xstrdup(CONF_URL_DEFAULT);
    }
    ret->url = file.url;
    ret->key = file.key;
    ret->ca_file = file.ca_file;
    ret->exposed = file.exposed && file.key && !key;
    return 0;
}

void conf_done(struct conf *conf)
{
    free(conf->url);
    free(conf->key);
    free(conf->ca_file);
    *conf = (struct conf){0};
}

int conf_save(const char *path, const char *url, const char *key, struct err *e)
{
    const char *slash = strrchr(path, '/');
    cleanup_free char *dir = slash ? xstrndup(path, (size_t)(slash - path)) : xstrdup(".");
    cleanup_json json_t *doc = json_pack("{s:s, s:s}", "url", url, "key", key);
    cleanup_free char *text = NULL;
    cleanup_close int dir_fd = FD_NONE;
    int r;

    ASSERT(doc);
    r = fs_mkdir_all(dir, 0700);
    if (r < 0) {
        return err_wrap(e, r, "making '%s'", dir);
    }
    dir_fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
    if (dir_fd < 0) {
        return err_wrap(e, dir_fd, "opening '%s'", dir);
    }
    text = json_dumps(doc, JSON_INDENT(2));
    ASSERT(text);
    r = fs_write_file_durable(dir_fd, slash ? slash + 1 : path, text, strlen(text), 0600);
    return r < 0 ? err_wrap(e, r, "writing '%s'", path) : 0;
}

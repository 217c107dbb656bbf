/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/template.h"

#include "base/fs.h"
#include "base/json.h"
#include "model/names.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MANIFEST_MAX (1024u * 1024)

void template_done(struct template *t)
{
    json_decref(t->manifest);
    fd_close(t->disk_fd);
    *t = (struct template){.disk_fd = FD_NONE};
}

static int read_manifest(int dir_fd, struct template *t, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_MAX);
    int r = fs_read_file(dir_fd, "manifest.json", &text);

    if (r == 0) {
        r = json_parse_object(buf_str(&text), text.len, &t->manifest, e);
    }
    if (r == 0) {
        r = str_copy(t->default_user, sizeof(t->default_user),
                     json_get_string(t->manifest, "default_user", "root"));
    }
    if (r == 0) {
        r = str_copy(t->fstype, sizeof(t->fstype), json_get_string(t->manifest, "fstype", "ext4"));
    }
    return r < 0 ? err_wrap(e, r, "reading the manifest of template '%s'", t->name) : 0;
}

static int open_disk(int dir_fd, struct template *t, struct err *e)
{
    struct stat st;

    t->disk_fd = fs_open_beneath(dir_fd, "disk.img", O_RDONLY, 0);
    if (t->disk_fd < 0 || fstat(t->disk_fd, &st) < 0) {
        return err_wrap(e, t->disk_fd < 0 ? t->disk_fd : -errno,
                        "opening the disk of template '%s'", t->name);
    }
    t->size_bytes = (uint64_t)st.st_size;
    return 0;
}

static int not_found(const struct node *node, const char *name, struct err *e)
{
    cleanup_buf struct buf names = BUF_INIT(200);
    cleanup_json json_t *list = NULL;
    json_t *entry;
    size_t i;

    if (template_list(node, &list, NULL) == 0) {
        json_array_foreach(list, i, entry)
        {
            if (buf_printf(&names, "%s'%s'", i ? ", " : "", json_get_string(entry, "name", "")) <
                0) {
                break;
            }
        }
    }
    return err_field(e, -ENOENT, "template_not_found", "template",
                     "there is no template '%.60s' here; there is: %s", name,
                     names.len ? buf_str(&names) : "none yet ('space template build' makes one)");
}

int template_open(const struct node *node, const char *name, struct template *ret, struct err *e)
{
    cleanup_template struct template t = {.disk_fd = FD_NONE};
    cleanup_close int dir_fd = FD_NONE;
    int r;

    if (!template_name_valid(name) || str_copy(t.name, sizeof(t.name), name) < 0) {
        return not_found(node, name, e);
    }
    dir_fd = fs_open_beneath(node->templates_fd, name, O_RDONLY | O_DIRECTORY, 0);
    if (dir_fd < 0) {
        return dir_fd == -ENOENT ? not_found(node, name, e)
                                 : err_wrap(e, dir_fd, "opening template '%s'", name);
    }
    r = read_manifest(dir_fd, &t, e);
    if (r == 0) {
        r = open_disk(dir_fd, &t, e);
    }
    if (r < 0) {
        return r;
    }
    *ret = t;
    t = (struct template){.disk_fd = FD_NONE};
    return 0;
}

int template_fit_disk(const struct node *node, struct template *t, uint64_t bytes, struct err *e)
{
    static const uint64_t grown_mib[] = TEMPLATE_GROWN_MIB; /* the largest first */

    for (size_t i = 0; i < ARRAY_SIZE(grown_mib); i++) {
        char name[128];
        int fd;

        if (grown_mib[i] << 20 > bytes || grown_mib[i] << 20 <= t->size_bytes) {
            continue;
        }
        snprintf(name, sizeof(name), "%s/disk-%llu.img", t->name, (unsigned long long)grown_mib[i]);
        fd = fs_open_beneath(node->templates_fd, name, O_RDONLY, 0);
        if (fd >= 0) {
            fd_close(t->disk_fd);
            t->disk_fd = fd;
            return 0;
        }
        if (fd != -ENOENT) {
            return err_wrap(e, fd, "opening the disk of template '%s'", t->name);
        }
    }
    return 0;
}

void template_open_or_default(const struct node *node, const char *name, struct template *ret)
{
    if (template_open(node, name, ret, NULL) < 0) {
        *ret = (struct template){.disk_fd = FD_NONE, .default_user = "root", .fstype = "ext4"};
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static size_t read_names(DIR *dir, char **names, size_t max)
{
    struct dirent *entry;
    size_t n = 0;

    while (n < max && (entry = readdir(dir))) {
        if (template_name_valid(entry->d_name)) {
            names[n++] = xstrdup(entry->d_name);
        }
    }
    qsort(names, n, sizeof(*names), by_name);
    return n;
}

int template_list(const struct node *node, json_t **ret, struct err *e)
{
    int fd = openat(node->templates_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    char *names[1024];
    json_t *list;
    size_t n;

    if (!dir) {
        fd_close(fd);
        return err_wrap(e, -errno, "listing templates");
    }
    n = read_names(dir, names, ARRAY_SIZE(names));
    closedir(dir);
    list = json_array();
    for (size_t i = 0; i < n; i++) {
        struct template t = {.disk_fd = FD_NONE};

        if (template_open(node, names[i], &t, NULL) == 0) {
            json_t *entry = json_copy(t.manifest);

            json_object_set_new(entry, "name", json_string(t.name));
            json_object_set_new(entry, "size_bytes", json_integer((json_int_t)t.size_bytes));
            json_array_append_new(list, entry);
        }
        template_done(&t);
        free(names[i]);
    }
    *ret = list;
    return 0;
}

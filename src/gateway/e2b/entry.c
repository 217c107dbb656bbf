/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/e2b/entry.h"

#include <stdio.h>
#include <string.h>

/* As Go's FileMode prints it: one letter for each thing that it is, then the permissions. */
static void permissions_of(const char *type, unsigned mode, char ret[static 16])
{
    static const char bits[] = "rwxrwxrwx";
    static const struct {
        const char *type;
        const char *letters;
    } types[] = {{"dir", "d"},    {"symlink", "L"}, {"fifo", "p"},
                 {"socket", "S"}, {"char", "Dc"},   {"block", "D"}};
    char *p = ret;

    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        for (const char *l = str_eq(types[i].type, type) ? types[i].letters : ""; *l; l++) {
            *p++ = *l;
        }
    }
    if (mode & 04000) {
        *p++ = 'u';
    }
    if (mode & 02000) {
        *p++ = 'g';
    }
    if (mode & 01000) {
        *p++ = 't';
    }
    if (p == ret) {
        *p++ = '-';
    }
    for (int i = 0; i < 9; i++) {
        *p++ = mode & (1u << (8 - i)) ? bits[i] : '-';
    }
    *p = '\0';
}

static const char *type_of(const char *type)
{
    if (str_eq(type, "file")) {
        return "FILE_TYPE_FILE";
    }
    if (str_eq(type, "dir")) {
        return "FILE_TYPE_DIRECTORY";
    }
    return NULL; /* absent: unspecified */
}

static unsigned mode_of(const char *text)
{
    unsigned mode = 0;

    return sscanf(text, "%5o", &mode) == 1 ? mode & 07777 : 0;
}

/* Of a link: what it leads to, and where that is, when the daemon could tell. */
static void set_target(json_t *shown, json_t *entry)
{
    json_t *to = json_object_get(entry, "resolved");
    const char *type = type_of(json_get_string(to, "type", ""));

    if (type) {
        json_object_set_new(shown, "type", json_string(type));
        json_object_set_new(shown, "mode",
                            json_integer(mode_of(json_get_string(to, "mode", "")) & 0777));
    }
    if (json_is_string(json_object_get(to, "path"))) {
        json_object_set(shown, "symlinkTarget", json_object_get(to, "path"));
    } else if (json_is_string(json_object_get(entry, "target"))) {
        json_object_set(shown, "symlinkTarget", json_object_get(entry, "target"));
    }
}

json_t *e2b_entry(json_t *entry)
{
    const char *name = json_get_string(entry, "name", NULL);
    const char *path = json_get_string(entry, "path", NULL);
    const char *type = json_get_string(entry, "type", "");
    unsigned mode = mode_of(json_get_string(entry, "mode", ""));
    json_t *metadata = json_object_get(entry, "metadata");
    char permissions[16];
    char modified[E2B_TIME_SIZE];
    char size[24];
    json_t *shown;

    if (!name || !path) {
        return NULL;
    }
    permissions_of(type, mode, permissions);
    e2b_time(json_get_int(entry, "mtime_ms", 0), modified);
    snprintf(size, sizeof(size), "%lld", (long long)json_get_int(entry, "size", 0));
    shown = json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:s}", "name", name, "path", path,
                      "size", size, "mode", (int)(mode & 0777), "permissions", permissions, "owner",
                      json_get_string(entry, "owner", ""), "group",
                      json_get_string(entry, "group", ""), "modifiedTime", modified);
    ASSERT(shown);
    if (type_of(type)) {
        json_object_set_new(shown, "type", json_string(type_of(type)));
    }
    if (str_eq(type, "symlink")) {
        set_target(shown, entry);
    }
    if (json_object_size(metadata) > 0) {
        json_object_set(shown, "metadata", metadata);
    }
    return shown;
}

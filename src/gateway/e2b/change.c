/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/e2b/change.h"

static const struct {
    const char *ours;
    const char *theirs;
    bool is_there;
} types[] = {
    {"create", "EVENT_TYPE_CREATE", true},
    {"write", "EVENT_TYPE_WRITE", true},
    {"chmod", "EVENT_TYPE_CHMOD", true},
    {"remove", "EVENT_TYPE_REMOVE", false},
};

static struct fs_change change(const char *type, const char *name, const char *path)
{
    return (struct fs_change){type, name[0] ? name : ".", path};
}

bool fs_change_is_ready(json_t *line)
{
    return str_eq(json_get_string(line, "type", ""), "ready");
}

int fs_changes_of(json_t *line, struct fs_change ret[static FS_CHANGES_MAX], struct err *e)
{
    const char *type = json_get_string(line, "type", "");
    const char *name = json_get_string(line, "name", "");

    if (str_eq(type, "overflow")) {
        return err_set(e, -EIO, "events_lost",
                       "there were more events than could be told: look for yourself and watch "
                       "again");
    }
    if (str_eq(type, "rename")) {
        ret[0] = change("EVENT_TYPE_RENAME", name, NULL);
        ret[1] = change("EVENT_TYPE_CREATE", json_get_string(line, "to_name", ""),
                        json_get_string(line, "to", NULL));
        return 2;
    }
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        if (str_eq(types[i].ours, type)) {
            ret[0] = change(types[i].theirs, name,
                            types[i].is_there ? json_get_string(line, "path", NULL) : NULL);
            return 1;
        }
    }
    return 0;
}

json_t *fs_change_event(const struct fs_change *c)
{
    json_t *event = json_pack("{s:s, s:s}", "name", c->name, "type", c->type);

    ASSERT(event); /* the strings were JSON before */
    return event;
}

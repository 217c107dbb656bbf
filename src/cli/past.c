/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/past.h"

#include <string.h>

#include "base/json.h"

/* Where to go on: in this sandbox, from this snapshot on; "": from the present on. */
struct place {
    char sandbox[ID_SIZE];
    char snapshot[ID_SIZE];
};

/* The list is newest first, and a parent is always older than its child. */
static void add_path(json_t *path, json_t *list, const struct place *at)
{
    const char *want = at->snapshot[0] ? at->snapshot : NULL;
    json_t *s;
    size_t i;

    json_array_foreach(list, i, s)
    {
        const char *id = json_get_string(s, "id", "");
        bool on_path = want ? str_eq(id, want) : json_get_bool(s, "past", true);

        if (!on_path || !id_valid(ID_SNAPSHOT, id)) {
            continue;
        }
        json_object_set_new(s, "sandbox", json_string(at->sandbox));
        json_array_insert(path, 0, s);
        if (want) {
            want = json_get_string(s, "parent", "");
        }
    }
}

/* False: the path begins here. */
static bool go_on(json_t *answer, struct place *at)
{
    json_t *origin = json_object_get(answer, "origin");
    const char *sandbox = json_get_string(origin, "sandbox", "");
    const char *snapshot = json_get_string(origin, "snapshot", "");

    if (!id_valid(ID_SANDBOX, sandbox) || !id_valid(ID_SNAPSHOT, snapshot)) {
        return false;
    }
    memcpy(at->sandbox, sandbox, sizeof(at->sandbox));
    memcpy(at->snapshot, snapshot, sizeof(at->snapshot));
    return true;
}

int past_read(struct scratch *scratch, const char *sandbox, json_t **ret, struct err *e)
{
    cleanup_json json_t *path = json_array();
    struct place at = {0};
    bool more = true;
    int r = str_copy(at.sandbox, sizeof(at.sandbox), sandbox);

    for (unsigned i = 0; r == 0 && more && i < PAST_FORKS_MAX; i++) {
        cleanup_free char *target = xasprintf("/v1/sandboxes/%s/snapshots", at.sandbox);
        cleanup_json json_t *answer = NULL;

        r = scratch_call(scratch, "GET", target, /* body */ NULL, &answer, e);
        if (r == -ENOENT && i > 0) {
            r = 0; /* the parent has gone meanwhile */
            break;
        }
        if (r == 0) {
            add_path(path, json_object_get(answer, "snapshots"), &at);
            more = go_on(answer, &at);
        }
    }
    if (r == 0) {
        *ret = TAKE_PTR(path);
    }
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/named.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>

#include "base/fs.h"
#include "base/id.h"
#include "credential/credential.h"

#define NAME "secrets.json"
#define FILE_MAX (64u * 1024 * 1024)

struct named {
    pthread_mutex_t lock; /* guards all below */
    int dir_fd;           /* owned */
    json_t *items;        /* owned; in the order of their names */
};

static const char *text_of(const json_t *item, const char *field)
{
    const char *text = json_string_value(json_object_get(item, field));

    return text ? text : "";
}

/* ---- the file ---- */

static int named_write(struct named *n, json_t *items, struct err *e)
{
    cleanup_json json_t *doc = json_pack("{s:i, s:O}", "version", 1, "secrets", items);
    cleanup_free char *text = json_text(doc);
    size_t len = strlen(text);
    int r;

    if (len > FILE_MAX) { /* it could not be read again */
        return err_set(e, -EDQUOT, "too_many_secrets", "there is no room for more secrets");
    }
    r = fs_write_file_durable(n->dir_fd, NAME, text, len, 0600);
    return r < 0 ? err_wrap(e, r, "writing '" NAME "'") : 0;
}

static bool item_valid(json_t *item)
{
    return json_is_object(item) && id_valid(ID_SECRET, text_of(item, "id")) &&
           id_valid(ID_ORGANISATION, text_of(item, "organisation")) &&
           id_valid(ID_PROJECT, text_of(item, "project")) &&
           credential_name_valid(text_of(item, "name")) && text_of(item, "ref")[0] &&
           json_is_object(json_object_get(item, "metadata")) &&
           json_get_int(item, "version", 0) > 0;
}

static int named_read(struct named *n, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(FILE_MAX);
    cleanup_json json_t *doc = NULL;
    json_t *list;
    json_t *item;
    size_t i;
    int r = fs_read_file(n->dir_fd, NAME, &text);

    if (r == -ENOENT) {
        n->items = json_array();
        return 0;
    }
    r = r < 0 ? r : json_parse_object(text.data, text.len, &doc, e);
    if (r < 0) {
        return err_wrap(e, r, "reading '" NAME "'");
    }
    list = json_object_get(doc, "secrets");
    if (json_get_int(doc, "version", 0) != 1 || !json_is_array(list) ||
        json_array_size(list) > NAMED_MAX) {
        return err_set(e, -EBADMSG, NULL, "'" NAME "' is of another version or damaged");
    }
    json_array_foreach(list, i, item)
    {
        if (!item_valid(item)) {
            return err_set(e, -EBADMSG, NULL, "number %zu in '" NAME "' is damaged", i);
        }
    }
    n->items = json_incref(list);
    return 0;
}

int named_open(const char *dir, struct named **ret, struct err *e)
{
    CLEANUP(named_freep) struct named *n = xnew(struct named);
    int r;

    pthread_mutex_init(&n->lock, NULL);
    n->dir_fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
    if (n->dir_fd < 0) {
        return err_wrap(e, n->dir_fd, "opening '%s'", dir);
    }
    r = named_read(n, e);
    if (r == 0) {
        *ret = TAKE_PTR(n);
    }
    return r;
}

void named_free(struct named *n)
{
    if (n) {
        json_decref(n->items);
        n->dir_fd = fd_close(n->dir_fd);
        pthread_mutex_destroy(&n->lock);
        free(n);
    }
}

/* ---- changes; with the lock held ---- */

static bool same_project(const json_t *a, const json_t *b)
{
    return str_eq(text_of(a, "organisation"), text_of(b, "organisation")) &&
           str_eq(text_of(a, "project"), text_of(b, "project"));
}

/* The list as it is to be is written first, and is the list from then on. */
static int replace_take(struct named *n, json_t *items_take, struct err *e)
{
    int r = named_write(n, items_take, e);

    json_decref(r < 0 ? items_take : n->items);
    if (r == 0) {
        n->items = items_take;
    }
    return r;
}

static int add_locked(struct named *n, json_t *item, struct err *e)
{
    size_t of_project = 0;
    size_t at = 0;
    json_t *other;
    json_t *items;
    size_t i;

    json_array_foreach(n->items, i, other)
    {
        bool mine = same_project(other, item);
        int order = strcmp(text_of(other, "name"), text_of(item, "name"));

        if (mine && order == 0) {
            return err_set(e, -EEXIST, "secret_exists", "there is a secret '%s' already",
                           text_of(item, "name"));
        }
        at = order < 0 ? i + 1 : at;
        of_project += mine;
    }
    if (of_project >= NAMED_PROJECT_MAX || json_array_size(n->items) >= NAMED_MAX) {
        return err_set(e, -EDQUOT, "too_many_secrets", "there are %u secrets already",
                       of_project >= NAMED_PROJECT_MAX ? NAMED_PROJECT_MAX : NAMED_MAX);
    }
    items = json_copy(n->items);
    json_array_insert_new(items, at, json_deep_copy(item));
    return replace_take(n, items, e);
}

/* Where the one with this id is; as many as there are: nowhere. */
static size_t place_of(const struct named *n, const char *id)
{
    size_t i = 0;

    while (i < json_array_size(n->items) &&
           !str_eq(text_of(json_array_get(n->items, i), "id"), id)) {
        i++;
    }
    return i;
}

static int not_found(struct err *e)
{
    return err_set(e, -ENOENT, "secret_not_found", "there is no such secret");
}

static int change_locked(struct named *n, json_t *item, struct err *e)
{
    size_t at = place_of(n, text_of(item, "id"));
    json_t *was = json_array_get(n->items, at);
    json_t *items;

    if (!was) {
        return not_found(e);
    }
    if (json_get_int(item, "version", 0) != json_get_int(was, "version", 0) + 1) {
        return err_set(e, -EBUSY, "secret_changed",
                       "somebody else has just changed this secret: try again");
    }
    items = json_copy(n->items);
    json_array_set_new(items, at, json_deep_copy(item));
    return replace_take(n, items, e);
}

static int remove_locked(struct named *n, const char *id, struct err *e)
{
    size_t at = place_of(n, id);
    json_t *items;

    if (at == json_array_size(n->items)) {
        return not_found(e);
    }
    items = json_copy(n->items);
    json_array_remove(items, at);
    return replace_take(n, items, e);
}

int named_add(struct named *n, json_t *item, struct err *e)
{
    int r;

    ASSERT(item_valid(item));
    pthread_mutex_lock(&n->lock);
    r = add_locked(n, item, e);
    pthread_mutex_unlock(&n->lock);
    return r;
}

int named_change(struct named *n, json_t *item, struct err *e)
{
    int r;

    ASSERT(item_valid(item));
    pthread_mutex_lock(&n->lock);
    r = change_locked(n, item, e);
    pthread_mutex_unlock(&n->lock);
    return r;
}

int named_remove(struct named *n, const char *id, struct err *e)
{
    int r;

    pthread_mutex_lock(&n->lock);
    r = remove_locked(n, id, e);
    pthread_mutex_unlock(&n->lock);
    return r;
}

/* ---- questions ---- */

static bool owned_by(const json_t *item, const struct named_owner *owner)
{
    return str_eq(text_of(item, "organisation"), owner->organisation) &&
           str_eq(text_of(item, "project"), owner->project);
}

int named_find(struct named *n, const struct named_owner *owner, const char *which, json_t **ret,
               struct err *e)
{
    json_t *found = NULL;
    json_t *item;
    size_t i;

    pthread_mutex_lock(&n->lock);
    json_array_foreach(n->items, i, item)
    {
        if (owned_by(item, owner) &&
            (str_eq(text_of(item, "id"), which) || strcasecmp(text_of(item, "name"), which) == 0)) {
            found = json_deep_copy(item);
            break;
        }
    }
    pthread_mutex_unlock(&n->lock);
    if (!found) {
        return not_found(e);
    }
    *ret = found;
    return 0;
}

json_t *named_list(struct named *n, const struct named_owner *owner, const char *after,
                   size_t limit, bool *ret_more)
{
    json_t *list = json_array();
    bool more = false;
    json_t *item;
    size_t i;

    pthread_mutex_lock(&n->lock);
    json_array_foreach(n->items, i, item)
    {
        if (more || !owned_by(item, owner) || strcmp(text_of(item, "name"), after) <= 0) {
            continue;
        }
        more = json_array_size(list) >= limit;
        if (!more) {
            json_array_append_new(list, named_public(item));
        }
    }
    pthread_mutex_unlock(&n->lock);
    *ret_more = more;
    return list;
}

json_t *named_public(const json_t *item)
{
    json_t *copy = json_deep_copy(item);

    json_object_del(copy, "organisation");
    json_object_del(copy, "project");
    json_object_del(copy, "ref");
    return copy;
}

int named_metadata_valid(json_t *metadata, struct err *e)
{
    size_t total = 0;
    const char *key;
    json_t *value;

    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value) || strlen(key) > NAMED_KEY_MAX ||
            json_string_length(value) > NAMED_VALUE_MAX) {
            return err_field(e, -EINVAL, "invalid_field", "metadata",
                             "'metadata' has strings only, keys of at most %u and values of at "
                             "most %u bytes",
                             NAMED_KEY_MAX, NAMED_VALUE_MAX);
        }
        total += strlen(key) + json_string_length(value);
    }
    if (json_object_size(metadata) > NAMED_PAIRS_MAX || total > NAMED_METADATA_MAX) {
        return err_field(e, -EINVAL, "invalid_field", "metadata",
                         "'metadata' has at most %u entries and %u bytes", NAMED_PAIRS_MAX,
                         NAMED_METADATA_MAX);
    }
    return 0;
}

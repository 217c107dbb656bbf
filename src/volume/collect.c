/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/collect.h"

#include "base/clock.h"
#include "base/log.h"
#include "volume/archive-internal.h"

#include <stdio.h>
#include <string.h>

#define OBJECTS_MAX 4000000u /* of one organisation; 500 MiB of names */
#define CONDEMNED_BYTES_MAX (COLLECT_CONDEMNED_MAX * (STORE_KEY_MAX + 8u))

struct visit {
    struct archive *a;
    char organisation[ID_SIZE];
    uint64_t now_ms;
    uint64_t grace_ms;
    struct seen {
        char *key; /* owned */
        uint64_t size;
        uint64_t modified_ms;
    } * objects; /* owned */
    size_t n;
    size_t room;
    json_t *live;          /* owned: object, key -> true */
    struct condemned then; /* owned: what an earlier visit wrote */
    struct collect_result *result;
};

static void visit_done(struct visit *v)
{
    for (size_t i = 0; i < v->n; i++) {
        free(v->objects[i].key);
    }
    free(v->objects);
    json_decref(v->live);
    condemned_done(&v->then);
}

/* ---- the list of the condemned ---- */

void condemned_done(struct condemned *c)
{
    json_decref(c->names);
    *c = (struct condemned){0};
}

static void condemned_key(const char *organisation, char ret[static STORE_KEY_MAX + 1])
{
    snprintf(ret, STORE_KEY_MAX + 1, "%s/condemned.json", organisation);
}

static int condemned_parse(const struct buf *text, struct condemned *ret)
{
    static const struct json_field fields[] = {{"since_ms", JSON_FIELD_INT, JSON_REQUIRED},
                                               {"again_ms", JSON_FIELD_INT, JSON_REQUIRED},
                                               {"names", JSON_FIELD_ARRAY, JSON_REQUIRED}};
    cleanup_json json_t *root = NULL;
    json_t *name;
    size_t i;

    if (json_parse_object(text->data, text->len, &root, NULL) < 0 ||
        json_check_object(root, fields, ARRAY_SIZE(fields), NULL) < 0) {
        return -EBADMSG;
    }
    ret->since_ms = (uint64_t)MAX(json_get_int(root, "since_ms", 0), (int64_t)0);
    ret->again_ms = (uint64_t)MAX(json_get_int(root, "again_ms", 0), (int64_t)0);
    json_array_foreach(json_object_get(root, "names"), i, name)
    {
        if (!json_is_string(name)) {
            return -EBADMSG;
        }
        json_object_set_new(ret->names, json_string_value(name), json_true());
    }
    return 0;
}

int condemned_load(struct archive *a, const char *organisation, struct condemned *ret,
                   struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(CONDEMNED_BYTES_MAX);
    char key[STORE_KEY_MAX + 1];
    struct err why = {0};
    int r;

    *ret = (struct condemned){.names = json_object()};
    condemned_key(organisation, key);
    r = store_get(a->store, key, &text, &why);
    if (r == -ENOENT) {
        return 0;
    }
    if (r == 0 && condemned_parse(&text, ret) < 0) {
        r = err_set(&why, -EBADMSG, "list_damaged", "'%s' in the object store is damaged", key);
    }
    if (r < 0) {
        condemned_done(ret);
        err_copy(e, &why);
    }
    return r;
}

bool condemned_may_reuse(void *condemned, const struct store_object *object)
{
    const struct condemned *c = condemned;

    /* What was put again since lives. */
    return object->modified_ms > c->again_ms || !json_object_get(c->names, object->key);
}

static int condemned_save(const struct visit *v, json_t *names, struct err *e)
{
    cleanup_json json_t *root =
        json_pack("{s:I, s:I, s:O}", "since_ms", (json_int_t)v->now_ms, "again_ms",
                  (json_int_t)(v->now_ms - v->grace_ms / 2), "names", names);
    cleanup_buf struct buf text = BUF_INIT(CONDEMNED_BYTES_MAX);
    char key[STORE_KEY_MAX + 1];
    int r;

    condemned_key(v->organisation, key);
    if (json_array_size(names) == 0) {
        return store_remove(v->a->store, key, e);
    }
    r = json_write(root, &text);
    return r < 0 ? err_wrap(e, r, "writing '%s'", key)
                 : store_put(v->a->store, key, text.data, text.len, e);
}

/* ---- what lives ---- */

static void live(struct visit *v, const char *folder, const char *name, const char *end)
{
    cleanup_free char *key = xasprintf("%s/%s/%s%s", v->organisation, folder, name, end);

    json_object_set_new(v->live, key, json_true());
}

static int mark_manifest(struct visit *v, const char *key, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_BYTES_MAX);
    cleanup_manifest_outside struct manifest_outside o = {0};
    struct err why = {0};
    int r = store_get(v->a->store, key, &text, &why);

    if (r == -ENOENT) {
        return 0; /* forgotten since it was listed */
    }
    if (r == 0) {
        r = manifest_read_outside(text.data, text.len, &o, &why);
    }
    if (r < 0) {
        err_copy(e, &why);
        return err_wrap(e, r, "reading '%s'", key);
    }
    live(v, "keys", o.key_id, "");
    for (size_t i = 0; i < o.n_chunks; i++) {
        live(v, "chunks", o.chunks[i], "");
    }
    for (size_t i = 0; i < o.n_images; i++) {
        live(v, "images", o.images[i], ".json");
    }
    return 0;
}

static bool is_in(const struct visit *v, const struct seen *o, const char *folder)
{
    const char *rest = o->key + strlen(v->organisation) + 1;

    return str_starts(rest, folder);
}

static bool is_young(const struct visit *v, const struct seen *o)
{
    return o->modified_ms + v->grace_ms >= v->now_ms;
}

/* Sandboxes first: they say which images live. */
static int mark_all(struct visit *v, struct err *e)
{
    int r = 0;

    live(v, "keys", "tenant", "");
    for (size_t i = 0; i < v->n && r == 0; i++) {
        if (is_in(v, &v->objects[i], "sandboxes/")) {
            json_object_set_new(v->live, v->objects[i].key, json_true());
            r = mark_manifest(v, v->objects[i].key, e);
        }
    }
    for (size_t i = 0; i < v->n && r == 0; i++) {
        const struct seen *o = &v->objects[i];

        if (is_in(v, o, "images/") && (is_young(v, o) || json_object_get(v->live, o->key))) {
            r = mark_manifest(v, o->key, e);
        }
    }
    return r;
}

/* ---- what does not ---- */

static bool may_go(const struct visit *v, const struct seen *o)
{
    bool is_ours = is_in(v, o, "chunks/") || is_in(v, o, "images/") || is_in(v, o, "keys/");

    return is_ours && !is_young(v, o) && !json_object_get(v->live, o->key);
}

/* It may have been put again since it was listed. */
static int remove_one(struct visit *v, const struct seen *o, struct err *e)
{
    struct store_object now;
    struct err why = {0};
    int r = store_stat(v->a->store, o->key, &now, &why);

    if (r == -ENOENT) {
        return 0;
    }
    if (r == 0 && now.modified_ms <= v->then.again_ms) {
        r = store_remove(v->a->store, o->key, &why);
        v->result->removed += r == 0;
        v->result->removed_bytes += r == 0 ? o->size : 0;
    }
    if (r < 0) {
        err_copy(e, &why);
    }
    return r;
}

static int judge(struct visit *v, struct err *e)
{
    cleanup_json json_t *names = json_array();
    int r = 0;

    for (size_t i = 0; i < v->n && r == 0; i++) {
        const struct seen *o = &v->objects[i];

        if (!may_go(v, o)) {
            continue;
        }
        if (json_object_get(v->then.names, o->key) && o->modified_ms <= v->then.again_ms) {
            r = remove_one(v, o, e);
        } else if (json_array_size(names) < COLLECT_CONDEMNED_MAX) {
            json_array_append_new(names, json_string(o->key));
        }
    }
    v->result->condemned += json_array_size(names);
    return r < 0 ? r : condemned_save(v, names, e);
}

static int see(void *ctx, const struct store_object *object)
{
    struct visit *v = ctx;

    if (v->n == OBJECTS_MAX) {
        return -E2BIG;
    }
    if (v->n == v->room) {
        v->room = MAX(v->room * 2, (size_t)256);
        v->objects = xrealloc(v->objects, v->room * sizeof(*v->objects));
    }
    v->objects[v->n++] = (struct seen){xstrdup(object->key), object->size, object->modified_ms};
    return 0;
}

static int visit_organisation(struct archive *a, const char *organisation, const struct visit *like,
                              struct err *e)
{
    CLEANUP(visit_done)
    struct visit v = {.a = a,
                      .now_ms = like->now_ms,
                      .grace_ms = like->grace_ms,
                      .live = json_object(),
                      .result = like->result};
    cleanup_free char *prefix = xasprintf("%s/", organisation);
    int r;

    ASSERT(str_copy(v.organisation, sizeof(v.organisation), organisation) == 0);
    r = condemned_load(a, organisation, &v.then, e);
    if (r < 0 || (json_object_size(v.then.names) > 0 && v.then.since_ms + v.grace_ms > v.now_ms)) {
        return r; /* too early */
    }
    r = store_list(a->store, prefix, see, &v, e);
    v.result->objects += v.n;
    if (r == 0) {
        r = mark_all(&v, e);
    }
    return r < 0 ? r : judge(&v, e);
}

/* ---- all of them ---- */

static int add_organisation(void *ctx, const struct store_object *object)
{
    char id[ID_SIZE];

    snprintf(id, sizeof(id), "%.*s", ID_LEN, object->key);
    if (id_valid(ID_ORGANISATION, id) && object->key[ID_LEN] == '/') {
        json_object_set_new(ctx, id, json_true());
    }
    return 0;
}

int collect_at(struct archive *a, uint64_t now_ms, uint64_t grace_ms, struct collect_result *ret,
               struct err *e)
{
    const struct visit like = {.now_ms = now_ms, .grace_ms = grace_ms, .result = ret};
    cleanup_json json_t *organisations = json_object();
    const char *id;
    json_t *value;
    int r = store_list(a->store, "", add_organisation, organisations, e);

    *ret = (struct collect_result){0};
    json_object_foreach(organisations, id, value)
    {
        if (r == 0) {
            r = visit_organisation(a, id, &like, e);
        }
    }
    return r < 0 ? err_wrap(e, r, "collecting what nobody needs") : 0;
}

int collect(struct archive *a, struct collect_result *ret, struct err *e)
{
    return collect_at(a, clock_wall_ms(), COLLECT_GRACE_MS, ret, e);
}

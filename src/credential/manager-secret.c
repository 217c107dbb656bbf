/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets of projects (named.h): their life, and what credentials that refer to them get. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "credential/manager.h"

/* Of E2B's ids, which clients tell from names by it. */
#define RESERVED_PREFIX "sec_"

static struct named_owner owner_of(const struct manager_actor *who)
{
    return (struct named_owner){who->organisation, who->project};
}

static int record(struct manager *m, const char *event, const struct manager_actor *who,
                  json_t *item, struct err *e)
{
    struct audit_row row = {
        .event = event,
        .organisation = who->organisation,
        .project = who->project,
        .key = who->key,
        .credential = json_get_string(item, "name", ""),
        .credential_id = json_get_string(item, "id", ""),
    };

    return audit_add(m->audit, &row, /* durable */ true, e);
}

/* Left behind, it harms nobody. */
static void drop_value(struct manager *m, json_t *item)
{
    struct err e = {0};

    if (vault_remove(m->vaults[0], json_get_string(item, "ref", ""), &e) < 0) {
        log_warn(NULL, "a value of the secret '%s' stays in the vault, ignoring: %s",
                 json_get_string(item, "name", ""), e.msg);
    }
}

/* Into the vault, under a reference of its own, which goes into the item. */
static int put_value(struct manager *m, json_t *item, json_t *text, struct err *e)
{
    cleanup_secret struct secret value = {0};
    const char *bytes = json_string_value(text);
    size_t len = json_string_length(text);
    cleanup_free char *ref = NULL;
    unsigned char random[8];
    char hex[2 * sizeof(random) + 1];
    int r;

    if (len < CREDENTIAL_VALUE_MIN || len > CREDENTIAL_VALUE_MAX || strlen(bytes) != len) {
        return err_field(e, -EINVAL, "invalid_field", "value",
                         "a value has %u to %u bytes, none of them NUL", CREDENTIAL_VALUE_MIN,
                         CREDENTIAL_VALUE_MAX);
    }
    r = secret_init(&value, bytes, len);
    if (r < 0) {
        return err_wrap(e, r, "keeping the value");
    }
    random_bytes(random, sizeof(random));
    hex_encode(random, sizeof(random), hex);
    ref = xasprintf("%s/%s/%s", json_get_string(item, "organisation", ""),
                    json_get_string(item, "id", ""), hex);
    json_object_set_new(item, "ref", json_string(ref));
    return vault_put(m->vaults[0], ref, &value, e);
}

static int read_name(const char *text, char ret[static CREDENTIAL_NAME_SIZE], struct err *e)
{
    if (!credential_name_valid(text) || strncasecmp(text, RESERVED_PREFIX, 4) == 0) {
        return err_field(e, -EINVAL, "invalid_field", "name",
                         "a secret's name has 1 to %u letters, digits, '-', '_' and '.', begins "
                         "with a letter or digit, and not with '" RESERVED_PREFIX "'",
                         CREDENTIAL_NAME_SIZE - 1);
    }
    snprintf(ret, CREDENTIAL_NAME_SIZE, "%s", text);
    for (char *s = ret; *s; s++) {
        *s = (char)tolower((unsigned char)*s);
    }
    return 0;
}

static json_t *metadata_of(json_t *body)
{
    json_t *metadata = json_object_get(body, "metadata");

    return json_is_object(metadata) ? metadata : NULL;
}

int manager_secret_add(struct manager *m, const struct manager_actor *who, json_t *body,
                       json_t **ret, struct err *e)
{
    static const struct json_field fields[] = {
        {"name", JSON_FIELD_STRING, JSON_REQUIRED},
        {"value", JSON_FIELD_STRING, JSON_REQUIRED},
        {"metadata", JSON_FIELD_OBJECT, JSON_NULLABLE},
    };
    cleanup_json json_t *item = NULL;
    char name[CREDENTIAL_NAME_SIZE];
    json_int_t now_ms = (json_int_t)clock_wall_ms();
    char id[ID_SIZE];
    int r = json_check_object(body, fields, ARRAY_SIZE(fields), e);

    r = r < 0 ? r : read_name(json_get_string(body, "name", ""), name, e);
    r = r < 0 ? r : named_metadata_valid(metadata_of(body), e);
    if (r < 0) {
        return r;
    }
    id_new(ID_SECRET, id);
    item = json_pack("{s:s, s:s, s:s, s:s, s:i, s:I, s:I, s:o}", "id", id, "organisation",
                     who->organisation, "project", who->project, "name", name, "version", 1,
                     "created_at_ms", now_ms, "updated_at_ms", now_ms, "metadata",
                     metadata_of(body) ? json_deep_copy(metadata_of(body)) : json_object());
    r = put_value(m, item, json_object_get(body, "value"), e);
    if (r < 0) {
        return r;
    }
    r = record(m, "add", who, item, e);
    r = r < 0 ? r : named_add(m->named, item, e);
    if (r < 0) {
        drop_value(m, item);
        return r;
    }
    *ret = named_public(item);
    return 0;
}

int manager_secret_get(struct manager *m, const struct manager_actor *who, const char *which,
                       json_t **ret, struct err *e)
{
    struct named_owner owner = owner_of(who);
    cleanup_json json_t *item = NULL;
    int r = named_find(m->named, &owner, which, &item, e);

    if (r == 0) {
        *ret = named_public(item);
    }
    return r;
}

json_t *manager_secret_list(struct manager *m, const struct manager_actor *who, const char *after,
                            size_t limit, bool *ret_more)
{
    struct named_owner owner = owner_of(who);

    return named_list(m->named, &owner, after, limit, ret_more);
}

/* The credentials that refer to it: does the value fit each (text), or must what was made of it go (no text)? */
static int each_use(struct manager *m, json_t *item, json_t *text, struct err *e)
{
    struct credential *list = NULL;
    size_t n = store_list(m->store, json_get_string(item, "organisation", ""),
                          json_get_string(item, "project", ""), &list);
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        if (!str_eq(list[i].vault, MANAGER_VAULT_SECRET) ||
            strcasecmp(list[i].ref, json_get_string(item, "name", "")) != 0) {
            continue;
        }
        if (text) {
            r = credential_value_valid(&list[i], json_string_value(text), json_string_length(text),
                                       e);
        } else {
            tokens_forget(m->tokens, list[i].id);
        }
    }
    free(list);
    return r;
}

int manager_secret_change(struct manager *m, const struct manager_actor *who, json_t *body,
                          json_t **ret, struct err *e)
{
    static const struct json_field fields[] = {
        {"secret", JSON_FIELD_STRING, JSON_REQUIRED},
        {"value", JSON_FIELD_STRING, JSON_REQUIRED},
        {"metadata", JSON_FIELD_OBJECT, JSON_NULLABLE},
    };
    struct named_owner owner = owner_of(who);
    cleanup_json json_t *before = NULL;
    cleanup_json json_t *item = NULL;
    json_t *text = json_object_get(body, "value");
    int r = json_check_object(body, fields, ARRAY_SIZE(fields), e);

    r = r < 0 ? r : named_metadata_valid(metadata_of(body), e);
    r = r < 0 ? r : named_find(m->named, &owner, json_get_string(body, "secret", ""), &before, e);
    r = r < 0 ? r : each_use(m, before, text, e);
    if (r < 0) {
        return r;
    }
    item = json_deep_copy(before);
    json_object_set_new(item, "version", json_integer(json_get_int(before, "version", 0) + 1));
    json_object_set_new(item, "updated_at_ms", json_integer((json_int_t)clock_wall_ms()));
    if (metadata_of(body)) {
        json_object_set_new(item, "metadata", json_deep_copy(metadata_of(body)));
    }
    r = put_value(m, item, text, e);
    if (r < 0) {
        return r;
    }
    r = record(m, "rotate", who, item, e);
    r = r < 0 ? r : named_change(m->named, item, e);
    if (r < 0) {
        drop_value(m, item);
        return r;
    }
    IGNORE_RESULT(each_use(m, item, /* text */ NULL, NULL)); /* checks nothing */
    drop_value(m, before);
    *ret = named_public(item);
    return 0;
}

int manager_secret_remove(struct manager *m, const struct manager_actor *who, const char *which,
                          json_t **ret, struct err *e)
{
    struct named_owner owner = owner_of(who);
    cleanup_json json_t *item = NULL;
    int r = named_find(m->named, &owner, which, &item, e);

    r = r < 0 ? r : record(m, "remove", who, item, e);
    r = r < 0 ? r : named_remove(m->named, json_get_string(item, "id", ""), e);
    if (r == 0) {
        IGNORE_RESULT(each_use(m, item, /* text */ NULL, NULL)); /* checks nothing */
        drop_value(m, item);
        *ret = named_public(item);
    }
    return r;
}

/* ---- what credentials get ---- */

/* A change between the look at the list and the one into the vault has put the value elsewhere. */
#define TRIES 3

int manager_secret_value(struct manager *m, const struct credential *c, struct secret *ret,
                         struct err *e)
{
    struct named_owner owner = {c->organisation, c->project};
    int r = -ENOENT;

    for (unsigned i = 0; i < TRIES && r == -ENOENT; i++) {
        cleanup_json json_t *item = NULL;

        if (named_find(m->named, &owner, c->ref, &item, NULL) < 0) {
            return err_set(e, -ENOENT, "secret_not_found", "there is no secret '%.60s'", c->ref);
        }
        r = vault_get(m->vaults[0], json_get_string(item, "ref", ""), ret, e);
    }
    return r;
}

int manager_secret_settle(struct manager *m, const struct credential *c, struct err *e)
{
    cleanup_secret struct secret value = {0};
    int r;

    if (c->scope == CREDENTIAL_ORGANISATION) {
        return err_field(e, -EINVAL, "invalid_field", "vault",
                         "secrets are a project's: a credential of the organisation has none");
    }
    if (c->inject.refresh) {
        return err_field(e, -EINVAL, "invalid_field", "inject.refresh",
                         "a refresh token changes with its use: it cannot be a secret that others "
                         "use, too");
    }
    r = manager_secret_value(m, c, &value, e);
    if (r == -ENOENT) {
        return err_field(e, -EINVAL, "invalid_field", "ref", "there is no secret '%.60s'", c->ref);
    }
    return r < 0 ? r : credential_value_valid(c, value.p, value.len, e);
}

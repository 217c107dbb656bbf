/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/manager.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"

/* ---- life ---- */

static int hold_state_dir(struct manager *m, struct err *e)
{
    cleanup_free char *path = xasprintf("%s/credential.lock", m->state_dir);

    m->lock_fd = fs_open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
    if (m->lock_fd < 0) {
        return err_wrap(e, m->lock_fd, "opening '%s' (--state-dir)", path);
    }
    if (flock(m->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        return err_set(e, -EBUSY, "state_dir_in_use",
                       "another credential manager runs on '%s': stop it, or give another "
                       "--state-dir",
                       m->state_dir);
    }
    return 0;
}

static int open_vaults(struct manager *m, const struct manager_opts *opts, struct err *e)
{
    cleanup_free char *dir = xasprintf("%s/vault", m->state_dir);
    cleanup_free char *own_key = xasprintf("%s/credential.key", m->state_dir);
    CLEANUP(seal_key_done) struct seal_key key = {0};
    int r;

    r = seal_key_load(opts->key_file ? opts->key_file : own_key, /* create */ !opts->key_file, &key,
                      e);
    r = r < 0 ? r : vault_sealed_new(dir, &key, &m->vaults[0], e);
    m->n_vaults = r < 0 ? 0 : 1;
    if (r == 0 && opts->env_prefix) {
        m->vaults[m->n_vaults++] = vault_env_new(opts->env_prefix);
    }
    if (r == 0 && opts->exec) {
        m->vaults[m->n_vaults++] = vault_exec_new(opts->exec);
    }
    if (r == 0 && opts->kv.url) {
        r = vault_kv_new(&opts->kv, &m->vaults[m->n_vaults], e);
        m->n_vaults += r == 0;
    }
    return r;
}

int manager_open(const struct manager_opts *opts, struct manager **ret, struct err *e)
{
    CLEANUP(manager_freep) struct manager *m = xnew(struct manager);
    int r;

    m->lock_fd = FD_NONE;
    pthread_mutex_init(&m->ssh_lock, NULL);
    m->state_dir = xstrdup(opts->state_dir);
    r = hold_state_dir(m, e);
    r = r < 0 ? r : open_vaults(m, opts, e);
    r = r < 0 ? r : audit_open(m->state_dir, &m->audit, e);
    r = r < 0 ? r : store_open(m->state_dir, &m->store, e);
    r = r < 0 ? r : named_open(m->state_dir, &m->named, e);
    if (r < 0) {
        return r;
    }
    m->outside = opts->outside;
    m->authority = authority_new(m->vaults[0]);
    m->tokens = tokens_new(&opts->outside);
    *ret = TAKE_PTR(m);
    return 0;
}

void manager_free(struct manager *m)
{
    if (m) {
        authority_free(m->authority);
        tokens_free(m->tokens);
        store_free(m->store);
        named_free(m->named);
        audit_free(m->audit);
        for (size_t i = 0; i < m->n_vaults; i++) {
            vault_free(m->vaults[i]);
        }
        m->lock_fd = fd_close(m->lock_fd);
        pthread_mutex_destroy(&m->ssh_lock);
        free(m->state_dir);
        free(m);
    }
}

static struct vault *vault_named(const struct manager *m, const char *name)
{
    for (size_t i = 0; i < m->n_vaults; i++) {
        if (str_eq(m->vaults[i]->driver->name, name)) {
            return m->vaults[i];
        }
    }
    return NULL;
}

/* ---- changes ---- */

static int record(struct manager *m, const char *event, const struct manager_actor *who,
                  const struct credential *c, struct err *e)
{
    struct audit_row row = {
        .event = event,
        .organisation = c->organisation,
        .project = c->project,
        .sandbox = c->sandbox,
        .key = who->key,
        .credential = c->name,
        .credential_id = c->id,
        .host = c->target.host,
        .port = c->target.port,
    };

    return audit_add(m->audit, &row, /* durable */ true, e);
}

/* A place of its own for each version of a value: the old one stays until nobody refers to it. */
static void new_ref(struct credential *c)
{
    unsigned char bytes[8];
    char hex[2 * sizeof(bytes) + 1];

    random_bytes(bytes, sizeof(bytes));
    hex_encode(bytes, sizeof(bytes), hex);
    snprintf(c->ref, sizeof(c->ref), "%s/%s/%s", c->organisation, c->id, hex);
}

static int put_value(struct manager *m, struct credential *c, json_t *text, struct err *e)
{
    struct vault *v = vault_named(m, c->vault);
    cleanup_secret struct secret value = {0};
    int r = credential_value_valid(c, json_string_value(text), json_string_length(text), e);

    if (r < 0) {
        return r;
    }
    r = secret_init(&value, json_string_value(text), json_string_length(text));
    if (r < 0) {
        return err_wrap(e, r, "keeping the value");
    }
    new_ref(c);
    c->ours = true;
    return vault_put(v, c->ref, &value, e);
}

/* Where the value comes from: out of the body into a vault, or by reference, which is tried. */
static int settle_value(struct manager *m, struct credential *c, json_t *body, struct err *e)
{
    json_t *text = json_object_get(body, "value");
    cleanup_secret struct secret value = {0};
    struct vault *v;
    int r;

    if (!c->vault[0]) {
        snprintf(c->vault, sizeof(c->vault), "sealed");
    }
    v = vault_named(m, c->vault);
    if (!v && !str_eq(c->vault, MANAGER_VAULT_SECRET)) {
        return err_field(e, -EINVAL, "invalid_field", "vault", "there is no vault '%s' here",
                         c->vault);
    }
    if ((text != NULL) == (c->ref[0] != '\0')) {
        return err_field(e, -EINVAL, "invalid_field", "value",
                         "give either a 'value' or a 'ref' to one in a vault");
    }
    if (!v) {
        return text ? err_field(e, -EINVAL, "invalid_field", "ref",
                                "'ref' must be the name of a secret")
                    : manager_secret_settle(m, c, e);
    }
    if (text) {
        return put_value(m, c, text, e);
    }
    if (v == m->vaults[0]) {
        return err_field(e, -EINVAL, "invalid_field", "ref",
                         "the vault 'sealed' chooses its own references: give a 'value'");
    }
    r = vault_get(v, c->ref, &value, e);
    if (r == -ENOENT) {
        return err_field(e, -EINVAL, "invalid_field", "ref", "the vault '%s' has no such value",
                         c->vault);
    }
    return r < 0 ? r : credential_value_valid(c, value.p, value.len, e);
}

/* The value of a credential that is gone or has another one now. Left behind, it harms nobody. */
static void drop_value(struct manager *m, const struct credential *c)
{
    struct vault *v = vault_named(m, c->vault);
    struct err e = {0};

    if (c->ours && v && vault_remove(v, c->ref, &e) < 0) {
        log_warn(NULL, "a value of '%s' stays in the vault, ignoring: %s", c->name, e.msg);
    }
}

static int may_touch(const struct manager_actor *who, const struct credential *c, struct err *e)
{
    if (!who->whole_organisation && c->scope == CREDENTIAL_ORGANISATION) {
        return err_set(e, -EPERM, "organisation_key_needed",
                       "credentials of the organisation need a key with the scope 'organisation'");
    }
    return 0;
}

int manager_add(struct manager *m, const struct manager_actor *who, json_t *body, json_t **ret,
                struct err *e)
{
    struct credential c = {0};
    int r = credential_from_json(body, &c, e);

    if (r < 0) {
        return r;
    }
    id_new(ID_CREDENTIAL, c.id);
    snprintf(c.organisation, sizeof(c.organisation), "%s", who->organisation);
    snprintf(c.project, sizeof(c.project), "%s",
             c.scope == CREDENTIAL_ORGANISATION ? "" : who->project);
    c.created_at_ms = c.rotated_at_ms = (int64_t)clock_wall_ms();
    r = may_touch(who, &c, e);
    r = r < 0 ? r : settle_value(m, &c, body, e);
    if (r < 0) {
        return r;
    }
    r = record(m, "add", who, &c, e);
    r = r < 0 ? r : store_add(m->store, &c, e);
    if (r < 0) {
        drop_value(m, &c);
        return r;
    }
    *ret = credential_json(&c, /* private */ false);
    return 0;
}

static int find(struct manager *m, const struct manager_actor *who, const char *id,
                struct credential *ret, struct err *e)
{
    return store_find(m->store, id, who->organisation,
                      who->whole_organisation ? NULL : who->project, ret, e);
}

int manager_change(struct manager *m, const struct manager_actor *who, const char *id, json_t *body,
                   json_t **ret, struct err *e)
{
    json_t *text = json_object_get(body, "value");
    struct credential before;
    struct credential c;
    int r = find(m, who, id, &before, e);

    if (r < 0) {
        return r;
    }
    c = before;
    r = may_touch(who, &c, e);
    r = r < 0 ? r : credential_patch(body, &c, e);
    if (r == 0 && text) {
        if (!c.ours) {
            return err_field(
                e, -EINVAL, "invalid_field", "value",
                "this value is kept in the vault '%s' by somebody else: change it there", c.vault);
        }
        r = put_value(m, &c, text, e);
        c.rotated_at_ms = MAX((int64_t)clock_wall_ms(), before.rotated_at_ms + 1);
    }
    if (r < 0) {
        return r;
    }
    r = record(m, text ? "rotate" : "change", who, &c, e);
    r = r < 0 ? r : store_change(m->store, &c, e);
    if (r < 0 && text) {
        drop_value(m, &c);
    }
    if (r == 0) {
        tokens_forget(m->tokens, c.id);
        if (text) {
            drop_value(m, &before);
        }
        *ret = credential_json(&c, /* private */ false);
    }
    return r;
}

int manager_remove(struct manager *m, const struct manager_actor *who, const char *id,
                   struct err *e)
{
    struct credential c;
    int r = find(m, who, id, &c, e);

    r = r < 0 ? r : may_touch(who, &c, e);
    r = r < 0 ? r : record(m, "remove", who, &c, e);
    r = r < 0 ? r : store_remove(m->store, id, e);
    if (r == 0) {
        tokens_forget(m->tokens, id);
        drop_value(m, &c);
    }
    return r;
}

int manager_get(struct manager *m, const struct manager_actor *who, const char *id, json_t **ret,
                struct err *e)
{
    struct credential c;
    int r = find(m, who, id, &c, e);

    if (r == 0) {
        *ret = credential_json(&c, /* private */ false);
    }
    return r;
}

json_t *manager_list(struct manager *m, const struct manager_actor *who)
{
    struct credential *list = NULL;
    size_t n = store_list(m->store, who->organisation,
                          who->whole_organisation ? NULL : who->project, &list);
    json_t *array = json_array();

    for (size_t i = 0; i < n; i++) {
        json_array_append_new(array, credential_json(&list[i], /* private */ false));
    }
    free(list);
    return array;
}

int manager_authority(struct manager *m, const char *organisation, struct buf *ret, struct err *e)
{
    struct audit_row row = {.event = "authority", .organisation = organisation};
    bool made = false;
    int r = authority_certificate(m->authority, organisation, ret, &made, e);

    return r < 0 || !made ? r : audit_add(m->audit, &row, /* durable */ true, e);
}

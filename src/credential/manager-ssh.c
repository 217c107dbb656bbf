/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logging in with SSH. The network gateway opens the connection to the host, checks the host's key against what the credential says,
 * and asks here for the one signature that the login needs. What is signed is read first: a login of the credential's user with
 * the credential's key, and nothing else that a key could sign. The key stays in this process.
 *
 * The guest's end of such a connection shows a host key of its organisation's, which is made at first need. It says who we are to
 * guests that cannot reach anybody else, so the gateway gets all of it.
 */
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/log.h"
#include "credential/manager.h"
#include "credential/ssh-key.h"

#define SERVICE "ssh-connection"

static struct audit_row row_of(const struct credential_request *q, const char *event,
                               const struct credential *c)
{
    return (struct audit_row){
        .event = event,
        .organisation = q->organisation,
        .project = q->project,
        .sandbox = q->sandbox,
        .credential = c ? c->name : NULL,
        .credential_id = c ? c->id : NULL,
        .host = q->host,
        .port = q->port,
        .method = "SSH",
        .path = c ? c->inject.user : "",
    };
}

static int refused(struct manager *m, const struct credential_request *q,
                   const struct credential *c, const struct err *why)
{
    struct audit_row row = row_of(q, "refuse", c);
    struct err e = {0};

    row.reason = err_reason(why);
    if (audit_add(m->audit, &row, /* durable */ false, &e) < 0) {
        log_error(NULL, "a refusal is not recorded: %s", e.msg);
    }
    return why->code;
}

/* The credential, while it is good. */
static int find(struct manager *m, const struct credential_request *q, struct credential *ret,
                struct err *e)
{
    if (store_ssh(m->store, q, ret) < 0) {
        return err_set(e, -ENOENT, "credential_not_found", "no credential for %s port %u", q->host,
                       q->port);
    }
    if (ret->expires_at_ms && ret->expires_at_ms <= (int64_t)clock_wall_ms()) {
        struct err why = {0};

        err_set(&why, -EACCES, "credential_expired", "the credential '%s' has expired", ret->name);
        if (e) {
            *e = why;
        }
        return refused(m, q, ret, &why);
    }
    return 0;
}

static int key_of(struct manager *m, const struct credential *c, struct ssh_key *ret, struct err *e)
{
    cleanup_secret struct secret value = {0};
    int r = manager_value_of(m, c, &value, e);

    return r < 0 ? r : ssh_key_parse(value.p, value.len, ret, e);
}

/* ---- the host key that guests see ---- */

/* With the lock held. */
static int host_key_make(struct manager *m, const char *organisation, const char *ref,
                         struct secret *ret, struct err *e)
{
    struct audit_row row = {.event = "authority", .organisation = organisation, .method = "SSH"};
    cleanup_secret_buf struct buf pem = BUF_INIT(4096);
    int r = ssh_key_generate(&pem, e);

    r = r < 0 ? r : secret_init(ret, pem.data, pem.len);
    r = r < 0 ? r : vault_put(m->vaults[0], ref, ret, e);
    return r < 0 ? r : audit_add(m->audit, &row, /* durable */ true, e);
}

static int host_key(struct manager *m, const char *organisation, struct secret *ret, struct err *e)
{
    cleanup_free char *ref = xasprintf("ssh-host/%s", organisation);
    struct err why = {0};
    int r;

    if (!id_valid(ID_ORGANISATION, organisation)) {
        return err_set(e, -EINVAL, NULL, "that is no organisation");
    }
    pthread_mutex_lock(&m->ssh_lock);
    r = vault_get(m->vaults[0], ref, ret, &why);
    if (r == -ENOENT) {
        why = (struct err){0};
        r = host_key_make(m, organisation, ref, ret, &why);
    }
    pthread_mutex_unlock(&m->ssh_lock);
    if (r < 0) {
        secret_done(ret);
        if (e) {
            *e = why;
        }
    }
    return r;
}

int manager_ssh_host(struct manager *m, const char *organisation, struct buf *ret, struct err *e)
{
    cleanup_secret struct secret pem = {0};
    cleanup_ssh_key struct ssh_key key = {0};
    int r = host_key(m, organisation, &pem, e);

    r = r < 0 ? r : ssh_key_parse(pem.p, pem.len, &key, e);
    r = r < 0 ? r : ssh_key_public_text(&key, ret);
    return r < 0 ? err_wrap(e, r, "the host key of SSH") : 0;
}

/* ---- a connection ---- */

/* What the gateway has to know of the credential: never its value. */
static int describe(struct manager *m, const struct credential *c, json_t *ret, struct err *e)
{
    cleanup_ssh_key struct ssh_key key = {0};
    cleanup_buf struct buf public = BUF_INIT(2 * SSH_KEY_BLOB_MAX);
    int r = key_of(m, c, &key, e);

    r = r < 0 ? r : base64_encode(key.public.p, key.public.len, &public);
    if (r == 0) {
        json_object_set_new(ret, "credential", credential_json(c, /* private */ false));
        json_object_set_new(ret, "public", json_string(buf_str(&public)));
    }
    return r;
}

int manager_ssh_open(struct manager *m, const struct credential_request *q, json_t **ret,
                     struct err *e)
{
    cleanup_secret struct secret pem = {0};
    cleanup_json json_t *json = json_object();
    struct credential c;
    struct err why = {0};
    int r = host_key(m, q->organisation, &pem, e);

    if (r < 0) {
        return r;
    }
    json_object_set_new(json, "host_key", json_stringn(pem.p, pem.len));
    r = find(m, q, &c, &why);
    r = r < 0 ? r : describe(m, &c, json, &why);
    if (r < 0) {
        json_object_set_new(json, "refused",
                            json_pack("{s:s, s:s}", "code", err_reason(&why), "message", why.msg));
    }
    *ret = json_incref(json);
    return 0;
}

static int check_login(const struct credential *c, const struct ssh_key *key,
                       const struct ssh_login *login, struct err *e)
{
    if (!ssh_view_is(login->user, c->inject.user) || !ssh_view_is(login->service, SERVICE) ||
        login->key.len != key->public.len ||
        memcmp(login->key.p, key->public.p, key->public.len) != 0 ||
        !ssh_key_signs(key, login->algorithm)) {
        return err_set(e, -EACCES, "not_a_login",
                       "only a login as '%s' with the credential's own key is signed",
                       c->inject.user);
    }
    return 0;
}

static int sign(struct manager *m, const struct credential_request *q, const struct credential *c,
                struct ssh_view data, struct buf *ret, struct err *e)
{
    struct audit_row row = row_of(q, "use", c);
    cleanup_ssh_key struct ssh_key key = {0};
    struct ssh_login login;
    int r = ssh_login_parse(data, &login);

    if (r < 0) {
        return err_set(e, -EACCES, "not_a_login", "what is to be signed is no login");
    }
    r = key_of(m, c, &key, e);
    r = r < 0 ? r : check_login(c, &key, &login, e);
    r = r < 0 ? r : store_take_use(m->store, c, e);
    r = r < 0 ? r : audit_add(m->audit, &row, /* durable */ false, e);
    return r < 0 ? r : ssh_key_sign(&key, login.algorithm, data, ret, e);
}

int manager_ssh_sign(struct manager *m, const struct credential_request *q, struct ssh_view data,
                     struct buf *ret, struct err *e)
{
    struct credential c;
    struct err why = {0};
    int r = find(m, q, &c, &why);

    if (r == 0) {
        r = sign(m, q, &c, data, ret, &why);
        if (r < 0) {
            IGNORE_RESULT(refused(m, q, &c, &why)); /* the code is what matters */
        }
    }
    if (r < 0 && e) {
        *e = why;
    }
    return r;
}

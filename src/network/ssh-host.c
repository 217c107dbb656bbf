/* SPDX-License-Identifier: Apache-2.0 */
/* The client that the host sees. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "network/ssh-internal.h"

void relay_refuse(struct relay *r, const char *code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(r->refusal, sizeof(r->refusal), fmt, ap);
    va_end(ap);
    snprintf(r->refusal_code, sizeof(r->refusal_code), "%s", code);
}

/* Only kinds of keys that the credential names, where it says the kind of each. "" otherwise. */
static void list_kinds(const struct ssh_rule *rule, struct buf *ret)
{
    int r = 0;

    for (size_t i = 0; i < rule->n_keys && r == 0; i++) {
        const char *space = strchr(rule->keys[i], ' ');

        if (!space) {
            buf_reset(ret);
            return;
        }
        r = ret->len ? buf_add_str(ret, ",") : 0;
        r = r < 0 ? r
            : str_starts(rule->keys[i], "ssh-rsa ")
                ? buf_add_str(ret, "rsa-sha2-512,rsa-sha2-256")
                : buf_add(ret, rule->keys[i], (size_t)(space - rule->keys[i]));
    }
    if (r < 0) {
        buf_reset(ret);
    }
}

static bool set_options(struct relay *r)
{
    cleanup_buf struct buf kinds = BUF_INIT(1024);
    const int port = r->port;
    const long timeout_s = SSH_HOST_S;
    const bool no_config = false;
    socket_t fd = r->host_fd;

    list_kinds(&r->rule, &kinds);
    return ssh_options_set(r->host, SSH_OPTIONS_PROCESS_CONFIG, &no_config) == 0 &&
           ssh_options_set(r->host, SSH_OPTIONS_HOST, r->host_name) == 0 &&
           ssh_options_set(r->host, SSH_OPTIONS_PORT, &port) == 0 &&
           ssh_options_set(r->host, SSH_OPTIONS_USER, r->user) == 0 &&
           ssh_options_set(r->host, SSH_OPTIONS_SSH_DIR, "/nonexistent") == 0 &&
           ssh_options_set(r->host, SSH_OPTIONS_KNOWNHOSTS, "/dev/null") == 0 &&
           ssh_options_set(r->host, SSH_OPTIONS_GLOBAL_KNOWNHOSTS, "/dev/null") == 0 &&
           ssh_options_set(r->host, SSH_OPTIONS_TIMEOUT, &timeout_s) == 0 &&
           (kinds.len == 0 ||
            ssh_options_set(r->host, SSH_OPTIONS_HOSTKEYS, buf_str(&kinds)) == 0) &&
           ssh_options_set(r->host, SSH_OPTIONS_FD, &fd) == 0;
}

/* Is it the host that the credential is for? */
static bool host_is_known(struct relay *r)
{
    unsigned char *hash = NULL;
    char *text = NULL;
    ssh_key key = NULL;
    size_t len = 0;
    bool known = false;

    if (ssh_get_server_publickey(r->host, &key) == SSH_OK &&
        ssh_get_publickey_hash(key, SSH_PUBLICKEY_HASH_SHA256, &hash, &len) == 0) {
        text = ssh_get_fingerprint_hash(SSH_PUBLICKEY_HASH_SHA256, hash, len);
        known = text && ssh_rule_knows(&r->rule, ssh_key_type_to_char(ssh_key_type(key)), text);
    }
    if (!known) {
        relay_refuse(r, "host_key_mismatch",
                     "%s shows a host key that the credential '%s' does not name: %s%s",
                     r->host_name, r->credential, text ? text : "unreadable",
                     "; nothing was signed for it");
    }
    ssh_string_free_char(text);
    ssh_clean_pubkey_hash(&hash);
    ssh_key_free(key);
    return known;
}

static bool log_in(struct relay *r)
{
    char why[SSH_TEXT_SIZE];
    int code;

    /* Taken in any case: libssh closes it. */
    if (ssh_set_agent_socket(r->host, TAKE_FD(r->agent_fd)) != SSH_OK) {
        relay_refuse(r, "login_failed", "logging in to %s has failed", r->host_name);
        return false;
    }
    code = ssh_userauth_agent(r->host, NULL);
    if (code != SSH_AUTH_SUCCESS && relay_not_signed(why, sizeof(why))) {
        relay_refuse(r, "not_signed", "%.400s", why);
        return false;
    }
    if (code != SSH_AUTH_SUCCESS) {
        relay_refuse(r, "login_failed", "%s does not let '%s' in with the credential '%s'",
                     r->host_name, r->user, r->credential);
        return false;
    }
    return true;
}

void relay_host_begin(struct relay *r)
{
    bool done;

    r->ready = true;
    if (r->refusal[0]) {
        return;
    }
    r->host = ssh_new();
    done = r->host && set_options(r);
    r->host_fd = done ? FD_NONE : r->host_fd; /* libssh's from here on */
    if (!done || ssh_connect(r->host) != SSH_OK) {
        relay_refuse(r, "host_failed", "no SSH with %s: %.200s", r->host_name,
                     r->host ? ssh_get_error(r->host) : "out of memory");
    } else if (host_is_known(r) && log_in(r) &&
               ssh_event_add_session(r->event, r->host) != SSH_OK) {
        relay_refuse(r, "host_failed", "no SSH with %s", r->host_name);
    }
    if (r->refusal[0] && r->host) {
        ssh_disconnect(r->host);
        ssh_free(r->host);
        r->host = NULL;
    }
}

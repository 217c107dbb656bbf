/* SPDX-License-Identifier: Apache-2.0 */
/* The server that the guest's client sees. */
#include <stdio.h>
#include <string.h>

#include "network/ssh-internal.h"

/* libssh keeps a pointer to them. */
static struct ssh_server_callbacks_struct callbacks;

static int on_auth(struct relay *r, const char *user)
{
    if (!r->refusal[0] && !str_eq(user, r->user)) {
        relay_refuse(r, "wrong_user", "the credential '%s' logs in as '%s', not as '%.64s'",
                     r->credential, r->user, user);
    }
    r->let_in = true;
    return SSH_AUTH_SUCCESS;
}

static int on_none(ssh_session session, const char *user, void *arg)
{
    (void)session;
    return on_auth(arg, user);
}

static int on_key(ssh_session session, const char *user, struct ssh_key_struct *key, char state,
                  void *arg)
{
    (void)session;
    (void)key;
    /* A question whether the key would do is not a login yet. */
    return state == SSH_PUBLICKEY_STATE_NONE ? SSH_AUTH_SUCCESS : on_auth(arg, user);
}

/* ---- what is asked of a channel ---- */

static int on_terminal(ssh_session session, ssh_channel channel, const char *term, int columns,
                       int rows, int x, int y, void *arg)
{
    struct relay_pair *p = arg;

    (void)session;
    (void)channel;
    (void)x;
    (void)y;
    if (p->want != RELAY_NOTHING || !ssh_rule_allows_shell(&p->relay->rule)) {
        return -1;
    }
    snprintf(p->term, sizeof(p->term), "%s", term && term[0] ? term : "dumb");
    p->columns = columns;
    p->rows = rows;
    return 0;
}

static int on_resize(ssh_session session, ssh_channel channel, int columns, int rows, int x, int y,
                     void *arg)
{
    struct relay_pair *p = arg;

    (void)session;
    (void)channel;
    (void)x;
    (void)y;
    if (p->host && p->term[0]) {
        IGNORE_RESULT(ssh_channel_change_pty_size(p->host, columns, rows)); /* as good as it goes */
    }
    return 0;
}

/* Git asks by it for its newer protocol. Any other variable is a way to change what runs there. */
static int on_variable(ssh_session session, ssh_channel channel, const char *name,
                       const char *value, void *arg)
{
    struct relay_pair *p = arg;

    (void)session;
    (void)channel;
    if (!str_eq(name, "GIT_PROTOCOL") || !value ||
        strspn(value, "abcdefghijklmnopqrstuvwxyz0123456789=:") != strlen(value) ||
        strlen(value) >= sizeof(p->git_protocol)) {
        return 1;
    }
    snprintf(p->git_protocol, sizeof(p->git_protocol), "%s", value);
    return 0;
}

static int want(struct relay_pair *p, enum relay_want what, const char *command)
{
    if (p->want != RELAY_NOTHING || strlen(command) > SSH_COMMAND_MAX) {
        return 1;
    }
    p->want = what;
    p->command = xstrdup(command);
    return 0;
}

static int on_exec(ssh_session session, ssh_channel channel, const char *command, void *arg)
{
    (void)session;
    (void)channel;
    return want(arg, RELAY_EXEC, command);
}

static int on_shell(ssh_session session, ssh_channel channel, void *arg)
{
    (void)session;
    (void)channel;
    return want(arg, RELAY_SHELL, "");
}

static int on_subsystem(ssh_session session, ssh_channel channel, const char *name, void *arg)
{
    (void)session;
    (void)channel;
    return want(arg, RELAY_SUBSYSTEM, name);
}

static void on_signal(ssh_session session, ssh_channel channel, const char *name, void *arg)
{
    struct relay_pair *p = arg;

    (void)session;
    (void)channel;
    if (p->host) {
        IGNORE_RESULT(ssh_channel_request_send_signal(p->host, name)); /* as good as it goes */
    }
}

static void on_close(ssh_session session, ssh_channel channel, void *arg)
{
    struct relay_pair *p = arg;

    (void)session;
    (void)channel;
    p->guest_closed = true;
}

static ssh_channel on_channel(ssh_session session, void *arg)
{
    struct relay *r = arg;
    struct relay_pair *p = NULL;

    for (size_t i = 0; i < SSH_CHANNELS_MAX && !p; i++) {
        p = r->pairs[i].guest ? NULL : &r->pairs[i];
    }
    if (!p || !r->let_in) {
        return NULL;
    }
    *p = (struct relay_pair){.relay = r, .status = -1};
    for (size_t i = 0; i < RELAY_WAY_COUNT_; i++) {
        p->waiting[i] = BUF_INIT(SSH_WAITING_MAX);
    }
    p->guest = ssh_channel_new(session);
    if (!p->guest) {
        return NULL;
    }
    p->guest_callbacks = (struct ssh_channel_callbacks_struct){
        .userdata = p,
        .channel_pty_request_function = on_terminal,
        .channel_pty_window_change_function = on_resize,
        .channel_env_request_function = on_variable,
        .channel_exec_request_function = on_exec,
        .channel_shell_request_function = on_shell,
        .channel_subsystem_request_function = on_subsystem,
        .channel_signal_function = on_signal,
        .channel_close_function = on_close,
    };
    ssh_callbacks_init(&p->guest_callbacks);
    if (ssh_set_channel_callbacks(p->guest, &p->guest_callbacks) != SSH_OK) {
        ssh_channel_free(p->guest);
        p->guest = NULL;
    }
    return p->guest;
}

/* Forwarding of ports, of X11, of an agent, passwords, and what else there may be: no. */
static int on_anything_else(ssh_session session, ssh_message message, void *arg)
{
    (void)session;
    (void)message;
    (void)arg;
    return 1;
}

/* ---- begin ---- */

static int show_key(struct relay *r, ssh_bind bind)
{
    const bool no_config = false;
    ssh_key key = NULL;

    if (ssh_pki_import_privkey_base64(r->host_key, NULL, NULL, NULL, &key) != SSH_OK) {
        return -EPROTO;
    }
    if (ssh_bind_options_set(bind, SSH_BIND_OPTIONS_PROCESS_CONFIG, &no_config) != SSH_OK ||
        ssh_bind_options_set(bind, SSH_BIND_OPTIONS_IMPORT_KEY, key) != SSH_OK) {
        ssh_key_free(key);
        return -EPROTO;
    }
    return 0;
}

int relay_guest_begin(struct relay *r, struct err *e)
{
    ssh_bind bind = ssh_bind_new();
    int code = bind && r->guest ? show_key(r, bind) : -ENOMEM;

    if (code == 0) {
        /* Taken in any case: libssh closes it. */
        code = ssh_bind_accept_fd(bind, r->guest, TAKE_FD(r->guest_fd)) == SSH_OK ? 0 : -EIO;
    }
    if (code == 0) {
        callbacks = (struct ssh_server_callbacks_struct){
            .userdata = r,
            .auth_none_function = on_none,
            .auth_pubkey_function = on_key,
            .channel_open_request_session_function = on_channel,
        };
        ssh_callbacks_init(&callbacks);
        ssh_set_server_callbacks(r->guest, &callbacks);
        ssh_set_message_callback(r->guest, on_anything_else, NULL);
        ssh_set_auth_methods(r->guest, SSH_AUTH_METHOD_NONE | SSH_AUTH_METHOD_PUBLICKEY);
        code = ssh_handle_key_exchange(r->guest) == SSH_OK ? 0 : -EPROTO;
    }
    ssh_bind_free(bind);
    return code < 0 ? err_set(e, code, "guest_ssh_failed", "%.200s",
                              r->guest ? ssh_get_error(r->guest) : "out of memory")
                    : 0;
}

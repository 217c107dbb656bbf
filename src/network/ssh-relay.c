/* SPDX-License-Identifier: Apache-2.0 */
/* Channels of the guest, going on as channels of the host. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "network/ssh-internal.h"

#define TICK_MS 1000
#define STATUS_REFUSED 255
#define STATUS_SIGNAL 128

/* ---- from the host ---- */

static void on_status(ssh_session session, ssh_channel channel, int status, void *arg)
{
    struct relay_pair *p = arg;

    (void)session;
    (void)channel;
    p->status = status & 0xff;
}

static void on_killed(ssh_session session, ssh_channel channel, const char *name, int core,
                      const char *text, const char *language, void *arg)
{
    struct relay_pair *p = arg;

    (void)session;
    (void)channel;
    p->status = STATUS_SIGNAL;
    /* Best effort: the end follows in any case. */
    IGNORE_RESULT(ssh_channel_request_send_exit_signal(p->guest, name, core, text ? text : "",
                                                       language ? language : ""));
}

static void on_close(ssh_session session, ssh_channel channel, void *arg)
{
    struct relay_pair *p = arg;

    (void)session;
    (void)channel;
    p->host_closed = true;
}

/* ---- begin of a channel ---- */

static void say(struct relay_pair *p, const char *code, const char *text)
{
    char line[SSH_TEXT_SIZE + 16];
    int n = snprintf(line, sizeof(line), "space: %s\r\n", text);

    snprintf(p->refused, sizeof(p->refused), "%s", code);
    /* A guest that does not read it has only itself to blame. */
    IGNORE_RESULT(
        ssh_channel_write_stderr(p->guest, line, (uint32_t)MIN(n, (int)sizeof(line) - 1)));
    p->status = STATUS_REFUSED;
    p->host_closed = true;
}

static void name_kind(struct relay_pair *p)
{
    size_t n = strspn(p->command, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "-_./");

    n = MIN(n, sizeof(p->kind) - 1);
    memcpy(p->kind, p->command, n);
    p->kind[n] = '\0';
    if (p->want == RELAY_SHELL || n == 0) {
        snprintf(p->kind, sizeof(p->kind), "%s", p->want == RELAY_SHELL ? "@shell" : "command");
    }
}

static bool is_allowed(const struct relay_pair *p)
{
    const struct ssh_rule *rule = &p->relay->rule;

    switch (p->want) {
    case RELAY_EXEC:
        return ssh_rule_allows(rule, p->command);
    case RELAY_SHELL:
        return ssh_rule_allows_shell(rule);
    default:
        return ssh_rule_allows_subsystem(rule, p->command);
    }
}

static bool ask_host(struct relay_pair *p)
{
    if (p->git_protocol[0]) {
        /* Git goes on with its older protocol. */
        IGNORE_RESULT(ssh_channel_request_env(p->host, "GIT_PROTOCOL", p->git_protocol));
    }
    if (p->term[0] &&
        ssh_channel_request_pty_size(p->host, p->term, p->columns, p->rows) != SSH_OK) {
        return false;
    }
    switch (p->want) {
    case RELAY_EXEC:
        return ssh_channel_request_exec(p->host, p->command) == SSH_OK;
    case RELAY_SHELL:
        return ssh_channel_request_shell(p->host) == SSH_OK;
    default:
        return ssh_channel_request_subsystem(p->host, p->command) == SSH_OK;
    }
}

static bool open_host(struct relay_pair *p)
{
    struct relay *r = p->relay;
    bool done;

    p->host = ssh_channel_new(r->host);
    if (!p->host) {
        return false;
    }
    p->host_callbacks = (struct ssh_channel_callbacks_struct){
        .userdata = p,
        .channel_exit_status_function = on_status,
        .channel_exit_signal_function = on_killed,
        .channel_close_function = on_close,
    };
    ssh_callbacks_init(&p->host_callbacks);
    ssh_set_blocking(r->host, 1); /* until its answers are there; options bound the wait */
    done = ssh_set_channel_callbacks(p->host, &p->host_callbacks) == SSH_OK &&
           ssh_channel_open_session(p->host) == SSH_OK && ask_host(p);
    ssh_set_blocking(r->host, 0);
    return done;
}

static void start(struct relay_pair *p)
{
    struct relay *r = p->relay;
    char text[SSH_TEXT_SIZE];

    p->started = true;
    alarm(SSH_START_S);
    name_kind(p);
    if (!r->ready) {
        relay_host_begin(r);
    }
    if (r->refusal[0]) {
        say(p, r->refusal_code, r->refusal);
    } else if (!is_allowed(p)) {
        snprintf(text, sizeof(text), "the credential '%s' does not allow '%s'", r->credential,
                 p->kind);
        say(p, "command_not_allowed", text);
    } else if (!open_host(p)) {
        snprintf(text, sizeof(text), "%s does not do it", r->host_name);
        say(p, "host_refused", text);
    }
    alarm(0);
}

/* ---- moving bytes ---- */

struct way {
    ssh_channel from;
    ssh_channel to;
    ssh_session out;
    struct buf *waiting;
    bool errors;
    uint64_t *bytes;
};

/*
 * All that is there, or nothing: with each read libssh opens the sender's window anew, whatever is left to be read. So at most what
 * waits here and one window are held.
 */
static bool take(const struct way *w)
{
    int n = w->waiting->len ? 0 : ssh_channel_poll(w->from, w->errors);
    void *room;

    if (n <= 0 || buf_reserve(w->waiting, MIN((size_t)n, SSH_WAITING_MAX), &room) < 0) {
        return false;
    }
    n = ssh_channel_read_nonblocking(w->from, room, MIN((uint32_t)n, SSH_WAITING_MAX), w->errors);
    if (n <= 0) {
        return false;
    }
    buf_commit(w->waiting, (size_t)n);
    *w->bytes += (uint64_t)n;
    return true;
}

/* As far as the receiver's window is open, and what was written before has left. */
static bool give(const struct way *w)
{
    uint32_t n = MIN(ssh_channel_window_size(w->to), SSH_CHUNK);
    int written;

    n = MIN(n, (uint32_t)w->waiting->len);
    if (n == 0 || (ssh_get_poll_flags(w->out) & SSH_WRITE_PENDING)) {
        return false;
    }
    written = w->errors ? ssh_channel_write_stderr(w->to, w->waiting->data, n)
                        : ssh_channel_write(w->to, w->waiting->data, n);
    if (written <= 0) {
        return false;
    }
    buf_consume(w->waiting, (size_t)written);
    if (w->waiting->len == 0) {
        buf_done(w->waiting); /* an idle channel holds nothing */
    }
    return true;
}

static bool is_drained(struct relay_pair *p)
{
    return ssh_channel_poll(p->host, 0) <= 0 && ssh_channel_poll(p->host, 1) <= 0 &&
           p->waiting[RELAY_DOWN].len == 0 && p->waiting[RELAY_ERRORS].len == 0;
}

static bool move_all(struct relay_pair *p)
{
    struct relay *r = p->relay;
    const struct way ways[RELAY_WAY_COUNT_] = {
        [RELAY_UP] = {p->guest, p->host, r->host, &p->waiting[RELAY_UP], false, &r->bytes_up},
        [RELAY_DOWN] = {p->host, p->guest, r->guest, &p->waiting[RELAY_DOWN], false,
                        &r->bytes_down},
        [RELAY_ERRORS] = {p->host, p->guest, r->guest, &p->waiting[RELAY_ERRORS], true,
                          &r->bytes_down},
    };
    bool moved = false;

    for (size_t i = p->host_closed ? RELAY_DOWN : RELAY_UP; i < ARRAY_SIZE(ways); i++) {
        moved = take(&ways[i]) || moved;
        moved = give(&ways[i]) || moved;
    }
    if (!p->guest_eof && !p->host_closed && p->waiting[RELAY_UP].len == 0 &&
        ssh_channel_is_eof(p->guest)) {
        p->guest_eof = true;
        IGNORE_RESULT(ssh_channel_send_eof(p->host)); /* if it is gone, its close is coming */
    }
    if (!p->host_eof && ssh_channel_is_eof(p->host) && is_drained(p)) {
        p->host_eof = true;
        IGNORE_RESULT(ssh_channel_send_eof(p->guest));
    }
    return moved;
}

static void end_pair(struct relay_pair *p)
{
    struct relay *r = p->relay;

    if (p->status >= 0 && p->status != STATUS_SIGNAL) {
        IGNORE_RESULT(ssh_channel_request_send_exit_status(p->guest, p->status));
    }
    if (!p->guest_closed) {
        IGNORE_RESULT(ssh_channel_send_eof(p->guest)); /* nobody hears it: no harm */
        IGNORE_RESULT(ssh_channel_close(p->guest));
    }
    if (p->want != RELAY_NOTHING) {
        relay_report(r, p);
    }
    ssh_remove_channel_callbacks(p->guest, &p->guest_callbacks);
    ssh_channel_free(p->guest);
    if (p->host) {
        ssh_remove_channel_callbacks(p->host, &p->host_callbacks);
        ssh_channel_free(p->host);
    }
    for (size_t i = 0; i < RELAY_WAY_COUNT_; i++) {
        buf_done(&p->waiting[i]);
    }
    free(p->command);
    *p = (struct relay_pair){0};
}

/* true: something has moved. */
static bool step(struct relay_pair *p)
{
    bool moved = false;

    if (p->want != RELAY_NOTHING && !p->started) {
        start(p);
        moved = true;
    }
    if (p->host && !p->refused[0]) {
        moved = move_all(p) || moved;
    }
    if (p->relay->lost && p->started && !p->host_closed && is_drained(p)) {
        say(p, p->relay->refusal_code, p->relay->refusal);
    }
    if (p->guest_closed || (p->host_closed && (!p->host || p->refused[0] || is_drained(p)))) {
        end_pair(p);
        moved = true;
    }
    return moved;
}

void relay_run(struct relay *r)
{
    bool moved = false;

    ssh_set_blocking(r->guest, 0);
    while (ssh_event_dopoll(r->event, moved ? 0 : TICK_MS) != SSH_ERROR &&
           ssh_is_connected(r->guest)) {
        moved = false;
        if (r->host && !r->lost && !ssh_is_connected(r->host)) {
            r->lost = true;
            relay_refuse(r, "host_lost", "the connection to %s is lost", r->host_name);
        }
        for (size_t i = 0; i < SSH_CHANNELS_MAX; i++) {
            moved = (r->pairs[i].guest && step(&r->pairs[i])) || moved;
        }
    }
    for (size_t i = 0; i < SSH_CHANNELS_MAX; i++) {
        if (r->pairs[i].guest) {
            end_pair(&r->pairs[i]);
        }
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space-ssh-end: one connection of a guest with SSH, which is ended here and goes on to its host as another one.
 *
 *     guest's client ══ SSH ══ this process ══ SSH ══ host
 *                                   │ agent protocol: "sign this login"
 *                             network gateway ── credential manager, which has the key
 *
 * The network gateway starts it for each connection with a packet (ssh-main.c) and the descriptors: the guest's socket, one that is
 * connected to the host, and one that answers as an agent. It has nothing else: no key, no other connection, no file, no system call
 * that would give it one. Whatever a guest or a host does to libssh stays in here.
 *
 * The guest is let in whoever it says it is: who it is, is known from where it came. The host must show a key that the
 * credential names before anything is signed. What channels carry is passed on; sessions only, no forwarding of any kind.
 *
 * One thread; callbacks of libssh only write down what was asked, and ssh-relay.c does it.
 */
#pragma once

#include <libssh/callbacks.h>
#include <libssh/libssh.h>
#include <libssh/server.h>

#include "base/buf.h"
#include "base/err.h"
#include "credential/ssh-rule.h"

#define SSH_CHANNELS_MAX 10u
#define SSH_COMMAND_MAX 32768u
#define SSH_CHUNK 32768u
/* More than the window that libssh gives. */
#define SSH_WAITING_MAX (4u * 1024 * 1024)
/* From the first byte until the guest has said what it wants. The guest's user may type in between. */
#define SSH_HANDSHAKE_S 60u
#define SSH_HOST_S 20
/* All of the waiting for a host that a channel may cost. */
#define SSH_START_S 60u
#define SSH_TEXT_SIZE 512u

enum relay_way {
    RELAY_UP,
    RELAY_DOWN,
    RELAY_ERRORS, /* down, too: of a program's two streams, the other */
    RELAY_WAY_COUNT_,
};

enum relay_want {
    RELAY_NOTHING,
    RELAY_EXEC,
    RELAY_SHELL,
    RELAY_SUBSYSTEM,
};

struct relay;

/* A channel of the guest, and the one of the host that it goes on as. */
struct relay_pair {
    struct relay *relay; /* borrowed */
    ssh_channel guest;   /* owned; NULL: the place is free */
    ssh_channel host;    /* owned; NULL: not yet */
    struct ssh_channel_callbacks_struct guest_callbacks;
    struct ssh_channel_callbacks_struct host_callbacks;
    enum relay_want want;
    char *command;                    /* owned */
    char kind[SSH_RULE_COMMAND_SIZE]; /* what it is, for the log: the command's first word */
    char git_protocol[32];
    char term[64]; /* "": without a terminal */
    int columns;
    int rows;
    struct buf waiting[RELAY_WAY_COUNT_]; /* owned: read, and not yet written */
    bool started;
    bool guest_eof; /* passed on */
    bool host_eof;
    bool guest_closed;
    bool host_closed;
    int status; /* of the host's command; -1: none has come */
    char refused[40];
};

struct relay {
    int control_fd; /* owned, as the next three */
    int guest_fd;
    int agent_fd;
    int host_fd; /* FD_NONE: there is no way to the host, refusal says why */
    char host_name[256];
    uint16_t port;
    char user[256];
    char credential[64];
    char *host_key; /* owned, wiped: what the guest is shown */
    struct ssh_rule rule;
    char refusal[SSH_TEXT_SIZE]; /* "": none */
    char refusal_code[40];
    ssh_session guest; /* owned */
    ssh_session host;  /* owned; NULL: not connected */
    ssh_event event;   /* owned */
    struct relay_pair pairs[SSH_CHANNELS_MAX];
    bool let_in;
    bool ready; /* the host was tried */
    bool lost;  /* it was there, and is not any more */
    uint64_t bytes_up;
    uint64_t bytes_down;
};

/* ---- ssh-guest.c ---- */

/* The guest's end up to its keys. */
MUST_CHECK int relay_guest_begin(struct relay *r, struct err *e);

/* ---- ssh-host.c ---- */

/* Connects, checks who it is, logs in. Blocks for SSH_HOST_S. Afterwards refusal says why not, if so. */
void relay_host_begin(struct relay *r);
void relay_refuse(struct relay *r, const char *code, const char *fmt, ...) PRINTF(3, 4);

/* ---- ssh-relay.c ---- */

/* Until one of the two is gone. */
void relay_run(struct relay *r);

/* ---- ssh-main.c ---- */

/* The network gateway's reason not to have a login signed; false: it was signed. */
bool relay_not_signed(char *ret, size_t size);
/* What a channel came to, for the log. */
void relay_report(struct relay *r, const struct relay_pair *pair);

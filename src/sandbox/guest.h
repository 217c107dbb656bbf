/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small JSON exchanges with the guest's daemon over the channel, and the set-up of a guest. What the guest
 * answers is hostile: bounded, strict, and never trusted for more than a sentence in a reason.
 */
#pragma once

#include "channel/host.h"

#include "base/json.h"

#define GUEST_ANSWER_MAX (1024u * 1024)

struct guest_call {
    const char *method;
    const char *target;
    const json_t *body; /* borrowed; NULL: none */
    uint64_t deadline_ns;
};

/* ret may be NULL. An answer of 4xx or 5xx is an error with the guest's sentence. */
MUST_CHECK int guest_call(struct channel *ch, const struct guest_call *call, json_t **ret,
                          struct err *e);

struct guest_setup {
    const char *hostname;
    const char *machine_id;
    const char *default_user;
    const char *fstype;
    const char *authority;    /* PEM that the guest is to trust; NULL: none */
    const char *ssh_host_key; /* a line; NULL: none */
    const json_t *env;        /* borrowed; NULL: none */
    uint64_t
        disk_bytes; /* the guest waits until its disk has this size and grows the file system to it */
    bool fresh;     /* the disk is a clone of a template that nobody has written to */
    bool rehearse;
};

/* Binds the disk that is in place and makes the guest ready: identity, clock, randomness, mounts. */
MUST_CHECK int guest_setup(struct channel *ch, const struct guest_setup *setup,
                           uint64_t deadline_ns, struct err *e);
/* NULL: stays as it is. Clock and randomness are always made new. */
struct guest_identity {
    const char *hostname;
    const char *machine_id;
    const json_t *env; /* borrowed */
    const char *authority;
    const char *ssh_host_key;
};
MUST_CHECK int guest_identity(struct channel *ch, const struct guest_identity *who,
                              uint64_t deadline_ns, struct err *e);
/* A command of the sandbox runs and is forgotten: what the first real one needs is warm then. */
MUST_CHECK int guest_try_command(struct channel *ch, uint64_t deadline_ns, struct err *e);
/* The rehearsal of a base machine: set up, run a command, take all down again. */
MUST_CHECK int guest_rehearse(struct channel *ch, const struct guest_setup *setup,
                              uint64_t deadline_ns, struct err *e);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What POST /setup and POST /identity say, checked. Pure, fuzzed. Both ends of the channel are ours, but a
 * mistake in here would be PID 1's: every field has its bounds.
 */
#pragma once

#include "base/err.h"

#include <jansson.h>

#define SETUP_HOSTNAME_MAX 64
#define SETUP_ENTROPY_MAX 512
#define SETUP_ENV_MAX 256
#define SETUP_ENV_BYTES_MAX (128u * 1024)

struct setup_spec {
    char hostname[SETUP_HOSTNAME_MAX + 1]; /* "": leave as it is */
    int64_t epoch_ns;                      /* 0: leave the clock alone */
    uint8_t entropy[SETUP_ENTROPY_MAX];
    size_t n_entropy;
    char machine_id[33];   /* 32 hex digits, or "" */
    char **env;            /* owned: "K=V", NULL at the end; NULL when not given */
    char default_user[64]; /* "": root */
    char *authority;       /* owned: PEM of a certificate to trust; NULL: none */
    char *ssh_host_key;    /* owned: "ssh-ed25519 AAAA...", to be known as any host's; NULL: none */
    char device[32];       /* "/dev/vda"; "" when there is no disk */
    char fstype[16];
    int64_t disk_bytes; /* the device has at least this size, or soon will; 0: any */
    bool
        disk_fresh; /* a clone that nobody has written to: a crash during set-up can lose nothing */
    bool rehearse;
    int64_t max_processes; /* 0: not said */
};

/* -EINVAL naming the field. Unknown fields are refused. */
MUST_CHECK int setup_spec_parse(json_t *body, struct setup_spec *ret, struct err *e);
/* The part that POST /identity may say: hostname, epoch_ns, entropy_base64, machine_id, env, authority, ssh_host_key. */
MUST_CHECK int identity_spec_parse(json_t *body, struct setup_spec *ret, struct err *e);
void setup_spec_done(struct setup_spec *s);

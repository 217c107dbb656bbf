/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space-setup: what must be there before the services can start on one machine, made by root once
 * and again at any time: each step looks first and does nothing when its work is done.
 *
 *   kernel   btrfs, loop devices (unless the state directory lies on btrfs already), tun
 *   users    space-gateway, space-sandbox, space-credential, space-volume and space-network (without a login)
 *   folders  STATE/          root, 0755
 *            STATE/gateway/  space-gateway, 0700: its database
 *            STATE/credential/  space-credential, 0700: vault, audit log
 *            STATE/volume/  space-volume, 0700: objects and keys, when they are kept here
 *            STATE/guest/    root, 0755: guest kernel and initrd
 *            STATE/pool/     space-sandbox, 0700, with templates/ machines/ sandboxes/ snapshots/
 *            RUN/            root:space-sandbox, 01775: services make their sockets there, nobody
 *                            can replace another's
 *            RUN/credential/ space-credential, 0755: its socket
 *            RUN/volume/     space-volume, 0755: its socket
 *            RUN/network/    space-network, 0755: its socket
 *   pool     on btrfs, STATE/pool is a plain folder. Elsewhere it is the mount point of
 *            STATE/pool.img, a sparse file with a btrfs in it. The file gets its name only when its
 *            file system is complete.
 *
 * A program of its own, and not a primitive of the node manager: it runs for a second, starts mkfs
 * and useradd, and serves nobody. "down" lets go of the mount; data stays.
 *
 * Messages go to standard output, one line for each thing that was changed; an error is one
 * sentence that says what to do.
 */
#pragma once

#include "base/err.h"

#include <sys/types.h>

struct setup {
    const char *state_dir;       /* borrowed */
    const char *run_dir;         /* borrowed */
    const char *gateway_user;    /* borrowed */
    const char *sandbox_user;    /* borrowed */
    const char *credential_user; /* borrowed */
    const char *volume_user;     /* borrowed */
    const char *network_user;    /* borrowed */
    uint64_t pool_mib;           /* size of a new pool.img; 0: three quarters of what is free */
    uid_t gateway_uid;
    gid_t gateway_gid;
    uid_t sandbox_uid;
    gid_t sandbox_gid;
    uid_t credential_uid;
    gid_t credential_gid;
    uid_t volume_uid;
    gid_t volume_gid;
    uid_t network_uid;
    gid_t network_gid;
};

/* users.c: fills the ids in; makes users that are missing. */
MUST_CHECK int setup_users(struct setup *s, struct err *e);

/* pool.c */
MUST_CHECK int setup_kernel(const struct setup *s, struct err *e);
MUST_CHECK int setup_pool(const struct setup *s, struct err *e);
MUST_CHECK int setup_pool_down(const struct setup *s, struct err *e);

/* main.c: makes path if it is missing and gives it this owner and mode. */
MUST_CHECK int setup_folder(const char *path, uid_t uid, gid_t gid, mode_t mode, struct err *e);
/*
 * main.c: runs a program of the host and waits; what it prints is only shown if it fails. -ENOENT.
 */
MUST_CHECK int setup_run(const char *const *argv, struct err *e);

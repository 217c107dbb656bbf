/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SPACE on this machine: where its files are, whether it is up, whether each service answers. What `up`, `down`, `status` and
 * `doctor` have in common.
 *
 * RUN_DIR/up.lock is locked (flock) for as long as a supervisor lives and holds its pid; the lock, not the file, says
 * that it is up, so that a crash leaves nothing to clean. RUN_DIR/up.json is what it last knew.
 */
#pragma once

#include <jansson.h>
#include <sys/types.h>

#include "base/err.h"
#include "cli/opt.h"

#define HOST_STATE_DIR "/var/lib/space"
#define HOST_RUN_DIR "/run/space"
#define HOST_LOG_DIR "/var/log/space"
#define HOST_LISTEN "127.0.0.1:7777"
#define HOST_TLS_LISTEN "127.0.0.1:7443"
#define HOST_TLS_DIR "tls" /* in the state directory */
#define HOST_DOMAIN "localhost"
/* OpenSSL and others take no wildcard for a name of one label. */
#define HOST_TLS_DOMAIN "space.localhost"
#define HOST_GATEWAY_USER "space-gateway"
#define HOST_SANDBOX_USER "space-sandbox"
#define HOST_CREDENTIAL_USER "space-credential"
#define HOST_VOLUME_USER "space-volume"
#define HOST_NETWORK_USER "space-network"
#define HOST_LOCK "up.lock"
#define HOST_STATUS "up.json"
#define HOST_STATUS_MAX 65536u

struct host {
    char *state_dir; /* owned, as the next three; absolute: services start elsewhere */
    char *run_dir;
    char *log_dir;
    char *libexec_dir;
    const char *listen; /* borrowed: options or static, as the rest */
    const char *gateway_user;
    const char *sandbox_user;
    const char *credential_user;
    const char *domain;
    const char *node_listen; /* NULL: nowhere; else all four */
    char *node_cert;         /* owned, as the next two */
    char *node_key;
    char *node_ca;
    char *gateway_cert; /* owned, as the next; to reach other nodes with; NULL: there are none */
    char *gateway_key;
    char *node_authority;         /* owned; NULL: no node joins at this gateway */
    const char *node_name;        /* NULL: as the gateway calls it */
    const char *database;         /* NULL: SQLite in the state directory */
    char *database_password_file; /* owned; NULL: none */
    const char *tls_listen;       /* NULL: no TLS; else all three */
    char *tls_cert;               /* owned, as the next one */
    char *tls_key;
    bool tls_own;     /* made here, by an authority of our own */
    const char *warm; /* how many machines are kept ready; NULL: as the sandbox manager likes */
    const char *volume_user;
    const char *network_user;
    const char *resolver; /* NULL: what the host uses */
};

enum host_service {
    HOST_NODE_MANAGER,
    HOST_SANDBOX_MANAGER,
    HOST_CREDENTIAL_MANAGER,
    HOST_VOLUME_MANAGER,
    HOST_NETWORK_GATEWAY,
    HOST_GATEWAY,
    HOST_SERVICE_COUNT_
};

void host_init(struct host *host, const struct args *a);
void host_done(struct host *host);
const char *host_service_name(enum host_service service);    /* "node manager" */
const char *host_service_program(enum host_service service); /* "space-node-manager" */

/* The address that a client on this machine uses. Owned by the caller. */
char *host_url(const struct host *host);
/*
 * The cgroup below which this SPACE has its machines; owned by the caller. One for each state directory: a node's
 * sandbox manager ends machines that no record of its own names.
 */
char *host_cgroup(const struct host *host);
/* Removes it if it is empty; the node manager must have ended. */
void host_cgroup_remove(const struct host *host);
/* The first of the users that its machines run as (ipc/priv.h): a range of its own for each state directory, too. */
uint32_t host_first_uid(const struct host *host);

/* -ENAMETOOLONG, with a sentence, when sockets below the run directory would have longer paths than the kernel takes. */
MUST_CHECK int host_run_dir_fits(const struct host *host, struct err *e);
/* Takes the lock of the supervisor. -EALREADY: one is up. The descriptor holds it. */
MUST_CHECK int host_lock(const struct host *host, struct err *e);
MUST_CHECK int host_lock_write_pid(int lock_fd, pid_t pid);
/* The pid of the supervisor, 0 when there is none. */
pid_t host_supervisor(const struct host *host);
/* What the supervisor last wrote. -ENOENT. */
MUST_CHECK int host_status_read(const struct host *host, json_t **ret, struct err *e);
MUST_CHECK int host_status_write(const struct host *host, const json_t *status, struct err *e);

/* Does it answer? Waits a second at most. */
MUST_CHECK int host_health(const struct host *host, enum host_service service, struct err *e);
/* One exchange with the sandbox manager; root and the gateway's user may. */
MUST_CHECK int host_node_call(const struct host *host, const char *method, const char *target,
                              uint64_t deadline_ns, json_t **ret, struct err *e);
/* -EADDRINUSE with a sentence when somebody listens where the gateway is to. */
MUST_CHECK int host_port_free(const struct host *host, struct err *e);

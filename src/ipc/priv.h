/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sandbox manager may ask of root.
 *
 * The node manager (src/privileged) is the only program that keeps root. It listens on a
 * SOCK_SEQPACKET unix socket; its one allowed peer is the user space-sandbox. One packet is one
 * request: a priv_header and one of the fixed-size structs below. Requests name things by id; files
 * come along as descriptors; a path, a string to parse or a byte of a guest never does. One packet
 * comes back: struct priv_reply, with a pidfd attached where the call returns a machine.
 *
 * A request that no correct client sends (unknown operation, wrong size, an id that is not
 * [a-z0-9], a bit that has no meaning, a descriptor too many or too few) is not answered: the
 * connection is closed. A request that is well formed but cannot be done is answered with a
 * negative errno, a stable reason word and a sentence, and leaves nothing behind.
 *
 * Machines. The unit is one VMM process (PID 1 of a pid namespace of its own) in one cgroup named
 * after the machine's id and its user slot. Nothing else is kept: after a restart of the node
 * manager everything is found again from the cgroups and /proc. Machines do not die with the node
 * manager.
 *
 *      priv_machine_start() --> running --> priv_machine_seal() --> running, root empty
 *                                  |                                    |
 *                        VMM exits by itself: listed with pid 0         |
 *                                  v                                    v
 *                              priv_machine_kill(): no process, cgroup, namespace or mount is left
 *
 * The user of machine slot N is uid and gid FIRST + N: two living machines never share one. FIRST is
 * the node manager's option --first-uid, PRIV_MACHINE_UID_BASE unless given; two SPACEs on one host need ranges of
 * PRIV_MACHINE_UIDS users of their own. The caller chooses the slot; a slot in use is refused with -EBUSY ("slot_in_use").
 *
 * Descriptors of priv_machine_start(), in the order of enum priv_fd; absent ones are FD_NONE:
 *
 *   memory        guest RAM, a regular file of exactly memory_mib. Opened O_RDONLY, readable by
 *                 others (mode 0444: the VMM opens it again as its own user; keep it in a directory
 *                 that only you can enter) and writable by nobody else; the VMM maps it private.
 *                 With PRIV_MACHINE_BASE: O_RDWR, mode 0666 while the base machine is made, mapped
 *                 shared.
 *   disk          the sandbox's disk image, a regular file, O_RDWR, not O_APPEND.
 *   qmp, channel  listening SOCK_STREAM unix sockets. The VMM accepts on them.
 *   console       where the VMM's stdout, stderr and the guest's console go: a pipe's write end or
 *                 a regular file opened O_WRONLY (O_APPEND advised). Not O_RDWR.
 *   kernel, initrd  regular files, O_RDONLY, readable by others. Present exactly with
 *                   PRIV_MACHINE_BOOT.
 *   device_state  regular file, O_RDONLY, opened for this machine alone (the VMM reads from where
 *                 the descriptor stands). Present exactly with PRIV_MACHINE_INCOMING.
 *
 * Inside the jail they have the numbers PRIV_JAIL_FD_FIRST + enum priv_fd, and the ones that QEMU
 * can only open by name have the names PRIV_JAIL_PATH_*. Names vanish with priv_machine_seal(),
 * descriptors stay.
 *
 * The client is thread-safe: calls from several threads queue up on one connection. It reconnects
 * by itself. If the connection breaks between request and reply of a call that may be repeated (all
 * but start, subvol_create and subvol_snapshot), it is repeated once; otherwise the call returns
 * -ECONNRESET and the caller must find out (priv_machine_next(), or look into the pool).
 */
#pragma once

#include "base/err.h"

#include <stdint.h>

#define PRIV_VERSION 1
#define PRIV_MAGIC 0x53504352u /* "SPCR" */
#define PRIV_BODY_MAX 128u     /* no operation's struct is larger */
#define PRIV_ID_SIZE 24u       /* up to 23 characters of [a-z0-9], NUL-padded to the end */
#define PRIV_MACHINE_UID_BASE \
    0x70000000u /* the least FIRST: above what distributions give to people and containers */
#define PRIV_MACHINE_SLOT_MAX 65535u
#define PRIV_MACHINE_UIDS (PRIV_MACHINE_SLOT_MAX + 1)
#define PRIV_MACHINE_UID_LAST 0xfffffffdu /* the two above mean "nobody" and "no change" */
#define PRIV_VCPUS_MAX 64u
#define PRIV_MEMORY_MIB_MIN 32u
#define PRIV_MEMORY_MIB_MAX 1048576u
#define PRIV_SNAPSHOT_N_MAX 999999999u
#define PRIV_CALL_TIMEOUT_NS (15ull * 1000 * 1000 * 1000) /* the longest call is a kill: 10 s */

#define PRIV_JAIL_FD_FIRST 3
#define PRIV_JAIL_FD(which) (PRIV_JAIL_FD_FIRST + (int)(which))
#define PRIV_JAIL_PATH_MEMORY "/memory"
#define PRIV_JAIL_PATH_KERNEL "/kernel"
#define PRIV_JAIL_PATH_INITRD "/initrd"

enum priv_op {
    PRIV_OP_MACHINE_START,
    PRIV_OP_MACHINE_SEAL,
    PRIV_OP_MACHINE_KILL,
    PRIV_OP_MACHINE_NEXT,
    PRIV_OP_MACHINE_STATS,
    PRIV_OP_MACHINE_COPY,
    PRIV_OP_SUBVOL_CREATE,
    PRIV_OP_SUBVOL_SNAPSHOT,
    PRIV_OP_SUBVOL_DELETE,
    PRIV_OP_MACHINE_SOCKET,
    PRIV_OP_LEASE,
    PRIV_OP_COUNT_,
};

enum priv_fd {
    PRIV_FD_MEMORY,
    PRIV_FD_DISK,
    PRIV_FD_QMP,
    PRIV_FD_CHANNEL,
    PRIV_FD_CONSOLE,
    PRIV_FD_KERNEL,
    PRIV_FD_INITRD,
    PRIV_FD_DEVICE_STATE,
    PRIV_FD_NET, /* never sent: the jail makes the tap itself */
    PRIV_FD_COUNT_,
};

/* Flags of struct priv_machine_start: either BOOT and BASE are set or INCOMING is. */
#define PRIV_MACHINE_KVM (1u << 0)  /* /dev/kvm is in the jail; else software emulation */
#define PRIV_MACHINE_BOOT (1u << 1) /* boots a kernel; else waits for a device state */
#define PRIV_MACHINE_INCOMING (1u << 2)
#define PRIV_MACHINE_BASE (1u << 3) /* writes its RAM into the memory file */
#define PRIV_MACHINE_FLAGS_ALL 0xfu

/*
 * One request packet: this header, then exactly the operation's struct. Both ends are one machine.
 */
struct priv_header {
    uint32_t magic;
    uint16_t version;
    uint16_t op; /* enum priv_op */
};

struct priv_machine_start {
    char id[PRIV_ID_SIZE];
    uint32_t uid_slot;
    uint32_t vcpus;
    uint32_t memory_mib;
    uint32_t flags;   /* PRIV_MACHINE_* */
    uint32_t fd_mask; /* 1u << enum priv_fd for each one sent; filled in by priv_machine_start() */
};

/*
 * machine_seal, machine_kill, machine_stats; machine_next: the id after which to go on, "" to
 * begin.
 */
struct priv_machine_id {
    char id[PRIV_ID_SIZE];
};

#define PRIV_COPY_INTO (1u << 0) /* into the machine's memory instead of out of it */

/* Three descriptors; see priv_machine_copy(). */
struct priv_machine_copy {
    char id[PRIV_ID_SIZE];
    uint32_t memory_mib;
    uint32_t flags; /* PRIV_COPY_INTO */
};

enum priv_copy_fd {
    PRIV_COPY_FD_FILE,
    PRIV_COPY_FD_PAGES,
    PRIV_COPY_FD_CONTROL,
    PRIV_COPY_FD_COUNT_,
};

enum priv_socket_kind {
    PRIV_SOCKET_TCP, /* listening: every TCP connection that the guest makes */
    PRIV_SOCKET_DNS, /* datagram: every UDP packet to port 53 that the guest sends */
    PRIV_SOCKET_KIND_COUNT_,
};

struct priv_machine_socket {
    char id[PRIV_ID_SIZE];
    uint32_t kind; /* enum priv_socket_kind */
};

/* Keep what you know; if that is nothing (you were started since, as after a boot), stand still. */
#define PRIV_LEASE_IF_UNKNOWN (1u << 0)

struct priv_lease {
    uint64_t until_ns; /* CLOCK_BOOTTIME; 0: there is no lease, machines run for ever */
    uint32_t flags;    /* PRIV_LEASE_IF_UNKNOWN, with until_ns 0 */
    uint32_t zero;
};

enum priv_subvol_kind {
    PRIV_SUBVOL_SANDBOX,  /* sandboxes/<id>; n is 0 */
    PRIV_SUBVOL_SNAPSHOT, /* snapshots/<id>/<n>; n from 1 */
    PRIV_SUBVOL_KIND_COUNT_,
};

struct priv_subvol {
    char id[PRIV_ID_SIZE];
    uint32_t kind; /* enum priv_subvol_kind */
    uint32_t n;
};

#define PRIV_SUBVOL_READONLY (1u << 0)

struct priv_subvol_snapshot {
    struct priv_subvol from;
    struct priv_subvol to;
    uint32_t flags; /* PRIV_SUBVOL_READONLY */
};

/*
 * A machine as the kernel knows it. pid 0: the VMM has ended by itself, the rest waits for a kill.
 */
struct priv_machine {
    char id[PRIV_ID_SIZE];
    int32_t pid;
    uint32_t uid_slot;
    uint64_t start_time; /* field 22 of /proc/PID/stat: with pid it names one process for ever */
};

struct priv_machine_stats {
    uint64_t cpu_ns;
    uint64_t memory_bytes;      /* charged to the cgroup, page cache included */
    uint64_t memory_anon_bytes; /* private pages: guest RAM written to, and the VMM's own */
    uint64_t memory_limit_bytes;
    uint64_t pids;
    uint64_t oom_kills;
};

struct priv_reply {
    uint32_t magic;
    int32_t code; /* 0, 1 (machine_next: here is one) or a negative errno */
    char reason[40];
    char msg[400];
    union {
        struct priv_machine machine;
        struct priv_machine_stats stats;
    } u;
};

struct priv_client;

/* Does not connect yet, so that services may start in any order. */
struct priv_client *priv_client_new(const char *socket_path);
void priv_client_free(struct priv_client *c);
/* What is asked of the node manager is counted from then on; see base/metric.h. */
void priv_metrics_register(void);

/*
 * Starts the machine and returns once its VMM has been exec'd. *ret_pidfd is owned by the caller
 * and becomes readable when the VMM ends. Errors for the caller: -EEXIST "machine_exists", -EBUSY
 * "slot_in_use", -EINVAL "bad_descriptor", -ENODEV "kvm_unusable". fds stay the caller's.
 */
MUST_CHECK int priv_machine_start(struct priv_client *c, const struct priv_machine_start *req,
                                  const int fds[PRIV_FD_COUNT_], struct priv_machine *ret,
                                  int *ret_pidfd, struct err *e);

/*
 * Empties the root of a running VMM. Call it once QMP has answered query-status: QEMU sends its
 * greeting before it has opened its files. Repeatable. -ENOENT: no such machine.
 */
MUST_CHECK int priv_machine_seal(struct priv_client *c, const char *id, struct err *e);

/* Ends the machine and removes all that root made for it. 0 also when there was none. */
MUST_CHECK int priv_machine_kill(struct priv_client *c, const char *id, struct err *e);

/*
 * Walks over the machines in order of their ids: begin with after = "", go on with the id of the
 * last one. Returns 1 and a machine (*ret_pidfd is FD_NONE if its pid is 0), or 0 at the end.
 */
MUST_CHECK int priv_machine_next(struct priv_client *c, const char *after, struct priv_machine *ret,
                                 int *ret_pidfd, struct err *e);

/* -ENOENT: no such machine. */
MUST_CHECK int priv_machine_stats(struct priv_client *c, const char *id,
                                  struct priv_machine_stats *ret, struct err *e);

/*
 * Starts a process with the machine's own user that copies its private pages into file_fd and their map into
 * pages_fd, regular files opened O_RDWR, whenever told so on control_fd, a connected SOCK_SEQPACKET
 * socket (the protocol is memory_copy_serve()'s, machine/memory-copy.h); or, with into, out of the two, which are
 * opened O_RDONLY then. It ends when the other end of the socket is closed. The descriptors stay the caller's.
 * -ENOENT "machine_not_found", -ESRCH "vmm_failed", -EINVAL "bad_descriptor".
 */
struct priv_copy_request {
    const char *id;
    uint32_t memory_mib;
    bool into;
    int file_fd;
    int pages_fd;
    int control_fd;
};
MUST_CHECK int priv_machine_copy(struct priv_client *c, const struct priv_copy_request *req,
                                 struct err *e);

/*
 * Opens a socket in the machine's network namespace, see jail/net.h: what the guest sends reaches whoever
 * holds it, under the address that the guest meant (getsockname() of an accepted connection; IP_PKTINFO, which
 * is on). There may be several of a kind, as when another process takes over: the kernel deals among them until
 * the older ones are closed. *ret_fd is the caller's; it keeps the namespace alive, without a guest, until it is
 * closed. -ENOENT "machine_not_found", -ESRCH "vmm_failed".
 */
MUST_CHECK int priv_machine_socket(struct priv_client *c, const char *id,
                                   enum priv_socket_kind kind, int *ret_fd, struct err *e);

/*
 * Until when machines may run (model/lease.h). When that has passed, all of them stand still (SIGSTOP) and none can be started
 * ("node_fenced"), whether or not we are there to see it; a later until_ns lets them go on. 1: they stand still now; 0: they run.
 */
MUST_CHECK int priv_lease(struct priv_client *c, const struct priv_lease *lease, struct err *e);

/*
 * Subvolumes are made with owner space-sandbox and mode 0700. -EEXIST: the name is taken; -ENOENT:
 * no source. Deleting one that is not there is success.
 */
MUST_CHECK int priv_subvol_create(struct priv_client *c, const struct priv_subvol *what,
                                  struct err *e);
MUST_CHECK int priv_subvol_snapshot(struct priv_client *c, const struct priv_subvol_snapshot *req,
                                    struct err *e);
MUST_CHECK int priv_subvol_delete(struct priv_client *c, const struct priv_subvol *what,
                                  struct err *e);

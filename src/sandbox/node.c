/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/node.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "ipc/netgate.h"
#include "machine/tsc.h"
#include "sandbox/base.h"
#include "sandbox/resident.h"
#include "sandbox/trust.h"
#include "volume/client.h"

#include <fcntl.h>
#include <linux/btrfs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MANIFEST_MAX (64u * 1024)

static int open_pool(struct node *node, struct err *e)
{
    cleanup_free char *path = xasprintf("%s/pool", node->state_dir);
    const struct {
        const char *name;
        int *fd;
    } folders[] = {{"templates", &node->templates_fd},     {"machines", &node->machines_fd},
                   {"sandboxes", &node->sandboxes_fd},     {"records", &node->records_fd},
                   {"snapshots", &node->snapshots_fd},     {"manifests", &node->manifests_fd},
                   {"checkpoints", &node->checkpoints_fd}, {"memory", &node->memory_fd}};

    node->pool_fd = fs_open(path, O_RDONLY | O_DIRECTORY, 0);
    if (node->pool_fd < 0) {
        return err_wrap(e, node->pool_fd, "opening the pool '%s' (does 'space up' prepare it?)",
                        path);
    }
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        *folders[i].fd = fs_mkdir_open(node->pool_fd, folders[i].name, 0700);
        if (*folders[i].fd < 0) {
            return err_wrap(e, *folders[i].fd, "opening '%s/%s'", path, folders[i].name);
        }
    }
    return 0;
}

/* The guest's kernel and initrd are named by their manifest's id: another id means new base machines. */
static int read_guest_id(struct node *node, struct err *e)
{
    cleanup_free char *path = xasprintf("%s/guest/manifest.json", node->state_dir);
    cleanup_buf struct buf text = BUF_INIT(MANIFEST_MAX);
    cleanup_json json_t *root = NULL;
    const char *id;
    int r = fs_read_file(AT_FDCWD, path, &text);

    if (r < 0) {
        return err_wrap(e, r, "reading '%s' (the guest kernel is prepared by ./up)", path);
    }
    r = json_parse_object(buf_str(&text), text.len, &root, e);
    if (r < 0) {
        return err_wrap(e, r, "reading '%s'", path);
    }
    id = json_get_string(root, "id", "");
    if (!*id || str_copy(node->guest_id, sizeof(node->guest_id), id) < 0 ||
        strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") != strlen(id)) {
        return err_set(e, -EBADMSG, NULL, "'%s' has no usable \"id\"", path);
    }
    return 0;
}

/* Whether the device can be used is known only once a base machine has booted on it: see base.c. */
static void choose_accel(struct node *node, bool allow_kvm)
{
    cleanup_close int fd = FD_NONE;

    node->accel = QEMU_ACCEL_TCG;
    if (!allow_kvm) {
        snprintf(node->accel_why, sizeof(node->accel_why), "KVM was switched off by --no-kvm");
        return;
    }
    fd = fs_open("/dev/kvm", O_RDWR, 0);
    if (fd < 0) {
        snprintf(node->accel_why, sizeof(node->accel_why), "/dev/kvm cannot be opened: %s",
                 strerrordesc_np(-fd));
        return;
    }
    node->accel = QEMU_ACCEL_KVM;
}

int node_open(const struct node_options *options, struct node **ret, struct err *e)
{
    CLEANUP(node_closep) struct node *node = xnew(struct node);
    cleanup_free char *socket = xasprintf("%s/node-manager.sock", options->run_dir);
    cleanup_free char *gate_socket = xasprintf("%s/" NETGATE_SOCKET, options->run_dir);
    int r;

    node->state_dir = options->state_dir;
    node->run_dir = options->run_dir;
    node->client_uid = options->client_uid;
    node->pool_fd = node->templates_fd = node->machines_fd = FD_NONE;
    node->sandboxes_fd = node->records_fd = FD_NONE;
    node->snapshots_fd = node->manifests_fd = node->checkpoints_fd = node->memory_fd = FD_NONE;
    pthread_mutex_init(&node->lock, NULL);
    node->host.driver = &machine_driver_qemu;
    node->host.run_dir = options->run_dir;
    node->host.priv = priv_client_new(socket);
    node->netgate = netgate_new(gate_socket);
    node->volume_socket = xasprintf("%s/" VOLUME_SOCKET, options->run_dir);
    node->trust = trust_new(options->run_dir);
    r = open_pool(node, e);
    if (r == 0) {
        r = node->host.driver->probe(node->vmm_version, e);
    }
    if (r == 0) {
        r = read_guest_id(node, e);
    }
    if (r < 0) {
        return r;
    }
    node->tsc_khz = tsc_measure_khz();
    choose_accel(node, options->allow_kvm);
    *ret = TAKE_PTR(node);
    return 0;
}

void node_close(struct node *node)
{
    if (!node) {
        return;
    }
    free(node->volume_socket);
    resident_free_all(node);
    base_free_all(node);
    priv_client_free(node->host.priv);
    netgate_free(node->netgate);
    trust_free(node->trust);
    fd_close(node->pool_fd);
    fd_close(node->templates_fd);
    fd_close(node->machines_fd);
    fd_close(node->sandboxes_fd);
    fd_close(node->records_fd);
    fd_close(node->snapshots_fd);
    fd_close(node->manifests_fd);
    fd_close(node->checkpoints_fd);
    fd_close(node->memory_fd);
    pthread_mutex_destroy(&node->lock);
    free(node);
}

int node_slot_take(struct node *node, uint32_t *ret)
{
    int r = -EUSERS;

    pthread_mutex_lock(&node->lock);
    for (uint32_t word = 0; word < ARRAY_SIZE(node->slots); word++) {
        if (node->slots[word] != UINT64_MAX) {
            uint32_t bit = (uint32_t)__builtin_ctzll(~node->slots[word]);

            node->slots[word] |= 1ull << bit;
            *ret = word * 64 + bit;
            r = 0;
            break;
        }
    }
    pthread_mutex_unlock(&node->lock);
    return r;
}

void node_slot_mark(struct node *node, uint32_t slot)
{
    ASSERT(slot <= PRIV_MACHINE_SLOT_MAX);
    pthread_mutex_lock(&node->lock);
    node->slots[slot / 64] |= 1ull << (slot % 64);
    pthread_mutex_unlock(&node->lock);
}

void node_slot_give(struct node *node, uint32_t slot)
{
    ASSERT(slot <= PRIV_MACHINE_SLOT_MAX);
    pthread_mutex_lock(&node->lock);
    node->slots[slot / 64] &= ~(1ull << (slot % 64));
    pthread_mutex_unlock(&node->lock);
}

bool node_slot_refused(const struct err *why)
{
    return why->code == -EBUSY && str_eq(why->reason, "slot_in_use");
}

int node_pool_space(const struct node *node, uint64_t *ret_free, uint64_t *ret_total)
{
    struct statvfs v;

    if (fstatvfs(node->pool_fd, &v) < 0) {
        return -errno;
    }
    *ret_free = (uint64_t)v.f_bavail * v.f_frsize;
    *ret_total = (uint64_t)v.f_blocks * v.f_frsize;
    return 0;
}

int node_identity(const struct node *node, char ret[static NODE_IDENTITY_SIZE])
{
    struct btrfs_ioctl_fs_info_args info = {0};
    char fsid[2 * BTRFS_FSID_SIZE + 1];
    struct stat st;

    if (ioctl(node->pool_fd, BTRFS_IOC_FS_INFO, &info) < 0 || fstat(node->pool_fd, &st) < 0) {
        return -errno;
    }
    hex_encode(info.fsid, BTRFS_FSID_SIZE, fsid);
    snprintf(ret, NODE_IDENTITY_SIZE, "%s-%llx", fsid, (unsigned long long)st.st_ino);
    return 0;
}

static int available_memory(uint64_t *ret_bytes)
{
    cleanup_buf struct buf text = BUF_INIT(16384);
    const char *at;
    int r = fs_read_file(AT_FDCWD, "/proc/meminfo", &text);

    if (r < 0) {
        return r;
    }
    at = strstr(buf_str(&text), "MemAvailable:");
    if (!at) {
        return -EBADMSG;
    }
    *ret_bytes = strtoull(at + strlen("MemAvailable:"), NULL, 10) << 10;
    return 0;
}

int node_check_room(struct node *node, const struct shape *shape, struct err *e)
{
    uint64_t memory_mib = shape->memory_mib;
    uint64_t free_bytes = 0;
    uint64_t total = 0;
    uint64_t memory = 0;
    int r = node_pool_space(node, &free_bytes, &total);

    if (r == 0) {
        r = available_memory(&memory);
    }
    if (r < 0) {
        return err_wrap(e, r, "looking at the node's resources");
    }
    if (free_bytes < NODE_POOL_RESERVE_BYTES) {
        return err_set(e, -ENOSPC, "pool_full",
                       "the node's pool has %llu MiB left: delete sandboxes or enlarge the pool",
                       (unsigned long long)(free_bytes >> 20));
    }
    if (((uint64_t)shape->disk_mib << 20) > free_bytes - NODE_POOL_RESERVE_BYTES) {
        return err_field(
            e, -ENOSPC, "pool_full", "disk_mib",
            "the node's pool has %llu MiB left, less than 'disk_mib': ask for a smaller disk, "
            "delete sandboxes or enlarge the pool",
            (unsigned long long)((free_bytes - NODE_POOL_RESERVE_BYTES) >> 20));
    }
    if (memory < (memory_mib << 20) + NODE_MEMORY_RESERVE_BYTES) {
        return err_set(
            e, -ENOMEM, "no_capacity",
            "the node has %llu MiB of memory left, too little for a machine of %llu MiB: delete or "
            "stop sandboxes, or ask for less memory_mib",
            (unsigned long long)(memory >> 20), (unsigned long long)memory_mib);
    }
    return 0;
}

const char *node_accel_name(enum qemu_accel accel)
{
    return accel == QEMU_ACCEL_KVM ? "kvm" : "tcg";
}

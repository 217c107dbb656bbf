/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/snapshot.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "sandbox/checkpoint.h"
#include "sandbox/disk.h"
#include "sandbox/figures.h"
#include "sandbox/guest.h"
#include "sandbox/history.h"
#include "sandbox/lineage.h"
#include "sandbox/resident.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MANIFEST_VERSION 1
#define MANIFEST_MAX 8192
/* A disk under heavy writing takes a while; a guest that does not answer holds up nobody for longer. */
#define SYNC_DEADLINE_MS 5000

static const char *const kind_names[] = {"disk", "full"};

/* ---- the manifest ---- */

json_t *snapshot_to_json(const struct snapshot *snap)
{
    json_t *out = json_pack(
        "{s:s, s:i, s:i, s:s, s:I, s:s, s:s, s:s, s:b, s:s, s:s, s:s, s:i, s:i, s:I, s:I}", "id",
        snap->id, "n", (int)snap->n, "parent", (int)snap->parent_n, "kind", kind_names[snap->kind],
        "created_at_ms", (json_int_t)snap->created_at_ms, "made_by", snap->made_by, "command",
        snap->command, "name", snap->name, "keep", snap->keep, "accel", snap->accel, "vmm_version",
        snap->vmm_version, "guest", snap->guest_id, "vcpus", (int)snap->vcpus, "memory_mib",
        (int)snap->memory_mib, "private_bytes", (json_int_t)snap->private_bytes, "pause_us",
        (json_int_t)snap->pause_us);

    ASSERT(out);
    return out;
}

static int copy_field(json_t *root, const char *name, char *dst, size_t size)
{
    return str_copy(dst, size, json_get_string(root, name, ""));
}

static int number_field(json_t *root, const char *name, uint32_t max, uint32_t *ret)
{
    int64_t v = json_get_int(root, name, -1);

    if (v < 0 || v > (int64_t)max) {
        return -EBADMSG;
    }
    *ret = (uint32_t)v;
    return 0;
}

int snapshot_from_json(json_t *root, struct snapshot *ret)
{
    struct snapshot s = {0};
    const char *kind = json_get_string(root, "kind", "");

    if (copy_field(root, "id", s.id, sizeof(s.id)) < 0 || !id_valid(ID_SNAPSHOT, s.id) ||
        number_field(root, "n", PRIV_SNAPSHOT_N_MAX, &s.n) < 0 || s.n == 0 ||
        number_field(root, "parent", PRIV_SNAPSHOT_N_MAX, &s.parent_n) < 0 ||
        copy_field(root, "made_by", s.made_by, sizeof(s.made_by)) < 0 ||
        copy_field(root, "command", s.command, sizeof(s.command)) < 0 ||
        copy_field(root, "name", s.name, sizeof(s.name)) < 0 ||
        copy_field(root, "accel", s.accel, sizeof(s.accel)) < 0 ||
        copy_field(root, "vmm_version", s.vmm_version, sizeof(s.vmm_version)) < 0 ||
        copy_field(root, "guest", s.guest_id, sizeof(s.guest_id)) < 0 ||
        number_field(root, "vcpus", SHAPE_VCPUS_MAX, &s.vcpus) < 0 ||
        number_field(root, "memory_mib", SHAPE_MEMORY_MIB_MAX, &s.memory_mib) < 0 ||
        (!str_eq(kind, "disk") && !str_eq(kind, "full"))) {
        return -EBADMSG;
    }
    s.kind = str_eq(kind, "full") ? SNAPSHOT_FULL : SNAPSHOT_DISK;
    s.keep = json_get_bool(root, "keep", false);
    s.created_at_ms = (uint64_t)json_get_int(root, "created_at_ms", 0);
    s.private_bytes = (uint64_t)json_get_int(root, "private_bytes", 0);
    s.pause_us = (uint64_t)json_get_int(root, "pause_us", 0);
    *ret = s;
    return 0;
}

int snapshot_name_check(const char *name, struct err *e)
{
    if (strlen(name) > SNAPSHOT_NAME_MAX) {
        return err_field(e, -EINVAL, "invalid_field", "name", "'name' is longer than %d bytes",
                         SNAPSHOT_NAME_MAX);
    }
    for (const char *c = name; *c; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7f) {
            return err_field(e, -EINVAL, "invalid_field", "name",
                             "'name' must not hold control characters");
        }
    }
    return 0;
}

static void manifest_name(const struct resident *res, uint32_t n, char ret[static 40])
{
    snprintf(ret, 40, "%s-%u.json", res->record.id, n);
}

static int write_manifest(struct resident *res, const struct snapshot *snap, bool durable,
                          struct err *e)
{
    cleanup_json json_t *root = snapshot_to_json(snap);
    cleanup_free char *text = NULL;
    char name[40];
    int r;

    json_object_set_new(root, "version", json_integer(MANIFEST_VERSION));
    json_object_set_new(root, "sandbox", json_string(res->record.id));
    text = json_text(root);
    manifest_name(res, snap->n, name);
    if (FAULT("snapshot.manifest")) {
        r = -EIO;
    } else if (durable) {
        r = fs_write_file_durable(res->node->manifests_fd, name, text, strlen(text), 0600);
    } else {
        r = fs_write_file_ordered(res->node->manifests_fd, name, text, strlen(text), 0600);
    }
    return r < 0 ? err_wrap(e, r, "writing the manifest of a snapshot") : 0;
}

int snapshot_save(struct resident *res, const struct snapshot *snap, struct err *e)
{
    return write_manifest(res, snap, /* durable */ true, e);
}

static int remove_manifest(const struct resident *res, const struct snapshot *snap, struct err *e)
{
    char name[40];

    manifest_name(res, snap->n, name);
    return unlinkat(res->node->manifests_fd, name, 0) < 0 && errno != ENOENT
               ? err_wrap(e, -errno, "removing the manifest of a snapshot")
               : 0;
}

/* ---- the list: newest first ---- */

void snapshot_adopt(struct resident *res, const struct snapshot *snap)
{
    struct snapshot *copy = xmemdup(snap, sizeof(*snap));
    struct snapshot **at = &res->snapshots;

    while (*at && (*at)->n > snap->n) {
        at = &(*at)->next;
    }
    copy->next = *at;
    *at = copy;
    figures_add_snapshot(snap, 1);
    res->record.last_n = MAX(res->record.last_n, snap->n);
}

void snapshot_free_list(struct resident *res)
{
    while (res->snapshots) {
        struct snapshot *s = res->snapshots;

        res->snapshots = s->next;
        figures_add_snapshot(s, -1);
        free(s);
    }
}

struct snapshot *snapshot_find(struct resident *res, const char *id)
{
    struct snapshot *s = res->snapshots;

    while (s && !str_eq(s->id, id)) {
        s = s->next;
    }
    return s;
}

struct snapshot *snapshot_newest(struct resident *res, enum snapshot_kind kind)
{
    uint32_t n = res->record.parent_n;

    /* Newest first, and a parent is always older than its child: one walk. */
    for (struct snapshot *s = res->snapshots; s; s = s->next) {
        if (s->n == n && s->kind == kind) {
            return s;
        }
        n = s->n == n ? s->parent_n : n;
    }
    return NULL;
}

static size_t count(const struct resident *res)
{
    size_t n = 0;

    for (const struct snapshot *s = res->snapshots; s; s = s->next) {
        n++;
    }
    return n;
}

/* ---- taking ---- */

struct priv_subvol snapshot_subvolume(const struct resident *res, uint32_t n)
{
    struct priv_subvol what = {.kind = n ? PRIV_SUBVOL_SNAPSHOT : PRIV_SUBVOL_SANDBOX, .n = n};

    ASSERT(str_copy(what.id, sizeof(what.id), res->record.id) == 0);
    return what;
}

struct taking {
    struct resident *res;
    struct snapshot *snap;
    bool stay_paused;
    bool passing;
};

static int copy_disk(void *arg, struct err *e)
{
    const struct taking *t = arg;
    const struct priv_subvol_snapshot request = {
        .from = snapshot_subvolume(t->res, t->res->record.disk_n),
        .to = snapshot_subvolume(t->res, t->snap->n),
        .flags = PRIV_SUBVOL_READONLY};
    int r = priv_subvol_snapshot(t->res->node->host.priv, &request, e);

    r = r == 0 && FAULT("snapshot.disk_copied") ? -EIO : r;
    return r < 0 ? err_wrap(e, r, "copying the disk") : 0;
}

/* What the guest has acknowledged as synced is in the disk file already; the rest is flushed now. */
static int flush_guest(struct resident *res, struct err *e)
{
    struct channel *ch = NULL;
    int r = resident_guest_begin(res, &ch, e);

    if (r < 0) {
        return r;
    }
    r = guest_call(
        ch, &(struct guest_call){"POST", "/sync", NULL, deadline_in_ms(SYNC_DEADLINE_MS)}, NULL, e);
    resident_guest_end(ch);
    return r;
}

static int take_disk(struct taking *t, struct err *e)
{
    struct err flush = {0};
    int r;

    if (resident_state(t->res) == SANDBOX_STATE_RUNNING &&
        clock_wall_ms() >= t->res->mute_until_ms && flush_guest(t->res, &flush) < 0) {
        t->res->mute_until_ms = clock_wall_ms() + RESIDENT_MUTE_MS;
        /* A guest that does not answer has a disk all the same: as after a power failure. */
        log_warn(&(struct log_ctx){.sandbox = t->res->record.id},
                 "the guest did not flush, going on: %s", flush.msg);
    }
    trace_mark(&t->res->trace, "guest flushed");
    /* The manifest first: making a snapshot of a subvolume commits all of the pool, so both are on the disk then. */
    r = write_manifest(t->res, t->snap, /* durable */ false, e);
    if (r == 0) {
        r = copy_disk(t, e);
    }
    trace_mark(&t->res->trace, "disk copied");
    return r;
}

static int take_full(struct taking *t, struct err *e)
{
    const struct record *rec = &t->res->record;
    struct checkpoint_stats stats = {0};
    const struct checkpoint_job job = {
        .node = t->res->node,
        .machine = t->res->machine,
        .sandbox_id = rec->id,
        .n = t->snap->n,
        .ram_bytes = (uint64_t)rec->shape.memory_mib << 20,
        .stay_paused = t->stay_paused || rec->state == SANDBOX_STATE_PAUSED ||
                       rec->state == SANDBOX_STATE_PAUSING,
        .passing = t->passing,
        .trace = &t->res->trace,
        .in_pause = copy_disk,
        .arg = t,
    };
    int r;

    if (!t->res->machine) {
        return err_set(e, -ESTALE, "not_running",
                       "a full snapshot needs a machine, and the sandbox is %s",
                       sandbox_state_name(rec->state));
    }
    r = checkpoint_save(&job, &stats, e);
    t->snap->private_bytes = stats.private_bytes;
    t->snap->pause_us = stats.pause_ns / 1000;
    return r;
}

static void describe(struct resident *res, const struct snapshot_wish *wish, struct snapshot *s)
{
    id_new(ID_SNAPSHOT, s->id);
    s->n = ++res->record.last_n;
    s->parent_n = res->record.parent_n;
    s->kind = wish->kind;
    s->keep = wish->keep;
    s->created_at_ms = clock_wall_ms();
    s->vcpus = res->record.shape.vcpus;
    s->memory_mib = res->record.shape.memory_mib;
    snprintf(s->made_by, sizeof(s->made_by), "%s", wish->made_by);
    snprintf(s->name, sizeof(s->name), "%s", wish->name ? wish->name : "");
    snprintf(s->command, sizeof(s->command), "%s", wish->command ? wish->command : "");
    snprintf(s->accel, sizeof(s->accel), "%s", node_accel_name(res->record.accel));
    snprintf(s->vmm_version, sizeof(s->vmm_version), "%s", res->node->vmm_version);
    snprintf(s->guest_id, sizeof(s->guest_id), "%s", res->node->guest_id);
}

static int remove_parts(struct resident *res, const struct snapshot *snap, struct err *e)
{
    const struct priv_subvol what = snapshot_subvolume(res, snap->n);
    int r = checkpoint_remove(res->node, res->record.id, snap->n);

    if (r < 0) {
        return err_wrap(e, r, "removing the memory of a snapshot");
    }
    return priv_subvol_delete(res->node->host.priv, &what, e);
}

static int take(struct resident *res, const struct snapshot_wish *wish, struct snapshot **ret,
                struct err *e)
{
    struct snapshot snap = {0};
    struct taking taking = {res, &snap, wish->stay_paused, wish->passing};
    int r;

    if (count(res) >= SNAPSHOTS_MAX) {
        return err_set(e, -EDQUOT, "too_many_snapshots",
                       "the sandbox has %d snapshots: delete some", SNAPSHOTS_MAX);
    }
    describe(res, wish, &snap);
    if (wish->kind == SNAPSHOT_DISK) {
        r = take_disk(&taking, e);
    } else {
        r = take_full(&taking, e);
        r = r == 0 ? write_manifest(res, &snap, /* durable */ !wish->passing, e) : r;
    }
    if (r < 0) {
        /* What cannot be removed now is swept at the next start, for one of the two is missing. */
        IGNORE_RESULT(remove_manifest(res, &snap, NULL));
        IGNORE_RESULT(remove_parts(res, &snap, NULL));
        return err_wrap(e, r, "taking a %s snapshot", kind_names[wish->kind]);
    }
    res->record.parent_n = snap.n;
    snapshot_adopt(res, &snap);
    *ret = snapshot_find(res, snap.id);
    history_add(res, "snapshot", "%s %s, made by %s%s%s%s%s", kind_names[snap.kind], snap.id,
                snap.made_by, snap.command[0] ? ", before " : "", snap.command,
                snap.name[0] ? ", named " : "", snap.name);
    /* Numbers in use are found again from the manifests: this write only saves the next start some work. */
    IGNORE_RESULT(resident_save(res, RECORD_SURVIVES_PROCESS, NULL));
    return 0;
}

int snapshot_take(struct resident *res, const struct snapshot_wish *wish, struct snapshot **ret,
                  struct err *e)
{
    uint64_t begun_ns = clock_now_ns();
    int r = take(res, wish, ret, e);

    figures_count_snapshot(wish->kind, r, clock_now_ns() - begun_ns);
    if (r == 0 && wish->kind == SNAPSHOT_FULL) {
        figures_count_pause((*ret)->pause_us);
    }
    return r;
}

bool snapshot_has_disk(const struct resident *res, const struct snapshot *snap)
{
    cleanup_free char *name = xasprintf("%s/%u/disk.img", res->record.id, snap->n);

    return faccessat(res->node->snapshots_fd, name, F_OK, 0) == 0 || errno != ENOENT;
}

/* ---- removing ---- */

static void unlink_from_list(struct resident *res, struct snapshot *snap)
{
    struct snapshot **at = &res->snapshots;

    while (*at != snap) {
        at = &(*at)->next;
    }
    *at = snap->next;
    figures_add_snapshot(snap, -1);
    free(snap);
}

int snapshot_delete(struct resident *res, struct snapshot *snap, struct err *e)
{
    int r;

    r = lineage_take_out(res, snap, e);
    if (r == 0 && FAULT("snapshot.relinked")) {
        r = err_wrap(e, -EIO, "deleting");
    }
    if (r < 0) {
        return r;
    }
    /* First the manifest: what is left after a crash is then swept, never taken for a snapshot. */
    r = remove_manifest(res, snap, e);
    if (r < 0) {
        return r;
    }
    r = FAULT("snapshot.manifest_gone") ? err_wrap(e, -EIO, "deleting")
                                        : remove_parts(res, snap, e);
    if (r == 0) {
        unlink_from_list(res, snap);
    }
    return r;
}

int snapshot_delete_all(struct resident *res, struct err *e)
{
    int r = 0;

    while (res->snapshots && r == 0) {
        r = snapshot_delete(res, res->snapshots, e);
    }
    return r;
}

int snapshot_exclusive_bytes(struct resident *res, const struct snapshot *snap, uint64_t *ret)
{
    cleanup_free char *name = xasprintf("%s/%u/disk.img", res->record.id, snap->n);
    cleanup_close int fd = fs_open_beneath(res->node->snapshots_fd, name, O_RDONLY, 0);
    uint64_t disk = 0;
    uint64_t memory = 0;
    int r = fd < 0 ? fd : disk_exclusive_bytes(fd, &disk);

    if (r == 0 && snap->kind == SNAPSHOT_FULL) {
        r = checkpoint_exclusive_bytes(res->node, res->record.id, snap->n, &memory);
    }
    if (r == 0) {
        *ret = disk + memory;
    }
    return r;
}

int snapshot_fits_node(const struct node *node, const struct snapshot *snap, struct err *e)
{
    if (!str_eq(snap->accel, node_accel_name(node->accel)) ||
        !str_eq(snap->vmm_version, node->vmm_version)) {
        return err_set(e, -ENOTSUP, "memory_does_not_fit",
                       "the snapshot's memory belongs to VMM %s on %s, this node has %s on %s",
                       snap->vmm_version, snap->accel, node->vmm_version,
                       node_accel_name(node->accel));
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/base.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "channel/host.h"
#include "model/shape.h"
#include "sandbox/console.h"
#include "sandbox/disk.h"
#include "sandbox/guest.h"
#include "sandbox/template.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A kernel boots in 2 to 4 s under emulation on an idle machine, far more slowly on a busy one. */
#define BOOT_DEADLINE_MS_TCG 120000
/* Under KVM it takes well under a second, but KVM inside an emulated machine takes 10 s and more; where it hangs, it ends. */
#define BOOT_DEADLINE_MS_KVM 90000
/* Hosts whose counters differ by more than this cannot share an emulated base machine. */
#define TSC_STEP_KHZ 20000u

/* One build at a time: it needs the whole machine anyway, and callers of one shape share the result. */
static pthread_mutex_t build_lock = PTHREAD_MUTEX_INITIALIZER;

struct build {
    struct node *node;
    const struct base *base;
    int dir_fd;     /* owned: the folder under its temporary name */
    int memory_fd;  /* owned */
    int disk_fd;    /* owned */
    int console_fd; /* owned */
    int kernel_fd;  /* owned */
    int initrd_fd;  /* owned */
    char id[ID_SIZE];
    uint32_t slot;
    uint64_t deadline_ns;
};

static void build_done(struct build *b)
{
    fd_close(b->dir_fd);
    fd_close(b->memory_fd);
    fd_close(b->disk_fd);
    fd_close(b->console_fd);
    fd_close(b->kernel_fd);
    fd_close(b->initrd_fd);
}

static int open_guest_file(const struct node *node, const char *name, int *ret_fd, struct err *e)
{
    cleanup_free char *path = xasprintf("%s/guest/%s", node->state_dir, name);

    *ret_fd = fs_open(path, O_RDONLY, 0);
    return *ret_fd < 0 ? err_wrap(e, *ret_fd, "opening '%s'", path) : 0;
}

static int open_new_file(int dir_fd, const char *name, mode_t mode, uint64_t size, int *ret_fd)
{
    int fd = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);

    if (fd < 0) {
        return -errno;
    }
    *ret_fd = fd;
    /* The umask must not take away what the VMM's user needs. */
    return fchmod(fd, mode) < 0 || ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
}

static int prepare_files(struct build *b, struct err *e)
{
    int r = open_new_file(b->dir_fd, "memory", 0666, (uint64_t)b->base->memory_mib << 20,
                          &b->memory_fd);

    if (r == 0) {
        r = open_new_file(b->dir_fd, "disk", 0600, BASE_DISK_BYTES, &b->disk_fd);
    }
    if (r < 0) {
        return err_wrap(e, r, "making the files of a base machine");
    }
    r = open_guest_file(b->node, "kernel", &b->kernel_fd, e);
    if (r == 0) {
        r = open_guest_file(b->node, "initrd", &b->initrd_fd, e);
    }
    return r;
}

static int start_vmm(struct build *b, struct machine **ret, struct err *e)
{
    struct machine_spec spec = {
        .id = b->id,
        .slot = b->slot,
        .accel = b->base->accel,
        .vcpus = b->base->vcpus,
        .memory_mib = b->base->memory_mib,
        .base = true,
        .memory_fd = b->memory_fd,
        .disk_fd = b->disk_fd,
        .kernel_fd = b->kernel_fd,
        .initrd_fd = b->initrd_fd,
        .device_state_fd = FD_NONE,
    };
    int r = console_open(b->node, b->id, &b->console_fd, e);

    if (r < 0) {
        return r;
    }
    spec.console_fd = b->console_fd;
    return machine_start(&b->node->host, &spec, b->deadline_ns, ret, e);
}

/* A machine that has mounted a clone and run a command once does it again in a tenth of the time. */
static int rehearse(struct build *b, struct machine *m, struct channel *ch, struct err *e)
{
    cleanup_template struct template t = {.disk_fd = FD_NONE};
    struct guest_setup setup = {.hostname = "base",
                                .machine_id = "00000000000000000000000000000000",
                                .default_user = "root",
                                .fresh = true,
                                .rehearse = true};
    int r = template_open(b->node, BASE_REHEARSAL_TEMPLATE, &t, NULL);

    if (r == -ENOENT) {
        log_warn(NULL, "there is no template '" BASE_REHEARSAL_TEMPLATE
                       "': the base machine is not rehearsed, first "
                       "commands will be slower");
        return 0;
    }
    if (r == 0) {
        r = disk_clone_into(t.disk_fd, b->disk_fd);
    }
    if (r < 0) {
        return err_wrap(e, r, "giving the base machine a disk to rehearse with");
    }
    setup.fstype = t.fstype;
    setup.disk_bytes = MAX(t.size_bytes, BASE_DISK_BYTES);
    r = machine_resize_disk(m, setup.disk_bytes, b->deadline_ns, e);
    if (r == 0) {
        r = guest_rehearse(ch, &setup, b->deadline_ns, e);
    }
    return r < 0 ? err_wrap(e, r, "rehearsing") : 0;
}

static int save(struct build *b, struct machine *m, struct err *e)
{
    cleanup_close int device_fd =
        openat(b->dir_fd, "device", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    int r;

    if (device_fd < 0) {
        return err_wrap(e, -errno, "making the device state");
    }
    r = machine_pause(m, b->deadline_ns, e);
    if (r == 0) {
        r = machine_save_state(m, device_fd, b->deadline_ns, e);
    }
    if (r == 0 && (fchmod(device_fd, 0444) < 0 || fsync(device_fd) < 0)) {
        r = err_wrap(e, -errno, "storing the device state");
    }
    return r;
}

static int run_machine(struct build *b, struct machine *m, struct err *e)
{
    CLEANUP(channel_freep) struct channel *ch = NULL;
    int r = channel_new(
        &(struct channel_options){.path = machine_channel_path(m), .sandbox = b->id}, &ch, e);

    if (r == 0) {
        r = channel_wait(ch, b->deadline_ns, e);
    }
    if (r == 0) {
        r = rehearse(b, m, ch, e);
    }
    if (r < 0) {
        return r;
    }
    channel_close(ch);
    return save(b, m, e);
}

static int finish_files(struct build *b, struct err *e)
{
    cleanup_json json_t *manifest = json_pack(
        "{s:s, s:s, s:i, s:i, s:s, s:s}", "key", b->base->key, "accel",
        node_accel_name(b->base->accel), "vcpus", (int)b->base->vcpus, "memory_mib",
        (int)b->base->memory_mib, "vmm_version", b->node->vmm_version, "guest", b->node->guest_id);
    cleanup_free char *text = json_text(manifest);
    int r = 0;

    if (fchmod(b->memory_fd, 0444) < 0 || fsync(b->memory_fd) < 0) {
        r = -errno;
    }
    if (r == 0) {
        r = fs_remove_tree(b->dir_fd, "disk");
    }
    if (r == 0) {
        r = fs_write_file_durable(b->dir_fd, "manifest.json", text, strlen(text), 0600);
    }
    return r < 0 ? err_wrap(e, r, "storing the base machine") : 0;
}

static int boot_and_save(struct build *b, struct err *e)
{
    struct machine *m = NULL;
    struct err why = {0};
    int r = prepare_files(b, e);

    if (r == 0) {
        r = node_slot_take(b->node, &b->slot);
    }
    if (r < 0) {
        return err_wrap(e, r, "preparing a base machine");
    }
    r = start_vmm(b, &m, &why);
    if (r == 0) {
        r = run_machine(b, m, &why);
    }
    if (r < 0) {
        console_tail_to_log(b->node, b->id);
    }
    machine_destroy(m);
    if (!node_slot_refused(&why)) {
        node_slot_give(b->node, b->slot);
    }
    if (r < 0 && e) {
        *e = why;
    }
    return r < 0 ? r : finish_files(b, e);
}

static int build_base(struct node *node, const struct base *base, struct err *e)
{
    struct build b = {.node = node,
                      .base = base,
                      .dir_fd = FD_NONE,
                      .memory_fd = FD_NONE,
                      .disk_fd = FD_NONE,
                      .console_fd = FD_NONE,
                      .kernel_fd = FD_NONE,
                      .initrd_fd = FD_NONE};
    char temp[ID_SIZE + 8];
    int r;

    id_new(ID_MACHINE, b.id);
    snprintf(temp, sizeof(temp), "new-%s", b.id);
    b.deadline_ns =
        deadline_in_ms(base->accel == QEMU_ACCEL_KVM ? BOOT_DEADLINE_MS_KVM : BOOT_DEADLINE_MS_TCG);
    b.dir_fd = fs_mkdir_open(node->machines_fd, temp, 0700);
    r = b.dir_fd < 0 ? err_wrap(e, b.dir_fd, "making a folder for a base machine")
                     : boot_and_save(&b, e);
    build_done(&b);
    if (r == 0 && renameat(node->machines_fd, temp, node->machines_fd, base->key) < 0) {
        r = err_wrap(e, -errno, "putting the base machine in place");
    }
    if (r < 0) {
        IGNORE_RESULT(
            fs_remove_tree(node->machines_fd, temp)); /* swept at the next start if it stays */
        return err_wrap(e, r, "building the base machine %s", base->key);
    }
    return fs_sync_dir(node->machines_fd);
}

static void name_base(const struct node *node, struct base *base)
{
    /* 12 digits of the guest's hash are plenty to tell a handful of versions apart. */
    uint32_t tsc =
        base->accel == QEMU_ACCEL_TCG ? (node->tsc_khz + TSC_STEP_KHZ / 2) / TSC_STEP_KHZ : 0;

    snprintf(base->key, sizeof(base->key), "%s-%u-%u-%.24s-%d.%u-%.12s",
             node_accel_name(base->accel), base->vcpus, base->memory_mib, node->vmm_version,
             QEMU_ARGS_VERSION, tsc, node->guest_id);
    for (char *c = base->key; *c; c++) {
        *c = *c == '/' ? '_' : *c;
    }
}

static int open_base(struct node *node, struct base *base)
{
    base->dir_fd = fs_open_beneath(node->machines_fd, base->key, O_RDONLY | O_DIRECTORY, 0);
    return base->dir_fd < 0 ? base->dir_fd : 0;
}

static int open_or_build(struct node *node, struct base *base, struct err *e)
{
    uint64_t begun = clock_now_ns();
    int r = open_base(node, base);

    if (r != -ENOENT) {
        return r < 0 ? err_wrap(e, r, "opening the base machine %s", base->key) : 0;
    }
    log_info(NULL, "building the base machine %s", base->key);
    r = build_base(node, base, e);
    if (r == 0) {
        r = open_base(node, base);
    }
    if (r == 0) {
        log_info(NULL, "base machine %s is ready after %llu ms", base->key,
                 (unsigned long long)((clock_now_ns() - begun) / NS_PER_MS));
    }
    return r;
}

static void fall_back_to_emulation(struct node *node, const struct err *why)
{
    node->accel = QEMU_ACCEL_TCG;
    snprintf(node->accel_why, sizeof(node->accel_why),
             "/dev/kvm is there, but a machine does not run on it: %.120s", why->msg);
    log_warn(NULL, "%s; going on with software emulation", node->accel_why);
}

static struct base *find_base(struct node *node, uint32_t vcpus, uint32_t memory_mib)
{
    struct base *found = NULL;

    pthread_mutex_lock(&node->lock);
    for (struct base *b = node->bases; b && !found; b = b->next) {
        if (b->vcpus == vcpus && b->memory_mib == memory_mib && b->accel == node->accel) {
            found = b;
            b->users++;
            b->used_ns = clock_now_ns();
        }
    }
    pthread_mutex_unlock(&node->lock);
    return found;
}

/* ---- which are kept ---- */

bool base_is_current(struct node *node, const char *name)
{
    struct base any = {.accel = str_starts(name, "kvm-") ? QEMU_ACCEL_KVM : QEMU_ACCEL_TCG};
    const char *mine;
    const char *its = name;

    name_base(node, &any); /* accel-vcpus-memory-VERSION-GUEST: the same from the third dash on */
    mine = any.key;
    for (int i = 0; i < 3 && mine && its; i++) {
        mine = strchr(mine, '-');
        its = strchr(its, '-');
        mine = mine ? mine + 1 : NULL;
        its = its ? its + 1 : NULL;
    }
    return mine && its && str_eq(mine, its);
}

static bool is_loaded(struct node *node, const char *key)
{
    bool loaded = false;

    pthread_mutex_lock(&node->lock);
    for (const struct base *b = node->bases; b && !loaded; b = b->next) {
        loaded = str_eq(b->key, key);
    }
    pthread_mutex_unlock(&node->lock);
    return loaded;
}

/* How many are on disk, how many of them with this prefix, and one that nobody has asked for since the start. */
static size_t count_folders(struct node *node, const char *prefix, size_t *ret_prefixed,
                            char ret_unknown[static NAME_MAX + 1])
{
    int fd = openat(node->machines_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    size_t n = 0;

    *ret_prefixed = 0;
    ret_unknown[0] = '\0';
    if (!dir) {
        fd_close(fd);
        return 0;
    }
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.' || str_starts(entry->d_name, "new-")) {
            continue;
        }
        n++;
        *ret_prefixed += str_starts(entry->d_name, prefix);
        if (!is_loaded(node, entry->d_name)) {
            snprintf(ret_unknown, NAME_MAX + 1, "%s", entry->d_name);
        }
    }
    closedir(dir);
    return n;
}

/* Out of the list: the one that was not wanted for longest. NULL: all are in use, or the usual shape's. */
static struct base *take_oldest(struct node *node)
{
    const struct shape usual = shape_default();
    struct base **oldest = NULL;
    struct base *taken = NULL;

    pthread_mutex_lock(&node->lock);
    for (struct base **at = &node->bases; *at; at = &(*at)->next) {
        bool is_usual = (*at)->vcpus == usual.vcpus && (*at)->memory_mib == usual.memory_mib;

        if ((*at)->users == 0 && !is_usual && (!oldest || (*at)->used_ns < (*oldest)->used_ns)) {
            oldest = at;
        }
    }
    if (oldest) {
        taken = *oldest;
        *oldest = taken->next;
    }
    pthread_mutex_unlock(&node->lock);
    return taken;
}

static void base_close(struct base *base)
{
    fd_close(base->dir_fd);
    free(base);
}

/* With the build lock, so that none is just being opened. */
static void give_up_spare(struct node *node)
{
    char name[NAME_MAX + 1];
    size_t prefixed;

    for (size_t n = count_folders(node, "", &prefixed, name); n > BASES_MAX; n--) {
        struct base *base = name[0] ? NULL : take_oldest(node);

        if (base) {
            snprintf(name, sizeof(name), "%s", base->key);
            base_close(base);
        }
        if (!name[0]) {
            return;
        }
        log_info(NULL, "giving up the base machine %s: there are %zu", name, n);
        if (fs_remove_tree(node->machines_fd, name) < 0) {
            log_warn(NULL, "cannot remove the base machine %s, ignoring", name);
            return;
        }
        count_folders(node, "", &prefixed, name);
    }
}

static bool kvm_has_worked(struct node *node)
{
    char name[NAME_MAX + 1];
    size_t n_kvm;

    count_folders(node, "kvm-", &n_kvm, name);
    return n_kvm > 0;
}

static int make_base(struct node *node, struct base *base, struct err *e)
{
    int r;

    base->accel = node->accel;
    name_base(node, base);
    r = open_or_build(node, base, e);
    if (r < 0 && base->accel == QEMU_ACCEL_KVM && !kvm_has_worked(node)) {
        struct err why = {0};

        err_wrap(&why, r, "%s", e ? e->msg : "no reason given");
        base->accel = QEMU_ACCEL_TCG;
        name_base(node, base);
        r = open_or_build(node, base, e);
        if (r == 0) {
            fall_back_to_emulation(node, &why);
        }
    }
    return r;
}

/* With the build lock. */
static int add_base(struct node *node, struct base *base, struct err *e)
{
    int r = make_base(node, base, e);

    if (r < 0) {
        return r;
    }
    base->users = 1;
    base->used_ns = clock_now_ns();
    pthread_mutex_lock(&node->lock);
    base->next = node->bases;
    node->bases = base;
    pthread_mutex_unlock(&node->lock);
    give_up_spare(node);
    return 0;
}

int base_get(struct node *node, uint32_t vcpus, uint32_t memory_mib, struct base **ret,
             struct err *e)
{
    struct base *base = find_base(node, vcpus, memory_mib);
    int r = 0;

    if (base) {
        *ret = base;
        return 0;
    }
    pthread_mutex_lock(&build_lock);
    base = find_base(node, vcpus, memory_mib);
    if (!base) {
        base = xnew(struct base);
        base->vcpus = vcpus;
        base->memory_mib = memory_mib;
        base->dir_fd = FD_NONE;
        r = add_base(node, base, e);
    }
    pthread_mutex_unlock(&build_lock);
    if (r < 0) {
        base_close(base);
        return r;
    }
    *ret = base;
    return 0;
}

void base_put(struct node *node, struct base *base)
{
    if (base) {
        pthread_mutex_lock(&node->lock);
        ASSERT(base->users > 0);
        base->users--;
        pthread_mutex_unlock(&node->lock);
    }
}

int base_open_device_state(const struct base *base)
{
    return fs_open_beneath(base->dir_fd, "device", O_RDONLY, 0);
}

void base_free_all(struct node *node)
{
    while (node->bases) {
        struct base *b = node->bases;

        node->bases = b->next;
        base_close(b);
    }
}

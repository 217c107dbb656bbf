/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "daemon/machine.h"
#include "daemon/mount.h"
#include "daemon/state.h"
#include "daemon/trust.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEARDOWN_MS 10000
#define TEARDOWN_LOOK_MS 2

static void setup_failed(struct state *st, const struct err *e)
{
    if (workload_ready(st->daemon->workload)) {
        workload_leave_ready(st->daemon->workload);
    }
    state_finish(st, e, /* json */ NULL);
}

static void setup_succeeded(struct state *st)
{
    state_finish(st, /* e */ NULL, json_pack("{s:b}", "ready", 1));
}

/* ---- the rehearsal: everything that the first command needs is read and warm ---- */

static int rehearse_child(void *arg, struct err *e)
{
    static char *const no_env[] = {NULL};
    struct state *st = arg;
    int status = 0;
    pid_t pid;
    int r = workload_enter(st->daemon->workload);

    if (r < 0) {
        return err_wrap(e, r, "entering the sandbox");
    }
    pid = fork();
    if (pid == 0) {
        execle("/bin/sh", "sh", "-c", ":", (char *)NULL, no_env);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
        WEXITSTATUS(status) != 0) {
        return err_set(e, -EIO, "rehearsal_failed", "/bin/sh does not run in this sandbox");
    }
    return 0;
}

static void on_rehearsed(void *arg, int r, const struct err *e, pid_t pid)
{
    struct state *st = arg;

    (void)pid;
    st->helper = NULL;
    if (r < 0) {
        setup_failed(st, e);
    } else {
        setup_succeeded(st);
    }
}

/* ---- mounting ---- */

static void trust_at(int root_fd, const struct setup_spec *spec)
{
    if (spec->authority) {
        trust_install(root_fd, spec->authority);
    }
    if (spec->ssh_host_key) {
        trust_install_ssh(root_fd, spec->ssh_host_key);
    }
}

/* In a child inside the sandbox. */
static void trust_in_child(const struct state *st)
{
    bool any = st->spec.authority || st->spec.ssh_host_key;
    cleanup_close int root_fd = any ? fs_open("/", O_RDONLY | O_DIRECTORY, 0) : FD_NONE;

    if (root_fd >= 0) {
        trust_at(root_fd, &st->spec);
    }
}

static int mount_child(void *arg, struct err *e)
{
    struct state *st = arg;
    struct mount_spec spec = {
        .device = st->spec.device,
        .fstype = st->spec.fstype,
        .fresh = st->spec.disk_fresh,
        .cgroup_ns_fd = workload_cgroup_ns(st->daemon->workload),
        .hostname = st->spec.hostname,
        .machine_id = st->spec.machine_id,
    };
    struct err inner;
    int r = mount_flush_device(spec.device, e);

    if (r == 0) {
        r = mount_wait_for_size(spec.device, (uint64_t)st->spec.disk_bytes, e);
    }
    if (r == 0) {
        r = mount_sandbox(&spec, e);
    }
    if (r == 0) {
        trust_in_child(st);
    }
    if (r == 0 && !mount_has_room()) {
        mount_grow((uint64_t)st->spec.disk_bytes);
    }
    if (r < 0 && !e->reason[0]) { /* not the fault of what was asked */
        inner = *e;
        r = err_set(e, -EIO, "disk_unusable", "%s", inner.msg);
    }
    return r;
}

static void grow_after(void *arg)
{
    const struct state *st = arg;

    mount_grow((uint64_t)st->spec.disk_bytes);
}

/* The helper stands in the new namespace: take hold of it. */
static int take_place(pid_t pid, struct workload_place *ret)
{
    cleanup_close int ns_fd = FD_NONE;
    char path[64];
    int root_fd;

    snprintf(path, sizeof(path), "/proc/%d/ns/mnt", pid);
    ns_fd = fs_open(path, O_RDONLY, 0);
    if (ns_fd < 0) {
        return ns_fd;
    }
    snprintf(path, sizeof(path), "/proc/%d/root", pid);
    root_fd = fs_open(path, O_PATH | O_DIRECTORY, 0);
    if (root_fd < 0) {
        return root_fd;
    }
    *ret = (struct workload_place){.root_fd = root_fd, .mount_ns_fd = TAKE_FD(ns_fd)};
    return 0;
}

static void on_mounted(void *arg, int r, const struct err *e, pid_t pid)
{
    struct state *st = arg;
    struct workload_place place;
    struct err mine = {0};

    st->helper = NULL;
    if (r < 0) {
        setup_failed(st, e);
        return;
    }
    r = take_place(pid, &place);
    if (r < 0) {
        err_wrap(&mine, r, "taking hold of the sandbox's namespace");
        setup_failed(st, &mine);
        return;
    }
    workload_enter_ready(st->daemon->workload, place);
    if (st->spec.rehearse) {
        state_help(st, "rehearsing", rehearse_child, on_rehearsed);
    } else {
        setup_succeeded(st);
    }
}

static void limit_processes(const struct workload *w, int64_t max)
{
    cleanup_close int fd = workload_cgroup(w) < 0 || max == 0
                               ? FD_NONE
                               : openat(workload_cgroup(w), "pids.max", O_WRONLY | O_CLOEXEC);
    char text[32];

    if (fd >= 0) {
        snprintf(text, sizeof(text), "%lld", (long long)max);
        if (fs_write_all(fd, text, strlen(text)) < 0) {
            log_warn(NULL, "cannot limit the number of processes, ignoring");
        }
    }
}

void setup_post(struct request *req)
{
    struct state *st = state_of(req);
    struct daemon *d = st->daemon;
    struct err e = {0};
    int r;

    if (!state_begin(st, req, "setup")) {
        return;
    }
    if (workload_ready(d->workload) && !d->test) {
        err_set(&e, -EBUSY, "already_set_up", "the sandbox has been set up already");
        state_finish(st, &e, /* json */ NULL);
        return;
    }
    setup_spec_done(&st->spec); /* of a set-up that was torn down */
    r = setup_spec_parse(request_json(req), &st->spec, &e);
    if (r == 0 && !d->test && !st->spec.device[0]) {
        r = err_field(&e, -EINVAL, "missing_field", "disk",
                      "'disk' is missing: give device and fstype");
    }
    if (r == 0 && !d->test) {
        r = machine_identify(&st->spec, &e);
    }
    if (r < 0) {
        setup_spec_done(&st->spec);
        state_finish(st, &e, /* json */ NULL);
        return;
    }
    workload_configure(d->workload, TAKE_PTR(st->spec.env), st->spec.default_user);
    limit_processes(d->workload, st->spec.max_processes);
    if (d->test) { /* its root is there from the start */
        setup_succeeded(st);
    } else {
        state_help_then(st, "mounting the sandbox", mount_child, on_mounted, grow_after);
    }
}

/* ---- teardown ---- */

static bool cgroup_empty(const struct workload *w)
{
    cleanup_buf struct buf text = BUF_INIT(4096);

    return workload_cgroup(w) < 0 || fs_read_file(workload_cgroup(w), "cgroup.events", &text) < 0 ||
           strstr(buf_str(&text), "populated 0");
}

static void cgroup_kill_all(const struct workload *w)
{
    cleanup_close int fd = workload_cgroup(w) < 0
                               ? FD_NONE
                               : openat(workload_cgroup(w), "cgroup.kill", O_WRONLY | O_CLOEXEC);

    if (fd >= 0 && fs_write_all(fd, "1", 1) < 0) {
        log_warn(NULL, "cannot kill the workload's processes, ignoring");
    }
}

/* The kernel unmounts when the last user has gone, a moment after: look until the disk is free. */
void setup_teardown_tick(void *arg)
{
    struct state *st = arg;
    bool late = deadline_passed(st->deadline_ns);
    struct err e = {0};

    if (cgroup_empty(st->daemon->workload)) {
        workload_leave_ready(st->daemon->workload);
        if (mount_device_free(st->spec.device)) {
            int r = mount_flush_device(st->spec.device, &e);

            state_finish(st, r < 0 ? &e : NULL, /* json */ NULL);
            return;
        }
    }
    if (late) {
        err_set(&e, -ETIMEDOUT, "teardown_stuck",
                "the sandbox's processes or its disk are still in use");
        state_finish(st, &e, /* json */ NULL);
        return;
    }
    loop_timer_set(st->timer, deadline_in_ms(TEARDOWN_LOOK_MS));
}

void setup_teardown_post(struct request *req)
{
    struct state *st = state_of(req);

    if (!state_begin(st, req, "teardown")) {
        return;
    }
    modules_teardown(st->daemon);
    if (st->daemon->test || !workload_ready(st->daemon->workload)) {
        state_finish(st, /* e */ NULL, /* json */ NULL);
        return;
    }
    cgroup_kill_all(st->daemon->workload);
    workload_configure(st->daemon->workload, /* env */ NULL, "");
    st->deadline_ns = deadline_in_ms(TEARDOWN_MS);
    setup_teardown_tick(st);
}

/* ---- identity: after a restore or fork ---- */

static int identity_child(void *arg, struct err *e)
{
    struct state *st = arg;
    int r = workload_enter(st->daemon->workload);

    if (r < 0) {
        return err_wrap(e, r, "entering the sandbox");
    }
    mount_write_identity(st->spec.hostname, st->spec.machine_id);
    trust_in_child(st);
    return 0;
}

static void on_identified(void *arg, int r, const struct err *e, pid_t pid)
{
    struct state *st = arg;

    (void)pid;
    st->helper = NULL;
    state_finish(st, r < 0 ? e : NULL, /* json */ NULL);
}

/* Without a child, where nothing of the workload's can keep us waiting. */
static bool write_at_once(const struct state *st, const struct setup_spec *spec)
{
    int root_fd = workload_root(st->daemon->workload);

    if (!mount_write_identity_at(root_fd, spec->hostname, spec->machine_id)) {
        return false;
    }
    trust_at(root_fd, spec);
    return true;
}

void setup_identity_post(struct request *req)
{
    struct state *st = state_of(req);
    struct setup_spec spec = {0};
    struct err e = {0};
    int r;

    if (!state_begin(st, req, "identity")) {
        return;
    }
    r = identity_spec_parse(request_json(req), &spec, &e);
    if (r == 0 && !st->daemon->test) {
        r = machine_identify(&spec, &e);
    }
    if (r == 0 && spec.env) {
        workload_set_env(st->daemon->workload, TAKE_PTR(spec.env));
    }
    if (r < 0 || st->daemon->test || !workload_ready(st->daemon->workload) ||
        (!spec.hostname[0] && !spec.machine_id[0]) || /* a resume: there is nothing to write */
        (!st->frozen && write_at_once(st, &spec))) {
        setup_spec_done(&spec);
        state_finish(st, r < 0 ? &e : NULL, /* json */ NULL);
        return;
    }
    memcpy(st->spec.hostname, spec.hostname, sizeof(spec.hostname));
    memcpy(st->spec.machine_id, spec.machine_id, sizeof(spec.machine_id));
    free(st->spec.authority);
    st->spec.authority = TAKE_PTR(spec.authority);
    free(st->spec.ssh_host_key);
    st->spec.ssh_host_key = TAKE_PTR(spec.ssh_host_key);
    setup_spec_done(&spec);
    state_help(st, "writing the sandbox's identity", identity_child, on_identified);
}

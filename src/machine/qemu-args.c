/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/qemu-args.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/*
 * Without a KVM clock the guest can hang while it calibrates its timer on a busy host: under emulation it
 * is told instead. Mitigations protect against other guests on the same core, which the host does.
 */
#define CMDLINE_COMMON "console=ttyS0 quiet panic=-1 reboot=t random.trust_cpu=on cgroup_no_v1=all"
#define CMDLINE_TCG " no_timer_check mitigations=off"
/*
 * The host's counter at the rate that was measured: a guest has nothing to measure it with, and on a busy host
 * its watchdog would give it up for clocks with steps of 4 ms. lpj is per tick, of which a Debian kernel has 250
 * a second.
 */
#define CMDLINE_TSC " tsc=reliable tsc_early_khz=%u lpj=%u"
#define TICKS_PER_S 250
/* Translated code is private memory of each VMM: enough for a working set, not QEMU's default of 1 GiB. */
/* Emulated "rep movsb" goes byte by byte: without these two bits the guest copies by words instead. */
#define CPU_TCG "max,-erms,-fsrm"
#define TCG_OPTIONS "tcg,tb-size=64"

struct writer {
    struct qemu_args *args;
    size_t n_args;
    size_t n_text;
    int error;
};

static void add(struct writer *w, const char *fmt, ...) PRINTF(2, 3);
static void add(struct writer *w, const char *fmt, ...)
{
    size_t room = sizeof(w->args->text) - w->n_text;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(w->args->text + w->n_text, room, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= room || w->n_args + 1 >= QEMU_ARGS_MAX) {
        w->error = -E2BIG;
        return;
    }
    w->args->argv[w->n_args++] = w->args->text + w->n_text;
    w->n_text += (size_t)n + 1;
}

static bool plain_id(const char *id)
{
    return id && id[0] && strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == strlen(id);
}

static void add_machine(struct writer *w, const struct qemu_args_spec *spec)
{
    bool tcg = spec->accel == QEMU_ACCEL_TCG;

    add(w, QEMU_PATH);
    add(w, "-name");
    add(w, "%s", spec->id);
    for (const char *const *word = (const char *const[]){"-nodefaults", "-no-user-config",
                                                         "-display", "none", "-no-reboot", NULL};
         *word; word++) {
        add(w, "%s", *word);
    }
    add(w, "-machine");
    add(w, "microvm,acpi=on,rtc=on,pit=off,pic=off,isa-serial=on,memory-backend=ram");
    add(w, "-accel");
    add(w, tcg ? TCG_OPTIONS : "kvm");
    add(w, "-cpu");
    add(w, tcg ? CPU_TCG : "host");
    add(w, "-smp");
    add(w, "%u", spec->vcpus);
    add(w, "-m");
    add(w, "size=%uM", spec->memory_mib);
    add(w, "-object");
    add(w, "memory-backend-file,id=ram,size=%uM,mem-path=%s,%s", spec->memory_mib,
        spec->memory_path, spec->boot ? "share=on" : "share=off,readonly=on,rom=off");
}

static void add_devices(struct writer *w, const struct qemu_args_spec *spec)
{
    add(w, "-chardev");
    add(w, "stdio,id=console,signal=off");
    add(w, "-serial");
    add(w, "chardev:console");
    add(w, "-chardev");
    add(w, "socket,id=qmp,fd=%d,server=on,wait=off", spec->qmp_fd);
    add(w, "-mon");
    add(w, "chardev=qmp,mode=control");
    add(w, "-chardev");
    add(w, "socket,id=channel,fd=%d,server=on,wait=off", spec->channel_fd);
    add(w, "-device");
    add(w, "virtio-serial-device");
    add(w, "-device");
    add(w, "virtserialport,chardev=channel,name=space.0");
    add(w, "-add-fd");
    add(w, "fd=%d,set=1", spec->disk_fd);
    add(w, "-blockdev");
    add(w, "driver=file,node-name=disk-file,filename=/dev/fdset/1,locking=off,discard=unmap");
    add(w, "-blockdev");
    add(w, "driver=raw,node-name=" QEMU_NODE_DISK ",file=disk-file,discard=unmap");
    add(w, "-device");
    add(w, "virtio-blk-device,drive=" QEMU_NODE_DISK);
    add(w, "-netdev");
    add(w, "tap,id=net,fd=%d,vhost=off", spec->net_fd);
    add(w, "-device");
    add(w, "virtio-net-device,netdev=net,mac=" QEMU_GUEST_MAC);
}

static void add_cmdline(struct writer *w, const struct qemu_args_spec *spec)
{
    if (spec->accel != QEMU_ACCEL_TCG) {
        add(w, CMDLINE_COMMON);
    } else if (spec->tsc_khz == 0) {
        add(w, CMDLINE_COMMON CMDLINE_TCG);
    } else {
        add(w, CMDLINE_COMMON CMDLINE_TCG CMDLINE_TSC, spec->tsc_khz,
            spec->tsc_khz * (1000 / TICKS_PER_S));
    }
}

static void add_start(struct writer *w, const struct qemu_args_spec *spec)
{
    if (spec->boot) {
        add(w, "-kernel");
        add(w, "%s", spec->kernel_path);
        add(w, "-initrd");
        add(w, "%s", spec->initrd_path);
        add(w, "-append");
        add_cmdline(w, spec);
    } else {
        add(w, "-add-fd");
        add(w, "fd=%d,set=2", spec->device_state_fd);
        add(w, "-S"); /* stays stopped until its disk is bound */
        add(w, "-incoming");
        add(w, "defer");
        add(w, "-global");
        add(w, "migration.send-configuration=off");
    }
    /* QEMU's own filter goes on after start-up and is stricter than the jail's: no exec, no new privilege. */
    add(w, "-sandbox");
    add(w, "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
}

int qemu_args_build(const struct qemu_args_spec *spec, struct qemu_args *ret)
{
    struct writer w = {.args = ret};

    if (!plain_id(spec->id) || spec->vcpus == 0 || spec->memory_mib == 0) {
        return -EINVAL;
    }
    add_machine(&w, spec);
    add_devices(&w, spec);
    add_start(&w, spec);
    if (w.error == 0) {
        ret->argv[w.n_args] = NULL;
    }
    return w.error;
}

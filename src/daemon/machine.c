/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/machine.h"

#include "base/clock.h"
#include "base/fs.h"

#include <fcntl.h>
#include <linux/random.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define PROC_FILE_MAX 65536

static int add_entropy(const struct setup_spec *spec, struct err *e)
{
    cleanup_close int fd = fs_open("/dev/urandom", O_WRONLY, 0);
    union { /* the kernel's struct ends in an array without a length */
        struct rand_pool_info info;
        uint8_t room[sizeof(struct rand_pool_info) + SETUP_ENTROPY_MAX];
    } pool;

    if (fd < 0) {
        return err_wrap(e, fd, "opening the random device");
    }
    pool.info.entropy_count = (int)spec->n_entropy * 8;
    pool.info.buf_size = (int)spec->n_entropy;
    memcpy(pool.info.buf, spec->entropy, spec->n_entropy);
    if (ioctl(fd, RNDADDENTROPY, &pool) < 0 || ioctl(fd, RNDRESEEDCRNG) < 0) {
        return err_wrap(e, -errno, "adding randomness");
    }
    explicit_bzero(&pool, sizeof(pool));
    return 0;
}

int machine_identify(const struct setup_spec *spec, struct err *e)
{
    if (spec->n_entropy > 0) {
        int r = add_entropy(spec, e);

        if (r < 0) {
            return r;
        }
    }
    if (spec->epoch_ns > 0) {
        struct timespec now = {.tv_sec = (time_t)((uint64_t)spec->epoch_ns / NS_PER_S),
                               .tv_nsec = (long)((uint64_t)spec->epoch_ns % NS_PER_S)};

        if (clock_settime(CLOCK_REALTIME, &now) < 0) {
            return err_wrap(e, -errno, "setting the clock");
        }
    }
    if (spec->hostname[0] && sethostname(spec->hostname, strlen(spec->hostname)) < 0) {
        return err_wrap(e, -errno, "setting the host name");
    }
    return 0;
}

/* ---- figures ---- */

/* The number after "key" at the start of a line of a /proc text; false when it is not there. */
static bool find_number(const char *text, const char *key, unsigned long long *ret)
{
    size_t len = strlen(key);

    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0) {
            return sscanf(line + len, " %llu", ret) == 1;
        }
    }
    return false;
}

static void add_memory(json_t *obj)
{
    static const struct {
        const char *key;
        const char *name;
    } lines[] = {
        {"MemTotal:", "total_bytes"},
        {"MemAvailable:", "available_bytes"},
        {"MemFree:", "free_bytes"},
        {"Cached:", "cached_bytes"},
    };
    cleanup_buf struct buf text = BUF_INIT(PROC_FILE_MAX);
    json_t *memory = json_object();

    if (fs_read_file(AT_FDCWD, "/proc/meminfo", &text) == 0) {
        for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
            unsigned long long kib;

            if (find_number(buf_str(&text), lines[i].key, &kib)) {
                json_object_set_new(memory, lines[i].name, json_integer((json_int_t)kib * 1024));
            }
        }
    }
    json_object_set_new(obj, "memory", memory);
}

static void add_cpu(json_t *obj)
{
    cleanup_buf struct buf text = BUF_INIT(PROC_FILE_MAX);
    unsigned long long t[8] = {0};
    json_t *cpu = json_object();
    long hz = sysconf(_SC_CLK_TCK);

    /* user nice system idle iowait irq softirq steal */
    if (fs_read_file(AT_FDCWD, "/proc/stat", &text) == 0 && hz > 0 &&
        sscanf(buf_str(&text), "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2],
               &t[3], &t[4], &t[5], &t[6], &t[7]) == 8) {
        json_object_set_new(cpu, "user_ms",
                            json_integer((json_int_t)((t[0] + t[1]) * 1000 / (unsigned long)hz)));
        json_object_set_new(
            cpu, "system_ms",
            json_integer((json_int_t)((t[2] + t[5] + t[6]) * 1000 / (unsigned long)hz)));
        json_object_set_new(cpu, "idle_ms",
                            json_integer((json_int_t)(t[3] * 1000 / (unsigned long)hz)));
        json_object_set_new(cpu, "iowait_ms",
                            json_integer((json_int_t)(t[4] * 1000 / (unsigned long)hz)));
    }
    json_object_set_new(cpu, "count", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    json_object_set_new(obj, "cpu", cpu);
}

static void add_load(json_t *obj)
{
    cleanup_buf struct buf text = BUF_INIT(PROC_FILE_MAX);
    double load[3];
    unsigned running;
    unsigned all;

    if (fs_read_file(AT_FDCWD, "/proc/loadavg", &text) == 0 &&
        sscanf(buf_str(&text), "%lf %lf %lf %u/%u", &load[0], &load[1], &load[2], &running, &all) ==
            5) {
        json_object_set_new(obj, "load", json_pack("[f,f,f]", load[0], load[1], load[2]));
        json_object_set_new(obj, "threads", json_integer(all));
    }
}

void machine_metrics(json_t *obj)
{
    add_cpu(obj);
    add_memory(obj);
    add_load(obj);
}

void machine_boot_id(char ret[static 37])
{
    cleanup_buf struct buf text = BUF_INIT(64);

    ret[0] = '\0';
    if (fs_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &text) == 0 && text.len >= 36) {
        memcpy(ret, text.data, 36);
        ret[36] = '\0';
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "machine/tsc.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#define SPAN_MS 200
#define TRIES 16
#define CPUINFO_MAX (1u << 20)

struct moment {
    uint64_t ticks;
    uint64_t ns;
};

/* Both clocks at one moment: the pair that was read with the fewest ticks between. */
static struct moment look(void)
{
    struct moment best = {0};
    uint64_t narrowest = UINT64_MAX;

    for (int i = 0; i < TRIES; i++) {
        uint64_t before = __rdtsc();
        uint64_t ns = clock_now_ns();
        uint64_t after = __rdtsc();

        if (after - before < narrowest) {
            narrowest = after - before;
            best = (struct moment){before + narrowest / 2, ns};
        }
    }
    return best;
}

static bool is_constant(void)
{
    cleanup_buf struct buf text = BUF_INIT(CPUINFO_MAX);

    return fs_read_file(AT_FDCWD, "/proc/cpuinfo", &text) == 0 &&
           strstr(buf_str(&text), " constant_tsc");
}

uint32_t tsc_measure_khz(void)
{
    struct moment a;
    struct moment b;

    if (!is_constant()) {
        return 0;
    }
    a = look();
    IGNORE_RESULT(poll(NULL, 0, SPAN_MS)); /* how long exactly does not matter */
    b = look();
    return (uint32_t)((double)(b.ticks - a.ticks) * 1e6 / (double)(b.ns - a.ns) + 0.5);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress.h"

#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cond.h"

#define PROGRESS_FIRST_MS 250u
#define PROGRESS_EVERY_MS 100u
#define PROGRESS_BAR 24u

struct progress {
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t changed;
    pthread_t thread;
    bool threaded; /* written before the thread starts */
    bool ending;
    bool drawn;
    bool colour;
    char text[256];
    uint64_t done;
    uint64_t total;
    uint64_t started_ns;
    unsigned turn;
};

static unsigned progress_width(void)
{
    struct winsize size = {0};

    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

static void progress_wipe(struct progress *p)
{
    if (p->drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        p->drawn = false;
    }
}

static void progress_bar(const struct progress *p, char *ret, size_t size)
{
    char done[32];
    char total[32];
    char rate[32];
    char bar[PROGRESS_BAR + 1];
    uint64_t ms = (clock_now_ns() - p->started_ns) / NS_PER_MS;
    size_t full;

    ui_size(p->done, done, sizeof(done));
    ui_size(ms ? p->done * 1000 / ms : 0, rate, sizeof(rate));
    if (p->total == 0) {
        ret[0] = '\0';
        if (p->done > 0) {
            snprintf(ret, size, "  %s  %s/s", done, rate);
        }
        return;
    }
    ui_size(p->total, total, sizeof(total));
    full = (size_t)(MIN(p->done, p->total) * PROGRESS_BAR / p->total);
    memset(bar, '.', PROGRESS_BAR);
    memset(bar, '#', full);
    bar[PROGRESS_BAR] = '\0';
    snprintf(ret, size, "  [%s] %s of %s  %s/s", bar, done, total, rate);
}

static void progress_draw(struct progress *p)
{
    static const char wheel[] = "|/-\\";
    char line[512];
    char amount[160];
    char age[32];
    unsigned width = progress_width();

    progress_bar(p, amount, sizeof(amount));
    ui_age((clock_now_ns() - p->started_ns) / NS_PER_S, age, sizeof(age));
    snprintf(line, sizeof(line), "%c %s%s  %s", wheel[p->turn++ % 4], p->text, amount, age);
    fprintf(stderr, "\r%s%.*s%s\033[K", p->colour ? "\033[2m" : "", (int)ui_prefix(line, width - 1),
            line, p->colour ? "\033[0m" : "");
    fflush(stderr);
    p->drawn = true;
}

static void *progress_main(void *arg)
{
    struct progress *p = arg;
    uint64_t next_ms = PROGRESS_FIRST_MS;

    pthread_mutex_lock(&p->lock);
    while (!p->ending) {
        if (cond_wait_until(&p->changed, &p->lock, deadline_in_ms(next_ms)) < 0 && !p->ending) {
            progress_draw(p);
            next_ms = PROGRESS_EVERY_MS;
        }
    }
    progress_wipe(p);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

struct progress *progress_start(const struct ui *ui, const char *fmt, ...)
{
    struct progress *p = xnew(struct progress);
    char text[sizeof(p->text)];
    cleanup_free char *clean = NULL;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    clean = ui_clean(text, strlen(text), /* lines */ false);
    snprintf(p->text, sizeof(p->text), "%s", clean);

    p->started_ns = clock_now_ns();
    p->colour = ui->err_colour;
    pthread_mutex_init(&p->lock, /* attr */ NULL);
    cond_init(&p->changed);
    /* Without the thread there is no line, and nothing else is lost. */
    p->threaded = ui->err_tty && !ui->quiet &&
                  pthread_create(&p->thread, /* attr */ NULL, progress_main, p) == 0;
    return p;
}

void progress_set(struct progress *p, uint64_t done, uint64_t total)
{
    pthread_mutex_lock(&p->lock);
    p->done = done;
    p->total = total;
    pthread_mutex_unlock(&p->lock);
}

void progress_text(struct progress *p, const char *fmt, ...)
{
    char text[sizeof(p->text)];
    cleanup_free char *clean = NULL;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    clean = ui_clean(text, strlen(text), /* lines */ false);
    pthread_mutex_lock(&p->lock);
    snprintf(p->text, sizeof(p->text), "%s", clean);
    pthread_mutex_unlock(&p->lock);
}

void progress_line(struct progress *p, const char *text)
{
    pthread_mutex_lock(&p->lock);
    progress_wipe(p);
    fprintf(stderr, "%s\n", text);
    pthread_mutex_unlock(&p->lock);
}

void progress_end(struct progress *p)
{
    if (!p) {
        return;
    }
    if (p->threaded) {
        pthread_mutex_lock(&p->lock);
        p->ending = true;
        pthread_cond_signal(&p->changed);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, /* ret */ NULL);
    }
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/history.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "sandbox/resident.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SENTENCE_MAX 500

static void file_name(const struct resident *res, char ret[static 40])
{
    snprintf(ret, 40, "%s.history", res->record.id);
}

static int read_all(const struct resident *res, struct buf *text)
{
    char name[40];
    int r;

    file_name(res, name);
    r = fs_read_file(res->node->records_fd, name, text);
    return r == -ENOENT ? 0 : r;
}

/* Keeps the newer half, from the beginning of a line on. */
static void shorten(const struct resident *res)
{
    cleanup_buf struct buf text = BUF_INIT(2 * HISTORY_BYTES_MAX);
    const char *at;
    char name[40];

    if (read_all(res, &text) < 0) {
        return;
    }
    at = memchr(buf_str(&text) + text.len / 2, '\n', text.len - text.len / 2);
    file_name(res, name);
    if (at && fs_write_file_durable(res->node->records_fd, name, at + 1,
                                    text.len - (size_t)(at + 1 - buf_str(&text)), 0600) < 0) {
        log_warn(&(struct log_ctx){.sandbox = res->record.id},
                 "cannot shorten the history, ignoring");
    }
}

void history_add(struct resident *res, const char *event, const char *fmt, ...)
{
    const struct log_ctx ctx = {.sandbox = res->record.id};
    cleanup_close int fd = FD_NONE;
    cleanup_free char *line = NULL;
    cleanup_json json_t *entry = NULL;
    char sentence[SENTENCE_MAX];
    char name[40];
    struct stat st;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(sentence, sizeof(sentence), fmt, ap);
    va_end(ap);
    log_info(&ctx, "%s: %s", event, sentence);
    entry = json_pack("{s:I, s:s, s:s}", "at_ms", (json_int_t)clock_wall_ms(), "event", event,
                      "text", sentence);
    if (!entry) { /* a sentence that a guest had its hand in and that is not UTF-8 */
        entry = json_pack("{s:I, s:s, s:s}", "at_ms", (json_int_t)clock_wall_ms(), "event", event,
                          "text", "");
    }
    ASSERT(entry);
    cleanup_free char *text = json_text(entry);
    line = xasprintf("%s\n", text);
    file_name(res, name);
    fd = openat(res->node->records_fd, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || fs_write_all(fd, line, strlen(line)) < 0) {
        log_warn(&ctx, "cannot write the history, ignoring: %m");
        return;
    }
    if (fstat(fd, &st) == 0 && st.st_size > (off_t)HISTORY_BYTES_MAX) {
        shorten(res);
    }
}

int history_read(struct resident *res, json_t **ret, struct err *e)
{
    cleanup_buf struct buf text = BUF_INIT(2 * HISTORY_BYTES_MAX);
    cleanup_json json_t *all = json_array();
    char *rest;
    char *line;
    int r = read_all(res, &text);

    if (r < 0) {
        return err_wrap(e, r, "reading the history");
    }
    rest = text.len ? text.data : NULL;
    while ((line = strsep(&rest, "\n"))) {
        json_t *entry = NULL;

        /* A line cut short by a crash is passed over. */
        if (json_parse_object(line, strlen(line), &entry, NULL) == 0) {
            json_array_append_new(all, entry);
        }
    }
    *ret = json_incref(all);
    return 0;
}

void history_take_over(struct resident *res, const json_t *history)
{
    cleanup_buf struct buf text = BUF_INIT(2 * HISTORY_BYTES_MAX);
    char name[40];
    json_t *entry;
    size_t i;
    int r = 0;

    json_array_foreach(history, i, entry)
    {
        r = r < 0 ? r : json_write(entry, &text);
        r = r < 0 ? r : buf_add_str(&text, "\n");
    }
    file_name(res, name);
    if (r == 0) {
        r = fs_write_file_durable(res->node->records_fd, name, buf_str(&text), text.len, 0600);
    }
    if (r < 0) {
        log_warn(&(struct log_ctx){.sandbox = res->record.id},
                 "its earlier history cannot be written, ignoring: %s", strerror(-r));
    }
}

int history_remove(struct resident *res)
{
    char name[40];

    file_name(res, name);
    return unlinkat(res->node->records_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

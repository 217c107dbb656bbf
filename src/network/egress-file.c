/* SPDX-License-Identifier: Apache-2.0 */
/* The egress log's file: lines that are written twice, when an entry is decided and when it ends; read again after a restart. */
#include "network/egress.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/log.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of a file; there are two of each sandbox at most. */
#define FILE_MAX (256u * 1024)
#define LINE_MAX_BYTES 2048u
#define OLD_SUFFIX ".old"
#define KEEP_DAYS 30

static enum netpolicy_action action_of(const char *name)
{
    enum netpolicy_action a = NETPOLICY_DENY;

    while (a < NETPOLICY_ACTION_COUNT_ && !str_eq(netpolicy_action_name(a), name)) {
        a++;
    }
    return a;
}

static enum egress_kind kind_of(const char *name)
{
    unsigned kind = 0;

    while (kind < EGRESS_KIND_COUNT_ && !str_eq(egress_kind_name((enum egress_kind)kind), name)) {
        kind++;
    }
    return kind < EGRESS_KIND_COUNT_ ? (enum egress_kind)kind : EGRESS_CONNECTION;
}

/* Lines of before there were levels are of sandboxes. */
static enum netpolicy_level level_of(const char *name)
{
    unsigned level = 0;

    while (level < NETPOLICY_SANDBOX &&
           !str_eq(netpolicy_level_name((enum netpolicy_level)level), name)) {
        level++;
    }
    return (enum netpolicy_level)level;
}

static char *text_of(json_t *line, const char *name)
{
    const char *s = json_string_value(json_object_get(line, name));

    return s ? xstrdup(s) : NULL;
}

/* What it was, as far as the line has it; nothing is open any more. */
static void take_line(struct egress *log, json_t *line)
{
    struct egress_entry entry = {
        .seq = (uint64_t)json_get_int(line, "seq", 0),
        .at_ms = (uint64_t)json_get_int(line, "at_ms", 0),
        .kind = kind_of(json_get_string(line, "kind", "")),
        .action = action_of(json_get_string(line, "action", "")),
        .rule = (int)json_get_int(line, "decided_by", NETPOLICY_BY_DEFAULT),
        .level = level_of(json_get_string(line, "level", "")),
        .observed = json_get_bool(line, "observed", false),
        .port = (uint16_t)json_get_int(line, "port", 0),
        .bytes_up = (uint64_t)json_get_int(line, "bytes_up", 0),
        .bytes_down = (uint64_t)json_get_int(line, "bytes_down", 0),
        .ended_ms = (uint64_t)json_get_int(line, "ended_ms", 0),
        .requests = (uint32_t)json_get_int(line, "requests", 0),
        .status = (int)json_get_int(line, "status", 0),
    };
    const char *addr = json_get_string(line, "addr", "0.0.0.0");

    if (entry.seq == 0 || entry.action == NETPOLICY_ACTION_COUNT_ ||
        inet_pton(AF_INET, addr, &entry.addr) != 1 || entry.seq + EGRESS_MAX <= log->last) {
        return;
    }
    snprintf(entry.why, sizeof(entry.why), "%s", json_get_string(line, "reason", ""));
    if (json_get_bool(line, "open", false)) {
        entry.ended_ms = entry.at_ms;
        snprintf(entry.why, sizeof(entry.why), "gateway_ended");
    }
    entry.name = text_of(line, "host");
    entry.credential = text_of(line, "credential");
    entry.method = text_of(line, "method");
    entry.path = text_of(line, "path");
    egress_restore_take(log, &entry);
}

static void load(struct egress *log, const char *name)
{
    cleanup_buf struct buf text = BUF_INIT(FILE_MAX + LINE_MAX_BYTES);
    cleanup_close int fd = fs_open_beneath(log->dir_fd, name, O_RDONLY, 0);
    char *p;
    char *end;

    if (fd < 0 || fs_read_fd(fd, &text) < 0) {
        return;
    }
    p = text.data;
    end = p + text.len;
    while (p && p < end) {
        char *next = memchr(p, '\n', (size_t)(end - p));
        cleanup_json json_t *line = NULL;

        /* The last one may have been cut short. */
        if (next && json_parse_object(p, (size_t)(next - p), &line, NULL) == 0) {
            take_line(log, line);
        }
        p = next ? next + 1 : end;
    }
}

static void open_file(struct egress *log)
{
    struct stat st;

    log->fd = fs_open_beneath(log->dir_fd, log->file, O_WRONLY | O_CREAT | O_APPEND, 0600);
    log->file_size = log->fd >= 0 && fstat(log->fd, &st) == 0 ? (size_t)st.st_size : 0;
    if (log->fd < 0) {
        log_warn(NULL, "the egress log of '%s' is kept in memory only: %s", log->file,
                 strerror(-log->fd));
        log->fd = FD_NONE;
    }
}

void egress_keep(struct egress *log, int dir_fd, const char *sandbox)
{
    char old[sizeof(log->file) + sizeof(OLD_SUFFIX)];

    log->dir_fd = dir_fd;
    snprintf(log->file, sizeof(log->file), "%s", sandbox);
    snprintf(old, sizeof(old), "%s" OLD_SUFFIX, log->file);
    load(log, old);
    load(log, log->file);
    open_file(log);
}

static void rotate(struct egress *log)
{
    char old[sizeof(log->file) + sizeof(OLD_SUFFIX)];

    snprintf(old, sizeof(old), "%s" OLD_SUFFIX, log->file);
    log->fd = fd_close(log->fd);
    if (renameat(log->dir_fd, log->file, log->dir_fd, old) < 0) {
        log_warn(NULL, "the egress log of '%s' cannot be renamed, ignoring: %m", log->file);
    }
    open_file(log);
}

void egress_note(struct egress *log, const struct egress_entry *entry)
{
    cleanup_buf struct buf line = BUF_INIT(LINE_MAX_BYTES);
    cleanup_json json_t *json = NULL;

    if (log->fd < 0) {
        return;
    }
    json = egress_entry_json(entry);
    json_object_set_new(json, "decided_by", json_integer(entry->rule));
    if (json_write(json, &line) < 0 || buf_add(&line, "\n", 1) < 0) {
        return; /* names and words are short: there is no such line */
    }
    if (write(log->fd, line.data, line.len) != (ssize_t)line.len) {
        log_warn(NULL, "the egress log of '%s' cannot be written, going on without: %m", log->file);
        log->fd = fd_close(log->fd);
        return;
    }
    log->file_size += line.len;
    if (log->file_size > FILE_MAX) {
        rotate(log);
    }
}

static bool is_kept(json_t *ids, const char *file)
{
    size_t i;
    json_t *id;

    json_array_foreach(ids, i, id)
    {
        if (json_is_string(id) && str_starts(file, json_string_value(id))) {
            return true;
        }
    }
    return false;
}

void egress_forget(int dir_fd, json_t *ids)
{
    int fd = fs_open_beneath(dir_fd, ".", O_RDONLY | O_DIRECTORY, 0);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    uint64_t before_s = clock_wall_ms() / 1000 - KEEP_DAYS * 86400ull;
    const struct dirent *d;

    while (dir && (d = readdir(dir))) {
        struct stat st;

        if (d->d_name[0] != '.' && !is_kept(ids, d->d_name) &&
            fstatat(dir_fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            (uint64_t)st.st_mtim.tv_sec < before_s) {
            IGNORE_RESULT(unlinkat(dir_fd, d->d_name, 0)); /* tried again the next time */
        }
    }
    if (dir) {
        closedir(dir); /* and fd */
    } else {
        fd_close(fd);
    }
}

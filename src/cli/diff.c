/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `space diff`: which files differ between two moments. Each side becomes a sandbox of its own for as long as the
 * comparison takes, its files are listed through the API and compared by type, size, time, mode, owner and target of
 * links; files of the same size but another time are read on both sides. So the host never looks into an image
 * that a guest may have prepared, and a side may be a snapshot, or the present of a sandbox in any state
 * (docs/decisions/0008-diff-by-forks.md).
 *
 * A side is SANDBOX for its present, SANDBOX@SNAPSHOT, @SNAPSHOT for one of the first side's sandbox, or the whole
 * id of a snapshot, which is then looked for in all sandboxes.
 *
 * What every start writes anew is left out, and so is what is not on the disk: see `left_out`.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/copy.h"
#include "cli/progress.h"
#include "cli/scratch.h"
#include "cli/verbs.h"
#include "wire/url.h"

#define LIST_DEPTH 100u
#define LIST_PAGE 5000u
#define ENTRIES_MAX 2000000u
#define READ_CHUNK 65536u

static const char *const left_out[] = {"/proc", "/sys",          "/dev",
                                       "/run",  "/etc/hostname", "/etc/machine-id"};

struct entry {
    char *path; /* owned */
    char *look; /* owned: type, mode, owner, target, and size of what is no folder */
    int64_t size;
    int64_t mtime_ms;
    bool is_file;
};

struct side {
    char sandbox[ID_SIZE];
    char snapshot[ID_SIZE];
    char fork[ID_SIZE];
    struct entry *entries; /* owned: by path */
    size_t n;
    size_t capacity;
};

struct diff {
    struct scratch scratch;
    struct side sides[2];
    struct progress *progress; /* owned */
    json_t *found;             /* owned */
};

static void side_done(struct side *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->entries[i].path);
        free(s->entries[i].look);
    }
    free(s->entries);
}

static void diff_done(struct diff *d)
{
    progress_end(d->progress);
    scratch_close(&d->scratch);
    side_done(&d->sides[0]);
    side_done(&d->sides[1]);
    json_decref(d->found);
}

/* --- which two moments --- */

/* Which sandbox has this snapshot? */
static int find_owner(struct cli *cli, const char *snapshot, char ret[static ID_SIZE],
                      struct err *e)
{
    cleanup_json json_t *list = NULL;
    int r = cli_list(cli, "/v1/sandboxes", "sandboxes", 0, &list, e);

    for (size_t i = 0; r == 0 && i < json_array_size(list); i++) {
        const char *id = json_get_string(json_array_get(list, i), "id", "");
        cleanup_free char *target = xasprintf("/v1/sandboxes/%s/snapshots/%s", id, snapshot);

        r = cli_call(cli, "GET", target, /* body */ NULL, /* ret */ NULL, e);
        if (r == 0) {
            return str_copy(ret, ID_SIZE, id);
        }
        r = r == -ENOENT ? 0 : r;
    }
    return r < 0 ? r
                 : err_set(e, -ENOENT, "snapshot_not_found", "no sandbox has a snapshot '%s'",
                           snapshot);
}

static int side_parse(struct cli *cli, const char *text, const char *other_sandbox,
                      struct side *side, struct err *e)
{
    const char *at = strchr(text, '@');
    cleanup_free char *sandbox = at ? xstrndup(text, (size_t)(at - text)) : xstrdup(text);
    int r;

    if (!at && id_valid(ID_SNAPSHOT, text)) {
        r = find_owner(cli, text, side->sandbox, e);
        return r < 0 ? r : str_copy(side->snapshot, ID_SIZE, text);
    }
    if (sandbox[0]) {
        r = cli_sandbox_id(cli, sandbox, side->sandbox, e);
    } else if (other_sandbox) {
        r = str_copy(side->sandbox, ID_SIZE, other_sandbox);
    } else {
        r = err_set(e, -EINVAL, "usage", "'%s': name the sandbox of the snapshot", text);
    }
    if (r == 0 && at) {
        r = cli_snapshot_id(cli, side->sandbox, at + 1, side->snapshot, e);
    }
    return r;
}

static int side_open(struct diff *d, struct side *side, struct err *e)
{
    int r = 0;

    if (!side->snapshot[0]) {
        r = scratch_snapshot(&d->scratch, side->sandbox, side->snapshot, e);
    }
    return r < 0 ? r : scratch_fork(&d->scratch, side->sandbox, side->snapshot, side->fork, e);
}

/* --- its files --- */

static bool is_left_out(const char *path)
{
    for (size_t i = 0; i < ARRAY_SIZE(left_out); i++) {
        size_t len = strlen(left_out[i]);

        if (strncmp(path, left_out[i], len) == 0 && (path[len] == '\0' || path[len] == '/')) {
            return true;
        }
    }
    return false;
}

static char *describe(json_t *json, bool is_dir)
{
    cleanup_free char *target = copy_entry_path(json, "target");

    return xasprintf("%s %s %" PRId64 ":%" PRId64 " %" PRId64 " %s",
                     json_get_string(json, "type", "?"), json_get_string(json, "mode", "?"),
                     json_get_int(json, "uid", -1), json_get_int(json, "gid", -1),
                     is_dir ? 0 : json_get_int(json, "size", -1), target ? target : "");
}

static int add_entry(struct side *side, json_t *json, struct err *e)
{
    const char *type = json_get_string(json, "type", "");
    cleanup_free char *path = copy_entry_path(json, "path");

    if (!path || path[0] != '/') {
        return err_set(e, -EBADMSG, "bad_answer", "the sandbox lists something without a path");
    }
    if (is_left_out(path)) {
        return 0;
    }
    if (side->n == ENTRIES_MAX) {
        return err_set(e, -E2BIG, "too_many", "there are more than %u files on a side",
                       ENTRIES_MAX);
    }
    if (side->n == side->capacity) {
        side->capacity = MAX(side->capacity * 2, (size_t)1024);
        side->entries = xrealloc(side->entries, side->capacity * sizeof(*side->entries));
    }
    side->entries[side->n++] = (struct entry){
        .path = TAKE_PTR(path),
        .look = describe(json, str_eq(type, "dir")),
        .size = json_get_int(json, "size", 0),
        .mtime_ms = json_get_int(json, "mtime_ms", 0),
        .is_file = str_eq(type, "file"),
    };
    return 0;
}

static int list_page(struct diff *d, struct side *side, const char *base, unsigned depth,
                     const char *cursor, json_t **ret, struct err *e)
{
    cleanup_buf struct buf b = BUF_INIT(CLI_TARGET_MAX);
    cleanup_free char *target = NULL;
    cleanup_free char *what = xasprintf("files/list?depth=%u&limit=%u", depth, LIST_PAGE);
    int r = cli_target(side->fork, what, base, "root", &target, e);

    if (r < 0) {
        return r;
    }
    r = buf_add_str(&b, target);
    if (r == 0 && cursor) {
        r = url_add_query(&b, "cursor", cursor);
    }
    return r < 0 ? err_wrap(e, r, "the path is too long")
                 : scratch_call(&d->scratch, "GET", buf_str(&b), /* body */ NULL, ret, e);
}

static int list_below(struct diff *d, struct side *side, const char *base, unsigned depth,
                      struct err *e)
{
    cleanup_free char *cursor = NULL;
    int r = 0;

    do {
        cleanup_json json_t *page = NULL;
        const json_t *entries;
        const char *next;

        r = list_page(d, side, base, depth, cursor, &page, e);
        if (r < 0) {
            return err_wrap(e, r, "listing '%s'", base);
        }
        entries = json_object_get(page, "entries");
        for (size_t i = 0; i < json_array_size(entries) && r == 0; i++) {
            r = add_entry(side, json_array_get(entries, i), e);
        }
        next = json_get_string(page, "next_cursor", NULL);
        if (r == 0 && next && json_array_size(entries) == 0) {
            return err_set(e, -EBADMSG, "bad_answer", "the sandbox lists nothing for ever");
        }
        free(cursor);
        cursor = next ? xstrdup(next) : NULL;
    } while (r == 0 && cursor);
    return r;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->path, ((const struct entry *)b)->path);
}

/* The top first, so that the folders that are not on the disk are never gone into. */
static int list_side(struct diff *d, struct side *side, struct err *e)
{
    size_t n_top;
    int r = list_below(d, side, "/", 1, e);

    n_top = side->n;
    for (size_t i = 0; i < n_top && r == 0; i++) {
        if (str_starts(side->entries[i].look, "dir ")) {
            cleanup_free char *base = xstrdup(side->entries[i].path);

            r = list_below(d, side, base, LIST_DEPTH, e);
        }
    }
    if (r == 0 && side->n > 1) {
        qsort(side->entries, side->n, sizeof(*side->entries), by_path);
    }
    return r;
}

/* --- comparing --- */

static int open_file(struct diff *d, const struct side *side, const char *path,
                     const struct pollfd *watch, struct http_call **ret, struct err *e)
{
    cleanup_free char *target = NULL;
    struct http_call_opts opts = {.method = "GET", .watch = watch};
    int r = cli_target(side->fork, "files", path, "root", &target, e);

    opts.target = target;
    r = r < 0 ? r : http_call_new(d->scratch.cli->client, &opts, ret, e);
    r = r < 0 ? r : http_call_head(*ret, e);
    return r < 0 ? r : http_call_check(*ret, e);
}

/* Fills data as far as there is something; less than READ_CHUNK only at the end. */
static ssize_t read_chunk(struct http_call *call, char *data, struct err *e)
{
    size_t have = 0;
    ssize_t n = 1;

    while (n > 0 && have < READ_CHUNK) {
        n = http_call_read(call, data + have, READ_CHUNK - have, e);
        have += n > 0 ? (size_t)n : 0;
    }
    return n < 0 ? n : (ssize_t)have;
}

/* Is the same in the file on both sides? Stops at the first difference. */
static int same_content(struct diff *d, const char *path, bool *ret, struct err *e)
{
    const struct pollfd watch = {.fd = d->scratch.sigs.end_fd, .events = POLLIN};
    CLEANUP(http_call_freep) struct http_call *left = NULL;
    CLEANUP(http_call_freep) struct http_call *right = NULL;
    cleanup_free char *a = xmalloc(READ_CHUNK);
    cleanup_free char *b = xmalloc(READ_CHUNK);
    bool same = true;
    ssize_t na = 0;
    ssize_t nb = 0;
    int r = open_file(d, &d->sides[0], path, &watch, &left, e);

    r = r < 0 ? r : open_file(d, &d->sides[1], path, &watch, &right, e);
    do {
        na = r < 0 ? r : read_chunk(left, a, e);
        nb = na < 0 ? na : read_chunk(right, b, e);
        if (na < 0 || nb < 0) {
            return err_wrap(e, (int)MIN(na, nb), "reading '%s'", path);
        }
        same = na == nb && memcmp(a, b, (size_t)na) == 0;
    } while (same && na > 0);
    *ret = same;
    return 0;
}

/* Collected, and told at the end: the line that shows how far we are is in the way until then. */
static int found(struct diff *d, const char *change, const char *path)
{
    json_t *item = json_pack("{s:s, s:s}", "change", change, "path", path);

    if (!item) { /* a path that is no UTF-8 */
        cleanup_free char *clean = ui_clean(path, strlen(path), /* lines */ false);

        item = json_pack("{s:s, s:s}", "change", change, "path_escaped", clean);
    }
    json_array_append_new(d->found, item);
    return 0;
}

static int compare_entry(struct diff *d, const struct entry *a, const struct entry *b,
                         struct err *e)
{
    bool content = a->is_file && b->is_file;
    bool same = true;
    int r = 0;

    if (!content || a->size != b->size) {
        if (strcmp(a->look, b->look) == 0) {
            return 0; /* the time of a folder or a link says nothing that is not told below it */
        }
        same = !content && strncmp(a->look, b->look, strcspn(a->look, " ") + 1) == 0 &&
               str_starts(a->look, "dir ");
        return same ? found(d, "attributes", a->path) : found(d, "changed", a->path);
    }
    if (a->mtime_ms != b->mtime_ms) {
        progress_text(d->progress, "reading %s", a->path);
        r = same_content(d, a->path, &same, e);
    }
    if (r < 0) {
        return r;
    }
    if (!same) {
        return found(d, "changed", a->path);
    }
    return strcmp(a->look, b->look) == 0 ? 0 : found(d, "attributes", a->path);
}

static int compare(struct diff *d, struct err *e)
{
    const struct side *a = &d->sides[0];
    const struct side *b = &d->sides[1];
    size_t i = 0;
    size_t j = 0;
    int r = 0;

    while (r == 0 && (i < a->n || j < b->n)) {
        int order = i == a->n ? 1 : j == b->n ? -1 : by_path(&a->entries[i], &b->entries[j]);

        if (order < 0) {
            r = found(d, "removed", a->entries[i++].path);
        } else if (order > 0) {
            r = found(d, "added", b->entries[j++].path);
        } else {
            r = compare_entry(d, &a->entries[i++], &b->entries[j++], e);
        }
    }
    return r;
}

static int prepare(struct diff *d, struct cli *cli, struct err *e)
{
    const char *const *names = cli->args->operands;
    int r = scratch_open(&d->scratch, cli, e);

    d->found = json_array();
    r = r < 0 ? r : cli_connect(cli, e);
    r = r < 0 ? r : side_parse(cli, names[0], /* other */ NULL, &d->sides[0], e);
    r = r < 0 ? r : side_parse(cli, names[1], d->sides[0].sandbox, &d->sides[1], e);
    for (size_t i = 0; i < 2 && r == 0; i++) {
        d->progress = progress_start(&cli->ui, "opening %s", names[i]);
        r = side_open(d, &d->sides[i], e);
        if (r == 0) {
            progress_text(d->progress, "listing %s", names[i]);
            r = list_side(d, &d->sides[i], e);
        }
        progress_end(TAKE_PTR(d->progress));
    }
    return r;
}

static void print_found(const json_t *found)
{
    static const struct {
        const char *change;
        char letter;
    } letters[] = {{"added", 'A'}, {"removed", 'D'}, {"changed", 'M'}, {"attributes", 'm'}};

    for (size_t i = 0; i < json_array_size(found); i++) {
        json_t *item = json_array_get(found, i);
        const char *path = json_get_string(item, "path", json_get_string(item, "path_escaped", ""));
        cleanup_free char *clean = ui_clean(path, strlen(path), /* lines */ false);

        for (size_t k = 0; k < ARRAY_SIZE(letters); k++) {
            if (str_eq(json_get_string(item, "change", ""), letters[k].change)) {
                printf("%c %s\n", letters[k].letter, clean);
            }
        }
    }
}

int verb_diff(struct cli *cli)
{
    CLEANUP(diff_done) struct diff d = {.scratch.sigs = SIGS_INIT};
    cleanup_json json_t *doc = NULL;
    struct err e = {0};
    int r = prepare(&d, cli, &e);

    if (r == 0) {
        d.progress = progress_start(&cli->ui, "comparing");
        r = compare(&d, &e);
        progress_end(TAKE_PTR(d.progress));
    }
    if (r < 0) {
        return scratch_failed(&d.scratch, &e);
    }
    if (cli->args->json) {
        doc = json_pack("{s:O}", "differences", d.found);
        cli_print_json(cli, doc);
    } else {
        print_found(d.found);
    }
    return CLI_EXIT_OK;
}

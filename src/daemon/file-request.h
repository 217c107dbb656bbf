/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One file operation as the client asked for it, from the query (reading, writing, listing,
 * watching) or from a JSON body (everything else). Built in the daemon, carried out in a worker
 * (file-worker.h), which has it in memory because it is forked.
 *
 * Names are bytes: anything but NUL, "path" percent-encoded in a query; in JSON "path" when it is
 * UTF-8 or "path_base64" (likewise "to" and "target"). A relative path starts at the user's home.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"

#include <jansson.h>
#include <sys/types.h>

/*
 * Longest path from outside: what Linux takes in one call. Longer trees can still be listed and
 * removed.
 */
#define FILE_PATH_MAX 4095u
#define FILE_LIST_LIMIT_DEFAULT 1000u
#define FILE_LIST_LIMIT_MAX 10000u
#define FILE_LIST_DEPTH_MAX 100u
/* A cursor names the last entry that was told; the longest path in base64. */
#define FILE_CURSOR_MAX 5600u

enum file_op {
    FILE_OP_READ,
    FILE_OP_WRITE,
    FILE_OP_STAT,
    FILE_OP_LIST,
    FILE_OP_WATCH,
    FILE_OP_MKDIR,
    FILE_OP_MOVE,
    FILE_OP_REMOVE,
    FILE_OP_CHMOD,
    FILE_OP_CHOWN,
    FILE_OP_SYMLINK,
    FILE_OP_COUNT_,
};

/* What part of a file: none, from first on, first to last, or the last `last` bytes. */
enum file_range_kind {
    FILE_RANGE_ALL,
    FILE_RANGE_FROM,
    FILE_RANGE_BETWEEN,
    FILE_RANGE_TAIL
};

struct file_range {
    enum file_range_kind kind;
    uint64_t first;
    uint64_t last;
};

struct file_request {
    enum file_op op;
    char *user;   /* owned; NULL: the default user */
    char *path;   /* owned; never empty */
    char *to;     /* owned; move */
    char *target; /* owned; symlink */
    char *owner;  /* owned; chown: NULL: keep */
    char *group;  /* owned; chown: NULL: keep */
    char *cursor; /* owned; list: relative path of the last entry told, NULL at the start */
    int mode;     /* permission bits, -1: not said */
    bool recursive;
    bool overwrite; /* move */
    bool more;      /* stat, list: see file-more.h */
    char *metadata; /* owned; write: JSON text; NULL: none */
    unsigned depth; /* list */
    unsigned limit; /* list */
    struct file_range range;
};

/* Reads a query value by name; NULL when absent. So that the parsing is pure and can be fuzzed. */
typedef const char *file_query_fn(const void *arg, const char *name);

/*
 * op is READ, WRITE, STAT, LIST or WATCH. -EINVAL naming the field; *ret is the caller's to
 * release.
 */
MUST_CHECK int file_request_from_query(enum file_op op, file_query_fn *query, const void *arg,
                                       struct file_request *ret, struct err *e);
/* op is one of the others. Unknown members are refused. */
MUST_CHECK int file_request_from_json(enum file_op op, json_t *body, struct file_request *ret,
                                      struct err *e);
void file_request_done(struct file_request *req);
#define cleanup_file_request CLEANUP(file_request_done)

/* Largest packed request: four paths, three names, metadata (FILE_METADATA_TEXT_MAX), the numbers. */
#define FILE_PACKET_MAX (4u * (FILE_PATH_MAX + 1) + 3u * 256 + 16385u + 256)
/*
 * For the way from the daemon to its worker; both are the same program. -E2BIG: b is smaller than
 * that.
 */
MUST_CHECK int file_request_pack(const struct file_request *req, struct buf *b);
/* -EPROTO. */
MUST_CHECK int file_request_unpack(const void *data, size_t len, struct file_request *ret);

/* A Range header. What cannot be understood, and more than one range, mean the whole file (RFC 9110
 * 14.2).
 */
void file_range_parse(const char *header, struct file_range *ret);
/*
 * Bytes [*ret_start, *ret_start + *ret_len) of a file of this size; -ERANGE when there is none of
 * it.
 */
MUST_CHECK int file_range_apply(const struct file_range *range, uint64_t size, uint64_t *ret_start,
                                uint64_t *ret_len);

/*
 * An opaque token for the relative path of a list entry, and back. -EINVAL for what we did not
 * make.
 */
char *file_cursor_print(const char *relative);
MUST_CHECK int file_cursor_parse(const char *token, char **ret);

/* "0644", "644", at most 07777 (octal). -EINVAL. */
MUST_CHECK int file_mode_parse(const char *text, int *ret);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a file worker says to the daemon, over a SOCK_SEQPACKET socket: one message per packet.
 *
 * The worker handles names, links and file systems that the workload made, and may be traced by a
 * workload that is root; so the daemon takes every byte from it as hostile. All there is to parse
 * is a type, a fixed struct and opaque bytes:
 *
 *     HEAD   the facts for the answer's head        struct file_head
 *     BODY   the next bytes of a JSON body          1 to FILE_BODY_CHUNK opaque bytes
 *     END    the answer is complete                 nothing
 *     ERROR  it failed                              struct file_fault
 *
 * The order is HEAD BODY* END, with ERROR possible at any place (and then last). A worker that ends
 * without END or ERROR has failed. File content does not travel here but in a pipe of its own, raw.
 * The daemon says one thing to a worker that writes: the byte FILE_COMMIT, when the client has sent
 * everything. Both ends are the same program, so that structs go as they are; padding is always
 * zeroed.
 */
#pragma once

#include "base/err.h"
#include "base/util.h"

#define FILE_BODY_CHUNK 65536u
#define FILE_MSG_MAX (FILE_BODY_CHUNK + sizeof(uint32_t))
#define FILE_OWNER_MAX 64u
#define FILE_COMMIT 'C'

enum file_msg_type {
    FILE_MSG_HEAD = 1,
    FILE_MSG_BODY,
    FILE_MSG_END,
    FILE_MSG_ERROR
};

#define FILE_HEAD_CONTENT (1u << 0) /* the body comes through the pipe; meta fields are set */
#define FILE_HEAD_LENGTH (1u << 1)  /* length is known */
#define FILE_HEAD_RANGE (1u << 2)   /* range_start and total are set: 206 */
#define FILE_HEAD_CREATED (1u << 3) /* 201 instead of 200 */
#define FILE_HEAD_STREAM (1u << 4)  /* lines of JSON without a known end */
#define FILE_HEAD_ALL_ 31u

struct file_head {
    uint32_t flags;
    uint32_t mode; /* permission bits */
    uint64_t length;
    uint64_t range_start;
    uint64_t total;
    int64_t mtime_ms;
    uint32_t uid;
    uint32_t zero;
    char owner[FILE_OWNER_MAX]; /* a name, or the uid in decimal */
};

struct file_fault {
    int32_t code; /* negative errno */
    char reason[40];
    char field[40];
    char msg[400];
};

/* A parsed message; body is borrowed from the packet. */
struct file_msg {
    enum file_msg_type type;
    struct file_head head;
    struct err err;
    const char *body;
    size_t body_len;
};

/*
 * -EPROTO when the packet is not a message as described above; every text comes out terminated and
 * clean.
 */
MUST_CHECK int file_msg_parse(const void *packet, size_t len, struct file_msg *ret);

/*
 * The worker's side; all block, and return the send error (-EPIPE: the daemon is no longer
 * interested).
 */
MUST_CHECK int file_send_head(int fd, const struct file_head *head);
MUST_CHECK int file_send_body(int fd, const void *data, size_t len); /* any length, in chunks */
MUST_CHECK int file_send_end(int fd);
MUST_CHECK int file_send_error(int fd, const struct err *e);

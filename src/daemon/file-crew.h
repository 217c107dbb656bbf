/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes that carry out file operations. A hand is forked for one user, entered into the
 * sandbox, and takes one operation at a time over its socket.
 *
 *     BUSY     works for a job         file_hand_keep -> IDLE, file_hand_let_go -> LEAVING
 *     IDLE     waits for a job of      file_hand_start -> BUSY, after IDLE_MS -> LEAVING
 *              its user
 *     LEAVING  was killed, or is to    reaped -> gone
 *              end within its grace
 *
 * Hands are kept for a moment because a fork is dear: 6 ms of 9 for a stat in a guest without KVM.
 * What a hand could have been turned into by what it read, it was before: whoever is root in the
 * sandbox may trace it at any time. Nothing it says is trusted (file-proto.h).
 *
 * A killed hand that does not die hangs in a file system that the workload serves. It is counted
 * as stuck.
 */
#pragma once

#include "base/loop.h"
#include "daemon/children.h"
#include "daemon/file-request.h"
#include "daemon/workload.h"

struct file_crew;
struct file_hand;

struct file_crew *file_crew_new(struct loop *loop, struct children *children,
                                struct workload *workload);
/* Kills all hands; those in use must have been let go. */
void file_crew_free(struct file_crew *crew);
DEFINE_CLEANUP(struct file_crew *, file_crew_free);
/* Kills all that are idle or leaving. */
void file_crew_dismiss(struct file_crew *crew);
unsigned file_crew_stuck(const struct file_crew *crew);
uint64_t file_crew_forked(const struct file_crew *crew);
/* No time for idling, leaving or dying is longer than this; 0: as they are. For tests. */
void file_crew_hurry(struct file_crew *crew, uint64_t max_ms);

/* Who works, what on, and whom to call (from the loop) when it has said something or has ended. */
struct file_order {
    const struct workload_user *user; /* borrowed for the call */
    const struct file_request *req;   /* borrowed for the call */
    loop_fn on_packet;
    void *arg; /* borrowed: until the hand is given back */
};

/*
 * Gives the order to an idle hand of this user or forks one. *ret_data_fd is the caller's to own:
 * our end of the pipe for content, non-blocking; FD_NONE when the operation has none.
 */
MUST_CHECK int file_hand_start(struct file_crew *crew, const struct file_order *order,
                               struct file_hand **ret, int *ret_data_fd);
/* One packet; -EAGAIN: none now; 0: the hand has ended. */
MUST_CHECK ssize_t file_hand_recv(struct file_hand *hand, void *ret, size_t len);
/* It has ended (file_hand_recv gave 0) without having read the last thing it was sent. */
bool file_hand_left_unread(const struct file_hand *hand);
/* It has ended (file_hand_recv gave 0) without having read the last thing it was sent. */
bool file_hand_left_unread(const struct file_hand *hand);
/* Whether on_packet is called. */
void file_hand_listen(struct file_hand *hand, bool on);
/* Says one byte; it does not matter when the hand has ended. */
void file_hand_say(struct file_hand *hand, char word);
/* It has done its job to the end: IDLE. When there are too many, the oldest of them goes. */
void file_hand_keep(struct file_hand *hand);
/* LEAVING: its socket is closed, and after grace_ms it is killed; 0: at once. */
void file_hand_let_go(struct file_hand *hand, uint64_t grace_ms);

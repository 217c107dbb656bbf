/* SPDX-License-Identifier: Apache-2.0 */
/* Files that share blocks until they are written: disks over templates, memory over base machines (btrfs). */
#pragma once

#include "base/util.h"

/* Makes the open file to_fd a clone of from_fd (FICLONE); to_fd is replaced whole. */
MUST_CHECK int disk_clone_into(int from_fd, int to_fd);
/* Bytes on disk that no other file shares (FIEMAP). */
MUST_CHECK int disk_exclusive_bytes(int fd, uint64_t *ret);

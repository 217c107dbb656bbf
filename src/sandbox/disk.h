/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox's disk: a clone of its template's image that shares all blocks until they are written. */
#pragma once

#include "base/util.h"

/* Makes the open file to_fd a clone of from_fd (FICLONE, btrfs); to_fd is replaced whole. */
MUST_CHECK int disk_clone_into(int from_fd, int to_fd);

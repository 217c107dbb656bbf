/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's own announcements about devices: there is no udev in the guest that would tell us. */
#pragma once

#include "base/util.h"

/* Listen before you look, so that nothing is missed. FD_NONE when that is not possible. */
int uevent_listen(void);
/*
 * Until something was announced, whatever it was, or the deadline; at most 100 ms, so that an announcement
 * that came before its effect costs no more than that. Look again afterwards.
 */
void uevent_wait(int fd, uint64_t deadline_ns);

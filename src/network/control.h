/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket of ipc/netgate.h, served by one thread until a signal asks to stop. */
#pragma once

#include "network/gate.h"

#include <sys/types.h>

#define CONTROL_CLIENTS_MAX 8u

struct control {
    struct gate *gate; /* borrowed */
    int listen_fd;     /* borrowed */
    int signal_fd;     /* borrowed: readable when it is time to end */
    uid_t peer_uid;    /* besides root */
};

MUST_CHECK int control_run(const struct control *control, struct err *e);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers what client.h asks. One thread accepts; each connection has a thread of its own, up to SERVICE_CLIENTS_MAX, and
 * serves one request after the other.
 */
#pragma once

#include "volume/archive.h"

#include <sys/types.h>

#define SERVICE_CLIENTS_MAX 64u

struct service {
    struct archive *archive; /* borrowed */
    int listen_fd;           /* borrowed: SOCK_SEQPACKET, non-blocking or not */
    int signal_fd;           /* borrowed: readable: end */
    uid_t peer_uid;          /* besides root */
};

/* In main, before the first thread: what is done is counted from then on; see base/metric.h. */
void service_metrics_register(void);
/* Until signal_fd says so. Requests under way go with the process. */
MUST_CHECK int service_run(struct service *service, struct err *e);

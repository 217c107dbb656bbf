/* SPDX-License-Identifier: Apache-2.0 */

/*
 * SIGHUP: the certificate is read again, as whoever renews it expects. A thread of its own waits for the signal, since
 * reading files is nothing for a handler. A certificate that cannot be used is logged, and the old one stays.
 */
#pragma once

#include "base/err.h"
#include "http/tls.h"

struct reload;

/* Before any other thread is started: threads inherit what is blocked. */
void reload_block_signal(void);
/* tls (NULL: none, then the signal does nothing) is borrowed: lives longer. */
MUST_CHECK int reload_start(struct http_tls *tls, struct reload **ret, struct err *e);
void reload_stop(struct reload *r);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a server needs to speak TLS: a certificate (with its chain) and its key, from PEM files, which can be read again
 * while connections go on: those that come later get the new one.
 *
 * TLS 1.2 and newer, the protocol http/1.1 for who asks (ALPN). A key that does not fit its certificate, and files that
 * cannot be read, are refused, and what was there before stays.
 *
 * Threads: everything but http_tls_free may be called from any.
 */
#pragma once

#include "base/err.h"
#include "base/util.h"

struct http_tls;

/* The names are copied. */
MUST_CHECK int http_tls_new(const char *cert_file, const char *key_file, struct http_tls **ret,
                            struct err *e);
MUST_CHECK int http_tls_reload(struct http_tls *t, struct err *e);
/* When no server uses it any more. */
void http_tls_free(struct http_tls *t);
DEFINE_CLEANUP(struct http_tls *, http_tls_free);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one end needs to speak TLS, most often a server: a certificate (with its chain) and its key, from PEM files, which can be read again
 * while connections go on: those that come later get the new one.
 *
 * TLS 1.2 and newer, the protocol http/1.1 for who asks (ALPN). A key that does not fit its certificate, and files that
 * cannot be read, are refused, and what was there before stays.
 *
 * Mutual TLS, between services (TLS 1.3 alone): both ends show a certificate of the same authority, and each looks whose
 * it is. A client expects the host of its URL; a server expects the name in opts.peer. The files are looked at again
 * every few seconds when somebody connects, so that certificates can be replaced while everything runs; replace the
 * certificate before the key, or both by renaming a folder: what does not fit together is not taken.
 *
 * Threads: everything but http_tls_free may be called from any.
 */
#pragma once

#include "base/err.h"
#include "base/util.h"

struct http_tls;

struct http_tls_opts {
    const char *cert_file;
    const char *key_file;
    const char *ca_file; /* whose certificates the other end may show; NULL: it shows none */
    const char *peer;    /* server: the name in the other end's certificate */
    bool client;
};

/* For mutual TLS. The names are copied. */
MUST_CHECK int http_tls_open(const struct http_tls_opts *opts, struct http_tls **ret,
                             struct err *e);
/* For a server that anybody may connect to. The names are copied. */
MUST_CHECK int http_tls_new(const char *cert_file, const char *key_file, struct http_tls **ret,
                            struct err *e);
MUST_CHECK int http_tls_reload(struct http_tls *t, struct err *e);
/* Mutual TLS: the next connection looks at the files. */
void http_tls_look_now(struct http_tls *t);
/* When no server and no client uses it any more. */
void http_tls_free(struct http_tls *t);
DEFINE_CLEANUP(struct http_tls *, http_tls_free);

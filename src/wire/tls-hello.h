/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first message of a TLS client (RFC 8446 4.1.2, 6066 3), for the name of the server that it asks for. Pure.
 *
 * The hello may come in several records. Refused: a hello whose lengths do not add up, an extension that is there
 * twice, more than one name, a name of another kind than a host's, an empty one. What follows the hello is
 * not looked at.
 */
#pragma once

#include "base/util.h"

/* One record's worth (RFC 8446 5.1): larger hellos than that are not seen in the wild. */
#define TLS_HELLO_MAX 16384u
#define TLS_HELLO_NAME_SIZE 256u

struct tls_hello {
    char name[TLS_HELLO_NAME_SIZE]; /* as sent; "": none was given */
    bool has_h2;                    /* "h2" is among the protocols offered (ALPN) */
};

/* Could these bytes (at least one) be the beginning of one? */
bool tls_hello_begins(const uint8_t *data, size_t len);

/* -EAGAIN: more is needed. -EBADMSG: not a hello. -E2BIG: too long. */
MUST_CHECK int tls_hello_parse(const uint8_t *data, size_t len, struct tls_hello *ret);

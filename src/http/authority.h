/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A certificate authority of one's own, for a machine that has no certificate from elsewhere. In one folder:
 *
 *     ca.pem      0644  what clients are told to trust; ten years
 *     ca-key.pem  0600  signs; nobody but the maker needs it
 *     cert.pem    0644  for the names, with the authority's behind it; 397 days, the most that browsers take
 *     key.pem     0600  of that
 *
 * The authority can sign for these names and those below them alone (name constraints), so that whoever
 * trusts it for a sandbox's address has not trusted it for a bank's. What is there and still good is kept: both keys
 * are made once, a certificate is replaced when its names have changed or it has less than 30 days left.
 */
#pragma once

#include "base/err.h"
#include "base/util.h"

#define AUTHORITY_CA "ca.pem"
#define AUTHORITY_CA_KEY "ca-key.pem"
#define AUTHORITY_CERT "cert.pem"
#define AUTHORITY_KEY "key.pem"

struct authority_names {
    const char *const *
        names; /* "space.localhost", "*.space.localhost", "127.0.0.1"; no wildcard without the name */
    size_t n;
};

/* *ret_made: a certificate was made (whoever serves with it should read it again). */
MUST_CHECK int authority_ensure(int dir_fd, const struct authority_names *names, bool *ret_made,
                                struct err *e);

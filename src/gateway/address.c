/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/address.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool parse_port(const char *text, size_t len, uint16_t *ret)
{
    char digits[6] = "";
    uint64_t port;

    if (len == 0 || len >= sizeof(digits)) {
        return false;
    }
    memcpy(digits, text, len);
    if (str_to_u64(digits, UINT16_MAX, &port) < 0 || port == 0) {
        return false;
    }
    *ret = (uint16_t)port;
    return true;
}

/* Up to the first '-'; names of hosts have no case. */
static bool parse_id(const char *text, size_t len, char ret[static ADDRESS_ID_SIZE])
{
    const char *dash = memchr(text, '-', len);

    len = dash ? (size_t)(dash - text) : len;
    if (len == 0 || len > ADDRESS_LABEL_MAX) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        char c = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] - 'A' + 'a') : text[i];

        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9')) {
            return false;
        }
        ret[i] = c;
    }
    ret[len] = '\0';
    return true;
}

/* PORT-ID of "PORT-ID.DOMAIN"; its length, 0: the host is not of this form. */
static size_t label_of(const char *host, const char *domain)
{
    size_t domain_len = strlen(domain);
    size_t len = strcspn(host, ":");
    size_t label;

    len -= len > 0 && host[len - 1] == '.' ? 1 : 0; /* a full name may end in a dot */
    if (domain_len == 0 || len <= domain_len + 1 || host[0] == '[') {
        return 0;
    }
    label = len - domain_len - 1;
    if (host[label] != '.' || strncasecmp(host + label + 1, domain, domain_len) != 0 ||
        label > ADDRESS_LABEL_MAX || memchr(host, '.', label)) {
        return 0;
    }
    return label;
}

static bool from_host(const char *host, const char *domain, struct address *ret)
{
    size_t len = label_of(host, domain);
    const char *dash = len > 0 ? memchr(host, '-', len) : NULL;

    return dash && parse_port(host, (size_t)(dash - host), &ret->port) &&
           parse_id(dash + 1, len - (size_t)(dash + 1 - host), ret->id);
}

int address_find(const struct address_source *src, struct address *ret, struct err *e)
{
    struct address found = {0};

    ASSERT(src && ret);

    if (src->host && src->domain && from_host(src->host, src->domain, &found)) {
        *ret = found;
        return 1;
    }
    if (!src->id && !src->port) {
        return 0;
    }
    if (!src->id || !parse_id(src->id, strlen(src->id), found.id)) {
        return err_field(e, -EINVAL, "invalid_address", "E2b-Sandbox-Id",
                         "the field E2b-Sandbox-Id must name a sandbox");
    }
    if (!src->port || !parse_port(src->port, strlen(src->port), &found.port)) {
        return err_field(e, -EINVAL, "invalid_address", "E2b-Sandbox-Port",
                         "the field E2b-Sandbox-Port must be a number from 1 to 65535");
    }
    *ret = found;
    return 1;
}

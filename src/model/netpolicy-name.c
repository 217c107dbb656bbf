/* SPDX-License-Identifier: Apache-2.0 */
/* Names, addresses and ports as policies have them. */
#include "model/netpolicy-private.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

#define LABEL_MAX 63

static bool label_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/* "1", "0x7f", "0177": a name that ends so is an address to some library (RFC 3696 2). */
static bool looks_like_number(const char *label)
{
    if (label[0] == '0' && label[1] == 'x') {
        return true;
    }
    return strspn(label, "0123456789") == strlen(label);
}

static bool labels_valid(const char *name)
{
    const char *label = name;

    for (;;) {
        size_t n = strcspn(label, ".");

        if (n == 0 || n > LABEL_MAX || label[0] == '-' || label[n - 1] == '-') {
            return false;
        }
        if (label[n] == '\0') {
            return !looks_like_number(label);
        }
        label += n + 1;
    }
}

int netpolicy_name(const char *text, size_t len, char ret[static NETPOLICY_NAME_MAX + 1])
{
    char name[NETPOLICY_NAME_MAX + 1];

    if (len > 0 && text[len - 1] == '.') {
        len--;
    }
    if (len == 0 || len > NETPOLICY_NAME_MAX) {
        return -EINVAL;
    }
    for (size_t i = 0; i < len; i++) {
        char c = text[i];

        name[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
        if (name[i] != '.' && !label_byte(name[i])) {
            return -EINVAL;
        }
    }
    name[len] = '\0';
    if (!labels_valid(name)) {
        return -EINVAL;
    }
    memcpy(ret, name, len + 1);
    return 0;
}

int netpolicy_parse_addr(const char *text, size_t len, struct in_addr *ret)
{
    uint32_t addr = 0;
    size_t at = 0;

    for (int i = 0; i < 4; i++) {
        unsigned value = 0;
        size_t begin = at;

        if (i > 0 && (at >= len || text[at++] != '.')) {
            return -EINVAL;
        }
        begin = at;
        while (at < len && at - begin < 3 && isdigit((unsigned char)text[at])) {
            value = value * 10 + (unsigned)(text[at++] - '0');
        }
        if (at == begin || value > 255 || (at - begin > 1 && text[begin] == '0')) {
            return -EINVAL;
        }
        addr = addr << 8 | value;
    }
    if (at != len) {
        return -EINVAL;
    }
    ret->s_addr = htonl(addr);
    return 0;
}

bool netpolicy_addr_public(struct in_addr addr)
{
    /* IANA's registry of special-purpose IPv4 addresses, and multicast. */
    static const struct {
        uint32_t net;
        unsigned prefix;
    } special[] = {
        {0x00000000, 8},  /* "this network" */
        {0x0a000000, 8},  /* private */
        {0x64400000, 10}, /* shared: carrier-grade NAT */
        {0x7f000000, 8},  /* loopback */
        {0xa9fe0000, 16}, /* link-local, and the metadata service of clouds */
        {0xac100000, 12}, /* private */
        {0xc0000000, 24}, /* protocol assignments */
        {0xc0000200, 24}, /* documentation */
        {0xc0586300, 24}, /* 6to4 relays, deprecated */
        {0xc0a80000, 16}, /* private */
        {0xc6120000, 15}, /* benchmarks */
        {0xc6336400, 24}, /* documentation */
        {0xcb007100, 24}, /* documentation */
        {0xe0000000, 4},  /* multicast */
        {0xf0000000, 4},  /* reserved, limited broadcast */
    };
    uint32_t host = ntohl(addr.s_addr);

    for (size_t i = 0; i < ARRAY_SIZE(special); i++) {
        if ((host ^ special[i].net) >> (32 - special[i].prefix) == 0) {
            return false;
        }
    }
    return true;
}

int netrule_ports(const char *text, uint16_t *ret_min, uint16_t *ret_max)
{
    const char *dash = strchr(text, '-');
    char first[8];
    uint64_t min;
    uint64_t max;
    size_t n = dash ? (size_t)(dash - text) : strlen(text);

    if (n >= sizeof(first)) {
        return -EINVAL;
    }
    memcpy(first, text, n);
    first[n] = '\0';
    if (str_to_u64(first, UINT16_MAX, &min) < 0 ||
        str_to_u64(dash ? dash + 1 : first, UINT16_MAX, &max) < 0 || min == 0 || min > max) {
        return -EINVAL;
    }
    *ret_min = (uint16_t)min;
    *ret_max = (uint16_t)max;
    return 0;
}

int netrule_host(const char *text, struct netrule *rule)
{
    char name[NETPOLICY_NAME_MAX + 1];
    bool below = text[0] == '*' && text[1] == '.';
    const char *rest = below ? text + 2 : text;

    if (netpolicy_name(rest, strlen(rest), name) < 0) {
        return -EINVAL;
    }
    rule->kind = NETRULE_HOST;
    rule->below = below;
    rule->host = xstrdup(name);
    return 0;
}

int netrule_cidr(const char *text, struct netrule *rule)
{
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : strlen(text);
    struct in_addr addr;
    uint64_t prefix = 32;

    if (netpolicy_parse_addr(text, n, &addr) < 0 ||
        (slash && str_to_u64(slash + 1, 32, &prefix) < 0)) {
        return -EINVAL;
    }
    rule->kind = NETRULE_CIDR;
    rule->prefix = (unsigned)prefix;
    rule->mask = prefix == 0 ? 0 : UINT32_MAX << (32 - prefix);
    rule->net = addr;
    /* Bits behind the prefix are a mistake that should not pass for something else. */
    return ntohl(addr.s_addr) & ~rule->mask ? -EINVAL : 0;
}

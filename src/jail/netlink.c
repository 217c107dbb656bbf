/* SPDX-License-Identifier: Apache-2.0 */
#include "jail/netlink.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* The kernel answers from within the call that sends; this is for one that does not. */
#define ANSWER_TIMEOUT_S 2

int netlink_open(struct netlink *nl, int protocol)
{
    const struct timeval timeout = {.tv_sec = ANSWER_TIMEOUT_S};
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};

    *nl = (struct netlink){.fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol)};
    if (nl->fd < 0) {
        return -errno;
    }
    if (setsockopt(nl->fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)) < 0 ||
        bind(nl->fd, (struct sockaddr *)&kernel, sizeof(kernel)) < 0) {
        int r = -errno;

        netlink_done(nl);
        return r;
    }
    return 0;
}

void netlink_done(struct netlink *nl)
{
    nl->fd = fd_close(nl->fd);
}

static void *room_for(struct netlink *nl, size_t len)
{
    void *at = nl->data + nl->len;

    ASSERT(nl->len + NLMSG_ALIGN(len) <= sizeof(nl->data));
    memset(at, 0, NLMSG_ALIGN(len));
    nl->len += NLMSG_ALIGN(len);
    return at;
}

static struct nlmsghdr *current(struct netlink *nl)
{
    return (struct nlmsghdr *)(void *)(nl->data + nl->message);
}

static void grown(struct netlink *nl)
{
    current(nl)->nlmsg_len = (uint32_t)(nl->len - nl->message);
}

void netlink_begin(struct netlink *nl, const struct netlink_message *m)
{
    struct nlmsghdr *header;

    nl->message = nl->len;
    header = room_for(nl, sizeof(*header));
    header->nlmsg_type = m->type;
    header->nlmsg_flags = (uint16_t)(m->flags | NLM_F_REQUEST);
    header->nlmsg_seq = ++nl->n;
    memcpy(room_for(nl, m->len), m->body, m->len);
    grown(nl);
}

void netlink_put(struct netlink *nl, uint16_t type, const void *data, size_t len)
{
    struct nlattr *attr = room_for(nl, sizeof(*attr) + len);

    attr->nla_type = type;
    attr->nla_len = (uint16_t)(sizeof(*attr) + len);
    memcpy((char *)attr + sizeof(*attr), data, len);
    grown(nl);
}

void netlink_put_str(struct netlink *nl, uint16_t type, const char *text)
{
    netlink_put(nl, type, text, strlen(text) + 1);
}

void netlink_put_u32(struct netlink *nl, uint16_t type, uint32_t value)
{
    netlink_put(nl, type, &value, sizeof(value));
}

void netlink_put_be32(struct netlink *nl, uint16_t type, uint32_t value)
{
    netlink_put_u32(nl, type, htonl(value));
}

size_t netlink_nest(struct netlink *nl, uint16_t type)
{
    size_t at = nl->len;

    netlink_put(nl, type | NLA_F_NESTED, "", 0);
    return at;
}

void netlink_nest_end(struct netlink *nl, size_t nest)
{
    struct nlattr *attr = (struct nlattr *)(void *)(nl->data + nest);

    attr->nla_len = (uint16_t)(nl->len - nest);
}

static int read_answers(struct netlink *nl, uint32_t n_acks)
{
    char data[4096] __attribute__((aligned(8)));

    while (n_acks > 0) {
        ssize_t n = recv(nl->fd, data, sizeof(data), 0);
        size_t left = n < 0 ? 0 : (size_t)n;

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -errno;
        }
        for (struct nlmsghdr *h = (void *)data; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
            const struct nlmsgerr *answer = NLMSG_DATA(h);

            if (h->nlmsg_type != NLMSG_ERROR || n_acks == 0) {
                continue;
            }
            if (answer->error != 0) {
                return answer->error;
            }
            n_acks--;
        }
    }
    return 0;
}

int netlink_commit(struct netlink *nl)
{
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    uint32_t n_acks = 0;
    size_t left = nl->len;
    ssize_t n;

    for (struct nlmsghdr *h = (void *)nl->data; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
        n_acks += (h->nlmsg_flags & NLM_F_ACK) != 0;
    }
    n = sendto(nl->fd, nl->data, nl->len, 0, (struct sockaddr *)&kernel, sizeof(kernel));
    nl->len = 0;
    if (n < 0) {
        return -errno;
    }
    return read_answers(nl, n_acks);
}

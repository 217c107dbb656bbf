/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/ssh-agent.h"

#include <string.h>

#define AGENT_FAILURE 5
#define AGENTC_REQUEST_IDENTITIES 11
#define AGENT_IDENTITIES_ANSWER 12
#define AGENTC_SIGN_REQUEST 13
#define AGENT_SIGN_RESPONSE 14
#define MSG_USERAUTH_REQUEST 50

bool ssh_view_is(struct ssh_view v, const char *text)
{
    return v.len == strlen(text) && memcmp(v.p, text, v.len) == 0;
}

int ssh_take_u32(struct ssh_view *from, uint32_t *ret)
{
    if (from->len < 4) {
        return -EBADMSG;
    }
    *ret = (uint32_t)from->p[0] << 24 | (uint32_t)from->p[1] << 16 | (uint32_t)from->p[2] << 8 |
           from->p[3];
    from->p += 4;
    from->len -= 4;
    return 0;
}

int ssh_take_string(struct ssh_view *from, struct ssh_view *ret)
{
    struct ssh_view rest = *from;
    uint32_t len;

    if (ssh_take_u32(&rest, &len) < 0 || len > rest.len) {
        return -EBADMSG;
    }
    *ret = (struct ssh_view){rest.p, len};
    *from = (struct ssh_view){rest.p + len, rest.len - len};
    return 0;
}

static int take_byte(struct ssh_view *from, uint8_t *ret)
{
    if (from->len < 1) {
        return -EBADMSG;
    }
    *ret = from->p[0];
    from->p++;
    from->len--;
    return 0;
}

static int parse_sign(struct ssh_view rest, struct ssh_agent_request *ret)
{
    if (ssh_take_string(&rest, &ret->key) < 0 || ssh_take_string(&rest, &ret->data) < 0 ||
        ssh_take_u32(&rest, &ret->flags) < 0 || rest.len > 0) {
        return -EBADMSG;
    }
    ret->kind = SSH_AGENT_SIGN;
    return 0;
}

int ssh_agent_parse(const void *data, size_t len, struct ssh_agent_request *ret, size_t *ret_used)
{
    struct ssh_view rest = {data, len};
    struct ssh_agent_request req = {.kind = SSH_AGENT_OTHER};
    uint32_t n;
    uint8_t type;

    if (ssh_take_u32(&rest, &n) < 0) {
        return -EAGAIN;
    }
    if (n < 1 || n > SSH_AGENT_MAX) {
        return -EBADMSG;
    }
    if (rest.len < n) {
        return -EAGAIN;
    }
    rest.len = n;
    if (take_byte(&rest, &type) < 0) {
        return -EBADMSG;
    }
    if (type == AGENTC_REQUEST_IDENTITIES && rest.len == 0) {
        req.kind = SSH_AGENT_LIST;
    } else if (type == AGENTC_SIGN_REQUEST && parse_sign(rest, &req) < 0) {
        return -EBADMSG;
    }
    *ret = req;
    *ret_used = 4 + (size_t)n;
    return 0;
}

int ssh_put_u32(struct buf *b, uint32_t n)
{
    const uint8_t bytes[] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};

    return buf_add(b, bytes, sizeof(bytes));
}

int ssh_put_string(struct buf *b, const void *data, size_t len)
{
    int r = len > UINT32_MAX ? -E2BIG : ssh_put_u32(b, (uint32_t)len);

    return r < 0 || len == 0 ? r : buf_add(b, data, len);
}

int ssh_put_mpint(struct buf *b, const uint8_t *data, size_t len)
{
    size_t sign;
    int r;

    while (len > 0 && data[0] == 0) {
        data++;
        len--;
    }
    sign = len > 0 && data[0] & 0x80;
    r = len >= UINT32_MAX ? -E2BIG : ssh_put_u32(b, (uint32_t)(len + sign));
    r = r < 0 || !sign ? r : buf_add(b, "", 1);
    return r < 0 || len == 0 ? r : buf_add(b, data, len);
}

/* The message's length comes first. */
static int put_message(struct buf *ret, uint8_t type, const struct buf *rest)
{
    int r = ssh_put_u32(ret, (uint32_t)(1 + rest->len));

    r = r < 0 ? r : buf_add(ret, &type, 1);
    return r < 0 || rest->len == 0 ? r : buf_add(ret, rest->data, rest->len);
}

int ssh_agent_print_failure(struct buf *ret)
{
    const struct buf none = BUF_INIT(0);

    return put_message(ret, AGENT_FAILURE, &none);
}

int ssh_agent_print_list(struct ssh_view key, const char *comment, struct buf *ret)
{
    cleanup_buf struct buf b = BUF_INIT(SSH_AGENT_MAX);
    int r = ssh_put_u32(&b, 1);

    r = r < 0 ? r : ssh_put_string(&b, key.p, key.len);
    r = r < 0 ? r : ssh_put_string(&b, comment, strlen(comment));
    return r < 0 ? r : put_message(ret, AGENT_IDENTITIES_ANSWER, &b);
}

int ssh_agent_print_signature(struct ssh_view signature, struct buf *ret)
{
    cleanup_buf struct buf b = BUF_INIT(SSH_AGENT_MAX);
    int r = ssh_put_string(&b, signature.p, signature.len);

    return r < 0 ? r : put_message(ret, AGENT_SIGN_RESPONSE, &b);
}

int ssh_login_parse(struct ssh_view data, struct ssh_login *ret)
{
    struct ssh_login login = {0};
    struct ssh_view method;
    uint8_t type;
    uint8_t has_key;

    if (ssh_take_string(&data, &login.session) < 0 || take_byte(&data, &type) < 0 ||
        ssh_take_string(&data, &login.user) < 0 || ssh_take_string(&data, &login.service) < 0 ||
        ssh_take_string(&data, &method) < 0 || take_byte(&data, &has_key) < 0 ||
        ssh_take_string(&data, &login.algorithm) < 0 || ssh_take_string(&data, &login.key) < 0 ||
        data.len > 0) {
        return -EBADMSG;
    }
    /* An exchange hash is one of SHA-1 at least: an empty session would be good for any. */
    if (type != MSG_USERAUTH_REQUEST || has_key != 1 || !ssh_view_is(method, "publickey") ||
        login.session.len < 20) {
        return -EBADMSG;
    }
    *ret = login;
    return 0;
}

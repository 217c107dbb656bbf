/* SPDX-License-Identifier: Apache-2.0 */
/* A message is one however much follows, and wants more when it is cut; its views are inside it. */
#include "wire/ssh-agent.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void inside(struct ssh_view v, const uint8_t *data, size_t size)
{
    ASSERT(v.p >= data && v.p + v.len <= data + size);
}

static void check_login(struct ssh_view v)
{
    cleanup_buf struct buf again = BUF_INIT(2 * SSH_AGENT_MAX);
    struct ssh_login login;

    if (ssh_login_parse(v, &login) < 0) {
        return;
    }
    inside(login.session, v.p, v.len);
    inside(login.key, v.p, v.len);
    /* There is one way to write it. */
    ASSERT(ssh_put_string(&again, login.session.p, login.session.len) == 0 &&
           buf_add(&again, "\x32", 1) == 0 &&
           ssh_put_string(&again, login.user.p, login.user.len) == 0 &&
           ssh_put_string(&again, login.service.p, login.service.len) == 0 &&
           ssh_put_string(&again, "publickey", 9) == 0 && buf_add(&again, "\x01", 1) == 0 &&
           ssh_put_string(&again, login.algorithm.p, login.algorithm.len) == 0 &&
           ssh_put_string(&again, login.key.p, login.key.len) == 0);
    ASSERT(again.len == v.len && memcmp(again.data, v.p, v.len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ssh_agent_request req;
    size_t used = 0;
    int r;

    if (size <= SSH_AGENT_MAX) {
        check_login((struct ssh_view){data, size});
    }
    r = ssh_agent_parse(data, size, &req, &used);
    ASSERT(r == 0 || r == -EAGAIN || r == -EBADMSG);
    if (r < 0) {
        return 0;
    }
    ASSERT(used >= 5 && used <= size);
    if (req.kind == SSH_AGENT_SIGN) {
        inside(req.key, data, used);
        inside(req.data, data, used);
        check_login(req.data);
    }
    ASSERT(ssh_agent_parse(data, used - 1, &req, &used) == -EAGAIN);
    return 0;
}

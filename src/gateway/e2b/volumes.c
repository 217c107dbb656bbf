/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Volumes: folders that several sandboxes of E2B's have mounted at once, and that clients read and write without any sandbox. A
 * machine here has block devices and no file system of the host's or of a network's (ARCHITECTURE.md, borders): a block device that two
 * kernels write to is soon none, and the host mounts nothing that a guest has written. So there are none, which is what the
 * list says, and to make one is refused.
 */
#include "gateway/e2b/private.h"

int e2b_volumes_handler(struct http_request *req, struct err *e)
{
    return e2b_reply_json_take(req, 200, json_array(), e);
}

int e2b_volume_create_handler(struct http_request *req, struct err *e)
{
    (void)req;
    return err_set(e, -EOPNOTSUPP, "not_supported",
                   "volumes are not supported here: a sandbox has a disk of its own and no file "
                   "system that others share; keep files in the sandbox (paused, it stays), or "
                   "make others of its snapshot");
}

int e2b_volume_handler(struct http_request *req, struct err *e)
{
    return err_set(e, -ENOENT, "volume_not_found",
                   "Volume \"%.64s\" doesn't exist: volumes are not supported here",
                   http_request_param(req, "id"));
}

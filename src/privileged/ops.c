/* SPDX-License-Identifier: Apache-2.0 */
#include "privileged/ops.h"

#include <stdio.h>
#include <string.h>

#define OP(struct_, valid_, run_) \
    { \
#run_, sizeof(struct struct_), valid_, run_ \
    }

static const struct priv_op_def ops[PRIV_OP_COUNT_] = {
    [PRIV_OP_MACHINE_START] = OP(priv_machine_start, machine_start_valid, machine_start_run),
    [PRIV_OP_MACHINE_SEAL] = OP(priv_machine_id, machine_id_valid, machine_seal_run),
    [PRIV_OP_MACHINE_KILL] = OP(priv_machine_id, machine_id_valid, machine_kill_run),
    [PRIV_OP_MACHINE_NEXT] = OP(priv_machine_id, machine_next_valid, machine_next_run),
    [PRIV_OP_MACHINE_STATS] = OP(priv_machine_id, machine_id_valid, machine_stats_run),
    [PRIV_OP_MACHINE_COPY] = OP(priv_machine_copy, machine_copy_valid, machine_copy_run),
    [PRIV_OP_MACHINE_SOCKET] = OP(priv_machine_socket, machine_socket_valid, machine_socket_run),
    [PRIV_OP_LEASE] = OP(priv_lease, lease_valid, lease_run),
    [PRIV_OP_SUBVOL_CREATE] = OP(priv_subvol, subvol_valid, subvol_create_run),
    [PRIV_OP_SUBVOL_SNAPSHOT] =
        OP(priv_subvol_snapshot, subvol_snapshot_valid, subvol_snapshot_run),
    [PRIV_OP_SUBVOL_DELETE] = OP(priv_subvol, subvol_valid, subvol_delete_run),
};

/* Aligned storage for the body of any operation. */
union body {
    struct priv_machine_start machine_start;
    struct priv_machine_id machine_id;
    struct priv_machine_copy machine_copy;
    struct priv_machine_socket machine_socket;
    struct priv_lease lease;
    struct priv_subvol subvol;
    struct priv_subvol_snapshot subvol_snapshot;
};
_Static_assert(sizeof(union body) <= PRIV_BODY_MAX,
               "the client's and the server's packets hold any body");

/* Which descriptors come with a request, a bit each. */
static uint32_t fds_of(const struct priv_op_def *op, const union body *body)
{
    if (op == &ops[PRIV_OP_MACHINE_START]) {
        return body->machine_start.fd_mask;
    }
    return op == &ops[PRIV_OP_MACHINE_COPY] ? (1u << PRIV_COPY_FD_COUNT_) - 1 : 0;
}

const struct priv_op_def *priv_check(const void *packet, size_t len, size_t n_fds)
{
    const struct priv_op_def *op;
    struct priv_header header;
    union body body;
    if (len < sizeof(header)) {
        return NULL;
    }
    memcpy(&header, packet, sizeof(header));
    if (header.magic != PRIV_MAGIC || header.version != PRIV_VERSION ||
        header.op >= PRIV_OP_COUNT_) {
        return NULL;
    }
    op = &ops[header.op];
    ASSERT(op->run && op->valid && op->size <= sizeof(body));
    if (len != sizeof(header) + op->size) {
        return NULL;
    }
    memcpy(&body, (const char *)packet + sizeof(header), op->size);
    if (!op->valid(&body)) {
        return NULL;
    }
    return n_fds == (size_t)__builtin_popcount(fds_of(op, &body)) ? op : NULL;
}

void priv_dispatch(struct priv_ctx *ctx, const struct priv_op_def *op, const void *packet,
                   const int *fds, struct priv_answer *answer)
{
    struct priv_request req;
    struct err e = {0};
    union body body;
    size_t next = 0;

    ASSERT(ctx && op && packet && answer);
    memcpy(&body, (const char *)packet + sizeof(struct priv_header), op->size);
    req.body = &body;
    for (unsigned i = 0; i < PRIV_FD_COUNT_; i++) {
        bool sent = fds_of(op, &body) & (1u << i);

        req.fds[i] = sent ? fds[next++] : FD_NONE;
    }
    *answer = (struct priv_answer){.reply = {.magic = PRIV_MAGIC}, .fd = FD_NONE};
    answer->reply.code = op->run(ctx, &req, answer, &e);
    if (answer->reply.code < 0) {
        ASSERT(e.code == answer->reply.code && answer->fd < 0);
        snprintf(answer->reply.reason, sizeof(answer->reply.reason), "%s", e.reason);
        snprintf(answer->reply.msg, sizeof(answer->reply.msg), "%s", e.msg);
    }
}

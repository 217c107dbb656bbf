/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What decides whether a packet is a request: the first byte is the number of descriptors, the rest
 * the packet. What is let through must be usable as it is: ids are names, numbers are in range,
 * sizes add up.
 */
#include "privileged/ops.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void assert_name(const char id[PRIV_ID_SIZE])
{
    size_t len = strnlen(id, PRIV_ID_SIZE);

    ASSERT(len > 0 && len < PRIV_ID_SIZE);
    ASSERT(strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == len);
}

static void assert_subvol(const struct priv_subvol *s)
{
    assert_name(s->id);
    ASSERT(s->kind == PRIV_SUBVOL_SANDBOX || s->kind == PRIV_SUBVOL_SNAPSHOT);
    ASSERT((s->kind == PRIV_SUBVOL_SANDBOX) == (s->n == 0) && s->n <= PRIV_SNAPSHOT_N_MAX);
}

static void assert_start(const struct priv_machine_start *m, size_t n_fds)
{
    bool boot = m->flags & PRIV_MACHINE_BOOT;

    assert_name(m->id);
    ASSERT(m->uid_slot <= PRIV_MACHINE_SLOT_MAX && m->vcpus > 0 && m->vcpus <= PRIV_VCPUS_MAX);
    ASSERT(m->memory_mib >= PRIV_MEMORY_MIB_MIN && m->memory_mib <= PRIV_MEMORY_MIB_MAX);
    ASSERT(boot == !(m->flags & PRIV_MACHINE_INCOMING));
    ASSERT(m->fd_mask < 1u << PRIV_FD_NET && n_fds == (size_t)__builtin_popcount(m->fd_mask));
    ASSERT(!(m->fd_mask & (1u << PRIV_FD_KERNEL)) == !boot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct priv_op_def *op;
    struct priv_header header;
    struct {
        _Alignas(8) char bytes[PRIV_BODY_MAX];
    } body;
    size_t n_fds;

    if (size == 0) {
        return 0;
    }
    n_fds = data[0];
    op = priv_check(data + 1, size - 1, n_fds);
    if (!op) {
        return 0;
    }
    ASSERT(size - 1 == sizeof(header) + op->size && op->size <= sizeof(body.bytes));
    memcpy(&header, data + 1, sizeof(header));
    memcpy(body.bytes, data + 1 + sizeof(header), op->size);
    ASSERT(header.op < PRIV_OP_COUNT_);
    switch ((enum priv_op)header.op) {
    case PRIV_OP_MACHINE_START:
        assert_start((const struct priv_machine_start *)(const void *)body.bytes, n_fds);
        break;
    case PRIV_OP_MACHINE_NEXT:
        if (body.bytes[0]) {
            assert_name(body.bytes);
        }
        break;
    case PRIV_OP_MACHINE_COPY:
        assert_name(body.bytes);
        ASSERT(((const struct priv_machine_copy *)(const void *)body.bytes)->memory_mib > 0);
        break;
    case PRIV_OP_LEASE:
        ASSERT(((const struct priv_lease *)(const void *)body.bytes)->flags <=
               PRIV_LEASE_IF_UNKNOWN);
        break;
    case PRIV_OP_SUBVOL_CREATE:
    case PRIV_OP_SUBVOL_DELETE:
        assert_subvol((const struct priv_subvol *)(const void *)body.bytes);
        break;
    case PRIV_OP_SUBVOL_SNAPSHOT:
        assert_subvol((const struct priv_subvol *)(const void *)body.bytes);
        assert_subvol((const struct priv_subvol *)(const void *)body.bytes + 1);
        break;
    default:
        assert_name(body.bytes);
        break;
    }
    if (header.op != PRIV_OP_MACHINE_START) {
        ASSERT(n_fds == (header.op == PRIV_OP_MACHINE_COPY ? (size_t)PRIV_COPY_FD_COUNT_ : 0));
    }
    return 0;
}

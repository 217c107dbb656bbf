/* SPDX-License-Identifier: Apache-2.0 */
/* What a well-formed request looks like. Pure: bytes in, yes or no out. */
#include "privileged/ops.h"

#include <string.h>

#define BIT(fd_) (1u << (fd_))
#define FDS_ALWAYS \
    (BIT(PRIV_FD_MEMORY) | BIT(PRIV_FD_DISK) | BIT(PRIV_FD_QMP) | BIT(PRIV_FD_CHANNEL) | \
     BIT(PRIV_FD_CONSOLE))
#define FDS_BOOT (BIT(PRIV_FD_KERNEL) | BIT(PRIV_FD_INITRD))
#define FDS_INCOMING BIT(PRIV_FD_DEVICE_STATE)

bool priv_id_valid(const char id[PRIV_ID_SIZE])
{
    size_t len = strnlen(id, PRIV_ID_SIZE);

    if (len == 0 || len == PRIV_ID_SIZE) {
        return false;
    }
    for (size_t i = 0; i < PRIV_ID_SIZE; i++) {
        char c = id[i];

        if (i < len ? !((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) : c != '\0') {
            return false;
        }
    }
    return true;
}

bool machine_start_valid(const void *body)
{
    const struct priv_machine_start *m = body;
    bool boot = m->flags & PRIV_MACHINE_BOOT;
    bool incoming = m->flags & PRIV_MACHINE_INCOMING;
    bool base = m->flags & PRIV_MACHINE_BASE;

    return priv_id_valid(m->id) && m->uid_slot <= PRIV_MACHINE_SLOT_MAX && m->vcpus >= 1 &&
           m->vcpus <= PRIV_VCPUS_MAX && m->memory_mib >= PRIV_MEMORY_MIB_MIN &&
           m->memory_mib <= PRIV_MEMORY_MIB_MAX && (m->flags & ~PRIV_MACHINE_FLAGS_ALL) == 0 &&
           boot != incoming && base == boot &&
           m->fd_mask == (FDS_ALWAYS | (boot ? FDS_BOOT : FDS_INCOMING));
}

bool machine_id_valid(const void *body)
{
    const struct priv_machine_id *m = body;

    return priv_id_valid(m->id);
}

bool machine_copy_valid(const void *body)
{
    const struct priv_machine_copy *m = body;

    return priv_id_valid(m->id) && m->memory_mib >= PRIV_MEMORY_MIB_MIN &&
           m->memory_mib <= PRIV_MEMORY_MIB_MAX && (m->flags & ~PRIV_COPY_INTO) == 0;
}

bool machine_socket_valid(const void *body)
{
    const struct priv_machine_socket *m = body;

    return priv_id_valid(m->id) && m->kind < PRIV_SOCKET_KIND_COUNT_;
}

bool machine_next_valid(const void *body)
{
    static const struct priv_machine_id begin = {.id = ""};

    return memcmp(body, &begin, sizeof(begin)) == 0 || machine_id_valid(body);
}

bool lease_valid(const void *body)
{
    const struct priv_lease *l = body;

    return l->zero == 0 &&
           (l->flags == 0 || (l->flags == PRIV_LEASE_IF_UNKNOWN && l->until_ns == 0));
}

bool subvol_valid(const void *body)
{
    const struct priv_subvol *s = body;

    if (!priv_id_valid(s->id) || s->kind >= PRIV_SUBVOL_KIND_COUNT_) {
        return false;
    }
    return s->kind == PRIV_SUBVOL_SANDBOX ? s->n == 0 : s->n >= 1 && s->n <= PRIV_SNAPSHOT_N_MAX;
}

bool subvol_snapshot_valid(const void *body)
{
    const struct priv_subvol_snapshot *s = body;

    return subvol_valid(&s->from) && subvol_valid(&s->to) &&
           (s->flags & ~PRIV_SUBVOL_READONLY) == 0 &&
           memcmp(&s->from, &s->to, sizeof(s->from)) != 0;
}

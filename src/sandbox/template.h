/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates on this node: templates/NAME/{disk.img,manifest.json}. Made elsewhere and renamed into place
 * whole; here they are only read.
 */
#pragma once

#include "sandbox/node.h"

#include <jansson.h>

/*
 * Beside disk.img there are disk-MIB.img of these sizes, which hold the same file system grown already (made by
 * space-template-build): growing it in the guest takes 100 ms under emulation and 26 MB of its disk.
 */
#define TEMPLATE_GROWN_MIB \
    { \
        65536, 16384, 4096 \
    }

struct template
{
    char name[64];
    char default_user[33];
    char fstype[16];
    uint64_t size_bytes; /* of the disk image */
    json_t *manifest;    /* owned */
    int disk_fd;         /* owned: read-only */
};

void template_done(struct template *t);
#define cleanup_template CLEANUP(template_done)
/* -ENOENT "template_not_found" with the ones there are. */
MUST_CHECK int template_open(const struct node *node, const char *name, struct template *ret,
                             struct err *e);
/* Its largest image that a disk of so many bytes can hold; the guest grows the rest. size_bytes stays that of disk.img. */
MUST_CHECK int template_fit_disk(const struct node *node, struct template *t, uint64_t bytes,
                                 struct err *e);
/* The template may be gone by now: then what any disk of ours has. */
void template_open_or_default(const struct node *node, const char *name, struct template *ret);
/* [{"name","size_bytes",...manifest}] sorted by name. */
MUST_CHECK int template_list(const struct node *node, json_t **ret, struct err *e);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates on this node: templates/NAME/{disk.img,manifest.json}. Made elsewhere and renamed into place
 * whole; here they are only read.
 */
#pragma once

#include "sandbox/node.h"

#include <jansson.h>

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
/* The template may be gone by now: then what any disk of ours has. */
void template_open_or_default(const struct node *node, const char *name, struct template *ret);
/* [{"name","size_bytes",...manifest}] sorted by name. */
MUST_CHECK int template_list(const struct node *node, json_t **ret, struct err *e);

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * An OCI image becomes the disk of a builder's sandbox. Everything that reads the image runs in that machine, as root there and
 * nowhere else: skopeo fetches and checks it, umoci unpacks its layers (whiteouts, owners, links), a script puts
 * what came of them in the place of the root file system. How large it may be is what the machine's disk holds.
 *
 *     1. a sandbox of the node's template TEMPLATE_IMAGE_NODE (templates/oci) may reach its registry and what is public
 *     2. the registry's credentials are a file in the machine's memory, removed before anything is unpacked
 *     3. the image's content replaces the disk's; what sandboxes need is added where it is missing: a shell (busybox),
 *        the name /bin/bash, the users root and user
 *     4. the machine starts anew, from the image's disk alone
 *
 * The kernel and the daemon are the node's, as everywhere.
 */
#pragma once

#include "gateway/template/builder.h"
#include "gateway/template/files.h"
#include "gateway/template/log.h"

#define TEMPLATE_IMAGE_NODE "oci" /* the node's template that images are unpacked in */

struct import {
    struct builder *builder;              /* borrowed: runs, a sandbox of that template */
    const struct template_recipe *recipe; /* borrowed */
    const struct files *files;            /* borrowed */
    struct build_log *log;                /* borrowed */
};

/* What the image says of its sandboxes goes into *ret, which is empty. -EINVAL, -ECHILD and others; e says what, the log why. */
MUST_CHECK int image_import(const struct import *import, struct template_config *ret,
                            struct err *e);

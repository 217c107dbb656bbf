/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One build, from its first step to the snapshot that sandboxes are made from.
 *
 *     base           a template of the node: a new sandbox; or a snapshot (a template that was built, a snapshot's): a fork of it;
 *                    or an image, unpacked in a new sandbox (import.h), which leaves a layer as a step does
 *     each step      ENV and USER change what comes after; RUN, COPY and WORKDIR run in the sandbox, and leave a layer: a
 *                    snapshot of the disk, found again by the hash of all that led to it
 *     start command  left running; when the ready command succeeds, a snapshot of disk and memory is the template, and its
 *                    sandboxes start with the process at work. Without a start command the last layer is the template
 *
 * Where the last layers are known, the sandbox starts from the last of them; where all are, there is no sandbox at all. Two
 * builds at once that lead to the same layer both make it, and the later one stays.
 */
#pragma once

#include "gateway/template/builder.h"
#include "gateway/template/files.h"
#include "gateway/template/log.h"

#define BUILD_STEP_MS (3600ll * 1000)      /* one RUN: compiling something large */
#define BUILD_READY_MS (900ll * 1000)      /* until the ready command must have succeeded */
#define BUILD_START_ALONE_MS (20ll * 1000) /* what a start command without a ready one gets */

struct build_base {
    char node_template[TEMPLATE_NAME_SIZE]; /* "": from a snapshot */
    char sandbox[ID_SIZE];
    char snapshot[ID_SIZE];
    char hash[TEMPLATE_HASH_SIZE];
    bool
        image; /* node_template is where the recipe's image is unpacked; the hash is that of the layer which it becomes */
    struct template_config config; /* owned */
};
void build_base_done(struct build_base *base);

struct build {
    const struct builder_world *world;    /* borrowed */
    const struct files *files;            /* borrowed */
    const struct template_recipe *recipe; /* borrowed */
    const struct build_base *base;        /* borrowed */
    struct build_log *log;                /* borrowed */
    struct build_row *row;                /* borrowed: sandbox, snapshot and config are set */
};

/* On failure e says why, and the log which step it was: what is left is the sandbox of the layers, if there are any. */
MUST_CHECK int build_perform(struct build *build, struct err *e);

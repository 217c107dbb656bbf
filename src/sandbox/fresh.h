/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fresh machine over a disk that comes from an image: a create's template, or the disk of a snapshot. From the
 * stock of warm machines when there is one, else from the base machine; a warm one that fails is no reason to fail.
 */
#pragma once

#include "sandbox/bring.h"
#include "sandbox/template.h"

/* Borrowed for the call. */
struct fresh_source {
    int image_fd;                 /* what a warm machine's disk becomes a clone of */
    const struct template *dress; /* a machine dressed with it will do as well; NULL: none will */
    struct bring_disk disk;
    /* The cold way: makes the subvolume of res's disk and opens it as res->disk_fd. */
    int (*make_disk)(struct resident *res, void *arg, struct err *e);
    void *arg;
};

/* With the op lock. On failure the caller ends and removes what there is. */
MUST_CHECK int fresh_machine(struct resident *res, const struct fresh_source *source,
                             uint64_t deadline_ns, struct err *e);
/* The disk of snapshot n of the sandbox `owner`, or of the sandbox itself (n: 0), to be cloned from. */
MUST_CHECK int fresh_open_image(const struct node *node, const char *owner, uint32_t n, int *ret_fd,
                                struct err *e);

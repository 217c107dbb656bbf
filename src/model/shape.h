/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How large a sandbox is: virtual CPUs, memory, disk. Base machines exist per shape, which is why memory
 * comes in steps: few shapes are used often, and each costs a boot the first time.
 */
#pragma once

#include "base/json.h"

#define SHAPE_VCPUS_MIN 1
#define SHAPE_VCPUS_MAX 8
#define SHAPE_VCPUS_DEFAULT 1
#define SHAPE_MEMORY_MIB_MIN 128
#define SHAPE_MEMORY_MIB_MAX 16384
#define SHAPE_MEMORY_MIB_STEP 64
#define SHAPE_MEMORY_MIB_DEFAULT 256
#define SHAPE_DISK_MIB_MIN 64
#define SHAPE_DISK_MIB_MAX 102400
#define SHAPE_DISK_MIB_DEFAULT 4096

struct shape {
    unsigned vcpus;
    unsigned memory_mib;
    unsigned disk_mib;
};

struct shape shape_default(void);
/* -EINVAL with the field and its limits. */
int shape_check(const struct shape *shape, struct err *e);
/* Reads vcpus, memory_mib and disk_mib of BODY over the defaults, and checks them. */
int shape_from_json(json_t *body, struct shape *ret, struct err *e);

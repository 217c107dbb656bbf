/* SPDX-License-Identifier: Apache-2.0 */
#include "model/shape.h"

struct shape shape_default(void)
{
    return (struct shape){
        .vcpus = SHAPE_VCPUS_DEFAULT,
        .memory_mib = SHAPE_MEMORY_MIB_DEFAULT,
        .disk_mib = SHAPE_DISK_MIB_DEFAULT,
    };
}

/* One field of a shape: its name, where it is, its limits. */
struct shape_field {
    const char *name;
    size_t offset;
    struct json_bounds bounds;
};

static const struct shape_field shape_fields[] = {
    {"vcpus",
     offsetof(struct shape, vcpus),
     {SHAPE_VCPUS_MIN, SHAPE_VCPUS_MAX, SHAPE_VCPUS_DEFAULT}},
    {"memory_mib",
     offsetof(struct shape, memory_mib),
     {SHAPE_MEMORY_MIB_MIN, SHAPE_MEMORY_MIB_MAX, SHAPE_MEMORY_MIB_DEFAULT}},
    {"disk_mib",
     offsetof(struct shape, disk_mib),
     {SHAPE_DISK_MIB_MIN, SHAPE_DISK_MIB_MAX, SHAPE_DISK_MIB_DEFAULT}},
};

int shape_check(const struct shape *shape, struct err *e)
{
    unsigned below;

    ASSERT(shape);

    for (size_t i = 0; i < ARRAY_SIZE(shape_fields); i++) {
        const struct shape_field *f = &shape_fields[i];
        unsigned value = *(const unsigned *)(const void *)((const char *)shape + f->offset);

        if ((int64_t)value < f->bounds.min || (int64_t)value > f->bounds.max) {
            return err_field(e, -EINVAL, "out_of_range", f->name,
                             "'%s' must be from %lld to %lld, not %u", f->name,
                             (long long)f->bounds.min, (long long)f->bounds.max, value);
        }
    }
    if (shape->memory_mib % SHAPE_MEMORY_MIB_STEP != 0) {
        below = shape->memory_mib - shape->memory_mib % SHAPE_MEMORY_MIB_STEP;
        return err_field(e, -EINVAL, "not_a_multiple", "memory_mib",
                         "'memory_mib' must be a multiple of %d: use %u or %u instead of %u",
                         SHAPE_MEMORY_MIB_STEP, below, below + SHAPE_MEMORY_MIB_STEP,
                         shape->memory_mib);
    }
    return 0;
}

int shape_from_json(json_t *body, struct shape *ret, struct err *e)
{
    struct shape shape = shape_default();
    int r;

    ASSERT(body && ret);

    for (size_t i = 0; i < ARRAY_SIZE(shape_fields); i++) {
        const struct shape_field *f = &shape_fields[i];
        int64_t value = 0;

        r = json_get_bounded(body, f->name, f->bounds, &value, e);
        if (r < 0) {
            return r;
        }
        *(unsigned *)(void *)((char *)&shape + f->offset) = (unsigned)value;
    }
    r = shape_check(&shape, e);
    if (r < 0) {
        return r;
    }
    *ret = shape;
    return 0;
}

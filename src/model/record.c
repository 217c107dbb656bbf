/* SPDX-License-Identifier: Apache-2.0 */
#include "model/record.h"

#include <string.h>

void operation_done(struct operation *op)
{
    if (op) {
        free(op->answer);
        memset(op, 0, sizeof(*op));
    }
}

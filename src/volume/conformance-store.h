/* SPDX-License-Identifier: Apache-2.0 */
/* What is true of every object store; conformance-store.c knows none of them. */
#pragma once

#include "volume/store.h"

/* A new, empty one; ends the program when there is none to be had. */
struct store *conformance_open(void);

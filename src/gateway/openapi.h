/* SPDX-License-Identifier: Apache-2.0 */

/* docs/api/openapi.json, carried in the program: what is served is what was built and tested. */
#pragma once

#include <stddef.h>

extern const unsigned char openapi_text[];
extern const size_t openapi_text_len;

/* SPDX-License-Identifier: Apache-2.0 */
/* What is true of every key management service; conformance-kms.c knows none of them. */
#pragma once

#include "volume/kms.h"

/* One without any key; ends the program when there is none to be had. */
struct kms *conformance_open(void);
/* Revokes the organisation's key, and takes that back, the service's own way. */
void conformance_revoke(const char *organisation, bool revoked);

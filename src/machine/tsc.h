/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rate of this host's time stamp counter. QEMU's software emulation hands it to its guests as it is, and
 * there is no clock in a microvm that a guest could measure it against: it has to be told.
 */
#pragma once

#include <stdint.h>

/* Measured over a fifth of a second, to some parts in a million; 0: the counter is not constant here. */
uint32_t tsc_measure_khz(void);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file routes. Each request is one file job (file-job.h); this part only carries bytes between
 * the two, with the back pressure of each side felt by the other:
 *
 *     reading, watching   the channel is full: the job is paused until there is room again
 *     uploading           the worker's pipe is full: the body is left where it is, which holds the
 *                         client back
 *
 * The client going away cancels the job: an upload that was not whole leaves nothing behind.
 */
#pragma once

#include "daemon/module.h"

extern const struct module file_module;

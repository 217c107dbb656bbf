/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends and removes in the background what a sandbox has left behind when it went over to another machine and disk: nobody
 * waits for a process to die or for a subvolume to go. What is not done when the process is killed is
 * swept at its next start, since no record names it.
 */
#pragma once

#include "sandbox/resident.h"

struct reaper;

struct reaper *reaper_start(void);
/* Does what is left to do first. */
void reaper_stop(struct reaper *reaper);
/* leftover is a resident in no list, with the only reference; disk the subvolume to delete afterwards. Any thread. */
void reaper_take(struct reaper *reaper, struct resident *leftover, const struct priv_subvol *disk);

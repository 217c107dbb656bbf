/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandbox's /etc/passwd and /etc/group, as bytes that the workload may have written. Pure, fuzzed.
 * Lines that make no sense (too few fields, ids that are no numbers, names that do not fit) are skipped, as
 * the C library does. The first matching line wins.
 */
#pragma once

#include "base/util.h"
#include "daemon/workload.h"

/* Largest passwd or group file that is looked at. */
#define PASSWD_FILE_MAX (1024u * 1024)

/* By name; fills everything but groups. -ENOENT. */
MUST_CHECK int passwd_find_name(const char *text, size_t len, const char *name,
                                struct workload_user *ret);
/* By uid. -ENOENT. */
MUST_CHECK int passwd_find_uid(const char *text, size_t len, uid_t uid, struct workload_user *ret);
/* Adds the groups that name the user as a member, after u->gid, each once; at most WORKLOAD_GROUPS_MAX. */
void group_collect(const char *text, size_t len, struct workload_user *u);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the volume manager is asked: a SOCK_SEQPACKET socket in the run directory, one JSON object a packet with the
 * descriptors of files, one object back. {"op": ...} with "organisation" and "sandbox", and
 *
 *     store    files: [{"name", "base"}]; for each a descriptor that is read, and one of its image when base is true
 *     fetch    files, the same; the descriptor is of an empty file that is written
 *     age      {"modified_ms"}: since when what is stored is as it is
 *     forget
 *     ping     needs neither; {"store", "keys"}: the names of their kinds
 *     metrics  needs neither; {"text"}: what it counts; see base/metric.h
 *
 * and, of root alone, {"op": "rotate" | "shred"} with "organisation", and {"op": "collect"}.
 *
 * Any of them may have "request", the id of the request that it is for (base/log.h).
 *
 * The answer is an object; with a member "error" (json_error_object(), and "errno") when it could not be done. Hanging up
 * ends what is under way. A packet that is no such request closes the connection.
 */
#pragma once

#include "base/json.h"
#include "volume/archive.h"

#define VOLUME_SOCKET "volume/manager.sock"
/* What it counts is the largest: all its series, with room. */
#define VOLUME_PACKET_MAX 65536u

struct volume_call {
    const char *op;
    const char *organisation;         /* borrowed; NULL: none */
    const char *sandbox;              /* borrowed; NULL: none */
    const struct archive_file *files; /* borrowed */
    size_t n_files;
    uint64_t deadline_ns;
    bool (*gone)(
        void *arg); /* asked a few times a second: true ends it with -ECANCELED; NULL: never */
    void *arg;
};

/*
 * One exchange over a connection of its own. *ret (may be NULL) is the answer. -ECONNREFUSED and -ENOENT become -EHOSTDOWN
 * "volume_manager_unavailable", as does a connection that breaks; -ETIMEDOUT; else what the volume manager said.
 */
MUST_CHECK int volume_call(const char *socket_path, const struct volume_call *call, json_t **ret,
                           struct err *e);

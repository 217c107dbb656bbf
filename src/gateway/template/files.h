/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The archives that COPY steps take their files from: uploaded once, named by a hash that their client chose, in the gateway's
 * state folder, files/PROJECT.HASH. They are never opened here: the sandbox unpacks them. Nothing else of a project
 * is reached through them, so a client that lies about a hash deceives itself.
 *
 * A project may hold FILES_PROJECT_MAX bytes; what no build has used for FILES_AGE_S goes when room is needed.
 *
 * Threads: any.
 */
#pragma once

#include "base/err.h"
#include "base/id.h"

struct files;

#define FILES_ONE_MAX (2ull << 30)      /* one archive */
#define FILES_PROJECT_MAX (16ull << 30) /* all of a project's */
#define FILES_AGE_S (14 * 24 * 3600)

/* Makes the folder. */
MUST_CHECK int files_open(const char *state_dir, struct files **ret, struct err *e);
void files_free(struct files *f);
DEFINE_CLEANUP(struct files *, files_free);

bool files_have(const struct files *f, const char *project, const char *hash);
/* To read it, and notes the use. -ENOENT "files_not_uploaded". The caller closes *ret_fd. */
MUST_CHECK int files_get(const struct files *f, const char *project, const char *hash, int *ret_fd,
                         struct err *e);

/* A new one: written to files_put_fd(), then kept; what is freed before that is gone. */
struct files_put;
/* -ENOSPC "too_many_files": the project holds too much; size is what the client announced. */
MUST_CHECK int files_put_begin(struct files *f, const char *project, const char *hash,
                               uint64_t size, struct files_put **ret, struct err *e);
int files_put_fd(const struct files_put *put);
MUST_CHECK int files_put_keep(struct files_put *put, struct err *e);
void files_put_free(struct files_put *put);
DEFINE_CLEANUP(struct files_put *, files_put_free);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells the webhooks of sandboxes (credential/manager-notify.c) that one of them waits for an answer. What is to be told waits in one
 * list, the next due first; a few threads hand it to the credential manager, which signs and sends it. What was not taken is tried
 * again, NOTIFY_TRIES times in all, further and further apart, and not after its end: nobody waits for an answer then.
 */
#pragma once

#include "base/json.h"
#include "network/intercept.h"

#define NOTIFY_TRIES 5u
/* Of all sandboxes; more are not told, and their questions are there for who lists them. */
#define NOTIFY_MAX 1024u

struct notifier;

/* credential_url as intercept_opts has it. */
MUST_CHECK int notifier_new(const char *credential_url, struct notifier **ret, struct err *e);
/* What was not told is forgotten. */
void notifier_free(struct notifier *n);
DEFINE_CLEANUP(struct notifier *, notifier_free);

/* From any thread; does not wait. text is taken. */
void notifier_add_take(struct notifier *n, const struct intercept_owner *owner, char *text,
                       uint64_t end_ns);

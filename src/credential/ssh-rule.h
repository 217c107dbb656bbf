/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a credential of the type "ssh" says besides its target: which keys the host may have, and what may be asked of it. Pure.
 *
 * Commands. The list has names of programs ("git-upload-pack"); "git" stands for the three that git calls; "*" for any
 * command; "@shell" for a login shell, with a terminal; "@sftp" for the subsystem of that name. An empty list is "*". A command is
 * compared with names only if a shell would see nothing in it but words: letters, digits and ._/:@=+,~- , what stands
 * between single quotes, and \' and \! as git writes them.
 */
#pragma once

#include "base/err.h"

#define SSH_RULE_KEYS_MAX 8u
/* "ecdsa-sha2-nistp521 SHA256:" and 43 characters. */
#define SSH_RULE_KEY_SIZE 80u
#define SSH_RULE_COMMANDS_MAX 8u
#define SSH_RULE_COMMAND_SIZE 64u

struct ssh_rule {
    char keys[SSH_RULE_KEYS_MAX][SSH_RULE_KEY_SIZE]; /* "SHA256:..." or "TYPE SHA256:..." */
    size_t n_keys;
    char commands[SSH_RULE_COMMANDS_MAX][SSH_RULE_COMMAND_SIZE];
    size_t n_commands;
};

/* A line of known_hosts without its hosts, "TYPE BASE64", or a fingerprint. -EINVAL; -E2BIG: no room. */
MUST_CHECK int ssh_rule_add_key(struct ssh_rule *rule, const char *text);
MUST_CHECK int ssh_rule_add_command(struct ssh_rule *rule, const char *text);

/* type: "ssh-ed25519"; fingerprint: "SHA256:..." */
bool ssh_rule_knows(const struct ssh_rule *rule, const char *type, const char *fingerprint);
bool ssh_rule_allows(const struct ssh_rule *rule, const char *command);
bool ssh_rule_allows_shell(const struct ssh_rule *rule);
bool ssh_rule_allows_subsystem(const struct ssh_rule *rule, const char *name);

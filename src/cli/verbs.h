/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs of `space`: one table, one row each, with everything that is known about a verb. Parsing, --help,
 * `space help --json`, completion and the test of the man page read it; nothing about a verb is written twice.
 *
 * A name may be two words ("key create"); its first word alone then shows the list of what may follow, unless
 * there is a row for it too.
 */
#pragma once

#include "cli/cli.h"

enum verb_group {
    VERB_SANDBOX,
    VERB_TIME,
    VERB_COMMAND,
    VERB_ACCOUNT,
    VERB_SERVICE,
    VERB_OTHER,
    VERB_GROUP_COUNT_,
};

/* Returns an exit code. Errors were told to the user by the time it returns. */
typedef int (*verb_fn)(struct cli *cli);

struct verb {
    const char *name;
    const char *operands; /* for the synopsis; "" when there are none */
    const char *summary;  /* one line without a full stop */
    const char *about;    /* paragraphs, may be NULL */
    const char *examples; /* lines, may be NULL */
    struct opt_set opts;
    enum verb_group group;
    bool command_codes; /* exit codes are those of the command */
    verb_fn run;
};

extern const struct verb verbs[];
extern const size_t n_verbs;

/* The verb that argv starts with (argv ends with NULL); *ret_words is how many words named it. NULL: none. */
const struct verb *verb_find(const char *const *argv, size_t *ret_words);
/* True when some verb's first word is `word`. */
bool verb_is_prefix(const char *word);
const char *verb_nearest(const char *word);
const char *verb_group_title(enum verb_group group);

int verb_up(struct cli *cli);
int verb_down(struct cli *cli);
int verb_status(struct cli *cli);
int verb_doctor(struct cli *cli);
int verb_create(struct cli *cli);
int verb_ls(struct cli *cli);
int verb_info(struct cli *cli);
int verb_rm(struct cli *cli);
int verb_stop(struct cli *cli);
int verb_start(struct cli *cli);
int verb_policy(struct cli *cli);
int verb_net_show(struct cli *cli);
int verb_net_set(struct cli *cli);
int verb_net_log(struct cli *cli);
int verb_net_top(struct cli *cli);
int verb_net_explain(struct cli *cli);
int verb_net_level(struct cli *cli);
int verb_net_approve(struct cli *cli);
int verb_net_deny(struct cli *cli);
int verb_net_propose(struct cli *cli);
int verb_pause(struct cli *cli);
int verb_suspend(struct cli *cli);
int verb_resume(struct cli *cli);
int verb_snapshot(struct cli *cli);
int verb_snapshot_ls(struct cli *cli);
int verb_snapshot_info(struct cli *cli);
int verb_snapshot_rm(struct cli *cli);
int verb_snapshot_keep(struct cli *cli);
int verb_snapshot_name(struct cli *cli);
int verb_rollback(struct cli *cli);
int verb_fork(struct cli *cli);
int verb_diff(struct cli *cli);
int verb_bisect(struct cli *cli);
int verb_history(struct cli *cli);
int verb_trace(struct cli *cli);
int verb_run(struct cli *cli);
int verb_exec(struct cli *cli);
int verb_shell(struct cli *cli);
int verb_cp(struct cli *cli);
int verb_ps(struct cli *cli);
int verb_kill(struct cli *cli);
int verb_logs(struct cli *cli);
int verb_top(struct cli *cli);
int verb_preview(struct cli *cli);
int verb_forward(struct cli *cli);
int verb_template_ls(struct cli *cli);
int verb_template_build(struct cli *cli);
int verb_template_rm(struct cli *cli);
int verb_template_inspect(struct cli *cli);
int verb_key_create(struct cli *cli);
int verb_key_ls(struct cli *cli);
int verb_key_rm(struct cli *cli);
int verb_credential_add(struct cli *cli);
int verb_credential_ls(struct cli *cli);
int verb_credential_rm(struct cli *cli);
int verb_credential_rotate(struct cli *cli);
int verb_credential_log(struct cli *cli);
int verb_audit_verify(struct cli *cli);
int verb_schedule_explain(struct cli *cli);
int verb_node_ls(struct cli *cli);
int verb_node_show(struct cli *cli);
int verb_node_add(struct cli *cli);
int verb_node_cordon(struct cli *cli);
int verb_node_uncordon(struct cli *cli);
int verb_node_drain(struct cli *cli);
int verb_node_rm(struct cli *cli);
int verb_node_token(struct cli *cli);
int verb_node_join(struct cli *cli);
int verb_node_renew(struct cli *cli);

/* Where a node keeps its key and certificate when nothing else is said. */
#define NODE_TLS_DEFAULT "/etc/space/node"
int verb_mcp(struct cli *cli);
int verb_help(struct cli *cli);
int verb_version(struct cli *cli);
int verb_completion(struct cli *cli);

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/verbs.h"

#include <limits.h>
#include <string.h>

#define ANY UINT_MAX

#define FLAG(name_, letter_, member_, help_) \
    { \
        .name = name_, .letter = letter_, .kind = OPT_FLAG, .help = help_, \
        .offset = offsetof(struct args, member_) \
    }
#define VALUE(kind_, name_, letter_, arg_, member_, help_) \
    { \
        .name = name_, .letter = letter_, .kind = kind_, .arg = arg_, .help = help_, \
        .offset = offsetof(struct args, member_) \
    }

static const struct opt help_opts[] = {
    FLAG("help", 'h', help, "show this help"),
    OPT_END,
};

static const struct opt client_opts[] = {
    VALUE(OPT_TEXT, "url", 0, "URL", url, "address of the gateway (SPACE_URL)"),
    VALUE(OPT_TEXT, "key", 0, "KEY", key,
          "API key (better: SPACE_API_KEY, others can see arguments)"),
    FLAG("json", 0, json, "print the API's own objects, errors too"),
    FLAG("quiet", 'q', quiet, "only what was asked for: ids, no notes"),
    FLAG("help", 'h', help, "show this help"),
    OPT_END,
};

static const struct opt place_opts[] = {
    VALUE(OPT_TEXT, "state-dir", 0, "DIR", state_dir, "where durable state lives (/var/lib/space)"),
    VALUE(OPT_TEXT, "run-dir", 0, "DIR", run_dir, "where sockets and the lock live (/run/space)"),
    FLAG("json", 0, json, "print JSON, errors too"),
    FLAG("quiet", 'q', quiet, "no notes and no progress"),
    FLAG("help", 'h', help, "show this help"),
    OPT_END,
};

static const struct opt up_opts[] = {
    FLAG("detach", 'd', detach, "go on in the background once everything answers"),
    VALUE(OPT_TEXT, "listen", 0, "ADDRESS", listen, "where the gateway listens (127.0.0.1:7777)"),
    VALUE(OPT_TEXT, "domain", 0, "NAME", domain,
          "sandboxes are reached as PORT-ID.NAME (localhost; with TLS space.localhost)"),
    FLAG("tls", 0, tls, "speak TLS too; without --tls-cert with a certificate made here"),
    VALUE(OPT_TEXT, "tls-listen", 0, "ADDRESS", tls_listen, "where TLS is spoken (127.0.0.1:7443)"),
    VALUE(OPT_TEXT, "tls-cert", 0, "FILE", tls_cert,
          "certificate for NAME and *.NAME, as PEM with its chain; the gateway's user must be able "
          "to read it"),
    VALUE(OPT_TEXT, "tls-key", 0, "FILE", tls_key, "its key"),
    VALUE(OPT_TEXT, "database", 0, "URL", database,
          "a PostgreSQL database, as postgresql://USER@HOST/NAME; gateways may share it (SQLite in "
          "the state folder)"),
    VALUE(OPT_TEXT, "database-password-file", 0, "FILE", database_password_file,
          "holds its password; the gateway's user must be able to read it"),
    VALUE(OPT_TEXT, "node-listen", 0, "ADDRESS", node_listen,
          "where the node serves gateways on other machines (nowhere)"),
    VALUE(
        OPT_TEXT, "node-tls", 0, "DIR", node_tls,
        "folder with cert.pem, key.pem and ca.pem for that; the sandbox manager's user must be "
        "able to read them. With gateway.pem and gateway-key.pem, which the gateway's user must be "
        "able to read, the gateway reaches other nodes"),
    VALUE(OPT_TEXT, "node-authority", 0, "DIR", node_authority,
          "folder with ca.pem and ca-key.pem, which the gateway's user must be able to read: nodes "
          "can join with a token"),
    VALUE(OPT_TEXT, "node-name", 0, "NAME", node_name,
          "what this node is called among those that share a database (local)"),
    VALUE(OPT_TEXT, "log-dir", 0, "DIR", log_dir,
          "where the services' logs go with --detach (/var/log/space)"),
    VALUE(OPT_TEXT, "libexec-dir", 0, "DIR", libexec_dir, "where the services' programs are"),
    VALUE(OPT_MIB, "pool", 0, "SIZE", pool_mib,
          "size of a new pool (three quarters of what is free)"),
    VALUE(OPT_TEXT, "warm", 0, "N", warm,
          "machines kept ready for the next sandboxes at most (12)"),
    VALUE(OPT_TEXT, "gateway-user", 0, "USER", gateway_user,
          "who the gateway runs as (space-gateway)"),
    VALUE(OPT_TEXT, "sandbox-user", 0, "USER", sandbox_user,
          "who the sandbox manager runs as (space-sandbox)"),
    VALUE(OPT_TEXT, "credential-user", 0, "USER", credential_user,
          "who the credential manager runs as (space-credential)"),
    VALUE(OPT_TEXT, "volume-user", 0, "USER", volume_user,
          "who the volume manager runs as (space-volume)"),
    VALUE(OPT_TEXT, "network-user", 0, "USER", network_user,
          "who the network gateway runs as (space-network)"),
    VALUE(OPT_TEXT, "resolver", 0, "ADDRESS[:PORT]", resolver,
          "the name server for sandboxes (those of /etc/resolv.conf)"),
    FLAG("no-setup", 0, no_setup, "do not make users, folders and the pool; they are there"),
    OPT_END,
};

static const struct opt down_opts[] = {
    FLAG("all", 'a', all, "stop the sandboxes too; without it they live on and are found again"),
    VALUE(OPT_SECONDS, "timeout", 0, "TIME", timeout_s,
          "how long to wait for the services to end (60s)"),
    OPT_END,
};

static const struct opt mcp_opts[] = {
    VALUE(OPT_TEXT, "listen", 0, "ADDRESS", listen,
          "serve over HTTP on this loopback address, as 127.0.0.1:7780"),
    OPT_END,
};

static const struct opt libexec_opts[] = {
    VALUE(OPT_TEXT, "listen", 0, "ADDRESS", listen, "where the gateway listens (127.0.0.1:7777)"),
    VALUE(OPT_TEXT, "libexec-dir", 0, "DIR", libexec_dir, "where the services' programs are"),
    OPT_END,
};

static const struct opt token_opts[] = {
    VALUE(OPT_SECONDS, "for", 0, "TIME", remember_s, "how long it is good (1h; a day at most)"),
    OPT_END,
};

static const struct opt node_place_opts[] = {
    VALUE(OPT_TEXT, "node-tls", 0, "DIR", node_tls,
          "where key.pem, cert.pem and ca.pem are (/etc/space/node)"),
    VALUE(OPT_TEXT, "sandbox-user", 0, "USER", sandbox_user,
          "whose they are to be (space-sandbox)"),
    OPT_END,
};

static const struct opt join_opts[] = {
    VALUE(OPT_TEXT, "token", 0, "TOKEN", token, "made by 'space node token'; good once"),
    OPT_END,
};

static const struct opt renew_opts[] = {
    FLAG("force", 'f', force, "even when it is good for long"),
    OPT_END,
};

static const struct opt drain_opts[] = {
    VALUE(OPT_SECONDS, "timeout", 0, "TIME", timeout_s, "how long to wait at most (no end)"),
    FLAG("no-wait", 0, no_wait, "do not wait; the gateways go on by themselves"),
    OPT_END,
};

static const struct opt explain_opts[] = {
    VALUE(OPT_TEXT, "template", 'T', "NAME", template, "what the sandbox starts from (debian)"),
    VALUE(OPT_NUMBER, "cpus", 0, "N", vcpus, "virtual CPUs (1)"),
    VALUE(OPT_MIB, "memory", 'm', "SIZE", memory_mib, "memory, as 512M or 2G (256M)"),
    VALUE(OPT_MIB, "disk", 0, "SIZE", disk_mib, "disk, as --memory (4G)"),
    OPT_END,
};

static const struct opt shape_opts[] = {
    VALUE(OPT_TEXT, "template", 'T', "NAME", template, "what the sandbox starts from (debian)"),
    VALUE(OPT_NUMBER, "cpus", 0, "N", vcpus, "virtual CPUs (1)"),
    VALUE(OPT_MIB, "memory", 'm', "SIZE", memory_mib,
          "memory, as 512M or 2G; plain numbers are MiB (256M)"),
    VALUE(OPT_MIB, "disk", 0, "SIZE", disk_mib, "disk, as --memory (4G)"),
    VALUE(OPT_LIST, "metadata", 'l', "NAME=VALUE", metadata,
          "a label to find the sandbox by, may be repeated"),
    VALUE(OPT_TEXT, "policy", 0, "POLICY", policy,
          "NAME=VALUE,... or a JSON file: snapshots, idle pauses, recovery"),
    VALUE(OPT_TEXT, "network", 0, "POLICY", network,
          "what it may reach: none, registries, internet, or a JSON file (none)"),
    OPT_END,
};

static const struct opt answer_opts[] = {
    VALUE(OPT_SECONDS, "for", 0, "TIME", remember_s, "how long the answer counts (1h)"),
    OPT_END,
};

static const struct opt create_opts[] = {
    VALUE(OPT_LIST, "env", 'e', "NAME[=VALUE]", env,
          "a variable for every command of the sandbox, may be repeated"),
    VALUE(OPT_SECONDS, "timeout", 0, "TIME", timeout_s,
          "remove the sandbox after this time; 0 never (1h)"),
    OPT_END,
};

static const struct opt ls_opts[] = {
    VALUE(OPT_TEXT, "state", 0, "STATE", state,
          "only sandboxes in this state: running, stopped, ..."),
    VALUE(OPT_LIST, "metadata", 'l', "NAME=VALUE", metadata,
          "only sandboxes with this label, may be repeated"),
    FLAG("builders", 0, builders, "also those that templates are built in"),
    VALUE(OPT_NUMBER, "limit", 'n', "N", limit, "at most so many (all)"),
    OPT_END,
};

static const struct opt rm_opts[] = {
    FLAG("all", 'a', all, "every sandbox of this key's project"),
    FLAG("force", 'f', force, "no error for what is not there"),
    OPT_END,
};

static const struct opt command_opts[] = {
    FLAG("interactive", 'i', interactive, "pass on standard input, and its end"),
    FLAG("tty", 't', tty, "give the command a terminal"),
    VALUE(OPT_LIST, "env", 'e', "NAME[=VALUE]", env, "a variable for the command, may be repeated"),
    VALUE(OPT_TEXT, "user", 'u', "USER", user, "run as this user of the guest (the template's)"),
    VALUE(OPT_TEXT, "cwd", 'w', "DIR", cwd, "run in this directory (the user's home)"),
    VALUE(OPT_SECONDS, "timeout", 0, "TIME", timeout_s,
          "kill the command and all it started after this time"),
    OPT_END,
};

static const struct opt run_opts[] = {
    VALUE(OPT_LIST, "copy-in", 0, "SRC:DST", copy_in,
          "copy a file or folder into the sandbox first, may be repeated"),
    VALUE(OPT_LIST, "copy-out", 0, "SRC:DST", copy_out,
          "copy a file or folder out at the end, may be repeated"),
    FLAG("keep", 0, keep, "do not remove the sandbox at the end"),
    OPT_END,
};

static const struct opt exec_opts[] = {
    FLAG("detach", 'd', detach, "print the command's id and return at once"),
    VALUE(OPT_TEXT, "attach", 0, "COMMAND-ID", attach,
          "show a running command's output from what is kept of it"),
    OPT_END,
};

static const struct opt shell_opts[] = {
    VALUE(OPT_LIST, "env", 'e', "NAME[=VALUE]", env, "a variable for the shell, may be repeated"),
    VALUE(OPT_TEXT, "user", 'u', "USER", user, "log in as this user of the guest (the template's)"),
    VALUE(OPT_TEXT, "cwd", 'w', "DIR", cwd, "start in this directory (the user's home)"),
    VALUE(OPT_TEXT, "attach", 0, "COMMAND-ID", attach, "go back to a terminal that still runs"),
    OPT_END,
};

static const struct opt cp_opts[] = {
    VALUE(OPT_TEXT, "user", 'u', "USER", user, "act as this user of the guest (the template's)"),
    VALUE(OPT_NUMBER, "jobs", 'j', "N", jobs, "files moved at the same time (4)"),
    OPT_END,
};

static const struct opt pause_opts[] = {
    FLAG("light", 0, light, "without a full snapshot: quicker, but lost with the host"),
    FLAG("wake", 0, wake, "the next command or file request resumes it"),
    OPT_END,
};

static const struct opt suspend_opts[] = {
    FLAG("wake", 0, wake, "the next command or file request restores it"),
    FLAG("drop-snapshots", 0, drop_snapshots,
         "also when it has snapshots that are to be kept: they go"),
    OPT_END,
};

static const struct opt snapshot_opts[] = {
    FLAG("disk", 0, disk_kind, "the disk only, without a pause; that is the default"),
    FLAG("full", 0, full_kind, "memory and processes too; pauses the sandbox briefly"),
    VALUE(OPT_TEXT, "name", 'n', "NAME", name, "what to call it; verbs then take the name too"),
    FLAG("keep", 0, keep, "never removed by a policy"),
    OPT_END,
};

static const struct opt snapshot_keep_opts[] = {
    FLAG("off", 0, off, "leave it to the policy again"),
    OPT_END,
};

static const struct opt fork_opts[] = {
    VALUE(OPT_NUMBER, "count", 'n', "N", count, "so many children, at most 100 (1)"),
    VALUE(OPT_TEXT, "snapshot", 's', "SNAPSHOT", snapshot, "start from it (the present)"),
    VALUE(OPT_LIST, "env", 'e', "NAME[=VALUE]", env,
          "a variable for every command of the children, instead of the parent's; may be repeated"),
    VALUE(OPT_LIST, "metadata", 'l', "NAME=VALUE", metadata,
          "a label of the children, instead of the parent's; may be repeated"),
    VALUE(OPT_SECONDS, "timeout", 0, "TIME", timeout_s,
          "remove the children after this time; 0 never (as the parent)"),
    OPT_END,
};

static const struct opt bisect_opts[] = {
    FLAG("verbose", 'v', verbose, "show what the test writes"),
    VALUE(OPT_LIST, "env", 'e', "NAME[=VALUE]", env, "a variable for the test, may be repeated"),
    VALUE(OPT_TEXT, "user", 'u', "USER", user, "run as this user of the guest (the template's)"),
    VALUE(OPT_TEXT, "cwd", 'w', "DIR", cwd, "run in this directory (the user's home)"),
    VALUE(OPT_SECONDS, "timeout", 0, "TIME", timeout_s,
          "a test that takes longer counts as failed"),
    OPT_END,
};

static const struct opt kill_opts[] = {
    VALUE(OPT_TEXT, "signal", 's', "SIGNAL", signal,
          "send this signal to the command (kill the whole tree)"),
    OPT_END,
};

static const struct opt logs_opts[] = {
    FLAG("follow", 'f', follow, "go on with what comes"),
    OPT_END,
};

static const struct opt top_opts[] = {
    VALUE(OPT_SECONDS, "interval", 'd', "TIME", interval_s, "time between two looks (2s)"),
    FLAG("once", '1', once, "print one table and end, as without a terminal"),
    OPT_END,
};

static const struct opt template_opts[] = {
    VALUE(OPT_TEXT, "from", 0, "TEMPLATE", from, "what it is built on (what FROM says, or base)"),
    VALUE(OPT_TEXT, "from-image", 0, "IMAGE", image,
          "build on an OCI image: [REGISTRY/]NAME[:TAG], or oci:DIR[:TAG] for a layout here"),
    VALUE(OPT_TEXT, "registry-user", 0, "USER", registry_user, "sign in at the image's registry"),
    VALUE(OPT_TEXT, "registry-password-file", 0, "FILE", registry_password_file,
          "the first line is the password; - reads it from input"),
    VALUE(OPT_TEXT, "file", 'f', "FILE", steps, "the steps; - reads them from input"),
    VALUE(OPT_TEXT, "context", 'C', "DIR", context, "where COPY takes files from (.)"),
    VALUE(OPT_LIST, "tag", 't', "TAG", tags, "a tag for the build, may be repeated (default)"),
    VALUE(OPT_NUMBER, "cpus", 0, "N", vcpus, "virtual CPUs of its sandboxes (1)"),
    VALUE(OPT_MIB, "memory", 'm', "SIZE", memory_mib, "their memory, as 512M or 2G (256M)"),
    VALUE(OPT_MIB, "disk", 0, "SIZE", disk_mib, "their disk, as --memory (4G)"),
    FLAG("force", 0, force, "take no step from the cache"),
    OPT_END,
};

static const struct opt template_rm_opts[] = {
    FLAG("force", 'f', force, "no error for what is not there"),
    OPT_END,
};

static const struct opt forward_opts[] = {
    VALUE(OPT_TEXT, "address", 0, "ADDRESS", address, "listen on this local address (127.0.0.1)"),
    OPT_END,
};

static const struct opt key_create_opts[] = {
    VALUE(OPT_TEXT, "name", 'n', "NAME", name, "what the key is for, to tell it from others"),
    VALUE(OPT_TEXT, "project", 0, "ID", project,
          "the project whose sandboxes it opens (this key's own)"),
    VALUE(OPT_TEXT, "scope", 0, "WORD", scope,
          "project; organisation to manage keys and projects too; operator for quotas (project)"),
    OPT_END,
};

static const struct opt credential_opts[] = {
    VALUE(OPT_TEXT, "host", 0, "NAME", host, "the only host that gets it, exact or *.example.com"),
    VALUE(OPT_NUMBER, "port", 0, "N", port, "the only port (443; ssh: 22)"),
    VALUE(OPT_TEXT, "path", 0, "PREFIX", path, "only for paths that begin with it (/)"),
    VALUE(OPT_LIST, "method", 0, "METHOD", methods, "only for this method, may be repeated"),
    VALUE(OPT_TEXT, "inject", 0, "TYPE", inject,
          "bearer, header, basic, query, cookie, body, placeholder, oauth2, sigv4, github_app, "
          "webhook or ssh (bearer)"),
    VALUE(OPT_TEXT, "field", 0, "NAME", field, "name of the header, parameter, cookie or field"),
    VALUE(OPT_TEXT, "prefix", 0, "TEXT", prefix, "text before the value in a header"),
    VALUE(OPT_TEXT, "user", 0, "NAME", user, "the user of basic; whom ssh logs in as"),
    VALUE(OPT_LIST, "in", 0, "PLACE", surfaces,
          "where a placeholder may stand: header, query, body; may be repeated (header)"),
    VALUE(OPT_LIST, "host-key", 0, "KEY", host_keys,
          "ssh: a key that the host has, TYPE BASE64 or SHA256:...; may be repeated"),
    VALUE(OPT_LIST, "command", 0, "NAME", commands,
          "ssh: a program that may be called, git, @shell, @sftp or *; may be repeated (*)"),
    VALUE(OPT_TEXT, "client-id", 0, "ID", client_id,
          "client of oauth2, access key id of sigv4, app of github_app"),
    VALUE(OPT_TEXT, "token-url", 0, "URL", token_url, "where oauth2 tokens are fetched"),
    VALUE(OPT_TEXT, "token-scope", 0, "TEXT", token_scope, "scope of oauth2 tokens"),
    FLAG("refresh", 0, refresh, "the value is a refresh token, not a client's secret"),
    VALUE(OPT_TEXT, "installation", 0, "N", installation, "installation of github_app"),
    VALUE(OPT_TEXT, "region", 0, "NAME", region, "region of sigv4 (the one in the request)"),
    VALUE(OPT_TEXT, "service", 0, "NAME", service, "service of sigv4 (the one in the request)"),
    OPT_END,
};

static const struct opt value_opts[] = {
    VALUE(OPT_TEXT, "value-file", 0, "FILE", value_file, "read the value here, not from input"),
    OPT_END,
};

static const struct opt credential_life_opts[] = {
    VALUE(OPT_TEXT, "value-file", 0, "FILE", value_file, "read the value here, not from input"),
    VALUE(OPT_TEXT, "scope", 0, "WORD", scope, "organisation, project or sandbox (project)"),
    VALUE(OPT_TEXT, "sandbox", 0, "ID", sandbox, "the only sandbox that may use it"),
    VALUE(OPT_TEXT, "vault", 0, "NAME", vault, "where the value is kept (sealed)"),
    VALUE(OPT_TEXT, "ref", 0, "REF", ref, "use the value that is in the vault at this place"),
    VALUE(OPT_SECONDS, "expires", 0, "TIME", expires_s, "not to be used after this time"),
    VALUE(OPT_TEXT, "rate", 0, "USES/SECONDS", rate, "not to be used more often"),
    OPT_END,
};

static const struct opt credential_log_opts[] = {
    VALUE(OPT_NUMBER, "limit", 'n', "N", limit, "show at most N entries (100)"),
    OPT_END,
};

static const struct opt completion_opts[] = {
    FLAG("verbs", 0, verbs_only, "print the verbs instead, or what may follow the one named"),
    FLAG("options", 0, options_only, "print the options of the verb named instead"),
    OPT_END,
};

/* clang-format off */
const struct verb verbs[] = {
    {
        .name = "create", .operands = "", .group = VERB_SANDBOX, .run = verb_create,
        .summary = "make a sandbox and print its id",
        .about = "The sandbox is running when its id is printed. Its shape and template cannot be changed later.",
        .examples = "space create --template debian --memory 1G\n"
                    "id=$(space create -q -T tiny -l job=42)",
        .opts = {.tables = {shape_opts, create_opts, client_opts}},
    },
    {
        .name = "run", .operands = "[--] COMMAND [ARGUMENT...]", .group = VERB_SANDBOX, .run = verb_run,
        .command_codes = true,
        .summary = "run one command in a sandbox made for it, then remove the sandbox",
        .about =
            "Standard output and standard error come apart, as they are. Standard input is passed on with -i, and also "
            "without it when it is a pipe or a file. Ctrl-C interrupts the command; a second Ctrl-C gives up and removes the "
            "sandbox. SIGTERM and SIGHUP are passed on too, and the sandbox is removed ten seconds later at the "
            "latest.\n\n"
            "The sandbox is leased: as long as space runs it renews the lease, and should space itself be killed the "
            "sandbox is removed within the hour. With --keep it stays until you remove it.\n\n"
            "--copy-in is done before the command, --copy-out after it, also when the command failed.",
        .examples = "space run -- python3 -c 'print(6 * 7)'\n"
                    "space run --copy-in job.py:job.py --copy-in data:data --copy-out out:results -- python3 job.py\n"
                    "space run -it -- bash",
        .opts = {.tables = {run_opts, command_opts, shape_opts, client_opts}, .has_command = true, .lead = 0},
    },
    {
        .name = "ls", .operands = "", .group = VERB_SANDBOX, .run = verb_ls,
        .summary = "list sandboxes",
        .opts = {.tables = {ls_opts, client_opts}},
    },
    {
        .name = "info", .operands = "SANDBOX", .group = VERB_SANDBOX, .run = verb_info,
        .summary = "show everything about one sandbox",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "stop", .operands = "SANDBOX...", .group = VERB_SANDBOX, .run = verb_stop,
        .summary = "stop sandboxes; their disks are kept",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = ANY},
    },
    {
        .name = "start", .operands = "SANDBOX...", .group = VERB_SANDBOX, .run = verb_start,
        .summary = "start stopped sandboxes again",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = ANY},
    },
    {
        .name = "rm", .operands = "SANDBOX...", .group = VERB_SANDBOX, .run = verb_rm,
        .summary = "remove sandboxes with their disks",
        .examples = "space rm s4k2\n"
                    "space rm --all",
        .opts = {.tables = {rm_opts, client_opts}, .min_pos = 0, .max_pos = ANY},
    },
    {
        .name = "logs", .operands = "SANDBOX", .group = VERB_SANDBOX, .run = verb_logs,
        .summary = "show a sandbox's console and life",
        .opts = {.tables = {logs_opts, client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "top", .operands = "[SANDBOX...]", .group = VERB_SANDBOX, .run = verb_top,
        .summary = "watch what sandboxes use",
        .about = "A live table on a terminal, one table elsewhere. Press q to end.",
        .opts = {.tables = {top_opts, client_opts}, .max_pos = ANY},
    },
    {
        .name = "pause", .operands = "SANDBOX...", .group = VERB_TIME, .run = verb_pause,
        .summary = "let sandboxes stand still, memory kept",
        .about = "Processes, clock and timeout stand still until 'space resume', for hours if need be.",
        .opts = {.tables = {pause_opts, client_opts}, .min_pos = 1, .max_pos = ANY},
    },
    {
        .name = "suspend", .operands = "SANDBOX...", .group = VERB_TIME, .run = verb_suspend,
        .summary = "move sandboxes to the object store, encrypted, until they are resumed",
        .about = "Memory, processes and disk go to the store, and the node keeps nothing. 'space resume' brings them back,\n"
                 "here or on another node. Snapshots go; 'space info' shows how old what is stored is.",
        .opts = {.tables = {suspend_opts, client_opts}, .min_pos = 1, .max_pos = ANY},
    },
    {
        .name = "resume", .operands = "SANDBOX...", .group = VERB_TIME, .run = verb_resume,
        .summary = "let paused and suspended sandboxes go on",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = ANY},
    },
    {
        .name = "snapshot ls", .operands = "SANDBOX", .group = VERB_TIME, .run = verb_snapshot_ls,
        .summary = "list a sandbox's snapshots, newest first",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "snapshot info", .operands = "SANDBOX SNAPSHOT", .group = VERB_TIME, .run = verb_snapshot_info,
        .summary = "show everything about one snapshot, and the bytes that only it holds",
        .opts = {.tables = {client_opts}, .min_pos = 2, .max_pos = 2},
    },
    {
        .name = "snapshot rm", .operands = "SANDBOX SNAPSHOT...", .group = VERB_TIME, .run = verb_snapshot_rm,
        .summary = "remove snapshots, in any order",
        .opts = {.tables = {client_opts}, .min_pos = 2, .max_pos = ANY},
    },
    {
        .name = "snapshot keep", .operands = "SANDBOX SNAPSHOT", .group = VERB_TIME, .run = verb_snapshot_keep,
        .summary = "keep a snapshot whatever the policy says",
        .opts = {.tables = {snapshot_keep_opts, client_opts}, .min_pos = 2, .max_pos = 2},
    },
    {
        .name = "snapshot name", .operands = "SANDBOX SNAPSHOT NAME", .group = VERB_TIME, .run = verb_snapshot_name,
        .summary = "name a snapshot; an empty name takes it away",
        .opts = {.tables = {client_opts}, .min_pos = 3, .max_pos = 3},
    },
    {
        .name = "snapshot", .operands = "SANDBOX", .group = VERB_TIME, .run = verb_snapshot,
        .summary = "take a snapshot and print its id",
        .about =
            "A disk snapshot holds the disk as programs have synced it. A full one holds memory and processes too, so "
            "that they can run on from there.\n\n"
            "A snapshot is named by its id, the start of it, or its name.",
        .examples = "space snapshot s4k2 --full --name before-upgrade\n"
                    "space snapshot ls s4k2\n"
                    "space snapshot rm s4k2 before-upgrade",
        .opts = {.tables = {snapshot_opts, client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "rollback", .operands = "SANDBOX SNAPSHOT", .group = VERB_TIME, .run = verb_rollback,
        .summary = "take a sandbox back to a snapshot, in place",
        .about =
            "The id stays. The present is snapshotted first, so that one can return to it. After a full snapshot the "
            "processes of then run on; after a disk snapshot the sandbox starts fresh from the disk of then. Timeout, "
            "metadata and policy stay as they are now.",
        .opts = {.tables = {client_opts}, .min_pos = 2, .max_pos = 2},
    },
    {
        .name = "fork", .operands = "SANDBOX", .group = VERB_TIME, .run = verb_fork,
        .summary = "make children of a sandbox and print their ids",
        .about =
            "From the present of a running or paused sandbox, and from a full snapshot, its processes run on in every "
            "child; else they start fresh over the disk. All children are made, or none. They share with their "
            "parent what neither has changed. --json prints an array.",
        .examples = "space fork s4k2 --count 10\n"
                    "space fork s4k2 --snapshot before-upgrade",
        .opts = {.tables = {fork_opts, client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "diff", .operands = "A B", .group = VERB_TIME, .run = verb_diff,
        .summary = "list the files that differ between two snapshots or sandboxes",
        .about =
            "A side is SANDBOX for its present, SANDBOX@SNAPSHOT, @SNAPSHOT for one of the other side's sandbox, or the "
            "whole id of a snapshot. A line says A for added, D for removed, M for changed, m for other owner or mode "
            "only. Both sides are forked for it and removed again; files of the same size and time count as the same. "
            "What every start writes anew (/etc/hostname, /etc/machine-id) and what is not on the disk is left out.",
        .examples = "space diff s4k2@before-upgrade s4k2\n"
                    "space diff s4k2@n1a s4k2@n7c",
        .opts = {.tables = {client_opts}, .min_pos = 2, .max_pos = 2},
    },
    {
        .name = "bisect", .operands = "SANDBOX [--] TEST [ARGUMENT...]", .group = VERB_TIME, .run = verb_bisect,
        .summary = "find the first snapshot in which a test fails",
        .about =
            "Runs the test in a fork of one snapshot after the other, by halves, and removes the forks again. It looks "
            "at the snapshots that the present came after, through rollbacks and forks, and at the present. The test "
            "ends with 0 where all is well and with 1 to 124 where it is not; any other end stops the search. Where "
            "snapshots were taken before each command it says which command it was. Ends with 1 when the test passes "
            "in the present.",
        .examples = "space bisect s4k2 -- make test",
        .opts = {.tables = {bisect_opts, client_opts}, .has_command = true, .lead = 1},
    },
    /* Before the verb of one word, which would take the second one for a sandbox. */
    {
        .name = "policy test", .operands = "SANDBOX HOST PORT", .group = VERB_TIME, .run = verb_net_explain,
        .summary = "say which level and which of its rules decides about a host and port, as net explain does",
        .opts = {.tables = {client_opts}, .min_pos = 3, .max_pos = 3},
    },
    {
        .name = "policy", .operands = "SANDBOX [POLICY]", .group = VERB_TIME, .run = verb_policy,
        .summary = "show or change what is done without asking",
        .about =
            "POLICY is NAME=VALUE,... or the name of a JSON file; what it does not name stays as it is. disk_every_s and "
            "full_every_s: a snapshot that often. keep_hour, keep_day, keep_week, keep_month: how many of each age stay. "
            "idle_pause_s: pause when idle for so long, until the next request. recover: memory, disk or none, when its "
            "machine ended by itself. before_commands=disk: a snapshot before each command. backup_every_s: its state goes to "
            "the object store that often. cold_restore=refuse: rather suspended than afresh from its disk. Times take a unit.",
        .examples = "space policy s4k2 disk_every_s=5m,full_every_s=1h,idle_pause_s=10m",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = 2},
    },
    {
        .name = "history", .operands = "SANDBOX", .group = VERB_TIME, .run = verb_history,
        .summary = "show what happened to a sandbox",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "trace", .operands = "SANDBOX", .group = VERB_TIME, .run = verb_trace,
        .summary = "show where the time of the newest operations went",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "exec", .operands = "SANDBOX [--] COMMAND [ARGUMENT...]", .group = VERB_COMMAND, .run = verb_exec,
        .command_codes = true,
        .summary = "run a command in a sandbox",
        .about =
            "The arguments reach the command as they are; for a shell line say: -- sh -c 'LINE'. Standard input is "
            "passed on with -i only, so that a loop that reads a list is not robbed of it.\n\n"
            "Should the connection break, space goes back to the command by itself and goes on where the output "
            "stopped. Signals are passed on; a second Ctrl-C kills the command and all it started.",
        .examples = "space exec s4k2 -- ls -l /\n"
                    "tar c src | space exec -i s4k2 -- tar x\n"
                    "space exec -d s4k2 -- python3 server.py",
        .opts = {.tables = {exec_opts, command_opts, client_opts}, .has_command = true, .lead = 1},
    },
    {
        .name = "shell", .operands = "SANDBOX", .group = VERB_COMMAND, .run = verb_shell,
        .command_codes = true,
        .summary = "open a terminal in a sandbox",
        .about =
            "Starts bash where there is one, else sh. Type Enter ~ . to leave it running and come back with --attach; "
            "should the connection break, space reconnects by itself and no output is lost.",
        .opts = {.tables = {shell_opts, client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "ps", .operands = "SANDBOX", .group = VERB_COMMAND, .run = verb_ps,
        .summary = "list the commands of a sandbox",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "kill", .operands = "SANDBOX COMMAND-ID", .group = VERB_COMMAND, .run = verb_kill,
        .summary = "end a command and all it started",
        .examples = "space kill s4k2 c7m1\n"
                    "space kill -s INT s4k2 c7m1",
        .opts = {.tables = {kill_opts, client_opts}, .min_pos = 2, .max_pos = 2},
    },
    {
        .name = "cp", .operands = "SOURCE... TARGET", .group = VERB_COMMAND, .run = verb_cp,
        .summary = "copy files and folders between here and a sandbox",
        .about =
            "One side is SANDBOX:PATH, the other is local; write ./a:b for a local name with a colon. A relative path in the "
            "sandbox starts in the user's home. Folders are copied whole; modes and symbolic links are kept, links are "
            "never followed, and owner and times are those of the copy. If TARGET is a folder the copy goes into it, else it gets "
            "that name; SOURCE/. means what is in the folder. - is standard input or output.\n\n"
            "Every file appears whole or not at all. What an interrupted copy had newly made is removed.\n\n"
            "Nothing in the sandbox, however it is named, can make space write outside TARGET.",
        .examples = "space cp data s4k2:data\n"
                    "space cp s4k2:/var/log ./logs\n"
                    "space cp s4k2:out.csv -",
        .opts = {.tables = {cp_opts, client_opts}, .min_pos = 2, .max_pos = ANY},
    },
    {
        .name = "preview", .operands = "SANDBOX PORT", .group = VERB_COMMAND, .run = verb_preview,
        .summary = "print the address of a server in a sandbox",
        .about =
            "Open it in a browser, or give it to others: whoever has it may use it without a key, unless the sandbox's "
            "traffic is private. Servers that listen on loopback only are reached too, and a sandbox that was paused for "
            "idleness wakes.",
        .examples = "space exec -d s4k2 -- python3 -m http.server 8000\n"
                    "space preview s4k2 8000",
        .opts = {.tables = {client_opts}, .min_pos = 2, .max_pos = 2},
    },
    {
        .name = "forward", .operands = "SANDBOX [LOCAL:]PORT...", .group = VERB_COMMAND, .run = verb_forward,
        .summary = "reach ports of a sandbox at local ports, for any protocol",
        .about =
            "Listens on local ports until it is interrupted; each connection is carried to the port in the sandbox. "
            "Without LOCAL it is the same port, with 0 any that is free; what was taken is printed.",
        .examples = "space forward s4k2 8080:80 5432\n"
                    "space forward s4k2 0:22",
        .opts = {.tables = {forward_opts, client_opts}, .min_pos = 2, .max_pos = ANY},
    },
    {
        .name = "template ls", .operands = "", .group = VERB_ACCOUNT, .run = verb_template_ls,
        .summary = "list templates",
        .opts = {.tables = {client_opts}},
    },
    {
        .name = "template build", .operands = "NAME[:TAG]", .group = VERB_ACCOUNT, .run = verb_template_build,
        .summary = "build a template of this project",
        .about = "The steps run in a sandbox, one line each as in a Dockerfile: FROM, RUN, COPY, ENV, WORKDIR, USER. START "
                 "is a command that every sandbox of the template has at work, READY one that succeeds once it is. Steps "
                 "that ran before, after the same ones, are not run again.",
        .examples = "printf 'RUN apt-get install -y make\n' | space template build tools -f -\n"
                    "space template build web:v2 --from tools -f Spacefile -C .\n"
                    "space template build py --from-image python:3.12-slim --memory 512M\n"
                    "space run --template web -- make",
        .opts = {.tables = {template_opts, client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "template inspect", .operands = "NAME", .group = VERB_ACCOUNT, .run = verb_template_inspect,
        .summary = "show the builds and tags of a template",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "template rm", .operands = "NAME...", .group = VERB_ACCOUNT, .run = verb_template_rm,
        .summary = "remove templates that this project has built",
        .opts = {.tables = {template_rm_opts, client_opts}, .min_pos = 1, .max_pos = ANY},
    },
    {
        .name = "net show", .operands = "SANDBOX", .group = VERB_SANDBOX, .run = verb_net_show,
        .summary = "show what a sandbox may reach, and what waits for an answer",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "net set", .operands = "SANDBOX POLICY", .group = VERB_SANDBOX,
        .run = verb_net_set,
        .summary = "set what a sandbox may reach",
        .about = "POLICY is none, registries, internet, inherit, or the name of a JSON file with preset, rules and observe. Open "
                 "connections that it does not let through are reset.",
        .examples = "space net set s4k2 registries",
        .opts = {.tables = {client_opts}, .min_pos = 2, .max_pos = 2},
    },
    {
        .name = "net log", .operands = "SANDBOX", .group = VERB_SANDBOX, .run = verb_net_log,
        .summary = "list what a sandbox has tried to reach, and what decided",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "net top", .operands = "SANDBOX", .group = VERB_SANDBOX, .run = verb_net_top,
        .summary = "list the open connections of a sandbox",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "net explain", .operands = "SANDBOX HOST PORT", .group = VERB_SANDBOX,
        .run = verb_net_explain,
        .summary = "say which level and which of its rules decides about a host and port",
        .examples = "space net explain s4k2 example.com 443",
        .opts = {.tables = {client_opts}, .min_pos = 3, .max_pos = 3},
    },
    {
        .name = "net level", .operands = "LEVEL [POLICY]", .group = VERB_SANDBOX, .run = verb_net_level,
        .summary = "show or set what an organisation or a project lets its sandboxes reach",
        .about = "LEVEL is organisation, or a project's name or id. POLICY is as for net set, without observe. Every level that has a "
                 "policy must let a connection through: what one denies no other can allow. With the preset inherit a level "
                 "says nothing about what none of its rules fits. Open connections are judged again.",
        .examples = "space net level organisation deny-some.json\nspace net level default registries",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = 2},
    },
    {
        .name = "net approve", .operands = "SANDBOX NUMBER", .group = VERB_SANDBOX,
        .run = verb_net_approve,
        .summary = "let through what a rule 'ask' holds",
        .opts = {.tables = {answer_opts, client_opts}, .min_pos = 2, .max_pos = 2},
    },
    {
        .name = "net deny", .operands = "SANDBOX NUMBER", .group = VERB_SANDBOX,
        .run = verb_net_deny,
        .summary = "refuse what a rule 'ask' holds",
        .opts = {.tables = {answer_opts, client_opts}, .min_pos = 2, .max_pos = 2},
    },
    {
        .name = "net propose", .operands = "SANDBOX", .group = VERB_SANDBOX,
        .run = verb_net_propose,
        .summary = "print the least policy that allows what was seen",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "schedule explain", .operands = "[SANDBOX]", .group = VERB_SERVICE, .run = verb_schedule_explain,
        .summary = "show which node a sandbox would go to, and why",
        .about = "About a new sandbox of the given template and shape, or about one that is there, were it restored now. Nothing "
                 "is done. The best node comes first; what a node says may be some seconds old.",
        .examples = "space schedule explain --template debian --memory 4G\n"
                    "space schedule explain s4k2",
        .opts = {.tables = {explain_opts, client_opts}, .max_pos = 1},
    },
    {
        .name = "node ls", .operands = "", .group = VERB_SERVICE, .run = verb_node_ls,
        .summary = "list the nodes of the cluster",
        .about = "HEALTH is 'new' until the node has told anything, 'silent' when nothing was heard of it for a minute, and 'lost' "
                 "when it was given up: what it had stored goes on elsewhere. WANTED is what operators said.",
        .opts = {.tables = {client_opts}},
    },
    {
        .name = "node show", .operands = "NODE", .group = VERB_SERVICE, .run = verb_node_show,
        .summary = "show what is known of a node",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "node add", .operands = "NODE ADDRESS", .group = VERB_SERVICE, .run = verb_node_add,
        .summary = "add a node that runs, or say where it is now",
        .about = "NODE is what its own gateway calls it (--node-name), ADDRESS is https://HOST:PORT as in its --node-listen. From then "
                 "on it runs machines only as long as a gateway renews its lease, every few seconds.",
        .examples = "space node add node-b https://192.0.2.11:7443",
        .opts = {.tables = {client_opts}, .min_pos = 2, .max_pos = 2},
    },
    {
        .name = "node token", .operands = "", .group = VERB_SERVICE, .run = verb_node_token,
        .summary = "make a token with which one node can join",
        .about = "It is shown this once. The gateway must have an authority to sign with (--node-authority).",
        .opts = {.tables = {token_opts, client_opts}},
    },
    {
        .name = "node join", .operands = "NODE ADDRESS", .group = VERB_SERVICE, .run = verb_node_join,
        .summary = "make this machine a node of a cluster",
        .about = "Run it on the node's machine, as root. Makes a key, which stays here, and gets a certificate for it and for the host of "
                 "ADDRESS, https://HOST:PORT. The gateway must be reached over https, or be on this machine. What is in the folder is "
                 "replaced once the gateway has agreed.",
        .examples = "space node join node-b https://192.0.2.11:7443 --url https://space.example.com --token nt_...",
        .opts = {.tables = {join_opts, node_place_opts, client_opts}, .min_pos = 2, .max_pos = 2},
    },
    {
        .name = "node renew", .operands = "", .group = VERB_SERVICE, .run = verb_node_renew,
        .summary = "renew this node's certificate when it ends within 30 days",
        .about = "For a timer, once a day, on the node's machine: the certificate that is good still is all that is needed. What serves with "
                 "it reads the new one by itself.",
        .opts = {.tables = {renew_opts, node_place_opts, client_opts}},
    },
    {
        .name = "node cordon", .operands = "NODE", .group = VERB_SERVICE, .run = verb_node_cordon,
        .summary = "place no new sandboxes on a node",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "node uncordon", .operands = "NODE", .group = VERB_SERVICE, .run = verb_node_uncordon,
        .summary = "let new sandboxes come to a node again",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "node drain", .operands = "NODE", .group = VERB_SERVICE, .run = verb_node_drain,
        .summary = "move the sandboxes of a node elsewhere",
        .about = "What runs is suspended and goes on on another node, what sleeps is not woken. What is stopped, or has snapshots that "
                 "are kept, stays. Waits until the node is empty, or until nothing has moved for some minutes.",
        .examples = "space node drain node-b && space node rm node-b",
        .opts = {.tables = {drain_opts, client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "node rm", .operands = "NODE", .group = VERB_SERVICE, .run = verb_node_rm,
        .summary = "forget a node that has no sandboxes",
        .about = "It is told that it is nobody's. One that cannot be told stands still until it is added again.",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "key create", .operands = "", .group = VERB_ACCOUNT, .run = verb_key_create,
        .summary = "make an API key; it is shown this once",
        .opts = {.tables = {key_create_opts, client_opts}},
    },
    {
        .name = "key ls", .operands = "", .group = VERB_ACCOUNT, .run = verb_key_ls,
        .summary = "list API keys by their first characters",
        .opts = {.tables = {client_opts}},
    },
    {
        .name = "key rm", .operands = "KEY-ID...", .group = VERB_ACCOUNT, .run = verb_key_rm,
        .summary = "revoke API keys",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = ANY},
    },
    {
        .name = "credential add", .operands = "NAME", .group = VERB_ACCOUNT, .run = verb_credential_add,
        .summary = "add a secret that sandboxes use without seeing it",
        .about =
            "The value is read from standard input or --value-file. It is put into requests to --host on their way out, "
            "outside of the sandbox, and taken out of what comes back. The sandbox needs no configuration but that its "
            "requests go to the host over TLS; what it sends itself in the same place is replaced.",
        .examples = "space credential add github --host api.github.com < token\n"
                    "space credential add crates --host api.test --inject header --field Authorization < token\n"
                    "space credential add aws --host *.amazonaws.com --inject sigv4 --client-id AKIA... < secret\n"
                    "space credential add deploy --host git.test --inject ssh --user git --host-key SHA256:... < key",
        .opts = {.tables = {credential_opts, credential_life_opts, client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "credential ls", .operands = "", .group = VERB_ACCOUNT, .run = verb_credential_ls,
        .summary = "list credentials, without their values",
        .opts = {.tables = {client_opts}},
    },
    {
        .name = "credential rm", .operands = "CREDENTIAL...", .group = VERB_ACCOUNT, .run = verb_credential_rm,
        .summary = "remove credentials; running sandboxes lose them at once",
        .opts = {.tables = {client_opts}, .min_pos = 1, .max_pos = ANY},
    },
    {
        .name = "credential rotate", .operands = "CREDENTIAL", .group = VERB_ACCOUNT, .run = verb_credential_rotate,
        .summary = "give a credential a new value; running sandboxes use it at once",
        .opts = {.tables = {value_opts, client_opts}, .min_pos = 1, .max_pos = 1},
    },
    {
        .name = "credential log", .operands = "", .group = VERB_ACCOUNT, .run = verb_credential_log,
        .summary = "show uses, refusals and changes of credentials, newest first",
        .opts = {.tables = {credential_log_opts, client_opts}},
    },
    {
        .name = "audit verify", .operands = "[FOLDER]", .group = VERB_ACCOUNT, .run = verb_audit_verify,
        .summary = "check that no line of the credentials' audit log was changed",
        .about = "Without a folder the log of the credential manager is checked, which needs a key with the scope "
                 "'organisation'; with one, a copy of its files. Note the last hash somewhere else: a log whose end was cut "
                 "off is intact, too, but ends differently. Ends with 1 when a line is not what was written.",
        .opts = {.tables = {client_opts}, .max_pos = 1},
    },
    {
        .name = "mcp", .operands = "", .group = VERB_ACCOUNT, .run = verb_mcp,
        .summary = "offer sandboxes as tools to MCP clients, over standard input and output or HTTP",
        .about =
            "Speaks the Model Context Protocol (2025-06-18): create, list, run, read_file, write_file, list_files, snapshot, "
            "fork, rollback, preview, delete, with the rights of this key. Made to be started by a client; docs/mcp.md "
            "says how.\n\n"
            "With --listen it serves any number of clients over HTTP, prints its address, and ends when it is interrupted. Each "
            "client brings a key of its own ('Authorization: Bearer KEY') and has the rights of that one.",
        .examples = "claude mcp add space -- space mcp\nspace mcp --listen 127.0.0.1:7780",
        .opts = {.tables = {mcp_opts, client_opts}},
    },
    {
        .name = "up", .operands = "", .group = VERB_SERVICE, .run = verb_up,
        .summary = "run SPACE on this machine",
        .about =
            "Makes users, folders and the pool where they are missing, starts the node manager, the sandbox manager, "
            "the credential manager and the gateway, and keeps them running: one that ends is started again, sooner or later depending on how "
            "often it ended. Sandboxes live on meanwhile. The first time it makes a key and writes it to root's "
            "configuration. When SPACE is up already it says so and ends well.\n\n"
            "Without --detach it stays in the foreground; Ctrl-C then does what 'space down' does.\n\n"
            "With --tls it also speaks TLS: with your certificate, or with one that it makes. The authority that signs "
            "that one is made once, in STATE-DIR/tls; it can sign for NAME and this machine alone, and what is printed "
            "says how to trust it. A renewed certificate is read on SIGHUP to space-gateway.",
        .opts = {.tables = {up_opts, place_opts}},
    },
    {
        .name = "down", .operands = "", .group = VERB_SERVICE, .run = verb_down,
        .summary = "stop SPACE on this machine",
        .about = "The sandboxes go on running and are found again by the next 'space up', unless --all stops them first.",
        .opts = {.tables = {down_opts, place_opts}},
    },
    {
        .name = "status", .operands = "", .group = VERB_SERVICE, .run = verb_status,
        .summary = "show how SPACE on this machine is doing",
        .about = "Ends with 0 when every service answers, else with 1.",
        .opts = {.tables = {libexec_opts, place_opts}},
    },
    {
        .name = "doctor", .operands = "", .group = VERB_SERVICE, .run = verb_doctor,
        .summary = "check that this machine can run SPACE",
        .about = "Each check says ok, warn or fail, and for the last two what to do. Ends with 1 when something failed.",
        .opts = {.tables = {libexec_opts, place_opts}},
    },
    {
        .name = "help", .operands = "[VERB]", .group = VERB_OTHER, .run = verb_help,
        .summary = "show the verbs, or all about one",
        .opts = {.tables = {(const struct opt[]){
                                FLAG("json", 0, json, "print everything about every verb as JSON"), OPT_END},
                            help_opts},
                 .max_pos = 2},
    },
    {
        .name = "version", .operands = "", .group = VERB_OTHER, .run = verb_version,
        .summary = "show the version",
        .opts = {.tables = {(const struct opt[]){FLAG("json", 0, json, "print JSON"), OPT_END}, help_opts}},
    },
    {
        .name = "completion", .operands = "bash [VERB]", .group = VERB_OTHER, .run = verb_completion,
        .summary = "print the completion script for a shell",
        .examples = "space completion bash > /etc/bash_completion.d/space",
        .opts = {.tables = {completion_opts, help_opts}, .min_pos = 1, .max_pos = 3},
    },
};
/* clang-format on */
const size_t n_verbs = ARRAY_SIZE(verbs);

const char *verb_group_title(enum verb_group group)
{
    static const char *const titles[VERB_GROUP_COUNT_] = {
        [VERB_SANDBOX] = "Sandboxes",    [VERB_TIME] = "Through time",
        [VERB_COMMAND] = "In a sandbox", [VERB_ACCOUNT] = "Templates and keys",
        [VERB_SERVICE] = "This machine", [VERB_OTHER] = "Other",
    };

    ASSERT(group < VERB_GROUP_COUNT_);
    return titles[group];
}

static size_t verb_first_word(const struct verb *v)
{
    return strcspn(v->name, " ");
}

bool verb_is_prefix(const char *word)
{
    for (size_t i = 0; i < n_verbs; i++) {
        size_t len = verb_first_word(&verbs[i]);

        if (verbs[i].name[len] == ' ' && strlen(word) == len &&
            strncmp(verbs[i].name, word, len) == 0) {
            return true;
        }
    }
    return false;
}

const struct verb *verb_find(const char *const *argv, size_t *ret_words)
{
    if (!argv[0]) {
        return NULL;
    }
    for (size_t i = 0; i < n_verbs; i++) {
        size_t len = verb_first_word(&verbs[i]);

        if (strlen(argv[0]) != len || strncmp(argv[0], verbs[i].name, len) != 0) {
            continue;
        }
        if (verbs[i].name[len] == '\0') {
            *ret_words = 1;
            return &verbs[i];
        }
        if (argv[1] && str_eq(argv[1], verbs[i].name + len + 1)) {
            *ret_words = 2;
            return &verbs[i];
        }
    }
    return NULL;
}

const char *verb_nearest(const char *word)
{
    const char *names[128] = {0};

    for (size_t i = 0; i < n_verbs && i + 1 < ARRAY_SIZE(names); i++) {
        names[i] = verbs[i].name;
    }
    return opt_nearest(word, names);
}

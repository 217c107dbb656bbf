/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/options.h"

#include "model/names.h"

#include <string.h>

struct option_def {
    const char *name;
    size_t offset;
    const char *value; /* what the value is called; NULL: a switch */
    const char *help;
};

static const struct option_def defs[] = {
    {"listen", offsetof(struct options, listen), "HOST:PORT",
     "where to serve the API (127.0.0.1:7777)"},
    {"state-dir", offsetof(struct options, state_dir), "DIR",
     "where the database is (/var/lib/space/gateway)"},
    {"run-dir", offsetof(struct options, run_dir), "DIR",
     "where the services' sockets are (/run/space)"},
    {"database", offsetof(struct options, database), "URL",
     "postgresql://USER@HOST/NAME, which gateways may share (SQLite in the state folder)"},
    {"database-password-file", offsetof(struct options, password_file), "FILE",
     "holds the password for --database, and nothing else"},
    {"node", offsetof(struct options, node), "URL",
     "the node's API (unix:RUN-DIR/sandbox-manager.sock); none: all nodes are in the database"},
    {"node-name", offsetof(struct options, node_name), "NAME",
     "what that node is called among many (local)"},
    {"node-cert", offsetof(struct options, node_cert), "FILE",
     "show this certificate to nodes at https://HOST:PORT (PEM); read again when it changes"},
    {"node-key", offsetof(struct options, node_key), "FILE", "the key of --node-cert"},
    {"node-ca", offsetof(struct options, node_ca), "FILE",
     "the authority that a node's certificate must be of"},
    {"node-authority", offsetof(struct options, node_authority), "DIR",
     "sign certificates of nodes that join, with ca.pem and ca-key.pem of this folder"},
    {"credentials", offsetof(struct options, credentials), "URL",
     "the credential manager (unix:RUN-DIR/credential/manager.sock)"},
    {"console", offsetof(struct options, console), "DIR", "serve the web console from this folder"},
    {"domain", offsetof(struct options, domain), "NAME",
     "sandboxes are reached as PORT-ID.NAME (localhost)"},
    {"tls-cert", offsetof(struct options, tls_cert), "FILE",
     "speak TLS too, with this certificate (PEM, chain included); read again on SIGHUP"},
    {"tls-key", offsetof(struct options, tls_key), "FILE", "the key of --tls-cert"},
    {"tls-listen", offsetof(struct options, tls_listen), "HOST:PORT",
     "where to speak TLS (127.0.0.1:7443)"},
    {"user", offsetof(struct options, user), "NAME",
     "become this user at once; needed when started as root"},
    {"create-key", offsetof(struct options, create_key), "NAME",
     "make an API key, print it as JSON, and exit"},
    {"organisation", offsetof(struct options, organisation), "NAME", "for --create-key (default)"},
    {"project", offsetof(struct options, project), "NAME", "for --create-key (default)"},
    {"scope", offsetof(struct options, scope), "WORD",
     "for --create-key: operator, organisation or project (operator)"},
    {"rate", offsetof(struct options, rate), "NUMBER",
     "requests a second that one key may make; 0: no limit (1000)"},
    {"burst", offsetof(struct options, burst), "NUMBER",
     "requests that one key may make at once, above --rate (2000)"},
    {"help", offsetof(struct options, help), NULL, "show this"},
    {"version", offsetof(struct options, version), NULL, "show the version"},
};

static const struct option_def *find(const char *word, size_t len)
{
    for (size_t i = 0; i < ARRAY_SIZE(defs); i++) {
        if (strlen(defs[i].name) == len && strncmp(defs[i].name, word, len) == 0) {
            return &defs[i];
        }
    }
    return NULL;
}

/* One option at argv[*i]; *i is left at its last word. */
static int parse_one(int argc, char **argv, int *i, struct options *opts, struct err *e)
{
    const char *word = argv[*i] + 2;
    const char *equals = strchr(word, '=');
    const struct option_def *def = NULL;
    void *slot;

    if (str_starts(argv[*i], "--")) {
        def = find(word, equals ? (size_t)(equals - word) : strlen(word));
    }
    if (!def) {
        return err_set(e, -EINVAL, "usage", "there is no option '%s'; --help shows them", argv[*i]);
    }
    slot = (char *)opts + def->offset;
    if (!def->value) {
        *(bool *)slot = true;
        return equals ? err_set(e, -EINVAL, "usage", "'--%s' takes no value", def->name) : 0;
    }
    if (!equals && *i + 1 == argc) {
        return err_set(e, -EINVAL, "usage", "'--%s' needs a value: --%s %s", def->name, def->name,
                       def->value);
    }
    *(const char **)slot = equals ? equals + 1 : argv[++*i];
    if (str_empty(*(const char **)slot)) {
        return err_set(e, -EINVAL, "usage", "'--%s' must not be empty", def->name);
    }
    return 0;
}

static int parse_number(const char *name, const char *text, uint64_t min, uint32_t *ret,
                        struct err *e)
{
    uint64_t n;

    if (!text) {
        return 0;
    }
    if (str_to_u64(text, RATE_MAX, &n) < 0 || n < min) {
        return err_set(e, -EINVAL, "usage", "'--%s' must be a number from %u to %u", name,
                       (unsigned)min, RATE_MAX);
    }
    *ret = (uint32_t)n;
    return 0;
}

static int check_node(const struct options *opts, struct err *e)
{
    bool remote = opts->node && str_starts(opts->node, "https:");
    int given = (opts->node_cert ? 1 : 0) + (opts->node_key ? 1 : 0) + (opts->node_ca ? 1 : 0);

    if (given != 3 && (remote || given != 0)) {
        return err_set(e, -EINVAL, "usage",
                       "a node at https:// needs '--node-cert', '--node-key' and '--node-ca', all "
                       "of them");
    }
    if (!node_name_valid(opts->node_name)) {
        return err_set(e, -EINVAL, "usage",
                       "'--node-name' must be 1 to 63 of a-z, 0-9, '-' and '.'");
    }
    return 0;
}

static int parse_limit(struct options *opts, struct err *e)
{
    int r;

    opts->limit = (struct rate_limit){RATE_PER_S_DEFAULT, RATE_BURST_DEFAULT};
    r = parse_number("rate", opts->rate, 0, &opts->limit.per_s, e);
    return r < 0 ? r : parse_number("burst", opts->burst, 1, &opts->limit.burst, e);
}

/* Everybody on the host can read our command line. */
static int check_database(const struct options *opts, struct err *e)
{
    const char *at = opts->database ? strchr(opts->database, '@') : NULL;
    const char *slashes = opts->database ? strstr(opts->database, "//") : NULL;

    if (opts->password_file && !opts->database) {
        return err_set(e, -EINVAL, "usage", "'--database-password-file' needs '--database'");
    }
    if (!opts->database) {
        return 0;
    }
    if (!str_starts(opts->database, "postgresql://")) {
        return err_set(e, -EINVAL, "usage", "'--database' must begin with postgresql://");
    }
    if (strstr(opts->database, "password=") ||
        (at && memchr(slashes + 2, ':', (size_t)(at - slashes - 2)))) {
        return err_set(e, -EINVAL, "usage",
                       "'--database' must not hold a password, which everybody could read: put it "
                       "into a file and give --database-password-file");
    }
    return 0;
}

int options_parse(int argc, char **argv, struct options *ret, struct err *e)
{
    struct options opts = {
        .listen = "127.0.0.1:7777",
        .tls_listen = "127.0.0.1:7443",
        .state_dir = "/var/lib/space/gateway",
        .run_dir = "/run/space",
        .domain = "localhost",
        .node_name = "local",
        .organisation = "default",
        .project = "default",
        .scope = "operator",
    };

    int r;

    ASSERT(argv && ret);

    for (int i = 1; i < argc; i++) {
        r = parse_one(argc, argv, &i, &opts, e);

        if (r < 0) {
            return r;
        }
    }
    if (!opts.tls_cert != !opts.tls_key) {
        return err_set(e, -EINVAL, "usage", "'--tls-cert' and '--tls-key' go together");
    }
    *ret = opts;
    r = parse_limit(ret, e);
    r = r < 0 ? r : check_node(ret, e);
    return r < 0 ? r : check_database(ret, e);
}

int options_help(struct buf *out)
{
    int r = buf_add_str(out, "space-gateway: the API gateway and control plane of SPACE\n\n");

    for (size_t i = 0; i < ARRAY_SIZE(defs) && r == 0; i++) {
        r = buf_printf(out, "  --%-22s %-10s %s\n", defs[i].name,
                       defs[i].value ? defs[i].value : "", defs[i].help);
    }
    return r;
}

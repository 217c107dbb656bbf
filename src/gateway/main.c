/* SPDX-License-Identifier: Apache-2.0 */

/*
 * space-gateway. Isolation in stages, each taking away what the next ones do not need:
 *
 *   1 start      now possible: everything the caller may do. Nothing foreign has been read.
 *   2 dropped    another user, no group, no capability, no way to gain any (no_new_privs).
 *   3 opened     the database is open and held, the console's folder is open, the port is bound. Whoever
 *                connects now waits.
 *   4 confined   files outside the state folder cannot be opened any more (Landlock, where the kernel has
 *                it); system calls that a gateway has no use for are refused (seccomp).
 *   5 serving    now foreign bytes are read, for the first time.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/privilege.h"
#include "base/proc.h"
#include "gateway/bootstrap.h"
#include "gateway/confine.h"
#include "gateway/gateway.h"
#include "gateway/leftovers.h"
#include "gateway/node-authority.h"
#include "gateway/options.h"
#include "gateway/reload.h"
#include "gateway/template/set.h"
#include "gateway/tokens.h"

#define EXIT_USAGE 2
#define PASSWORD_MAX 1024

static struct http_server *server; /* for the signal handler only */

static void on_stop(int signo)
{
    (void)signo;
    http_server_stop(server);
}

static int report(const struct err *e)
{
    fprintf(stderr, "space-gateway: %s\n", e->msg);
    return 1;
}

/* A one-shot as root becomes whom the state folder belongs to. */
static int drop_privileges(const struct options *opts, struct err *e)
{
    return privilege_drop(&(struct privilege){.program = "space-gateway",
                                              .user = opts->user,
                                              .owner_of = opts->create_key ? opts->state_dir : NULL,
                                              .usual = "space-gateway (--user)"},
                          e);
}

/*
 * Rows in a transient state belong to a process; ours takes over what a dead one left. With SQLite, two at once would
 * take each other for dead; gateways that share a database know who lives, and have a folder each.
 */
static int hold_state_dir(const char *dir, int *ret_fd, struct err *e)
{
    cleanup_close int dir_fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
    cleanup_close int fd = FD_NONE;

    if (dir_fd < 0) {
        return err_wrap(e, dir_fd, "opening the state folder '%s' (--state-dir)", dir);
    }
    fd = openat(dir_fd, "gateway.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return err_wrap(e, -errno, "opening 'gateway.lock' in '%s'", dir);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        return err_set(e, -EBUSY, "state_dir_in_use",
                       "another gateway runs on '%s': stop it, or give another --state-dir", dir);
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* libpq reads it from the URL, where any byte may be written as %XX. */
static int add_password(const struct options *opts, char **url, struct err *e)
{
    cleanup_buf struct buf b = BUF_INIT(PASSWORD_MAX);
    cleanup_buf struct buf out = BUF_INIT(PASSWORD_MAX * 3 + 4096);
    cleanup_close int fd = fs_open(opts->password_file, O_RDONLY, 0);
    int r = fd < 0 ? fd : fs_read_fd(fd, &b);

    while (b.len > 0 && (b.data[b.len - 1] == '\n' || b.data[b.len - 1] == '\r')) {
        b.len--;
    }
    if (r == 0 && b.len == 0) {
        r = -ENODATA;
    }
    if (r < 0) {
        return err_wrap(e, r, "reading the password of the database from '%s'",
                        opts->password_file);
    }
    r = buf_printf(&out, "%s%spassword=", opts->database, strchr(opts->database, '?') ? "&" : "?");
    for (size_t i = 0; i < b.len && r == 0; i++) {
        r = buf_printf(&out, "%%%02x", (unsigned)(unsigned char)b.data[i]);
    }
    explicit_bzero(b.data, b.len);
    if (r < 0) {
        return err_wrap(e, r, "the address of the database");
    }
    free(*url);
    *url = xstrdup(buf_str(&out));
    explicit_bzero(out.data, out.len);
    return 0;
}

static int open_url(const struct options *opts, struct db **ret, struct err *e)
{
    cleanup_free char *url =
        opts->database ? xstrdup(opts->database) : xasprintf("sqlite:%s/space.db", opts->state_dir);
    int r = opts->password_file ? add_password(opts, &url, e) : 0;

    r = r < 0 ? r : db_open(url, ret, e);
    explicit_bzero(url, strlen(url));
    return r;
}

static int open_database(const struct options *opts, struct db **ret, struct err *e)
{
    cleanup_json json_t *key = NULL;
    CLEANUP(db_freep) struct db *db = NULL;
    struct bootstrap what = {
        .organisation = opts->organisation,
        .project = opts->project,
        .key_name = opts->create_key,
        .scope = opts->scope,
    };
    cleanup_free char *text = NULL;
    int r;

    r = open_url(opts, &db, e);
    if (r == 0) {
        r = bootstrap_run(db, &what, &key, e);
    }
    if (r < 0) {
        return r;
    }
    if (key) {
        text = json_text(key);
        printf("%s\n", text);
    }
    *ret = TAKE_PTR(db);
    return 0;
}

static int create_key(const struct options *opts)
{
    CLEANUP(db_freep) struct db *db = NULL;
    struct err e = {0};

    if (drop_privileges(opts, &e) < 0 || open_database(opts, &db, &e) < 0) {
        return report(&e);
    }
    return fflush(stdout) == 0 ? 0 : 1;
}

static void handle_signals(void)
{
    struct sigaction stop = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    sigemptyset(&stop.sa_mask);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}

/* What a serving gateway is made of, in the order in which it is taken apart backwards. */
struct service {
    int lock_fd;                           /* owned */
    struct db *db;                         /* owned */
    struct http_tls *node_tls;             /* owned; NULL: the node is on this machine */
    struct node_authority *node_authority; /* owned; NULL: no node joins here */
    struct fleet *fleet;                   /* owned */
    struct control *control;               /* owned */
    struct credential_client *credentials; /* owned */
    struct tokens *tokens;                 /* owned */
    struct gateway *gateway;               /* owned */
    struct http_tls *tls;                  /* owned; NULL: no TLS */
    struct http_server *http;              /* owned */
};

static void service_done(struct service *s)
{
    if (s->http) {
        http_server_free(s->http);
    }
    http_tls_free(s->tls);
    gateway_free(s->gateway);
    tokens_free(s->tokens);
    control_free(s->control);
    credential_client_free(s->credentials);
    fleet_free(s->fleet);
    http_tls_free(s->node_tls);
    node_authority_free(s->node_authority);
    db_free(s->db);
    s->lock_fd = fd_close(s->lock_fd);
}

static int open_tls(const struct options *opts, struct service *s, struct err *e)
{
    int r;

    if (!opts->tls_cert) {
        return 0;
    }
    r = http_tls_new(opts->tls_cert, opts->tls_key, &s->tls, e);
    if (r == 0) {
        r = http_server_listen_tls(s->http, opts->tls_listen, s->tls, e);
        if (r == -EADDRINUSE || r == -EACCES) {
            return err_wrap(e, r, "choose another address with --tls-listen");
        }
    }
    if (r == 0) {
        log_info(NULL, "listening with TLS on %s, for *.%s", opts->tls_listen, opts->domain);
    }
    return r;
}

/* A node that is not there yet is asked later; the wrong one never becomes the right one. */
static int share_control(struct control *control, struct err *e)
{
    struct err why = {0};
    int r = control_share(control, e);

    if (r < 0) {
        return r;
    }
    r = control_check_node(control, &why);
    if (r == -ENOTUNIQ) {
        *e = why;
        return r;
    }
    return 0;
}

static int open_node(const struct options *opts, struct service *s, struct err *e)
{
    cleanup_free char *url =
        opts->node ? xstrdup(opts->node) : xasprintf("unix:%s/sandbox-manager.sock", opts->run_dir);
    const struct http_tls_opts tls = {
        .cert_file = opts->node_cert,
        .key_file = opts->node_key,
        .ca_file = opts->node_ca,
        .client = true,
    };
    int r = opts->node_cert ? http_tls_open(&tls, &s->node_tls, e) : 0;

    const struct fleet_opts fleet = {
        .home = opts->node_name,
        .url = opts->node && str_eq(opts->node, "none") ? NULL : url,
        .tls = s->node_tls,
    };

    r = r < 0 ? r : fleet_new(&fleet, &s->fleet, e);
    return r < 0 || !opts->node_authority
               ? r
               : node_authority_open(opts->node_authority, &s->node_authority, e);
}

static int open_service(const struct options *opts, struct service *s, struct err *e)
{
    cleanup_free char *credential_url =
        opts->credentials ? xstrdup(opts->credentials)
                          : xasprintf("unix:%s/" CREDENTIAL_SOCKET, opts->run_dir);
    struct gateway_opts gateway_opts = {
        .console_dir = opts->console, .domain = opts->domain, .limit = opts->limit};
    struct http_server_opts http_opts = {
        .handler = gateway_handle,
        .done = gateway_done,
        .name = "space-gateway",
        .max_threads = 1024, /* a stream takes one for as long as it lasts */
        .max_body_bytes = GATEWAY_BODY_MAX,
        .http2 = true,
    };
    int r;

    r = hold_state_dir(opts->state_dir, &s->lock_fd, e);
    if (r == 0) {
        r = open_database(opts, &s->db, e);
    }
    if (r == 0) {
        r = open_node(opts, s, e);
    }
    if (r == 0) {
        r = credential_client_new(credential_url, &s->credentials, e);
    }
    if (r == 0) {
        r = tokens_open(opts->state_dir, &s->tokens, e);
    }
    if (r == 0 && db_shared(s->db)) {
        r = tokens_share(s->tokens, s->db, e);
    }
    if (r < 0) {
        return r;
    }
    s->control = control_new(&(struct control_opts){.db = s->db, .fleet = s->fleet});
    r = share_control(s->control, e);
    if (r < 0) {
        return r;
    }
    gateway_opts.db = s->db;
    gateway_opts.fleet = s->fleet;
    gateway_opts.control = s->control;
    gateway_opts.credentials = s->credentials;
    gateway_opts.tokens = s->tokens;
    gateway_opts.node_authority = s->node_authority;
    gateway_opts.state_dir = opts->state_dir;
    r = gateway_new(&gateway_opts, &s->gateway, e);
    r = r < 0 ? r : builds_recover(s->gateway->builds, e);
    if (r < 0) {
        return r;
    }
    http_opts.ctx = s->gateway;
    s->http = http_server_new(&http_opts);
    r = http_server_listen_tcp(s->http, opts->listen, e);
    if (r == -EADDRINUSE || r == -EACCES) {
        return err_wrap(e, r, "choose another address with --listen");
    }
    if (r == 0) {
        log_info(NULL, "listening on %s (port %u), node %s%s", opts->listen,
                 http_server_port(s->http),
                 opts->node ? opts->node : "unix:", opts->node ? "" : opts->run_dir);
    }
    return r < 0 ? r : open_tls(opts, s, e);
}

/* The folder of a file, for what will be there instead of it; owned by the caller. */
static char *folder_of(const char *file)
{
    const char *slash = strrchr(file, '/');

    return slash ? xstrndup(file, (size_t)MAX(slash - file, (ptrdiff_t)1)) : xstrdup(".");
}

static int confine_service(const struct options *opts, struct err *e)
{
    const char *const files[] = {opts->tls_cert, opts->tls_key, opts->node_cert, opts->node_key,
                                 opts->node_ca};
    char *folders[ARRAY_SIZE(files)] = {0};
    const char *read[CONFINE_READ_MAX] = {opts->console};
    size_t n = opts->console ? 1 : 0;
    int r;

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        if (files[i]) {
            folders[i] = folder_of(files[i]);
            read[n++] = folders[i];
        }
    }
    r = confine(opts->state_dir, read, e);
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        free(folders[i]);
    }
    return r;
}

static int serve(const struct options *opts, struct err *e)
{
    CLEANUP(service_done) struct service s = {.lock_fd = FD_NONE};
    struct leftovers *leftovers = NULL;
    struct reload *reload = NULL;
    int r;

    reload_block_signal();
    r = drop_privileges(opts, e); /* stage 2 */
    if (r == 0) {
        r = open_service(opts, &s, e); /* stage 3 */
    }
    if (r == 0) {
        r = confine_service(opts, e); /* stage 4 */
    }
    if (r == 0) {
        r = reload_start(s.tls, &reload, e);
    }
    if (r < 0) {
        return r;
    }
    r = leftovers_start(s.db, s.credentials, &leftovers, e);
    if (r < 0) {
        reload_stop(reload);
        return r;
    }
    server = s.http;
    handle_signals();
    control_start_reconciler(s.control);
    r = http_server_run(s.http, e); /* stage 5 */
    control_stop_reconciler(s.control);
    leftovers_stop(leftovers);
    reload_stop(reload);
    log_info(NULL, "stopped");
    return r;
}

int main(int argc, char **argv)
{
    cleanup_buf struct buf help = BUF_INIT(8192);
    struct options opts = {0};
    struct err e = {0};

    log_init("space-gateway");
    if (options_parse(argc, argv, &opts, &e) < 0) {
        report(&e);
        return EXIT_USAGE;
    }
    if (opts.help) {
        printf("%s", options_help(&help) == 0 ? buf_str(&help) : "");
        return 0;
    }
    if (opts.version) {
        printf("space-gateway %s\n", SPACE_VERSION);
        return 0;
    }
    /* A connection is a descriptor, and a proxied one is two or three: else there are fewer. */
    IGNORE_RESULT(proc_raise_descriptor_limit());
    db_metrics_register();
    if (opts.create_key) {
        return create_key(&opts);
    }
    return serve(&opts, &e) < 0 ? report(&e) : 0;
}

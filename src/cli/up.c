/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `space up`. With --detach a child becomes the supervisor and says over a pipe how far it is; we show that and end when it is ready or
 * has failed. Without, the supervisor is this process.
 *
 * What goes over the pipe is one line each:
 *
 *     begin TEXT        a step has begun
 *     end MS            it is done
 *     fail JSON         {"error":{...}}; nothing follows
 *     ready JSON        everything answers; nothing follows
 */
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/progress.h"
#include "cli/supervisor.h"
#include "cli/verbs.h"
#include "http/authority.h"

#define REPORT_LINE_MAX 8192
#define FIRST_KEY_NAME "root"

/* Where the supervisor says how far it is. */
struct report {
    const struct ui *ui; /* borrowed; NULL: over the pipe */
    FILE *pipe;          /* owned; NULL: to the user */
    uint64_t began_ns;
    char step[128];
};

static void show_step(const struct ui *ui, const char *text, uint64_t ms)
{
    if (ui->quiet || ui->json) {
        return;
    }
    fprintf(stderr, "  %s%-4s%s %-24s %6.1f s\n", ui_err_colour(ui, UI_GREEN), "ok",
            ui_err_colour(ui, UI_PLAIN), text, (double)ms / 1000);
}

static void report_begin(struct report *report, const char *text)
{
    report->began_ns = clock_now_ns();
    snprintf(report->step, sizeof(report->step), "%s", text);
    if (report->pipe) {
        fprintf(report->pipe, "begin %s\n", text);
        fflush(report->pipe);
    }
}

static void report_end(struct report *report)
{
    uint64_t ms = (clock_now_ns() - report->began_ns) / NS_PER_MS;

    if (report->pipe) {
        fprintf(report->pipe, "end %llu\n", (unsigned long long)ms);
        fflush(report->pipe);
    } else {
        show_step(report->ui, report->step, ms);
    }
}

static void report_json_take(struct report *report, const char *word, json_t *doc)
{
    cleanup_json json_t *owned = doc;
    cleanup_free char *text = json_text(owned);

    fprintf(report->pipe, "%s %s\n", word, text);
    fclose(TAKE_PTR(report->pipe));
}

/* ---- the first key ---- */

/* A key in root's configuration that the gateway knows. */
static bool key_works(const char *url, const char *key)
{
    CLEANUP(http_client_freep) struct http_client *client = NULL;
    cleanup_free char *bearer = xasprintf("Bearer %s", key);
    struct err e = {0};

    if (http_client_new(url, /* opts */ NULL, &client, &e) < 0) {
        return false;
    }
    http_client_header(client, "Authorization", bearer);
    /* Only a clear no makes a new key: a gateway that is busy for a moment must not cost the old one. */
    if (http_client_json(client,
                         &(struct http_json_opts){.method = "GET",
                                                  .target = "/v1/sandboxes?limit=1",
                                                  .deadline_ns = deadline_in_ms(10000)},
                         /* ret */ NULL, &e) < 0) {
        return err_http_status(&e) != 401;
    }
    return true;
}

static int key_make(struct supervisor *sup, const struct host *host, char **ret, struct err *e)
{
    cleanup_free char *program =
        xasprintf("%s/%s", host->libexec_dir, host_service_program(HOST_GATEWAY));
    cleanup_free char *gateway_dir = xasprintf("%s/gateway", host->state_dir);
    const char *const argv[] = {
        program,
        "--state-dir",
        gateway_dir,
        "--create-key",
        FIRST_KEY_NAME,
        host->database ? "--database" : NULL,
        host->database, /* the list ends at the first NULL */
        host->database_password_file ? "--database-password-file" : NULL,
        host->database_password_file,
        NULL,
    };
    cleanup_free char *output = NULL;
    cleanup_json json_t *answer = NULL;
    const char *key;
    int r;

    r = supervisor_run_once(sup, argv, host->gateway_user, &output, e);
    if (r < 0) {
        return r;
    }
    r = json_parse_object(output, strlen(output), &answer, e);
    if (r < 0) {
        return err_wrap(e, r, "reading the gateway's first key");
    }
    key = json_get_string(answer, "key", NULL);
    if (str_empty(key)) {
        return err_set(e, -EBADMSG, "bad_answer", "the gateway made no key");
    }
    *ret = xstrdup(key);
    return 0;
}

/* *ret_key stays NULL when the key there is still good. */
static int key_ensure(struct supervisor *sup, const struct host *host, char **ret_key,
                      struct err *e)
{
    cleanup_free char *path = conf_path_root();
    cleanup_free char *url = host_url(host);
    cleanup_free char *key = NULL;
    struct conf conf = {0};
    int r;

    r = conf_read(path, &conf, /* e */ NULL);
    if (r == 0 && conf.key && key_works(url, conf.key)) {
        r = conf.url && str_eq(conf.url, url) ? 0 : conf_save(path, url, conf.key, e);
        conf_done(&conf);
        return r;
    }
    if (r == 0) {
        conf_done(&conf);
    }
    r = key_make(sup, host, &key, e);
    r = r < 0 ? r : conf_save(path, url, key, e);
    if (r == 0) {
        *ret_key = TAKE_PTR(key);
    }
    return r;
}

/* ---- the supervisor's side ---- */

static int up_setup(struct supervisor *sup, const struct host *host, const struct args *a,
                    struct err *e)
{
    cleanup_free char *program = xasprintf("%s/space-setup", host->libexec_dir);
    cleanup_free char *pool = xasprintf("%llu", (unsigned long long)a->pool_mib);
    const char *argv[] = {program,
                          "up",
                          "--state-dir",
                          host->state_dir,
                          "--run-dir",
                          host->run_dir,
                          "--gateway-user",
                          host->gateway_user,
                          "--sandbox-user",
                          host->sandbox_user,
                          "--credential-user",
                          host->credential_user,
                          "--volume-user",
                          host->volume_user,
                          "--network-user",
                          host->network_user,
                          "--pool-mib",
                          pool,
                          NULL};
    cleanup_free char *output = NULL;

    if (a->pool_mib == 0) {
        argv[ARRAY_SIZE(argv) - 3] = NULL;
    }
    return supervisor_run_once(sup, argv, /* user */ NULL, &output, e);
}

/* The folder is open to all but for the keys, of which the gateway needs one. */
static int up_certificate(const struct host *host, struct err *e)
{
    cleanup_free char *dir = xasprintf("%s/" HOST_TLS_DIR, host->state_dir);
    cleanup_free char *wildcard = xasprintf("*.%s", host->domain);
    const char *const list[] = {host->domain, wildcard, "localhost", "127.0.0.1"};
    const struct authority_names names = {list, ARRAY_SIZE(list)};
    const struct passwd *pw = getpwnam(host->gateway_user);
    cleanup_close int dir_fd = FD_NONE;
    bool made = false;
    int r = fs_mkdir_all(dir, 0755);

    if (r == 0) {
        dir_fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
        r = dir_fd < 0 ? dir_fd : 0;
    }
    if (r < 0) {
        return err_wrap(e, r, "making '%s'", dir);
    }
    r = authority_ensure(dir_fd, &names, &made, e);
    if (r == 0 && pw &&
        fchownat(dir_fd, AUTHORITY_KEY, pw->pw_uid, pw->pw_gid, AT_SYMLINK_NOFOLLOW) < 0) {
        r = err_wrap(e, -errno, "giving '%s/" AUTHORITY_KEY "' to %s", dir, host->gateway_user);
    }
    return r;
}

static int up_steps(struct supervisor *sup, const struct host *host, const struct args *a,
                    struct report *report, char **ret_key, struct err *e)
{
    int r;

    r = supervisor_take_signals(sup, e);
    if (r == 0 && !a->no_setup) {
        report_begin(report, "users, folders, pool");
        r = up_setup(sup, host, a, e);
        if (r == 0) {
            report_end(report);
        }
    }
    if (r == 0 && host->tls_own) {
        report_begin(report, "certificate");
        r = up_certificate(host, e);
        if (r == 0) {
            report_end(report);
        }
    }
    for (size_t i = 0; i < HOST_SERVICE_COUNT_ && r == 0; i++) {
        report_begin(report, host_service_name((enum host_service)i));
        r = supervisor_start(sup, (enum host_service)i, e);
        if (r == 0) {
            report_end(report);
        }
    }
    if (r == 0) {
        report_begin(report, "key");
        r = key_ensure(sup, host, ret_key, e);
        if (r == 0) {
            report_end(report);
        }
    }
    return r;
}

static json_t *up_ready(const struct host *host, const char *key)
{
    cleanup_free char *url = host_url(host);
    cleanup_free char *config = conf_path_root();
    json_t *doc = json_pack("{s:s, s:s, s:s, s:b}", "url", url, "listen", host->listen, "config",
                            config, "already_up", false);

    ASSERT(doc);
    if (key) {
        json_object_set_new(doc, "key", json_string(key));
    }
    if (host->tls_listen) {
        json_object_set_new(doc, "tls_url", json_sprintf("https://%s", host->tls_listen));
        json_object_set_new(doc, "domain", json_string(host->domain));
    }
    if (host->tls_own) {
        json_object_set_new(doc, "ca_file",
                            json_sprintf("%s/" HOST_TLS_DIR "/" AUTHORITY_CA, host->state_dir));
    }
    return doc;
}

static void up_print_tls(const struct ui *ui, json_t *ready)
{
    const char *url = json_get_string(ready, "tls_url", NULL);
    const char *ca = json_get_string(ready, "ca_file", NULL);

    if (!url) {
        return;
    }
    ui_note(ui, "and with TLS at %s; sandboxes are at https://PORT-ID.%s", url,
            json_get_string(ready, "domain", ""));
    if (ca) {
        ui_note(ui,
                "its certificate was made here; to trust it (for these names alone):\n"
                "  this machine   cp %s /usr/local/share/ca-certificates/space.crt && "
                "update-ca-certificates\n"
                "  one program    curl --cacert %s, NODE_EXTRA_CA_CERTS=%s, SSL_CERT_FILE=%s\n"
                "  a browser      import %s as an authority for websites",
                ca, ca, ca, ca, ca);
    }
}

static void up_print_ready(struct cli *cli, json_t *ready)
{
    const char *key = json_get_string(ready, "key", NULL);

    if (cli->args->json) {
        cli_print_json(cli, ready);
        return;
    }
    ui_note(&cli->ui, "SPACE is up at %s", json_get_string(ready, "url", ""));
    up_print_tls(&cli->ui, ready);
    if (key) {
        ui_note(&cli->ui, "the first key, shown this once and kept in %s:",
                json_get_string(ready, "config", ""));
        printf("%s\n", key);
        fflush(stdout);
    }
}

/* Becomes the supervisor. Gives back an exit code when it is over. */
static int up_supervise(struct cli *cli, const struct host *host, int lock_fd,
                        struct report *report)
{
    bool detached = report->pipe != NULL;
    CLEANUP(supervisor_freep) struct supervisor *sup = supervisor_new(host, detached);
    cleanup_free char *key = NULL;
    struct err e = {0};
    int r;

    r = host_lock_write_pid(lock_fd, getpid());
    r = r < 0 ? err_wrap(&e, r, "writing the lock")
              : up_steps(sup, host, cli->args, report, &key, &e);
    if (r < 0) {
        supervisor_stop(sup);
        if (detached) {
            report_json_take(report, "fail", json_error_object(&e));
        } else {
            ui_error(&cli->ui, &e);
        }
        return CLI_EXIT_FAILED;
    }
    if (detached) {
        report_json_take(report, "ready", up_ready(host, key));
    } else {
        cleanup_json json_t *ready = up_ready(host, key);

        up_print_ready(cli, ready);
    }
    supervisor_loop(sup);
    log_info(NULL, "stopped; sandboxes go on");
    return CLI_EXIT_OK;
}

/* ---- the user's side ---- */

/* Reads what the supervisor says until it is ready, has failed, or is gone. */
static int up_watch(struct cli *cli, FILE *pipe, json_t **ret_ready, struct err *e)
{
    struct progress *progress = NULL;
    char line[REPORT_LINE_MAX];
    char step[128] = "";
    cleanup_json json_t *doc = NULL;
    int r = -EIO;

    err_set(e, r, "supervisor_died", "the supervisor ended without a word; see its log");
    while (fgets(line, sizeof(line), pipe)) {
        char *rest = line + strcspn(line, " \n");

        line[strcspn(line, "\n")] = '\0';
        rest += *rest == ' ';
        if (str_starts(line, "begin ")) {
            snprintf(step, sizeof(step), "%.127s", rest);
            progress = progress_start(&cli->ui, "%s", step);
            continue;
        }
        progress_end(TAKE_PTR(progress));
        if (str_starts(line, "end ")) {
            show_step(&cli->ui, step, strtoull(rest, /* end */ NULL, 10));
        } else if (json_parse_object(rest, strlen(rest), &doc, /* e */ NULL) < 0) {
            break;
        } else if (str_starts(line, "ready ")) {
            *ret_ready = TAKE_PTR(doc);
            r = 0;
            break;
        } else {
            json_t *error = json_object_get(doc, "error");

            r = err_set(e, -EIO, json_get_string(error, "code", NULL), "%s: %.300s", step,
                        json_get_string(error, "message", ""));
            break;
        }
    }
    progress_end(progress);
    return r;
}

static int up_log_fd(const struct host *host, struct err *e)
{
    cleanup_free char *path = xasprintf("%s/space-up.log", host->log_dir);
    int fd;
    int r;

    r = fs_mkdir_all(host->log_dir, 0755);
    if (r < 0) {
        return err_wrap(e, r, "making '%s'", host->log_dir);
    }
    fd = fs_open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0640);
    return fd < 0 ? err_wrap(e, fd, "opening '%s'", path) : fd;
}

/* In the child: away from the terminal and its session. */
static int up_child(struct cli *cli, const struct host *host, int lock_fd, int pipe_fd, int log_fd)
{
    struct report report = {.pipe = fdopen(pipe_fd, "w")};
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    ASSERT(report.pipe);
    setsid();
    if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 || dup2(null_fd, STDOUT_FILENO) < 0 ||
        dup2(log_fd, STDERR_FILENO) < 0 || chdir("/") < 0) {
        return CLI_EXIT_FAILED;
    }
    umask(022);
    return up_supervise(cli, host, lock_fd, &report);
}

static int up_detached(struct cli *cli, const struct host *host, int lock_fd, json_t **ret_ready,
                       struct err *e)
{
    cleanup_close int log_fd = up_log_fd(host, e);
    FILE *pipe_file;
    int fds[2];
    pid_t pid;
    int r;

    if (log_fd < 0) {
        return log_fd;
    }
    if (pipe2(fds, O_CLOEXEC) < 0) {
        return err_wrap(e, -errno, "starting the supervisor");
    }
    fflush(NULL);
    pid = fork();
    if (pid < 0) {
        r = -errno;
        fd_close(fds[0]);
        fd_close(fds[1]);
        return err_wrap(e, r, "starting the supervisor");
    }
    if (pid == 0) {
        fd_close(fds[0]);
        exit(up_child(cli, host, lock_fd, fds[1], log_fd));
    }
    fd_close(fds[1]);
    pipe_file = fdopen(fds[0], "r");
    ASSERT(pipe_file);
    r = up_watch(cli, pipe_file, ret_ready, e);
    fclose(pipe_file);
    if (r < 0) {
        waitpid(pid, /* status */ NULL, 0);
        return err_wrap(e, r, "SPACE did not come up (logs are in %s)", host->log_dir);
    }
    return 0;
}

/* Somebody holds the lock: how it is doing. */
static int up_already(struct cli *cli, const struct host *host)
{
    cleanup_json json_t *status = NULL;
    cleanup_free char *own_url = host_url(host);
    struct host there = *host;
    const char *url = own_url;
    struct err e = {0};
    size_t n_ill = 0;

    if (host_status_read(host, &status, /* e */ NULL) == 0) {
        url = json_get_string(status, "url", url);
        there.listen = json_get_string(status, "listen", there.listen);
    }
    for (size_t i = 0; i < HOST_SERVICE_COUNT_; i++) {
        e = (struct err){0};
        if (host_health(&there, (enum host_service)i, &e) < 0) {
            n_ill++;
            ui_warn(&cli->ui, "the %s does not answer: %s", host_service_name((enum host_service)i),
                    e.msg);
        }
    }
    if (cli->args->json) {
        cleanup_json json_t *doc =
            json_pack("{s:s, s:b, s:b}", "url", url, "already_up", true, "healthy", n_ill == 0);

        cli_print_json(cli, doc);
    } else {
        ui_note(&cli->ui, "SPACE is up already at %s%s", url,
                n_ill ? "; it is still starting, or 'space down' and 'space up' help"
                      : ", and every service answers");
    }
    if (cli->args->listen && !str_eq(cli->args->listen, there.listen)) {
        ui_warn(&cli->ui, "it listens at %s; 'space down' first to change that", there.listen);
    }
    return CLI_EXIT_OK;
}

int verb_up(struct cli *cli)
{
    const struct args *a = cli->args;
    struct report report = {.ui = &cli->ui};
    cleanup_json json_t *ready = NULL;
    cleanup_close int lock_fd = FD_NONE;
    CLEANUP(host_done) struct host host = {0};
    struct err e = {0};
    int r = 0;

    host_init(&host, a);
    log_init("space-up");
    if (geteuid() != 0) {
        r = err_set(
            &e, -EPERM, "not_root",
            "'space up' must be run by root, for it makes users and mounts; run: sudo space up");
    }
    if (r == 0 && (!a->tls_cert != !a->tls_key || !a->node_listen != !a->node_tls)) {
        IGNORE_RESULT(err_set(&e, -EINVAL, "usage", "'%s' go together",
                              !a->tls_cert != !a->tls_key ? "--tls-cert' and '--tls-key"
                                                          : "--node-listen' and '--node-tls"));
        ui_error(&cli->ui, &e);
        return CLI_EXIT_USAGE;
    }
    r = r < 0 ? r : host_run_dir_fits(&host, &e);
    if (r == 0 && a->warm && (!*a->warm || a->warm[strspn(a->warm, "0123456789")])) {
        r = err_field(&e, -EINVAL, "invalid_request", "warm",
                      "'--warm' must be a number, not '%.40s'", a->warm);
    }
    if (r == 0) {
        lock_fd = host_lock(&host, &e);
        if (lock_fd == -EALREADY) {
            return up_already(cli, &host);
        }
        r = lock_fd < 0 ? lock_fd : host_port_free(&host, &e);
    }
    if (r == 0 && !a->detach) {
        return up_supervise(cli, &host, lock_fd, &report);
    }
    r = r < 0 ? r : up_detached(cli, &host, lock_fd, &ready, &e);
    if (r < 0) {
        ui_error(&cli->ui, &e);
        return CLI_EXIT_FAILED;
    }
    up_print_ready(cli, ready);
    return CLI_EXIT_OK;
}

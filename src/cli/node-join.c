/* SPDX-License-Identifier: Apache-2.0 */
/* How a machine becomes a node of a cluster: a token, made by an operator; a certificate for it; another before that ends. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "cli/host.h"
#include "cli/node-cert.h"
#include "cli/verbs.h"
#include "wire/url.h"

/* A third of what a certificate lives is left: time to mend what keeps it from being renewed. */
#define RENEW_DAYS 30

static int failed(struct cli *cli, const struct err *e)
{
    ui_error(&cli->ui, e);
    return CLI_EXIT_FAILED;
}

int verb_node_token(struct cli *cli)
{
    cleanup_json json_t *body = json_object();
    cleanup_json json_t *answer = NULL;
    struct err e = {0};
    int r = cli_connect(cli, &e);

    if (cli->args->remember_s > 0) {
        json_object_set_new(body, "lives_s", json_integer((json_int_t)cli->args->remember_s));
    }
    r = r < 0 ? r : cli_call(cli, "POST", "/v1/node-tokens", body, &answer, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        cli_print_json(cli, answer);
        return CLI_EXIT_OK;
    }
    printf("%s\n", json_get_string(answer, "token", ""));
    if (!cli->args->quiet) {
        ui_note(&cli->ui,
                "good for one node and %" PRId64 " s: space node join NODE ADDRESS --token ...",
                json_get_int(answer, "lives_s", 0));
    }
    return CLI_EXIT_OK;
}

/* The token, and whose certificate we take for the authority's, must not be another one's: so who answers must be known. */
static int check_url(struct cli *cli, struct err *e)
{
    const char *text = cli->conf.url ? cli->conf.url : CONF_URL_DEFAULT;
    struct url url;

    if (url_parse(text, &url) < 0 || (url.scheme == URL_HTTP && !str_eq(url.host, "127.0.0.1") &&
                                      !str_eq(url.host, "::1") && !str_eq(url.host, "localhost"))) {
        return err_set(e, -EINVAL, "usage",
                       "a node joins over https: name the gateway with --url https://...");
    }
    return 0;
}

/* The folder of --node-tls, made when it is not there, and whose the files in it are to be. */
static int open_folder(struct cli *cli, int *ret_fd, uid_t *ret_uid, struct err *e)
{
    const char *dir = cli->args->node_tls ? cli->args->node_tls : NODE_TLS_DEFAULT;
    const char *user = cli->args->sandbox_user ? cli->args->sandbox_user : HOST_SANDBOX_USER;
    const struct passwd *pw = getpwnam(user);

    if (geteuid() == 0 && !pw) {
        return err_set(
            e, -ENOENT, NULL,
            "there is no user '%s' yet, who serves with the key: run 'space up' first, or "
            "name another one with --sandbox-user",
            user);
    }
    *ret_uid = geteuid() == 0 ? pw->pw_uid : (uid_t)-1;
    if (mkdir(dir, 0755) < 0 && errno != EEXIST) {
        return err_wrap(e, -errno, "making the folder '%s'", dir);
    }
    *ret_fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
    return *ret_fd < 0 ? err_wrap(e, *ret_fd, "opening the folder '%s'", dir) : 0;
}

static struct node_cert_answer answer_of(json_t *answer, bool with_key, uid_t uid)
{
    return (struct node_cert_answer){.certificate = json_get_string(answer, "certificate", ""),
                                     .authority = json_get_string(answer, "authority", ""),
                                     .with_key = with_key,
                                     .uid = uid};
}

static int join(struct cli *cli, int dir_fd, uid_t uid, struct err *e)
{
    const char *name = cli->args->operands[0];
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *key = EVP_EC_gen("P-256");
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *answer = NULL;
    cleanup_free char *csr = NULL;
    struct node_cert_answer got;
    int r = key ? node_cert_request(key, name, &csr, e) : issue_failed(e, "making a key");

    if (r < 0) {
        return r;
    }
    body = json_pack("{s:s, s:s, s:s, s:s}", "token", cli->args->token, "name", name, "address",
                     cli->args->operands[1], "csr", csr);
    if (!body) {
        return err_set(e, -EINVAL, "usage", "name, address and token must be UTF-8");
    }
    r = cli_call(cli, "POST", "/v1/node-join", body, &answer, e);
    got = answer_of(answer, /* with_key */ true, uid);
    return r < 0 ? r : node_cert_write(dir_fd, &got, key, e);
}

int verb_node_join(struct cli *cli)
{
    cleanup_close int dir_fd = FD_NONE;
    struct err e = {0};
    uid_t uid = (uid_t)-1;
    int r = cli->args->token
                ? cli_connect(cli, &e)
                : err_set(&e, -EINVAL, "usage", "--token is missing: 'space node token' makes one");

    r = r < 0 ? r : check_url(cli, &e);
    r = r < 0 ? r : open_folder(cli, &dir_fd, &uid, &e);
    r = r < 0 ? r : join(cli, dir_fd, uid, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (!cli->args->quiet) {
        ui_note(
            &cli->ui,
            "joined as '%s'; start it: space up --detach --database ... --node-name %s --node-tls "
            "%s --node-listen ADDRESS:PORT",
            cli->args->operands[0], cli->args->operands[0],
            cli->args->node_tls ? cli->args->node_tls : NODE_TLS_DEFAULT);
    }
    return CLI_EXIT_OK;
}

static int renew(struct cli *cli, int dir_fd, uid_t uid, int *ret_days, struct err *e)
{
    CLEANUP(EVP_PKEY_freep) EVP_PKEY *key = NULL;
    cleanup_json json_t *body = NULL;
    cleanup_json json_t *answer = NULL;
    cleanup_free char *certificate = NULL;
    cleanup_free char *name = NULL;
    cleanup_free char *csr = NULL;
    struct node_cert_answer got;
    int r = node_cert_read(dir_fd, &certificate, &key, &name, ret_days, e);

    if (r < 0 || (*ret_days >= RENEW_DAYS && !cli->args->force)) {
        return r;
    }
    *ret_days = -1;
    r = node_cert_request(key, name, &csr, e);
    if (r < 0) {
        return r;
    }
    body = json_pack("{s:s, s:s, s:s}", "name", name, "certificate", certificate, "csr", csr);
    r = cli_call(cli, "POST", "/v1/node-renew", body, &answer, e);
    got = answer_of(answer, /* with_key */ false, uid);
    return r < 0 ? r : node_cert_write(dir_fd, &got, key, e);
}

int verb_node_renew(struct cli *cli)
{
    cleanup_close int dir_fd = FD_NONE;
    struct err e = {0};
    uid_t uid = (uid_t)-1;
    int days = 0;
    int r = cli_connect(cli, &e);

    r = r < 0 ? r : check_url(cli, &e);
    r = r < 0 ? r : open_folder(cli, &dir_fd, &uid, &e);
    r = r < 0 ? r : renew(cli, dir_fd, uid, &days, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (!cli->args->quiet && days >= 0) {
        ui_note(&cli->ui, "the certificate is good for another %d days: nothing to do", days);
    } else if (!cli->args->quiet) {
        ui_note(&cli->ui, "the certificate was renewed");
    }
    return CLI_EXIT_OK;
}

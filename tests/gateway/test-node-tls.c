/* SPDX-License-Identifier: Apache-2.0 */

/* Gateway and node on different machines: who may speak to whom, and certificates that are replaced meanwhile. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/proc.h"
#include "harness.h"
#include "http/tls.h"

struct place {
    char dir[40];
    struct fake_node *node; /* owned */
    struct http_tls *tls;   /* owned; the node's */
    uint16_t port;
};

/* One call of the operator's tool, in a folder below ours. */
static void certificates(const struct place *p, const char *sub, const char *kind, const char *name)
{
    cleanup_free char *dir = xasprintf("%s/%s", p->dir, sub);
    const char *const argv[] = {SPACE_TEST_CERTIFICATES, dir, kind, name, NULL};
    struct proc_spec spec = {.argv = argv, .stdin_fd = FD_NONE, .stdout_fd = 2, .stderr_fd = 2};
    struct proc proc;
    int status = -1;

    ASSERT(proc_spawn(&spec, &proc, NULL) == 0);
    ASSERT(proc_wait(&proc, deadline_in_ms(TEST_MS), &status) == 0 && status == 0);
    fd_close(proc.pidfd);
}

static struct http_tls *open_tls(const struct place *p, const char *cert, const char *ca,
                                 const char *peer)
{
    cleanup_free char *cert_file = xasprintf("%s/%s.pem", p->dir, cert);
    cleanup_free char *key_file = xasprintf("%s/%s-key.pem", p->dir, cert);
    cleanup_free char *ca_file = xasprintf("%s/%s/ca.pem", p->dir, ca);
    struct http_tls *tls = NULL;

    ASSERT(http_tls_open(&(struct http_tls_opts){.cert_file = cert_file,
                                                 .key_file = key_file,
                                                 .ca_file = ca_file,
                                                 .peer = peer,
                                                 .client = !peer},
                         &tls, NULL) == 0);
    return tls;
}

static void place_init(struct place *p)
{
    *p = (struct place){0};
    setenv("SPACE_LOG", "error", 1);
    log_init("test");
    snprintf(p->dir, sizeof(p->dir), "/tmp/space-node-tls-XXXXXX");
    ASSERT(mkdtemp(p->dir));
    certificates(p, "ours", "gateway", NULL);
    certificates(p, "ours", "node", "127.0.0.1");
    p->tls = open_tls(p, "ours/127.0.0.1", "ours", "space-gateway");
    p->node = fake_node_start_tls("the node", p->tls, &p->port);
}

static void place_done(struct place *p)
{
    cleanup_close int tmp_fd = fs_open("/tmp", O_RDONLY | O_DIRECTORY, 0);

    fake_node_stop(p->node);
    http_tls_free(p->tls);
    ASSERT(tmp_fd >= 0 && fs_remove_tree(tmp_fd, p->dir + 5) == 0);
}
#define PLACE(p_) \
    CLEANUP(place_done) struct place p_; \
    place_init(&p_)

/* Asks the node what it is, as the host, with this certificate. */
static int ask(const struct place *p, const char *host, struct http_tls *tls)
{
    CLEANUP(node_client_freep) struct node_client *client = NULL;
    cleanup_free char *url = xasprintf("https://%s:%u", host, p->port);
    struct node_call call = {.deadline_ns = deadline_in_ms(TEST_MS)};
    cleanup_json json_t *answer = NULL;

    ASSERT(node_client_new("n", url, tls, &client, NULL) == 0);
    return node_client_get(client, "/v1/node", &call, &answer, NULL);
}

static int ask_with(const struct place *p, const char *host, const char *cert, const char *ca)
{
    struct http_tls *tls = open_tls(p, cert, ca, NULL);
    int r = ask(p, host, tls);

    http_tls_free(tls);
    return r;
}

static void a_gateway_is_let_in(void)
{
    PLACE(p);

    CHECK_INT(ask_with(&p, "127.0.0.1", "ours/gateway", "ours"), 0);
}

static void nobody_else_is(void)
{
    PLACE(p);
    CLEANUP(http_client_freep) struct http_client *bare = NULL;
    cleanup_free char *url = xasprintf("https://127.0.0.1:%u", p.port);
    cleanup_free char *ca = xasprintf("%s/ours/ca.pem", p.dir);

    certificates(&p, "theirs", "gateway", NULL);
    CHECK_INT(ask_with(&p, "127.0.0.1", "theirs/gateway", "ours"),
              -EHOSTDOWN); /* another authority */
    CHECK_INT(ask_with(&p, "127.0.0.1", "ours/127.0.0.1", "ours"), -EHOSTDOWN); /* a node */
    REQUIRE(http_client_new(url, &(struct http_client_opts){.ca_file = ca}, &bare, NULL) == 0);
    CHECK(http_client_json(bare,
                           &(struct http_json_opts){.target = "/v1/node",
                                                    .deadline_ns = deadline_in_ms(TEST_MS)},
                           NULL, NULL) < 0); /* without a certificate */
    CHECK_INT(ask_with(&p, "127.0.0.1", "ours/gateway", "ours"), 0);
}

static void a_node_of_another_name_or_authority_is_not_believed(void)
{
    PLACE(p);

    CHECK_INT(ask_with(&p, "localhost", "ours/gateway", "ours"), -EHOSTDOWN);
    certificates(&p, "theirs", "gateway", NULL);
    CHECK_INT(ask_with(&p, "127.0.0.1", "ours/gateway", "theirs"), -EHOSTDOWN);
}

/* Both ends read what was replaced, without a restart; what does not fit together is not taken. */
static void certificates_are_replaced_meanwhile(void)
{
    PLACE(p);
    struct http_tls *tls = open_tls(&p, "ours/gateway", "ours", NULL);
    cleanup_free char *ca = xasprintf("%s/ours/ca.pem", p.dir);
    cleanup_free char *key = xasprintf("%s/ours/gateway-key.pem", p.dir);
    cleanup_free char *aside = xasprintf("%s/aside", p.dir);

    CHECK_INT(ask(&p, "127.0.0.1", tls), 0);
    certificates(&p, "ours", "gateway", NULL);
    certificates(&p, "ours", "node", "127.0.0.1");
    http_tls_look_now(tls);
    http_tls_look_now(p.tls);
    CHECK_INT(ask(&p, "127.0.0.1", tls), 0);

    /* A new authority: whose certificates are of the old one are strangers from now on. */
    ASSERT(unlink(ca) == 0);
    certificates(&p, "ours", "node", "127.0.0.1");
    http_tls_look_now(p.tls);
    CHECK_INT(ask(&p, "127.0.0.1", tls), -EHOSTDOWN);
    certificates(&p, "ours", "gateway", NULL);
    http_tls_look_now(tls);
    CHECK_INT(ask(&p, "127.0.0.1", tls), 0);

    /* A key that is away for a moment. */
    ASSERT(rename(key, aside) == 0);
    http_tls_look_now(tls);
    CHECK_INT(ask(&p, "127.0.0.1", tls), 0);
    ASSERT(rename(aside, key) == 0);
    http_tls_free(tls);
}

TEST_MAIN(T(a_gateway_is_let_in), T(nobody_else_is),
          T(a_node_of_another_name_or_authority_is_not_believed),
          T(certificates_are_replaced_meanwhile))

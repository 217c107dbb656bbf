/* SPDX-License-Identifier: Apache-2.0 */
#include "network/intercept.h"

#include <arpa/inet.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sock.h"
#include "network/intercept-internal.h"
#include "network/ssh-end.h"
#include "wire/tls-hello.h"

#define MAX_CONNECTIONS 4096u
/* OpenSSL's handshakes want the most. */
#define STACK_BYTES (256u * 1024)
#define WANTS_MAX 20000u
/* The credential manager is not there: how long until the next look. */
#define RETRY_MS 500u

/* ---- what credentials want to see ---- */

static int want_from_json(json_t *json, struct intercept_want *ret)
{
    const char *scope = json_get_string(json, "scope", "");
    int64_t port = json_get_int(json, "port", 0);

    *ret = (struct intercept_want){.port = (uint16_t)port,
                                   .ssh = json_get_bool(json, "ssh", false),
                                   .rotated_at_ms = json_get_int(json, "rotated_at_ms", 0)};
    while (ret->scope < CREDENTIAL_SCOPE_COUNT_ &&
           !str_eq(credential_scope_name(ret->scope), scope)) {
        ret->scope++;
    }
    if (ret->scope == CREDENTIAL_SCOPE_COUNT_ || port < 1 || port > 65535 ||
        str_copy(ret->organisation, ID_SIZE, json_get_string(json, "organisation", "")) < 0 ||
        str_copy(ret->project, ID_SIZE, json_get_string(json, "project", "")) < 0 ||
        str_copy(ret->sandbox, ID_SIZE, json_get_string(json, "sandbox", "")) < 0 ||
        str_copy(ret->id, ID_SIZE, json_get_string(json, "id", "")) < 0 ||
        str_copy(ret->host, sizeof(ret->host), json_get_string(json, "host", "")) < 0) {
        return -EPROTO;
    }
    return 0;
}

static bool want_fits(const struct intercept_want *w, const struct intercept_owner *owner)
{
    return str_eq(w->organisation, owner->organisation) &&
           (w->scope == CREDENTIAL_ORGANISATION || str_eq(w->project, owner->project)) &&
           (w->scope != CREDENTIAL_SANDBOX || str_eq(w->sandbox, owner->sandbox));
}

/* With the lock held: is the credential that it has logged in with still the same? */
static bool is_revoked(const struct intercept *in, const struct intercept_conn *c)
{
    for (size_t i = 0; i < in->n_wants; i++) {
        if (in->wants[i].ssh && str_eq(in->wants[i].id, c->ssh_id)) {
            return in->wants[i].rotated_at_ms > c->ssh_rotated_at_ms ||
                   in->wants[i].port != c->target.port ||
                   !want_fits(&in->wants[i], &c->target.owner) ||
                   !credential_host_fits(in->wants[i].host, c->target.name);
        }
    }
    return c->ssh_id[0] != '\0';
}

/* With the lock held. */
static void end_revoked(struct intercept *in)
{
    struct intercept_conn *c;

    TAILQ_FOREACH(c, &in->conns, entry)
    {
        if (is_revoked(in, c)) {
            IGNORE_RESULT(eventfd_write(c->stop_fd, 1)); /* a full counter wakes as well */
        }
    }
}

void intercept_ssh_bind(struct intercept_conn *c, const char *id, int64_t rotated_at_ms)
{
    pthread_mutex_lock(&c->in->lock);
    snprintf(c->ssh_id, sizeof(c->ssh_id), "%s", id);
    c->ssh_rotated_at_ms = rotated_at_ms;
    pthread_mutex_unlock(&c->in->lock);
}

/* All or nothing: an answer that cannot be read changes nothing. */
static int take_wants(struct intercept *in, json_t *answer, uint64_t *ret_generation)
{
    json_t *list = json_object_get(answer, "targets");
    size_t n = json_array_size(list);
    struct intercept_want *wants;
    int64_t generation = json_get_int(answer, "generation", 0);

    if (!json_is_array(list) || n > WANTS_MAX || generation <= 0) {
        return -EPROTO;
    }
    wants = xnew_n(struct intercept_want, n + 1);
    for (size_t i = 0; i < n; i++) {
        if (want_from_json(json_array_get(list, i), &wants[i]) < 0) {
            free(wants);
            return -EPROTO;
        }
    }
    pthread_mutex_lock(&in->lock);
    free(in->wants);
    in->wants = wants;
    in->n_wants = n;
    end_revoked(in);
    pthread_mutex_unlock(&in->lock);
    *ret_generation = (uint64_t)generation;
    return 0;
}

static void *watch_wants(void *arg)
{
    struct intercept *in = arg;
    struct pollfd stop = {.fd = in->stop_fd, .events = POLLIN};
    uint64_t known = 0;
    bool complained = false;
    int r = 0;

    while (r != -ECANCELED) {
        cleanup_json json_t *answer = NULL;
        struct err e = {0};

        r = credential_client_targets(in->credentials, known, &stop, &answer, &e);
        if (r == 0) {
            r = take_wants(in, answer, &known);
        }
        if (r == 0) {
            complained = false;
            continue;
        }
        if (r != -ECANCELED && !complained) {
            complained = true;
            log_warn(NULL, "the credential manager does not say what is wanted, retrying: %s",
                     e.msg);
        }
        known = 0;
        if (sock_wait(in->stop_fd, POLLIN, deadline_in_ms(RETRY_MS)) == 0) {
            r = -ECANCELED;
        }
    }
    return NULL;
}

bool intercept_wants(struct intercept *in, const struct intercept_owner *owner, const char *name,
                     uint16_t port)
{
    bool wanted = false;

    if (!name[0]) {
        return false;
    }
    pthread_mutex_lock(&in->lock);
    for (size_t i = 0; i < in->n_wants && !wanted; i++) {
        wanted = !in->wants[i].ssh && in->wants[i].port == port &&
                 want_fits(&in->wants[i], owner) && credential_host_fits(in->wants[i].host, name);
    }
    pthread_mutex_unlock(&in->lock);
    return wanted;
}

bool intercept_wants_ssh(struct intercept *in, const struct intercept_owner *owner,
                         const char *name, uint16_t port)
{
    bool wanted = false;

    pthread_mutex_lock(&in->lock);
    for (size_t i = 0; i < in->n_wants && !wanted; i++) {
        wanted = in->wants[i].ssh && in->wants[i].port == port && want_fits(&in->wants[i], owner) &&
                 (!name || credential_host_fits(in->wants[i].host, name));
    }
    pthread_mutex_unlock(&in->lock);
    return wanted;
}

/* ---- life ---- */

/* Installed together. */
static char *program_beside(const char *name)
{
    char self[PATH_MAX] = "";
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    const char *slash = n > 0 ? strrchr(self, '/') : NULL;

    return slash ? xasprintf("%.*s/%s", (int)(slash - self), self, name)
                 : xasprintf("%s/%s", SPACE_LIBEXEC_DIR, name);
}

int intercept_new(const struct intercept_opts *opts, struct intercept **ret, struct err *e)
{
    CLEANUP(intercept_freep) struct intercept *in = xnew(struct intercept);
    int r;

    TAILQ_INIT(&in->conns);
    in->park_fd = in->park_wake_fd = FD_NONE;
    pthread_mutex_init(&in->lock, NULL);
    pthread_cond_init(&in->ended, NULL);
    in->ssh_end = program_beside(SSH_END_PROGRAM);
    in->max_connections = opts->max_connections ? opts->max_connections : MAX_CONNECTIONS;
    in->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (in->stop_fd < 0) {
        in->stop_fd = FD_NONE;
        return err_wrap(e, -errno, "making an eventfd");
    }
    r = intercept_park_start(in, e);
    r = r < 0 ? r : credential_client_new(opts->credential_url, &in->credentials, e);
    r = r < 0 ? r : leaves_new(in->credentials, &in->leaves, e);
    r = r < 0 ? r : io_tls_client_context(opts->ca_file, &in->client_tls, e);
    if (r < 0) {
        return r;
    }
    r = -pthread_create(&in->watcher, NULL, watch_wants, in);
    if (r < 0) {
        in->watcher = 0;
        return err_wrap(e, r, "starting a thread");
    }
    *ret = TAKE_PTR(in);
    return 0;
}

void intercept_free(struct intercept *in)
{
    if (!in) {
        return;
    }
    intercept_drop(in, /* sandbox */ NULL, /* keep */ NULL);
    pthread_mutex_lock(&in->lock);
    while (in->n_conns > 0) {
        pthread_cond_wait(&in->ended, &in->lock);
    }
    pthread_mutex_unlock(&in->lock);
    if (in->watcher) {
        IGNORE_RESULT(eventfd_write(in->stop_fd, 1)); /* a counter of 0 takes 1 */
        pthread_join(in->watcher, NULL);
    }
    intercept_park_stop(in);
    SSL_CTX_free(in->client_tls);
    leaves_free(in->leaves);
    credential_client_free(in->credentials);
    in->stop_fd = fd_close(in->stop_fd);
    free(in->wants);
    free(in->ssh_end);
    pthread_cond_destroy(&in->ended);
    pthread_mutex_destroy(&in->lock);
    free(in);
}

/* ---- connections ---- */

static void conn_free(struct intercept_conn *c)
{
    netpolicy_unref(c->policy);
    io_done(&c->guest);
    if (c->connected) {
        io_done(&c->server);
    }
    c->stop_fd = fd_close(c->stop_fd);
    free(c);
}

void intercept_conn_end(struct intercept_conn *c)
{
    struct intercept *in = c->in;

    c->result.credential = c->credential[0] ? c->credential : NULL;
    c->result.refused = c->refused[0] ? c->refused : NULL;
    c->target.done(c->target.done_arg, &c->result);
    pthread_mutex_lock(&in->lock);
    TAILQ_REMOVE(&in->conns, c, entry);
    in->n_conns--;
    conn_free(c);
    pthread_cond_broadcast(&in->ended);
    pthread_mutex_unlock(&in->lock);
}

static void *conn_thread(void *arg)
{
    struct intercept_conn *c = arg;

    do {
        if (!intercept_conn_run(c)) {
            intercept_conn_end(c);
            return NULL;
        }
    } while (!intercept_park(c));
    return NULL;
}

int intercept_start_thread(struct intercept_conn *c)
{
    pthread_attr_t attr;
    pthread_t thread;
    int r;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    r = pthread_create(&thread, &attr, conn_thread, c);
    pthread_attr_destroy(&attr);
    return -r;
}

/* The name as the server's Host field has it. */
static void set_host(struct intercept_conn *c)
{
    const struct intercept_target *t = &c->target;
    char address[INET_ADDRSTRLEN];
    const char *name = t->name;

    if (!name[0]) {
        name = inet_ntop(AF_INET, &t->addr, address, sizeof(address));
        snprintf(c->target.name, sizeof(c->target.name), "%s", name);
    }
    if (t->port == (t->is_tls ? 443 : 80)) {
        snprintf(c->host, sizeof(c->host), "%s", c->target.name);
    } else {
        snprintf(c->host, sizeof(c->host), "%s:%u", c->target.name, t->port);
    }
}

/* Small frames and heads do not wait for the acknowledgement of earlier ones. */
static void set_nodelay(int fd)
{
    int yes = 1;

    IGNORE_RESULT(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes))); /* slower only */
}

/* With the lock held. */
static bool has_room(const struct intercept *in, const struct intercept_target *target)
{
    const struct intercept_conn *c;
    unsigned of_sandbox = 0;
    unsigned of_all = 0;

    if (in->n_conns >= in->max_connections || !target->is_ssh) {
        return in->n_conns < in->max_connections;
    }
    TAILQ_FOREACH(c, &in->conns, entry)
    {
        of_all += c->target.is_ssh;
        of_sandbox += c->target.is_ssh && str_eq(c->target.owner.sandbox, target->owner.sandbox);
    }
    return of_all < INTERCEPT_SSH_MAX && of_sandbox < INTERCEPT_SSH_SANDBOX_MAX;
}

int intercept_accept(struct intercept *in, int client_fd, const struct intercept_target *target,
                     struct err *e)
{
    struct intercept_conn *c;
    int stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct tls_hello hello;
    int r;

    ASSERT(target->done && target->policy && target->n_peeked <= INTERCEPT_PEEKED_MAX);
    if (stop_fd < 0) {
        return err_wrap(e, -errno, "making an eventfd");
    }
    c = xnew(struct intercept_conn);
    c->in = in;
    c->target = *target;
    c->policy = netpolicy_ref(target->policy);
    c->stop_fd = stop_fd;
    io_init_take(&c->guest, client_fd);
    io_early(&c->guest, target->peeked, target->n_peeked);
    set_nodelay(client_fd);
    c->offers_http2 = target->is_tls &&
                      tls_hello_parse(target->peeked, target->n_peeked, &hello) == 0 &&
                      hello.has_h2;
    c->target.peeked = NULL;
    c->target.policy = c->policy;
    set_host(c);
    pthread_mutex_lock(&in->lock);
    r = has_room(in, target) ? intercept_start_thread(c) : -EMFILE;
    if (r == 0) {
        TAILQ_INSERT_TAIL(&in->conns, c, entry);
        in->n_conns++;
    }
    pthread_mutex_unlock(&in->lock);
    if (r < 0) {
        c->guest.fd = FD_NONE; /* stays the caller's */
        conn_free(c);
        return r == -EMFILE ? err_set(e, r, "too_many_connections",
                                      "too many connections are being looked into")
                            : err_wrap(e, r, "starting a thread for a connection");
    }
    return 0;
}

void intercept_drop(struct intercept *in, const char *sandbox, const struct netpolicy *keep)
{
    struct intercept_conn *c;

    pthread_mutex_lock(&in->lock);
    TAILQ_FOREACH(c, &in->conns, entry)
    {
        if ((!sandbox || str_eq(c->target.owner.sandbox, sandbox)) &&
            (!keep || c->policy != keep)) {
            IGNORE_RESULT(eventfd_write(c->stop_fd, 1)); /* a full counter wakes as well */
        }
    }
    pthread_mutex_unlock(&in->lock);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/host.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/id.h"
#include "base/json.h"
#include "base/sock.h"
#include "credential/client.h"
#include "http/authority.h"
#include "http/client.h"
#include "ipc/netgate.h"
#include "ipc/priv.h"
#include "volume/client.h"
#include "wire/url.h"

#define HEALTH_MS 1000u

static const struct {
    const char *name;
    const char *program;
} services[HOST_SERVICE_COUNT_] = {
    [HOST_NODE_MANAGER] = {"node manager", "space-node-manager"},
    [HOST_SANDBOX_MANAGER] = {"sandbox manager", "space-sandbox-manager"},
    [HOST_CREDENTIAL_MANAGER] = {"credential manager", "space-credential-manager"},
    [HOST_VOLUME_MANAGER] = {"volume manager", "space-volume-manager"},
    [HOST_NETWORK_GATEWAY] = {"network gateway", "space-network-gateway"},
    [HOST_GATEWAY] = {"gateway", "space-gateway"},
};

const char *host_service_name(enum host_service service)
{
    ASSERT(service < HOST_SERVICE_COUNT_);
    return services[service].name;
}

const char *host_service_program(enum host_service service)
{
    ASSERT(service < HOST_SERVICE_COUNT_);
    return services[service].program;
}

static const char *host_or(const char *given, const char *usual)
{
    return given ? given : usual;
}

static char *host_folder(const char *given, const char *usual)
{
    const char *path = host_or(given, usual);
    cleanup_free char *here = path[0] == '/' ? NULL : getcwd(NULL, 0);

    return here ? xasprintf("%s/%s", here, path) : xstrdup(path);
}

void host_init(struct host *host, const struct args *a)
{
    *host = (struct host){
        .state_dir = host_folder(a->state_dir, HOST_STATE_DIR),
        .run_dir = host_folder(a->run_dir, HOST_RUN_DIR),
        .log_dir = host_folder(a->log_dir, HOST_LOG_DIR),
        .libexec_dir = host_folder(a->libexec_dir, SPACE_LIBEXEC_DIR),
        .listen = host_or(a->listen, HOST_LISTEN),
        .gateway_user = host_or(a->gateway_user, HOST_GATEWAY_USER),
        .sandbox_user = host_or(a->sandbox_user, HOST_SANDBOX_USER),
        .domain = host_or(a->domain, a->tls && !a->tls_cert ? HOST_TLS_DOMAIN : HOST_DOMAIN),
        .warm = a->warm,
        .database = a->database,
        .database_password_file =
            a->database_password_file ? host_folder(a->database_password_file, NULL) : NULL,
        .credential_user = host_or(a->credential_user, HOST_CREDENTIAL_USER),
        .volume_user = host_or(a->volume_user, HOST_VOLUME_USER),
        .network_user = host_or(a->network_user, HOST_NETWORK_USER),
        .resolver = a->resolver,
        .node_name = a->node_name,
        .node_authority = a->node_authority ? host_folder(a->node_authority, NULL) : NULL,
    };
    if (a->node_listen && a->node_tls) {
        cleanup_free char *dir = host_folder(a->node_tls, NULL);

        host->node_listen = a->node_listen;
        host->node_cert = xasprintf("%s/cert.pem", dir);
        host->node_key = xasprintf("%s/key.pem", dir);
        host->node_ca = xasprintf("%s/ca.pem", dir);
        host->gateway_cert = xasprintf("%s/gateway.pem", dir);
        host->gateway_key = xasprintf("%s/gateway-key.pem", dir);
    }
    if (!a->tls && !a->tls_cert) {
        return;
    }
    host->tls_listen = host_or(a->tls_listen, HOST_TLS_LISTEN);
    host->tls_own = !a->tls_cert;
    host->tls_cert = a->tls_cert
                         ? host_folder(a->tls_cert, NULL)
                         : xasprintf("%s/" HOST_TLS_DIR "/" AUTHORITY_CERT, host->state_dir);
    host->tls_key = a->tls_key ? host_folder(a->tls_key, NULL)
                               : xasprintf("%s/" HOST_TLS_DIR "/" AUTHORITY_KEY, host->state_dir);
}

void host_done(struct host *host)
{
    free(host->state_dir);
    free(host->run_dir);
    free(host->log_dir);
    free(host->libexec_dir);
    free(host->database_password_file);
    free(host->node_cert);
    free(host->node_key);
    free(host->node_ca);
    free(host->gateway_cert);
    free(host->gateway_key);
    free(host->node_authority);
    free(host->tls_cert);
    free(host->tls_key);
    *host = (struct host){0};
}

char *host_url(const struct host *host)
{
    struct url url;

    if (url_parse(host->listen, &url) < 0 || url.scheme == URL_UNIX) {
        return xasprintf("http://%s", host->listen);
    }
    if (str_empty(url.host) || str_eq(url.host, "0.0.0.0")) {
        return xasprintf("http://127.0.0.1:%u", url.port);
    }
    if (str_eq(url.host, "::")) {
        return xasprintf("http://[::1]:%u", url.port);
    }
    return xasprintf(strchr(url.host, ':') ? "http://[%s]:%u" : "http://%s:%u", url.host, url.port);
}

char *host_cgroup(const struct host *host)
{
    return str_eq(host->state_dir, HOST_STATE_DIR)
               ? xstrdup("space")
               : xasprintf("space-%08x", str_hash(host->state_dir));
}

uint32_t host_first_uid(const struct host *host)
{
    const uint32_t others = 4095; /* ranges, up to 0x7fffffff */

    return str_eq(host->state_dir, HOST_STATE_DIR)
               ? PRIV_MACHINE_UID_BASE
               : PRIV_MACHINE_UID_BASE +
                     (1 + str_hash(host->state_dir) % others) * PRIV_MACHINE_UIDS;
}

void host_cgroup_remove(const struct host *host)
{
    static const char *const hierarchies[] = {"", "/pids", "/cpu", "/cpuacct", "/memory"};
    cleanup_free char *name = host_cgroup(host);

    for (size_t i = 0; i < ARRAY_SIZE(hierarchies); i++) {
        cleanup_free char *path = xasprintf("/sys/fs/cgroup%s/%s", hierarchies[i], name);

        IGNORE_RESULT(
            rmdir(path)); /* not there in this version of cgroups, or machines live on in it */
    }
}

int host_run_dir_fits(const struct host *host, struct err *e)
{
    /* The longest: a machine's channel, run_dir/m/ID/channel (src/machine/machine.c). */
    const size_t below = strlen("/m/") + ID_LEN + strlen("/channel");
    const size_t most = sizeof(((struct sockaddr_un *)0)->sun_path) - 1 - below;
    size_t len = strlen(host->run_dir);

    if (len <= most) {
        return 0;
    }
    return err_set(e, -ENAMETOOLONG, "path_too_long",
                   "--run-dir is %zu bytes too long: '%.200s' has %zu, and the paths of sockets "
                   "allow %zu; choose a shorter one, --state-dir may stay where it is",
                   len - most, host->run_dir, len, most);
}

int host_lock(const struct host *host, struct err *e)
{
    cleanup_free char *path = xasprintf("%s/" HOST_LOCK, host->run_dir);
    cleanup_close int fd = FD_NONE;
    int r;

    r = fs_mkdir_all(host->run_dir, 0755);
    if (r < 0) {
        return err_wrap(e, r, "making '%s'", host->run_dir);
    }
    fd = fs_open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0644);
    if (fd < 0) {
        return err_wrap(e, fd, "opening '%s'", path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        return errno == EWOULDBLOCK ? err_set(e, -EALREADY, "already_up", "SPACE is up already")
                                    : err_wrap(e, -errno, "locking '%s'", path);
    }
    return TAKE_FD(fd);
}

int host_lock_write_pid(int lock_fd, pid_t pid)
{
    char text[32];
    int n = snprintf(text, sizeof(text), "%d\n", pid);

    if (ftruncate(lock_fd, 0) < 0 || pwrite(lock_fd, text, (size_t)n, 0) != n) {
        return errno ? -errno : -EIO;
    }
    return 0;
}

pid_t host_supervisor(const struct host *host)
{
    cleanup_free char *path = xasprintf("%s/" HOST_LOCK, host->run_dir);
    cleanup_close int fd = fs_open(path, O_RDONLY | O_NOFOLLOW, 0);
    char text[32] = "";
    uint64_t pid;
    ssize_t n;

    if (fd < 0) {
        return 0;
    }
    if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
        return 0;
    }
    n = pread(fd, text, sizeof(text) - 1, 0);
    if (n <= 0) {
        return 0;
    }
    text[strcspn(text, "\n")] = '\0';
    return str_to_u64(text, INT32_MAX, &pid) == 0 ? (pid_t)pid : 0;
}

int host_status_read(const struct host *host, json_t **ret, struct err *e)
{
    cleanup_free char *path = xasprintf("%s/" HOST_STATUS, host->run_dir);
    cleanup_buf struct buf text = BUF_INIT(HOST_STATUS_MAX);
    int r;

    r = fs_read_file(AT_FDCWD, path, &text);
    if (r < 0) {
        return err_wrap(e, r, "reading '%s'", path);
    }
    return json_parse_object(text.data, text.len, ret, e);
}

int host_status_write(const struct host *host, const json_t *status, struct err *e)
{
    cleanup_free char *text = json_text(status);
    cleanup_close int dir_fd = fs_open(host->run_dir, O_RDONLY | O_DIRECTORY, 0);
    int r;

    if (dir_fd < 0) {
        return err_wrap(e, dir_fd, "opening '%s'", host->run_dir);
    }
    r = fs_write_file_durable(dir_fd, HOST_STATUS, text, strlen(text), 0644);
    return r < 0 ? err_wrap(e, r, "writing '%s/" HOST_STATUS "'", host->run_dir) : 0;
}

static int host_get(const char *url, const char *method, const char *target, uint64_t deadline_ns,
                    json_t **ret, struct err *e)
{
    struct http_client_opts opts = {.max_idle = 1, .connect_timeout_ms = HEALTH_MS};
    CLEANUP(http_client_freep) struct http_client *client = NULL;
    int r;

    r = http_client_new(url, &opts, &client, e);
    if (r < 0) {
        return r;
    }
    return http_client_json(
        client,
        &(struct http_json_opts){.method = method, .target = target, .deadline_ns = deadline_ns},
        ret, e);
}

int host_node_call(const struct host *host, const char *method, const char *target,
                   uint64_t deadline_ns, json_t **ret, struct err *e)
{
    cleanup_free char *url = xasprintf("unix:%s/sandbox-manager.sock", host->run_dir);

    return host_get(url, method, target, deadline_ns, ret, e);
}

/* Only its own user may speak to it; that somebody listens is all that can be seen. */
static int host_listens(const struct host *host, const char *socket, struct err *e)
{
    cleanup_free char *path = xasprintf("%s/%s", host->run_dir, socket);
    cleanup_close int fd = sock_connect_unix(path, SOCK_SEQPACKET, e);

    return fd < 0 ? fd : 0;
}

int host_health(const struct host *host, enum host_service service, struct err *e)
{
    cleanup_free char *url = NULL;

    switch (service) {
    case HOST_NODE_MANAGER:
        return host_listens(host, "node-manager.sock", e);
    case HOST_SANDBOX_MANAGER:
        return host_node_call(host, "GET", "/v1/health", deadline_in_ms(HEALTH_MS), /* ret */ NULL,
                              e);
    case HOST_CREDENTIAL_MANAGER:
        url = xasprintf("unix:%s/" CREDENTIAL_SOCKET, host->run_dir);
        return host_get(url, "GET", "/v1/health", deadline_in_ms(HEALTH_MS), /* ret */ NULL, e);
    case HOST_VOLUME_MANAGER:
        return host_listens(host, VOLUME_SOCKET, e);
    case HOST_NETWORK_GATEWAY:
        return host_listens(host, NETGATE_SOCKET, e);
    case HOST_GATEWAY:
        url = host_url(host);
        return host_get(url, "GET", "/v1/health", deadline_in_ms(HEALTH_MS), /* ret */ NULL, e);
    case HOST_SERVICE_COUNT_:
        break;
    }
    ASSERT(!"a service without a case");
    return -EINVAL;
}

int host_port_free(const struct host *host, struct err *e)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    struct url url;
    char port[16];
    int r = 0;

    if (url_parse(host->listen, &url) < 0 || url.scheme == URL_UNIX || url.path[0]) {
        return err_set(e, -EINVAL, "usage",
                       "'%s' is no address to listen at; write it as 127.0.0.1:7777", host->listen);
    }
    snprintf(port, sizeof(port), "%u", url.port);
    if (getaddrinfo(str_empty(url.host) ? NULL : url.host, port, &hints, &list) != 0) {
        return err_set(e, -EINVAL, "usage", "'%s' is no address of this machine", host->listen);
    }
    for (const struct addrinfo *a = list; a && r == 0; a = a->ai_next) {
        cleanup_close int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
        int on = 1;

        if (fd < 0) {
            continue;
        }
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, 1) < 0) {
            r = -errno;
        }
    }
    freeaddrinfo(list);
    if (r == -EADDRINUSE) {
        return err_set(e, r, "port_taken",
                       "another program listens at %s; end it ('ss -ltnp' shows which), or choose "
                       "another address with --listen",
                       host->listen);
    }
    return r < 0 ? err_wrap(e, r, "listening at %s", host->listen) : 0;
}

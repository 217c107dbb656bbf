/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests per second and latency of our server, alone and behind our proxy, measured with our
 * client over loopback TCP and a unix socket. `bench-http [SECONDS_PER_CASE]` prints a table; all
 * threads share the machine, so the figures are of client and server together.
 */
#include "base/clock.h"
#include "http/client.h"
#include "http/proxy.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_SAMPLES 400000u
#define BLOCK (256u * 1024)

static char block[BLOCK];

static int small(struct http_request *req, struct err *e)
{
    return http_reply_bytes(req, 200, "application/json", "{\"ok\":true}", 11, e);
}

static int large(struct http_request *req, struct err *e)
{
    int r = http_reply_begin(req, 200, NULL, -1, e);

    for (int i = 0; r == 0 && i < 400; i++) {
        r = http_write(req, block, sizeof(block), e);
    }
    return r;
}

static int serve(struct http_request *req, struct err *e)
{
    return str_eq(http_request_path(req), "/large") ? large(req, e) : small(req, e);
}

static int forward(struct http_request *req, struct err *e)
{
    return http_proxy_call(req, http_request_ctx(req), http_request_path(req), NULL, NULL, e);
}

static void *run_server(void *arg)
{
    int r = http_server_run(arg, NULL);

    ASSERT(r == 0);
    return NULL;
}

struct caller {
    struct http_client *client;
    uint64_t end_ns;
    uint32_t *samples_us; /* owned */
    size_t n;
};

static void call_once(struct http_client *c, const char *target)
{
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    struct err e = {0};
    ssize_t n = http_call_new(c, &(struct http_call_opts){.target = target}, &call, &e);

    ASSERT(n == 0);
    do {
        char data[65536];

        n = http_call_read(call, data, sizeof(data), &e);
        ASSERT(n >= 0);
    } while (n > 0);
}

static void *run_caller(void *arg)
{
    struct caller *c = arg;

    while (clock_now_ns() < c->end_ns && c->n < MAX_SAMPLES) {
        uint64_t start_ns = clock_now_ns();

        call_once(c->client, "/small");
        c->samples_us[c->n++] = (uint32_t)((clock_now_ns() - start_ns) / 1000);
    }
    return NULL;
}

static int compare(const void *a, const void *b)
{
    const uint32_t *x = a;
    const uint32_t *y = b;

    return *x < *y ? -1 : *x > *y;
}

static void measure(const char *name, struct http_client *client, unsigned n_callers,
                    double seconds)
{
    struct caller callers[64];
    pthread_t threads[64];
    uint32_t *all = xnew_n(uint32_t, MAX_SAMPLES * (size_t)n_callers);
    uint64_t start_ns = clock_now_ns();
    double took;
    size_t n = 0;

    ASSERT(n_callers <= ARRAY_SIZE(callers));
    for (unsigned i = 0; i < n_callers; i++) {
        int r;

        callers[i] =
            (struct caller){.client = client, .end_ns = start_ns + (uint64_t)(seconds * 1e9)};
        callers[i].samples_us = xnew_n(uint32_t, MAX_SAMPLES);
        r = pthread_create(&threads[i], NULL, run_caller, &callers[i]);
        ASSERT(r == 0);
    }
    for (unsigned i = 0; i < n_callers; i++) {
        pthread_join(threads[i], NULL);
        memcpy(all + n, callers[i].samples_us, callers[i].n * sizeof(all[0]));
        n += callers[i].n;
        free(callers[i].samples_us);
    }
    took = (double)(clock_now_ns() - start_ns) / 1e9;
    qsort(all, n, sizeof(all[0]), compare);
    printf("%-28s %2u connections  %8.0f requests/s  p50 %5u us  p90 %5u us  p99 %5u us\n", name,
           n_callers, (double)n / took, all[n / 2], all[n * 9 / 10], all[n * 99 / 100]);
    free(all);
}

static void measure_large(const char *name, struct http_client *client)
{
    uint64_t start_ns = clock_now_ns();

    call_once(client, "/large");
    printf("%-28s %8.0f MB/s (100 MiB, chunked)\n", name,
           100.0 * 1.048576 / ((double)(clock_now_ns() - start_ns) / 1e9));
}

static struct http_client *client_to(const char *url)
{
    struct http_client *c = NULL;
    int r = http_client_new(url, &(struct http_client_opts){.max_idle = 64}, &c, NULL);

    ASSERT(r == 0);
    return c;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 2;
    char dir[] = "/tmp/bench-http-XXXXXX";
    cleanup_free char *path = mkdtemp(dir) ? xasprintf("%s/sock", dir) : NULL;
    cleanup_free char *unix_url = xasprintf("unix:%s", path);
    struct http_server *back = http_server_new(&(struct http_server_opts){.handler = serve});
    struct http_client *via_unix = client_to(unix_url);
    struct http_server *front =
        http_server_new(&(struct http_server_opts){.handler = forward, .ctx = via_unix});
    struct http_client *direct;
    struct http_client *proxied;
    pthread_t threads[2];
    char url[64];
    int r = http_server_listen_tcp(back, "127.0.0.1:0", NULL);

    ASSERT(r == 0 && path);
    r = http_server_listen_unix(back, path, 0600, NULL, NULL);
    ASSERT(r == 0);
    r = http_server_listen_tcp(front, "127.0.0.1:0", NULL);
    ASSERT(r == 0);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", http_server_port(back));
    direct = client_to(url);
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", http_server_port(front));
    proxied = client_to(url);
    pthread_create(&threads[0], NULL, run_server, back);
    pthread_create(&threads[1], NULL, run_server, front);
    for (unsigned n = 1; n <= 32; n *= 32) {
        measure("TCP", direct, n, seconds);
        measure("unix socket", via_unix, n, seconds);
        measure("TCP, proxied to unix socket", proxied, n, seconds);
    }
    measure_large("TCP", direct);
    measure_large("unix socket", via_unix);
    measure_large("TCP, proxied to unix socket", proxied);
    http_server_stop(front);
    http_server_stop(back);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    http_client_free(direct);
    http_client_free(proxied);
    http_client_free(via_unix);
    http_server_free(front);
    http_server_free(back);
    return rmdir(dir) == 0 ? 0 : 1;
}

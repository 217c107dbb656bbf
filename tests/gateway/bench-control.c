/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The control plane alone: a whole gateway over PostgreSQL before a node without machines. How many creations a second it
 * takes, and whether creating, reading and listing stay as they are while the project's rows become a million.
 *
 *     TEST_DATABASE=postgresql bench-control [ROWS...]     (1000 10000 100000 1000000)
 *
 * The server does not wait for its disk (tests/postgres), so that this is what the programs take and not the disk.
 */
#include <pthread.h>
#include <stdio.h>

#include "database/postgres-testbed.h"
#include "harness.h"

#define CREATORS 16
#define CREATES_EACH 40
#define READS 300
#define LIST_LIMIT "100"

static uint64_t *sorted(uint64_t *ns, size_t n)
{
    for (size_t i = 1; i < n; i++) { /* a few hundred, once */
        uint64_t x = ns[i];
        size_t k = i;

        for (; k > 0 && ns[k - 1] > x; k--) {
            ns[k] = ns[k - 1];
        }
        ns[k] = x;
    }
    return ns;
}

static double ms(uint64_t ns)
{
    return (double)ns / NS_PER_MS;
}

/* Rows as older creations have left them: stopped, a minute apart. */
static void fill(struct world *w, long from, long to)
{
    cleanup_free char *sql = xasprintf(
        "INSERT INTO sandboxes SELECT 's' || lpad(n::text, 19, '0'), '%s', 'stopped', 'stopped', "
        "1, "
        "'local', '', 'tiny', 1, 256, 1024, 'tcg', '{}', '{}', 0, n * 60000, 0, n * 60000, 0, '' "
        "FROM generate_series(%ld, %ld) n",
        w->projects[ALICE], from + 1, to);

    free(postgres_testbed_sql(w->url, sql));
    free(postgres_testbed_sql(w->url, "VACUUM ANALYZE sandboxes"));
}

struct creator {
    struct world *w; /* borrowed */
    pthread_t thread;
    uint64_t ns[CREATES_EACH];
    unsigned failed;
};

static void *create_many(void *arg)
{
    struct creator *c = arg;

    for (size_t i = 0; i < CREATES_EACH; i++) {
        uint64_t began_ns = clock_now_ns();
        cleanup_answer struct answer a =
            world_ask(c->w, &(struct ask){.method = "POST",
                                          .target = "/v1/sandboxes",
                                          .body = "{\"template\":\"tiny\"}",
                                          .key = c->w->keys[ALICE]});

        c->ns[i] = clock_now_ns() - began_ns;
        c->failed += a.status != 201;
    }
    return NULL;
}

static void measure_creates(struct world *w)
{
    struct creator *creators = xnew_n(struct creator, CREATORS);
    uint64_t *all = xnew_n(uint64_t, CREATORS * CREATES_EACH);
    uint64_t began_ns = clock_now_ns();
    unsigned failed = 0;
    double seconds;

    for (size_t i = 0; i < CREATORS; i++) {
        creators[i].w = w;
        ASSERT(pthread_create(&creators[i].thread, NULL, create_many, &creators[i]) == 0);
    }
    for (size_t i = 0; i < CREATORS; i++) {
        pthread_join(creators[i].thread, NULL);
        failed += creators[i].failed;
        memcpy(&all[i * CREATES_EACH], creators[i].ns, sizeof(creators[i].ns));
    }
    seconds = (double)(clock_now_ns() - began_ns) / (double)NS_PER_S;
    sorted(all, CREATORS * CREATES_EACH);
    printf("  create, %d at once: %.0f a second, median %.1f ms, p90 %.1f ms, %u failed\n",
           CREATORS, CREATORS * CREATES_EACH / seconds, ms(all[CREATORS * CREATES_EACH / 2]),
           ms(all[CREATORS * CREATES_EACH * 9 / 10]), failed);
    free(all);
    free(creators);
}

static void measure_reads(struct world *w, const char *what, const char *target)
{
    uint64_t ns[READS];
    unsigned failed = 0;

    for (size_t i = 0; i < READS; i++) {
        uint64_t began_ns = clock_now_ns();
        cleanup_answer struct answer a = alice(w, "GET", target, NULL);

        ns[i] = clock_now_ns() - began_ns;
        failed += a.status != 200;
    }
    sorted(ns, READS);
    printf("  %s: median %.2f ms, p90 %.2f ms, %u failed\n", what, ms(ns[READS / 2]),
           ms(ns[READS * 9 / 10]), failed);
}

static void measure_expire(struct world *w)
{
    uint64_t began_ns = clock_now_ns();
    int r = control_expire(w->control, NULL);

    printf("  looking for lives that are over: %.2f ms%s\n", ms(clock_now_ns() - began_ns),
           r < 0 ? ", failed" : "");
}

int main(int argc, char **argv)
{
    static const long usual[] = {1000, 10000, 100000, 1000000};
    struct world w;
    char id[ID_SIZE];
    cleanup_free char *one = NULL;
    long there = 0;
    int n = argc > 1 ? argc - 1 : (int)ARRAY_SIZE(usual);

    if (!world_can_share()) {
        fprintf(stderr, "bench-control: set TEST_DATABASE=postgresql\n");
        return 77;
    }
    world_init(&w);
    ASSERT(db_project_set_quota(w.db, w.projects[ALICE], 1000000000, NULL) == 0);
    world_restart_gateway(&w); /* what it remembers of the keys */
    world_make(&w, ALICE, id);
    one = xasprintf("/v1/sandboxes/%s", id);
    for (int i = 0; i < n; i++) {
        long rows = argc > 1 ? strtol(argv[i + 1], NULL, 10) : usual[i];

        fill(&w, there, rows);
        there = rows;
        printf("%ld rows\n", rows);
        measure_creates(&w);
        measure_reads(&w, "one sandbox", one);
        measure_reads(&w, "the newest " LIST_LIMIT, "/v1/sandboxes?limit=" LIST_LIMIT);
        measure_expire(&w);
        fflush(stdout);
    }
    world_done(&w);
    return 0;
}

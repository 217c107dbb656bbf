/* SPDX-License-Identifier: Apache-2.0 */
#include "database/postgres-testbed.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/proc.h"

#include <fcntl.h>
#include <libpq-fe.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MS 60000

struct postgres_testbed {
    char parent[32]; /* folder of ours */
    char dir[48];    /* folder of the server */
    struct proc server;
    bool running;
    unsigned n_databases;
};

static int run(const struct postgres_testbed *t, const char *what, struct proc *ret)
{
    const char *const argv[] = {SPACE_TEST_POSTGRES, what, t->dir, NULL};
    cleanup_close int log_fd = open(t->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_close int fd = openat(log_fd, "log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    struct proc_spec spec = {.argv = argv, .stdin_fd = FD_NONE, .stdout_fd = fd, .stderr_fd = fd};

    ASSERT(fd >= 0);
    return proc_spawn(&spec, ret, /* e */ NULL);
}

static int wait_end(struct proc *p)
{
    int status = 0;
    int r = proc_wait(p, deadline_in_ms(START_MS), &status);

    ASSERT(r == 0);
    p->pidfd = fd_close(p->pidfd);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void remove_folder(const struct postgres_testbed *t)
{
    cleanup_close int tmp_fd = fs_open("/tmp", O_RDONLY | O_DIRECTORY, 0);

    ASSERT(tmp_fd >= 0);
    IGNORE_RESULT(fs_remove_tree(tmp_fd, t->parent + 5)); /* a test's leftovers in /tmp */
}

struct postgres_testbed *postgres_testbed_new(void)
{
    struct postgres_testbed *t = xnew(struct postgres_testbed);
    struct proc init;
    int code;

    snprintf(t->parent, sizeof(t->parent), "/tmp/space-pg-XXXXXX");
    ASSERT(mkdtemp(t->parent) && chmod(t->parent, 0711) == 0);
    snprintf(t->dir, sizeof(t->dir), "%s/server", t->parent);
    ASSERT(run(t, "init", &init) == 0);
    code = wait_end(&init);
    if (code == 77) {
        remove_folder(t);
        free(t);
        return NULL;
    }
    ASSERT(code == 0);
    postgres_testbed_start(t);
    return t;
}

void postgres_testbed_free(struct postgres_testbed *t)
{
    if (t) {
        postgres_testbed_kill(t);
        remove_folder(t);
        free(t);
    }
}

static void admin_url(const struct postgres_testbed *t, char *ret, size_t size)
{
    snprintf(ret, size, "postgresql:///postgres?host=%s&user=space", t->dir);
}

void postgres_testbed_start(struct postgres_testbed *t)
{
    uint64_t deadline_ns = deadline_in_ms(START_MS);
    char url[POSTGRES_TESTBED_URL_SIZE];

    ASSERT(!t->running);
    ASSERT(run(t, "run", &t->server) == 0);
    t->running = true;
    admin_url(t, url, sizeof(url));
    while (PQping(url) != PQPING_OK) {
        ASSERT(!deadline_passed(deadline_ns));
        poll(NULL, 0, 20); /* the server tells nobody when it is ready */
    }
}

static void end_with(struct postgres_testbed *t, int signo)
{
    if (t->running) {
        proc_signal(&t->server, signo);
        IGNORE_RESULT(wait_end(&t->server)); /* it was told to end, how is its business */
        t->running = false;
    }
}

void postgres_testbed_kill(struct postgres_testbed *t)
{
    end_with(t, SIGQUIT);
}

void postgres_testbed_stop(struct postgres_testbed *t)
{
    end_with(t, SIGINT);
}

char *postgres_testbed_sql(const char *url, const char *sql)
{
    PGconn *pg = PQconnectdb(url);
    PGresult *res = PQexec(pg, sql);
    ExecStatusType status = PQresultStatus(res);
    char *text;

    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        fprintf(stderr, "# %s: %s\n", sql, PQerrorMessage(pg));
    }
    ASSERT(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK);
    text = xstrdup(status == PGRES_TUPLES_OK && PQntuples(res) > 0 ? PQgetvalue(res, 0, 0) : "");
    PQclear(res);
    PQfinish(pg);
    return text;
}

void postgres_testbed_database(struct postgres_testbed *t,
                               char ret_url[static POSTGRES_TESTBED_URL_SIZE])
{
    char url[POSTGRES_TESTBED_URL_SIZE];
    cleanup_free char *sql = xasprintf("CREATE DATABASE space_%u", ++t->n_databases);

    admin_url(t, url, sizeof(url));
    free(postgres_testbed_sql(url, sql));
    snprintf(ret_url, POSTGRES_TESTBED_URL_SIZE, "postgresql:///space_%u?host=%s&user=space",
             t->n_databases, t->dir);
}

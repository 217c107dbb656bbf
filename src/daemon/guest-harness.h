/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of routes: the whole daemon as a process of this host, spoken to through the real channel.
 * DAEMON_ON_HOST names the program. Static functions: every test program includes it once.
 */
#pragma once

#include "base/clock.h"
#include "base/test.h"
#include "channel/host.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOON deadline_in_ms(60000)

struct guest {
    struct channel *ch; /* owned */
    pid_t pid;
};

/* root: the folder that is the sandbox's root. */
static inline struct guest guest_start_in(const char *root)
{
    const char *program = getenv("DAEMON_ON_HOST");
    struct guest g = {0};
    char number[16];
    int fds[2];

    ASSERT(program && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    snprintf(number, sizeof(number), "%d", fds[1]);
    g.pid = fork();
    if (g.pid == 0) {
        fcntl(fds[1], F_SETFD, 0);
        execl(program, program, "--fd", number, "--root", root, (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    ASSERT(g.pid > 0);
    ASSERT(channel_new(&(struct channel_options){.fd = fds[0]}, &g.ch, NULL) == 0);
    return g;
}

/* The host's own root. */
static inline struct guest guest_start(void)
{
    return guest_start_in("/");
}

/* The daemon frees everything when its channel closes: a leak would be its exit status under a sanitizer. */
static inline void guest_stop(struct guest *g)
{
    int status = -1;

    channel_free(g->ch);
    CHECK_INT(waitpid(g->pid, &status, 0), g->pid);
    CHECK_INT(status, 0);
}

/* Of the answer, once it has begun; negative: there is none. */
static inline int status_of(struct channel_stream *s)
{
    const struct channel_head *head = NULL;
    struct err e = {0};
    int r = channel_stream_read_head(s, SOON, &head, &e);

    return r < 0 ? r : head->status;
}

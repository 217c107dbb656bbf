/* SPDX-License-Identifier: Apache-2.0 */
/* The client against a node manager that is a thread of this test and follows a script. */
#include "base/sock.h"
#include "base/test.h"
#include "ipc/priv.h"
#include "ipc/seqpacket.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

enum step {
    STEP_END,
    STEP_ANSWER,       /* with code */
    STEP_ANSWER_FD,    /* with code 0 and a descriptor */
    STEP_HANG_UP,      /* after having read the request */
    STEP_WRONG_ANSWER, /* of another size */
};

struct fake {
    char path[100];
    int listen_fd; /* owned */
    const enum step *script;
    int32_t code;
    unsigned served; /* requests read; by the thread, read after the join */
    uint16_t last_op;
    size_t last_fds;
    struct priv_machine_start last_start;
    pthread_t thread;
};

static void fake_answer(int fd, const struct fake *f, enum step step)
{
    struct priv_reply reply = {.magic = PRIV_MAGIC, .code = step == STEP_ANSWER ? f->code : 0};
    const int send_fd = STDIN_FILENO;

    snprintf(reply.reason, sizeof(reply.reason), "some_reason");
    snprintf(reply.msg, sizeof(reply.msg), "a sentence");
    snprintf(reply.u.machine.id, sizeof(reply.u.machine.id), "s1");
    reply.u.machine.pid = 42;
    IGNORE_RESULT(seqpacket_send(fd, &reply, step == STEP_WRONG_ANSWER ? 10 : sizeof(reply),
                                 &send_fd, step == STEP_ANSWER_FD ? 1 : 0,
                                 deadline_in_ms(5000))); /* the client tells */
}

static void *fake_main(void *arg)
{
    struct fake *f = arg;
    int fd = FD_NONE;

    for (const enum step *step = f->script; *step != STEP_END; step++) {
        char packet[256];
        struct priv_header header;
        cleanup_fds struct seqpacket_fds in = {.max = SEQPACKET_FDS_MAX};
        ssize_t n;

        if (fd < 0) {
            fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        }
        n = seqpacket_recv(fd, packet, sizeof(packet), &in, deadline_in_ms(5000));
        if (n < (ssize_t)sizeof(header)) {
            break;
        }
        memcpy(&header, packet, sizeof(header));
        f->served++;
        f->last_op = header.op;
        f->last_fds = in.n;
        if (n == (ssize_t)(sizeof(header) + sizeof(f->last_start))) {
            memcpy(&f->last_start, packet + sizeof(header), sizeof(f->last_start));
        }
        if (*step == STEP_HANG_UP) {
            fd = fd_close(fd);
        } else {
            fake_answer(fd, f, *step);
            fd = *step == STEP_WRONG_ANSWER ? fd_close(fd) : fd;
        }
    }
    fd_close(fd);
    return NULL;
}

static void fake_start(struct fake *f, const enum step *script)
{
    static unsigned n;

    snprintf(f->path, sizeof(f->path), "/tmp/space-test-priv-%d-%u", (int)getpid(), n++);
    f->script = script;
    f->listen_fd = sock_listen_unix(f->path, SOCK_SEQPACKET, 0600, NULL);
    ASSERT(f->listen_fd >= 0);
    ASSERT(pthread_create(&f->thread, NULL, fake_main, f) == 0);
}

static void fake_join(struct fake *f)
{
    pthread_join(f->thread, NULL);
    f->listen_fd = fd_close(f->listen_fd);
    unlink(f->path);
}

DEFINE_CLEANUP(struct priv_client *, priv_client_free);

static void start_sends_what_is_there_and_takes_the_pidfd(void)
{
    static const enum step script[] = {STEP_ANSWER_FD, STEP_END};
    const struct priv_machine_start request = {.id = "s1", .vcpus = 2};
    int fds[PRIV_FD_COUNT_];
    struct fake f = {0};
    struct priv_machine machine;
    int pidfd = FD_NONE;

    fake_start(&f, script);
    for (unsigned i = 0; i < PRIV_FD_COUNT_; i++) {
        bool absent = i == PRIV_FD_KERNEL || i == PRIV_FD_INITRD || i == PRIV_FD_NET;

        fds[i] = absent ? FD_NONE : STDIN_FILENO;
    }
    {
        CLEANUP(priv_client_freep) struct priv_client *c = priv_client_new(f.path);

        CHECK_INT(priv_machine_start(c, &request, fds, &machine, &pidfd, NULL), 0);
    }
    CHECK(pidfd > 2 && (fcntl(pidfd, F_GETFD) & FD_CLOEXEC));
    fd_close(pidfd);
    CHECK_INT(machine.pid, 42);
    fake_join(&f);
    CHECK_INT(f.last_op, PRIV_OP_MACHINE_START);
    CHECK_INT(f.last_fds, PRIV_FD_COUNT_ - 3);
    CHECK_INT(f.last_start.fd_mask, 0xff & ~((1u << PRIV_FD_KERNEL) | (1u << PRIV_FD_INITRD)));
    CHECK_INT(f.last_start.vcpus, 2);
}

static void a_refusal_keeps_its_word_and_sentence(void)
{
    static const enum step script[] = {STEP_ANSWER, STEP_ANSWER, STEP_END};
    struct fake f = {.code = -EBUSY};
    struct err e = {0};

    fake_start(&f, script);
    {
        CLEANUP(priv_client_freep) struct priv_client *c = priv_client_new(f.path);

        CHECK_INT(priv_machine_kill(c, "s1", &e), -EBUSY);
        CHECK_STR(e.reason, "some_reason");
        CHECK_STR(e.msg, "a sentence");
        CHECK_INT(e.code, -EBUSY);
        CHECK_INT(priv_machine_seal(c, "s1", &e), -EBUSY); /* on the same connection */
    }
    fake_join(&f);
    CHECK_INT(f.served, 2);
}

static void a_repeatable_call_is_repeated_once(void)
{
    static const enum step once[] = {STEP_HANG_UP, STEP_ANSWER, STEP_END};
    static const enum step twice[] = {STEP_HANG_UP, STEP_HANG_UP, STEP_END};
    struct fake f = {0};
    struct fake g = {0};
    struct err e = {0};

    fake_start(&f, once);
    {
        CLEANUP(priv_client_freep) struct priv_client *c = priv_client_new(f.path);

        CHECK_INT(priv_machine_kill(c, "s1", &e), 0);
    }
    fake_join(&f);
    fake_start(&g, twice);
    {
        CLEANUP(priv_client_freep) struct priv_client *c = priv_client_new(g.path);

        CHECK_INT(priv_machine_kill(c, "s1", &e), -ECONNRESET);
        CHECK_STR(e.reason, "node_manager_lost");
    }
    fake_join(&g);
    CHECK_INT(g.served, 2);
}

static void a_start_is_never_repeated(void)
{
    static const enum step script[] = {STEP_HANG_UP, STEP_END};
    const struct priv_machine_start request = {.id = "s1"};
    int fds[PRIV_FD_COUNT_];
    struct priv_machine machine;
    struct fake f = {0};
    struct err e = {0};
    int pidfd = FD_NONE;

    for (unsigned i = 0; i < PRIV_FD_COUNT_; i++) {
        fds[i] = FD_NONE;
    }
    fake_start(&f, script);
    {
        CLEANUP(priv_client_freep) struct priv_client *c = priv_client_new(f.path);

        CHECK_INT(priv_machine_start(c, &request, fds, &machine, &pidfd, &e), -ECONNRESET);
    }
    fake_join(&f);
    CHECK_INT(f.served, 1);
    CHECK_INT(pidfd, FD_NONE);
}

static void a_restarted_server_is_found_again(void)
{
    static const enum step script[] = {STEP_ANSWER, STEP_END};
    const struct priv_machine_start request = {.id = "s1"};
    static const enum step second[] = {STEP_ANSWER_FD, STEP_END};
    int fds[PRIV_FD_COUNT_];
    struct priv_machine machine;
    struct fake f = {0};
    struct fake g = {0};
    struct err e = {0};
    int pidfd = FD_NONE;

    for (unsigned i = 0; i < PRIV_FD_COUNT_; i++) {
        fds[i] = FD_NONE;
    }
    fake_start(&f, script);
    {
        CLEANUP(priv_client_freep) struct priv_client *c = priv_client_new(f.path);

        CHECK_INT(priv_machine_kill(c, "s1", &e), 0);
        fake_join(&f);
        CHECK_INT(priv_machine_kill(c, "s1", &e), -ENOENT); /* nobody there */
        g = f;
        g.script = second;
        g.listen_fd = sock_listen_unix(g.path, SOCK_SEQPACKET, 0600, NULL);
        REQUIRE(g.listen_fd >= 0 && pthread_create(&g.thread, NULL, fake_main, &g) == 0);
        CHECK_INT(priv_machine_start(c, &request, fds, &machine, &pidfd, &e), 0);
        fd_close(pidfd);
    }
    fake_join(&g);
}

static void nonsense_answers_are_errors(void)
{
    static const enum step script[] = {STEP_WRONG_ANSWER, STEP_HANG_UP, STEP_END};
    static const enum step no_fd[] = {STEP_ANSWER, STEP_END};
    const struct priv_machine_start request = {.id = "s1"};
    struct priv_machine_stats stats;
    struct priv_machine machine;
    int fds[PRIV_FD_COUNT_];
    struct fake f = {0};
    struct fake g = {0};
    struct err e = {0};
    int pidfd = FD_NONE;

    for (unsigned i = 0; i < PRIV_FD_COUNT_; i++) {
        fds[i] = FD_NONE;
    }
    fake_start(&f, script);
    {
        CLEANUP(priv_client_freep) struct priv_client *c = priv_client_new(f.path);

        CHECK(priv_machine_stats(c, "s1", &stats, &e) < 0);
    }
    fake_join(&f);
    fake_start(&g, no_fd);
    {
        CLEANUP(priv_client_freep) struct priv_client *c = priv_client_new(g.path);

        CHECK_INT(priv_machine_start(c, &request, fds, &machine, &pidfd, &e), -EPROTO);
    }
    fake_join(&g);
}

static void an_id_that_is_too_long_is_not_cut(void)
{
    CLEANUP(priv_client_freep) struct priv_client *c = priv_client_new("/nowhere/socket");
    struct err e = {0};

    CHECK_INT(priv_machine_kill(c, "s12345678901234567890123", &e), -EINVAL);
}

static void *kill_often(void *arg)
{
    intptr_t failed = 0;

    for (int i = 0; i < 200; i++) {
        failed += priv_machine_kill(arg, "s1", NULL) != 0;
    }
    return (void *)failed;
}

static void threads_share_one_client(void)
{
    static enum step script[801];
    pthread_t threads[4];
    struct fake f = {0};

    for (size_t i = 0; i < 800; i++) {
        script[i] = STEP_ANSWER;
    }
    fake_start(&f, script);
    {
        CLEANUP(priv_client_freep) struct priv_client *c = priv_client_new(f.path);

        for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
            REQUIRE(pthread_create(&threads[i], NULL, kill_often, c) == 0);
        }
        for (size_t i = 0; i < ARRAY_SIZE(threads); i++) {
            void *failed = NULL;

            pthread_join(threads[i], &failed);
            CHECK(failed == NULL);
        }
    }
    fake_join(&f);
    CHECK_INT(f.served, 800);
}

/* A new operation without a word for it ends the program here. */
static void each_operation_has_its_word_in_metrics(void)
{
    priv_metrics_register();
    priv_metrics_register();
}

TEST_MAIN(T(each_operation_has_its_word_in_metrics),
          T(start_sends_what_is_there_and_takes_the_pidfd),
          T(a_refusal_keeps_its_word_and_sentence), T(a_repeatable_call_is_repeated_once),
          T(a_start_is_never_repeated), T(a_restarted_server_is_found_again),
          T(nonsense_answers_are_errors), T(an_id_that_is_too_long_is_not_cut),
          T(threads_share_one_client))

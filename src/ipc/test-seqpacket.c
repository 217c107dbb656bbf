/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sock.h"
#include "base/test.h"
#include "ipc/seqpacket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct pair {
    int end[2]; /* owned */
};

static void pair_done(struct pair *p)
{
    p->end[0] = fd_close(p->end[0]);
    p->end[1] = fd_close(p->end[1]);
}

#define PAIR(p_) \
    CLEANUP(pair_done) struct pair p_ = {{FD_NONE, FD_NONE}}; \
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p_.end) == 0)

static int n_open(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

static void a_packet_arrives_whole_with_its_descriptor(void)
{
    cleanup_fds struct seqpacket_fds in = {.max = 2};
    char text[16] = "";
    int pipe_fds[2];
    PAIR(p);

    REQUIRE(pipe2(pipe_fds, O_CLOEXEC) == 0);
    CHECK_INT(seqpacket_send(p.end[0], "hello", 5, &pipe_fds[1], 1, deadline_in_ms(1000)), 0);
    CHECK_INT(seqpacket_recv(p.end[1], text, sizeof(text), &in, deadline_in_ms(1000)), 5);
    CHECK_STR(text, "hello");
    CHECK_INT(in.n, 1);
    CHECK(fcntl(in.fd[0], F_GETFD) & FD_CLOEXEC);
    CHECK_INT(write(in.fd[0], "x", 1), 1); /* it is the same pipe */
    CHECK_INT(read(pipe_fds[0], text, 1), 1);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

static void too_much_is_refused_and_leaks_nothing(void)
{
    struct seqpacket_fds in = {.max = 1};
    const int three[3] = {0, 1, 2};
    char text[4];
    int before;
    PAIR(p);

    before = n_open();
    CHECK_INT(seqpacket_send(p.end[0], "hello", 5, NULL, 0, deadline_in_ms(1000)), 0);
    CHECK_INT(seqpacket_recv(p.end[1], text, sizeof(text), &in, deadline_in_ms(1000)), -EMSGSIZE);
    CHECK_INT(seqpacket_send(p.end[0], "hi", 2, three, 3, deadline_in_ms(1000)), 0);
    CHECK_INT(seqpacket_recv(p.end[1], text, sizeof(text), &in, deadline_in_ms(1000)), -EMSGSIZE);
    CHECK_INT(in.n, 0);
    CHECK_INT(n_open(), before);
}

/* More descriptors than our control buffer holds: the kernel closes the rest and says so. */
static void more_descriptors_than_any_call_takes(void)
{
    struct seqpacket_fds in = {.max = SEQPACKET_FDS_MAX};
    union {
        struct cmsghdr align;
        char data[CMSG_SPACE(sizeof(int) * 40)];
    } control = {0};
    struct iovec iov = {.iov_base = (char[]){"x"}, .iov_len = 1};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.data,
                         .msg_controllen = sizeof(control.data)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
    char text[4];
    int before;
    PAIR(p);

    before = n_open();
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * 40); /* forty times descriptor 0 */
    REQUIRE(sendmsg(p.end[0], &msg, 0) == 1);
    CHECK_INT(seqpacket_recv(p.end[1], text, sizeof(text), &in, deadline_in_ms(1000)), -EMSGSIZE);
    CHECK_INT(n_open(), before);
}

static void deadlines_and_ends_are_told_apart(void)
{
    struct seqpacket_fds in = {.max = 1};
    char text[4];
    PAIR(p);

    CHECK_INT(seqpacket_recv(p.end[1], text, sizeof(text), &in, 0), -EAGAIN);
    CHECK_INT(seqpacket_recv(p.end[1], text, sizeof(text), &in, deadline_in_ms(5)), -ETIMEDOUT);
    p.end[0] = fd_close(p.end[0]);
    CHECK_INT(seqpacket_recv(p.end[1], text, sizeof(text), &in, deadline_in_ms(1000)), -ECONNRESET);
    CHECK_INT(seqpacket_send(p.end[1], "x", 1, NULL, 0, deadline_in_ms(1000)), -EPIPE);
}

static void a_full_queue_waits_until_its_deadline(void)
{
    char big[4096] = {0};
    int r = 0;
    PAIR(p);

    for (int i = 0; i < 10000 && r == 0; i++) {
        r = seqpacket_send(p.end[0], big, sizeof(big), NULL, 0, deadline_in_ms(1));
    }
    CHECK_INT(r, -ETIMEDOUT);
}

TEST_MAIN(T(a_packet_arrives_whole_with_its_descriptor), T(too_much_is_refused_and_leaks_nothing),
          T(more_descriptors_than_any_call_takes), T(deadlines_and_ends_are_told_apart),
          T(a_full_queue_waits_until_its_deadline))

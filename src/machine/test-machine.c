/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/sock.h"
#include "base/test.h"
#include "machine/qemu-args.h"
#include "machine/qmp.h"

#include <pthread.h>
#include <unistd.h>

static const struct qemu_args_spec restore_spec = {.id = "m1",
                                                   .accel = QEMU_ACCEL_TCG,
                                                   .vcpus = 2,
                                                   .memory_mib = 256,
                                                   .memory_path = "/memory",
                                                   .disk_fd = 4,
                                                   .qmp_fd = 5,
                                                   .channel_fd = 6,
                                                   .device_state_fd = 10};

static bool has_arg(const struct qemu_args *args, const char *text)
{
    for (size_t i = 0; args->argv[i]; i++) {
        if (strstr(args->argv[i], text)) {
            return true;
        }
    }
    return false;
}

static void a_restored_machine_never_writes_its_base(void)
{
    struct qemu_args args;

    CHECK_INT(qemu_args_build(&restore_spec, &args), 0);
    CHECK(has_arg(&args, "share=off,readonly=on,rom=off"));
    CHECK(has_arg(&args, "-S") && has_arg(&args, "defer") && !has_arg(&args, "-kernel"));
    CHECK(has_arg(&args, "spawn=deny"));
}

static void a_base_machine_boots(void)
{
    struct qemu_args_spec spec = restore_spec;
    struct qemu_args args;

    spec.boot = true;
    spec.kernel_path = "/kernel";
    spec.initrd_path = "/initrd";
    CHECK_INT(qemu_args_build(&spec, &args), 0);
    CHECK(has_arg(&args, "share=on") && has_arg(&args, "/kernel") && !has_arg(&args, "defer"));
}

static void ids_cannot_carry_options(void)
{
    static const char *const ids[] = {"", "a,b", "-S", "a b", "A", "a/b"};
    struct qemu_args_spec spec = restore_spec;
    struct qemu_args args;

    for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
        spec.id = ids[i];
        CHECK_INT(qemu_args_build(&spec, &args), -EINVAL);
    }
}

struct monitor_script {
    int listen_fd;
    const char *lines;
};

/* Says its lines to whoever connects and waits until it is hung up on. */
static void *play(void *arg)
{
    const struct monitor_script *s = arg;
    int fd = accept(s->listen_fd, NULL, NULL);
    char sink[256];

    ASSERT(fd >= 0);
    IGNORE_RESULT(sock_send_all(fd, s->lines, strlen(s->lines),
                                DEADLINE_NEVER)); /* it may be hung up on early */
    while (sock_recv(fd, sink, sizeof(sink), DEADLINE_NEVER) > 0) {
    }
    close(fd);
    return NULL;
}

static int talk(const char *lines, uint64_t deadline_ns, json_t **ret, struct err *e)
{
    char path[] = "/tmp/space-qmp-XXXXXX";
    struct monitor_script script = {.lines = lines};
    struct qmp *q;
    pthread_t thread;
    int r;

    ASSERT(mkdtemp(path));
    cleanup_free char *socket = xasprintf("%s/q", path);
    script.listen_fd = sock_listen_unix(socket, SOCK_STREAM, 0600, e);
    ASSERT(script.listen_fd >= 0);
    ASSERT(pthread_create(&thread, NULL, play, &script) == 0);
    q = qmp_new(socket);
    r = qmp_command_take(q, "query-status", NULL, FD_NONE, deadline_ns, ret, e);
    qmp_free(q);
    pthread_join(thread, NULL);
    close(script.listen_fd);
    unlink(socket);
    rmdir(path);
    return r;
}

static void answers_are_matched_and_lies_refused(void)
{
    static const struct {
        const char *lines;
        int r;
    } cases[] = {
        {"{\"QMP\":{}}\n{\"return\":{},\"id\":0}\n{\"event\":\"STOP\"}\n{\"return\":{\"a\":1},"
         "\"id\":1}\n",
         0},
        {"{\"QMP\":{}}\n{\"return\":{},\"id\":0}\n{\"error\":{\"class\":\"X\",\"desc\":\"no\"},"
         "\"id\":1}\n",
         -EREMOTEIO},
        {"{\"return\":{}}\n", -EPROTO},
        {"garbage\n", -EBADMSG},
        {"{\"QMP\":{}}\n{\"return\":{},\"id\":0}\n{\"return\":{},\"id\":77}\n", -ETIMEDOUT},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_json json_t *value = NULL;
        struct err e = {0};
        uint64_t deadline_ns = deadline_in_ms(cases[i].r == -ETIMEDOUT ? 50 : 10000);

        CHECK_INT(talk(cases[i].lines, deadline_ns, &value, &e), cases[i].r);
        CHECK((cases[i].r == 0) == (value != NULL));
    }
}

static void a_line_without_end_is_bounded(void)
{
    char *lines = xmalloc(2 * QMP_LINE_MAX);
    struct err e = {0};

    memset(lines, 'x', 2 * QMP_LINE_MAX - 1);
    lines[2 * QMP_LINE_MAX - 1] = '\0';
    CHECK_INT(talk(lines, deadline_in_ms(10000), NULL, &e), -EBADMSG);
    free(lines);
}

/* Greets, agrees, and then sends events for as long as somebody listens. */
static void *chatter(void *arg)
{
    static const char greeting[] = "{\"QMP\":{}}\n{\"return\":{},\"id\":0}\n";
    static const char event[] = "{\"event\":\"X\"}\n";
    int fd = accept(*(int *)arg, NULL, NULL);
    int r = sock_send_all(fd, greeting, strlen(greeting), DEADLINE_NEVER);

    while (r == 0) {
        r = sock_send_all(fd, event, strlen(event), DEADLINE_NEVER);
    }
    close(fd);
    return NULL;
}

static void a_flood_of_events_is_no_answer(void)
{
    char path[] = "/tmp/space-qmp-XXXXXX";
    struct err e = {0};
    pthread_t thread;
    struct qmp *q;
    int fd;

    ASSERT(mkdtemp(path));
    cleanup_free char *socket = xasprintf("%s/q", path);
    fd = sock_listen_unix(socket, SOCK_STREAM, 0600, &e);
    ASSERT(fd >= 0 && pthread_create(&thread, NULL, chatter, &fd) == 0);
    q = qmp_new(socket);
    CHECK_INT(qmp_command_take(q, "query-status", NULL, FD_NONE, deadline_in_ms(100), NULL, &e),
              -ETIMEDOUT);
    qmp_free(q);
    pthread_join(thread, NULL);
    close(fd);
    unlink(socket);
    rmdir(path);
}

TEST_MAIN(T(a_restored_machine_never_writes_its_base), T(a_base_machine_boots),
          T(ids_cannot_carry_options), T(answers_are_matched_and_lies_refused),
          T(a_line_without_end_is_bounded), T(a_flood_of_events_is_no_answer))

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * space-volume-manager: sandboxes to and from an object store, encrypted. Its stages:
 *
 *     1. options read, once more from the start with an allocator that wipes what is freed
 *     2. another user, no group, no capability,   not any more: becoming more than an ordinary user; reading our
 *        no new privileges, not dumpable          memory from another process of the same user
 *     3. object store and keys opened
 *     4. serving                                  the sandbox manager may hand files over
 *
 * It keeps no state of its own, and may be killed at any time: what was under way is asked for again.
 */
#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/privilege.h"
#include "base/proc.h"
#include "base/sock.h"
#include "credential/secret.h"
#include "volume/client.h"
#include "volume/options.h"
#include "volume/service.h"

#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* glibc overwrites what is freed, in every list it keeps. */
#define TUNABLES "glibc.malloc.perturb=90:glibc.malloc.tcache_count=0"
/* A rotation wraps all keys of an organisation, a collection lists all objects. */
#define ASK_MS (3600ull * 1000)

/* Once more with an allocator that wipes. It reads its settings before main. */
static void start_again(char **argv)
{
    if (!getenv("GLIBC_TUNABLES") && setenv("GLIBC_TUNABLES", TUNABLES, 1) == 0) {
        execv("/proc/self/exe", argv);
        log_warn(NULL, "freed memory is not wiped everywhere, ignoring: %s", strerror(errno));
    }
}

static int give_up_privileges(const struct volume_options *o, struct err *e)
{
    int r = privilege_drop(
        &(struct privilege){.program = VOLUME_PROGRAM, .user = o->user, .usual = "space-volume"},
        e);

    return r < 0 ? r : secret_process(e);
}

static int open_archive(const struct volume_options *o, struct archive **ret, struct err *e)
{
    CLEANUP(store_freep) struct store *store = NULL;
    CLEANUP(kms_freep) struct kms *kms = NULL;
    int r = volume_options_store(o, &store, e);

    if (r == 0) {
        r = volume_options_kms(o, &kms, e);
    }
    if (r == 0) {
        *ret = archive_new_take(TAKE_PTR(store), TAKE_PTR(kms), o->threads);
    }
    return r;
}

static int serve(const struct volume_options *o, uid_t peer_uid, struct err *e)
{
    cleanup_free char *path = xasprintf("%s/" VOLUME_SOCKET, o->run_dir);
    CLEANUP(archive_freep) struct archive *archive = NULL;
    cleanup_close int signal_fd = proc_watch_signals((const int[]){SIGTERM, SIGINT, 0}, e);
    cleanup_close int listen_fd = FD_NONE;
    struct service service = {.peer_uid = peer_uid, .signal_fd = signal_fd};
    int r = signal_fd < 0 ? signal_fd : open_archive(o, &archive, e);

    if (r < 0) {
        return r;
    }
    listen_fd = sock_listen_unix(path, SOCK_SEQPACKET, 0666, e);
    if (listen_fd < 0) {
        return listen_fd;
    }
    service_metrics_register();
    service.archive = archive;
    service.listen_fd = listen_fd;
    log_info(NULL, "serving on %s: objects in '%s', keys in '%s'", path,
             archive_store_name(archive), archive_keys_name(archive));
    r = service_run(&service, e);
    unlink(path);
    /* Threads may be at work in it: the process ends, and all that is in its memory with it. */
    archive = NULL;
    return r;
}

/* Asks the one that serves. */
static int ask(const struct volume_options *o, struct err *e)
{
    cleanup_free char *path = xasprintf("%s/" VOLUME_SOCKET, o->run_dir);
    cleanup_json json_t *answer = NULL;
    cleanup_free char *text = NULL;
    const struct volume_call call = {
        .op = o->ask, .organisation = o->organisation, .deadline_ns = deadline_in_ms(ASK_MS)};
    int r = volume_call(path, &call, &answer, e);

    if (r == 0) {
        text = json_text(answer);
        puts(text);
    }
    return r;
}

static int run(const struct volume_options *o, struct err *e)
{
    const struct passwd *pw = getpwnam(o->peer_user);
    uid_t peer_uid = pw ? pw->pw_uid : (uid_t)-1; /* a user that there is not cannot connect */
    int r;

    if (o->ask) {
        return ask(o, e);
    }
    r = give_up_privileges(o, e);
    if (r == 0 && o->check) {
        CLEANUP(archive_freep) struct archive *archive = NULL;

        return open_archive(o, &archive, e);
    }
    return r < 0 ? r : serve(o, peer_uid, e);
}

int main(int argc, char **argv)
{
    struct volume_options o;
    struct err e = {0};
    int r;

    log_init(VOLUME_PROGRAM);
    fault_init();
    r = volume_options_read(argc, argv, &o);
    if (r != 0) {
        return r < 0 ? 2 : 0;
    }
    if (!o.ask) {
        start_again(argv);
    }
    r = run(&o, &e);
    volume_options_done(&o);
    if (r < 0) {
        log_error(NULL, "%s", e.msg);
    }
    return r < 0 ? 1 : 0;
}

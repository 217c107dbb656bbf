/* SPDX-License-Identifier: Apache-2.0 */
/* How many are brought back at a time, and what becomes of those that cannot be; bringing back itself is ours here. */
#include "base/clock.h"
#include "base/fs.h"
#include "base/test.h"
#include "sandbox/history.h"
#include "sandbox/recovery.h"
#include "sandbox/rollback.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#define SANDBOXES 11
#define SOON_MS 60000

static struct {
    pthread_mutex_t lock;
    pthread_cond_t news;
    unsigned inside;
    unsigned most;
    unsigned from_memory;
    unsigned from_disk;
    bool gate; /* nobody leaves before it is opened */
    bool memory_fails;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};

static int bring_back(struct resident *res, unsigned *count, bool fails, struct err *e)
{
    pthread_mutex_lock(&seen.lock);
    seen.inside++;
    seen.most = MAX(seen.most, seen.inside);
    pthread_cond_broadcast(&seen.news);
    while (!seen.gate) {
        pthread_cond_wait(&seen.news, &seen.lock);
    }
    seen.inside--;
    (*count)++;
    pthread_cond_broadcast(&seen.news);
    pthread_mutex_unlock(&seen.lock);
    return fails ? err_set(e, -EIO, NULL, "the memory is damaged")
                 : resident_set_state(res, SANDBOX_STATE_RUNNING, NULL, RECORD_SURVIVES_PROCESS, e);
}

int rollback_recover(struct resident *res, struct err *e)
{
    return bring_back(res, &seen.from_memory, seen.memory_fails, e);
}

int rollback_recover_disk(struct resident *res, struct err *e)
{
    return bring_back(res, &seen.from_disk, false, e);
}

static bool wait_until(bool (*so)(void))
{
    struct timespec until;
    bool is_so;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += SOON_MS / 1000;
    pthread_mutex_lock(&seen.lock);
    while (!(is_so = so()) && pthread_cond_timedwait(&seen.news, &seen.lock, &until) == 0) {
    }
    pthread_mutex_unlock(&seen.lock);
    return is_so;
}

static bool all_places_taken(void)
{
    return seen.inside == RECOVERY_AT_ONCE;
}

static bool all_from_memory(void)
{
    return seen.from_memory == SANDBOXES;
}

static bool all_from_disk(void)
{
    return seen.from_disk == SANDBOXES;
}

/* A node with nothing but failed sandboxes that want to come back. */
static struct node *node_with_failed(char *dir, enum policy_recover recover)
{
    struct node *node = xnew(struct node);

    ASSERT(mkdtemp(dir));
    node->records_fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
    pthread_mutex_init(&node->lock, NULL);
    for (unsigned i = 0; i < SANDBOXES; i++) {
        CLEANUP(resident_unrefp) struct resident *res = NULL;
        CLEANUP(record_done)
        struct record rec = {.state = SANDBOX_STATE_FAILED,
                             .template_name = "tiny",
                             .shape = {1, 128, 128},
                             .env = json_object(),
                             .policy = policy_default()};

        id_new(ID_SANDBOX, rec.id);
        rec.policy.recover = recover;
        ASSERT(resident_add(node, &rec, &res, NULL) == 0);
        res->wants_recovery = true;
    }
    pthread_mutex_lock(&seen.lock);
    seen.inside = seen.most = seen.from_memory = seen.from_disk = 0;
    seen.gate = seen.memory_fails = false;
    pthread_mutex_unlock(&seen.lock);
    return node;
}

static void open_gate(void)
{
    pthread_mutex_lock(&seen.lock);
    seen.gate = true;
    pthread_cond_broadcast(&seen.news);
    pthread_mutex_unlock(&seen.lock);
}

static void node_done(struct node *node, const char *dir)
{
    resident_free_all(node);
    pthread_mutex_destroy(&node->lock);
    fd_close(node->records_fd);
    free(node);
    CHECK_INT(fs_remove_tree(AT_FDCWD, dir), 0);
}

static size_t running(struct node *node)
{
    size_t n = 0;

    for (struct resident *res = resident_next_take(node, NULL); res;
         res = resident_next_take(node, res)) {
        n += resident_state(res) == SANDBOX_STATE_RUNNING;
    }
    return n;
}

/* Nobody wants to be brought back any more. */
static bool all_looked_at(struct node *node)
{
    uint64_t deadline_ns = deadline_in_ms(SOON_MS);
    size_t wanting;

    do {
        wanting = 0;
        for (struct resident *res = resident_next_take(node, NULL); res;
             res = resident_next_take(node, res)) {
            pthread_mutex_lock(&res->op);
            wanting += res->wants_recovery;
            pthread_mutex_unlock(&res->op);
        }
    } while (wanting > 0 && !deadline_passed(deadline_ns));
    return wanting == 0;
}

static void a_few_at_a_time_and_never_more(void)
{
    char dir[] = "/tmp/space-test-XXXXXX";
    struct node *node = node_with_failed(dir, POLICY_RECOVER_MEMORY);
    struct recovery *recovery = recovery_start(node);

    CHECK(wait_until(all_places_taken));
    open_gate();
    CHECK(wait_until(all_from_memory));
    recovery_stop(recovery);
    CHECK_INT(seen.most, RECOVERY_AT_ONCE);
    CHECK_INT(seen.from_disk, 0);
    CHECK_INT(running(node), SANDBOXES);
    node_done(node, dir);
}

static void memory_that_cannot_be_resumed_is_no_end(void)
{
    char dir[] = "/tmp/space-test-XXXXXX";
    struct node *node = node_with_failed(dir, POLICY_RECOVER_MEMORY);
    struct recovery *recovery;
    CLEANUP(resident_unrefp) struct resident *res = NULL;
    cleanup_json json_t *history = NULL;

    open_gate();
    seen.memory_fails = true;
    recovery = recovery_start(node);
    CHECK(wait_until(all_from_disk));
    recovery_stop(recovery);
    CHECK_INT(seen.from_memory, SANDBOXES);
    CHECK_INT(running(node), SANDBOXES);
    res = resident_next_take(node, NULL);
    CHECK_INT(history_read(res, &history, NULL), 0);
    CHECK_STR(json_get_string(json_array_get(history, 0), "event", ""), "recovery_failed");
    CHECK_STR(json_get_string(json_array_get(history, 0), "text", ""), "the memory is damaged");
    resident_unref(TAKE_PTR(res));
    node_done(node, dir);
}

static void the_policy_decides(void)
{
    char dir[] = "/tmp/space-test-XXXXXX";
    char other[] = "/tmp/space-test-XXXXXX";
    struct node *node = node_with_failed(dir, POLICY_RECOVER_DISK);
    struct recovery *recovery = recovery_start(node);

    open_gate();
    CHECK(wait_until(all_from_disk));
    recovery_stop(recovery);
    CHECK_INT(seen.from_memory, 0);
    node_done(node, dir);

    node = node_with_failed(other, POLICY_RECOVER_NONE);
    open_gate();
    recovery = recovery_start(node);
    CHECK(all_looked_at(node));
    recovery_stop(recovery);
    CHECK_INT(seen.from_memory + seen.from_disk, 0);
    CHECK_INT(running(node), 0);
    node_done(node, other);
}

static void one_that_is_held_is_looked_at_again(void)
{
    char dir[] = "/tmp/space-test-XXXXXX";
    struct node *node = node_with_failed(dir, POLICY_RECOVER_MEMORY);
    CLEANUP(resident_unrefp) struct resident *held = resident_next_take(node, NULL);
    struct recovery *recovery;

    open_gate();
    pthread_mutex_lock(&held->op);
    recovery = recovery_start(node);
    pthread_mutex_lock(&seen.lock);
    while (seen.from_memory < SANDBOXES - 1) {
        pthread_cond_wait(&seen.news, &seen.lock);
    }
    pthread_mutex_unlock(&seen.lock);
    pthread_mutex_unlock(&held->op);
    CHECK(wait_until(all_from_memory));
    recovery_stop(recovery);
    CHECK_INT(running(node), SANDBOXES);
    resident_unref(TAKE_PTR(held));
    node_done(node, dir);
}

TEST_MAIN(T(a_few_at_a_time_and_never_more), T(memory_that_cannot_be_resumed_is_no_end),
          T(the_policy_decides), T(one_that_is_held_is_looked_at_again))

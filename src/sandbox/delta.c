/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/delta.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/sock.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define MAGIC "SPDELTA1"
#define LOAD_DEADLINE_MS 30000

static_assert(sizeof(struct delta_head) <= MEMORY_PAGES_AT, "the head lies before the map");

/* ---- the file ---- */

static int read_map(int pages_fd, uint64_t n_pages, uint8_t **ret)
{
    size_t bytes = (size_t)(n_pages + 7) / 8;
    cleanup_free uint8_t *map = xcalloc(bytes, 1);

    if (pread(pages_fd, map, bytes, MEMORY_PAGES_AT) != (ssize_t)bytes) {
        return -EBADMSG;
    }
    *ret = TAKE_PTR(map);
    return 0;
}

static void summarize(const uint8_t *map, struct delta_head *head)
{
    size_t bytes = (size_t)(head->n_pages + 7) / 8;

    head->hash = XXH3_64bits(map, bytes);
    head->n_set = 0;
    for (size_t i = 0; i < bytes; i++) {
        head->n_set += (uint64_t)__builtin_popcount(map[i]);
    }
}

static bool inode_of(int fd, uint64_t *ret)
{
    struct stat st;

    if (fstat(fd, &st) < 0) {
        return false;
    }
    *ret = st.st_ino;
    return true;
}

static bool base_inode(const struct base *base, uint64_t *ret)
{
    cleanup_close int fd = fs_open_beneath(base->dir_fd, "memory", O_PATH, 0);

    return fd >= 0 && inode_of(fd, ret);
}

void delta_describe(struct node *node, int memory_fd, struct delta_head *ret)
{
    uint64_t inode;

    *ret = (struct delta_head){0};
    if (!inode_of(memory_fd, &inode)) {
        return;
    }
    pthread_mutex_lock(&node->lock);
    for (const struct base *b = node->bases; b && !ret->base_key[0]; b = b->next) {
        if (base_inode(b, &ret->base_inode) && ret->base_inode == inode) {
            snprintf(ret->base_key, sizeof(ret->base_key), "%s", b->key);
        }
    }
    pthread_mutex_unlock(&node->lock);
}

int delta_seal(int pages_fd, struct delta_head *head, uint64_t ram_bytes)
{
    cleanup_free uint8_t *map = NULL;
    int r;

    head->n_pages = ram_bytes / 4096;
    r = read_map(pages_fd, head->n_pages, &map);
    if (r < 0) {
        return r;
    }
    memcpy(head->magic, MAGIC, sizeof(head->magic));
    summarize(map, head);
    errno = 0;
    return pwrite(pages_fd, head, sizeof(*head), 0) != (ssize_t)sizeof(*head)
               ? (errno ? -errno : -EIO)
               : 0;
}

static bool fits(int pages_fd, const struct base *base)
{
    cleanup_free uint8_t *map = NULL;
    struct delta_head head;
    struct delta_head now;
    uint64_t inode;

    if (pread(pages_fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
        memcmp(head.magic, MAGIC, sizeof(head.magic)) != 0 ||
        head.n_pages != ((uint64_t)base->memory_mib << 20) / 4096 || head.n_set > DELTA_PAGES_MAX ||
        head.base_key[BASE_KEY_SIZE - 1] != '\0' || !str_eq(head.base_key, base->key) ||
        !base_inode(base, &inode) || inode != head.base_inode ||
        read_map(pages_fd, head.n_pages, &map) < 0) {
        return false;
    }
    now = head;
    summarize(map, &now);
    return now.hash == head.hash && now.n_set == head.n_set;
}

int delta_open(const struct node *node, const char *sandbox_id, uint32_t n, const struct base *base,
               int *ret_fd)
{
    cleanup_free char *name = xasprintf("%s/%u/pages", sandbox_id, n);
    cleanup_close int fd = fs_open_beneath(node->checkpoints_fd, name, O_RDONLY, 0);

    if (fd < 0) {
        return fd;
    }
    if (!fits(fd, base)) {
        return -ENOENT;
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* ---- the copying process ---- */

int delta_ask(int control_fd, char how, uint64_t deadline_ns, struct memory_copy_stats *ret)
{
    struct memory_copy_answer answer;
    ssize_t n;
    int r = sock_send_all(control_fd, &how, 1, deadline_ns);

    if (r < 0) {
        return r;
    }
    n = sock_recv(control_fd, &answer, sizeof(answer), deadline_ns);
    if (n != (ssize_t)sizeof(answer)) {
        return n < 0 ? (int)n : -EPIPE; /* it has ended */
    }
    if (answer.code == 0) {
        *ret = answer.stats;
    }
    return answer.code;
}

int delta_load(const struct node *node, struct machine *m, uint32_t memory_mib, int memory_fd,
               int pages_fd, struct err *e)
{
    struct memory_copy_stats stats;
    int pair[2];
    int r;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        return err_wrap(e, -errno, "making a socket pair");
    }
    r = priv_machine_copy(node->host.priv,
                          &(struct priv_copy_request){.id = machine_record(m)->id,
                                                      .memory_mib = memory_mib,
                                                      .into = true,
                                                      .file_fd = memory_fd,
                                                      .pages_fd = pages_fd,
                                                      .control_fd = pair[1]},
                          e);
    close(pair[1]);
    if (r == 0) {
        r = delta_ask(pair[0], MEMORY_COPY_LOAD, deadline_in_ms(LOAD_DEADLINE_MS), &stats);
        r = r < 0 ? err_wrap(e, r, "writing a checkpoint's pages into the machine's memory") : 0;
    }
    close(pair[0]);
    return r;
}

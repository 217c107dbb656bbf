/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/secret.h"

#include <jansson.h>
#include <malloc.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"

int secret_init(struct secret *s, const void *data, size_t len)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (len + 1 + page - 1) / page * page;
    char *p;

    ASSERT(s && (data || len == 0));
    if (len > SECRET_MAX) {
        return -E2BIG;
    }
    p = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT(p != MAP_FAILED); /* out of memory ends the process, here as everywhere */
    /* Each only narrows who could see it; none has to succeed for the rest to hold. */
    IGNORE_RESULT(mprotect(p + room, page, PROT_NONE));
    IGNORE_RESULT(mlock(p, room));
    IGNORE_RESULT(madvise(p, room, MADV_DONTDUMP));
    IGNORE_RESULT(madvise(p, room, MADV_WIPEONFORK));
    if (len > 0) {
        memcpy(p, data, len);
    }
    p[len] = '\0';
    *s = (struct secret){.p = p, .len = len, .map = room + page};
    return 0;
}

void secret_done(struct secret *s)
{
    int saved = errno;

    if (s->p) {
        explicit_bzero(s->p, s->len);
        munmap(s->p, s->map);
    }
    *s = (struct secret){0};
    errno = saved;
}

void secret_wipe_buf(struct buf *b)
{
    if (b->base) {
        explicit_bzero(b->base, b->cap);
    }
    buf_done(b);
}

void secret_wipe_headers(struct http_headers *h)
{
    for (size_t i = 0; i < h->n; i++) {
        char *value = NULL;

        /* It is ours and was allocated writable; only its type says otherwise. */
        memcpy(&value, &h->v[i].value, sizeof(value));
        explicit_bzero(value, strlen(value));
    }
    http_headers_done(h);
}

void secret_free(char *s)
{
    if (s) {
        explicit_bzero(s, malloc_usable_size(s));
        free(s);
    }
}

void secret_freep(char **s)
{
    secret_free(*s);
    *s = NULL;
}

static void *json_malloc(size_t size)
{
    return xmalloc(size);
}

static void json_free(void *p)
{
    secret_free(p);
}

int secret_process(struct err *e)
{
    const struct rlimit none = {0, 0};
    struct secret probe = {0};

    json_set_alloc_funcs(json_malloc, json_free);
    IGNORE_RESULT(setrlimit(RLIMIT_CORE, &none)); /* what is not dumpable leaves no core anyhow */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0) {
        return err_wrap(e, -errno, "keeping others out of our memory");
    }
    IGNORE_RESULT(secret_init(&probe, "", 0)); /* an empty one fits */
    if (mlock(probe.p, 1) < 0) {
        log_warn(NULL,
                 "secrets cannot be locked into memory and could be swapped out, ignoring: %s",
                 strerror(errno));
    }
    secret_done(&probe);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void assert_failed(const char *cond, const char *file, int line, const char *func)
{
    fprintf(stderr, "assertion failed: %s at %s:%d in %s\n", cond, file, line, func);
    abort();
}

static NORETURN void out_of_memory(void)
{
    static const char msg[] = "out of memory\n";

    if (write(STDERR_FILENO, msg, sizeof(msg) - 1) < 0) {
        abort();
    }
    abort();
}

void util_freep(void *pointer_to_pointer)
{
    void **p = pointer_to_pointer;
    int saved = errno;

    free(*p);
    *p = NULL;
    errno = saved;
}

int fd_close(int fd)
{
    int saved = errno;

    if (fd >= 0) {
        close(fd);
    }
    errno = saved;
    return FD_NONE;
}

void util_closep(int *fd)
{
    *fd = fd_close(*fd);
}

void *xcalloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);

    if (!p) {
        out_of_memory();
    }
    return p;
}

void *xmalloc(size_t size)
{
    void *p = malloc(size ? size : 1);

    if (!p) {
        out_of_memory();
    }
    return p;
}

void *xrealloc(void *p, size_t size)
{
    p = realloc(p, size ? size : 1);
    if (!p) {
        out_of_memory();
    }
    return p;
}

char *xstrdup(const char *s)
{
    return xmemdup(s, strlen(s) + 1);
}

char *xstrndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *p = xmalloc(len + 1);

    memcpy(p, s, len);
    p[len] = '\0';
    return p;
}

void *xmemdup(const void *p, size_t n)
{
    void *copy = xmalloc(n);

    if (n > 0) {
        memcpy(copy, p, n);
    }
    return copy;
}

char *xasprintf(const char *fmt, ...)
{
    va_list ap;
    char *s = NULL;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&s, fmt, ap);
    va_end(ap);
    if (n < 0 || !s) {
        out_of_memory();
    }
    return s;
}

bool str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_empty(const char *s)
{
    return !s || !*s;
}

int str_to_u64(const char *s, uint64_t max, uint64_t *ret)
{
    uint64_t value = 0;

    if (str_empty(s)) {
        return -EINVAL;
    }
    for (; *s; s++) {
        uint64_t digit = (uint64_t)(*s - '0');

        if (*s < '0' || *s > '9') {
            return -EINVAL;
        }
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value)) {
            return -ERANGE;
        }
    }
    if (value > max) {
        return -ERANGE;
    }
    *ret = value;
    return 0;
}

int str_copy(char *dst, size_t dst_size, const char *src)
{
    size_t len = strlen(src);

    if (len >= dst_size) {
        return -ENAMETOOLONG;
    }
    memcpy(dst, src, len + 1);
    return 0;
}

uint32_t str_hash(const char *text)
{
    uint32_t h = 2166136261u;

    for (; *text; text++) {
        h = (h ^ (unsigned char)*text) * 16777619u;
    }
    return h;
}

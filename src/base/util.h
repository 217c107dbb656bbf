/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small words that all of SPACE is written in: assertions, cleanup of owned locals, allocation
 * that cannot fail, hand-over of ownership.
 *
 * A local that owns something is declared with its cleanup and initialised at once:
 *
 *     cleanup_free char *name = NULL;
 *     cleanup_close int fd = FD_NONE;
 *     CLEANUP(vm_freep) struct vm *vm = NULL;
 *
 * and is handed over with TAKE_PTR(name) or TAKE_FD(fd). Out of memory ends the process: a restart
 * is the recovery path of every SPACE program and is tested as such.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* No descriptor. Never -1 (which looks like an error) and never 0 (which is one). */
#define FD_NONE (-EBADF)

#define MUST_CHECK __attribute__((warn_unused_result))
#define PRINTF(fmt_, args_) __attribute__((format(printf, fmt_, args_)))
#define NORETURN __attribute__((noreturn))
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b) MIN_((a), (b), __COUNTER__)
#define MAX(a, b) MAX_((a), (b), __COUNTER__)
#define PASTE_(x, y) x##y
#define PASTE(x, y) PASTE_(x, y)
/* The counter gives each use names of its own, so that uses may nest. */
#define MIN_(a, b, n) \
    ({ \
        __typeof__(a) PASTE(a_, n) = (a); \
        __typeof__(b) PASTE(b_, n) = (b); \
        PASTE(a_, n) < PASTE(b_, n) ? PASTE(a_, n) : PASTE(b_, n); \
    })
#define MAX_(a, b, n) \
    ({ \
        __typeof__(a) PASTE(a_, n) = (a); \
        __typeof__(b) PASTE(b_, n) = (b); \
        PASTE(a_, n) > PASTE(b_, n) ? PASTE(a_, n) : PASTE(b_, n); \
    })

/* The only way to drop the result of a MUST_CHECK function; say why beside it. */
#define IGNORE_RESULT(call) \
    ({ \
        __typeof__(call) ignored_ = (call); \
        (void)ignored_; \
    })

/* For mistakes of ours, compiled in always; never on bytes, files or answers from outside. */
#define ASSERT(cond) \
    do { \
        if (!(cond)) { \
            assert_failed(#cond, __FILE__, __LINE__, __func__); \
        } \
    } while (0)
NORETURN void assert_failed(const char *cond, const char *file, int line, const char *func);

#define CLEANUP(fn) __attribute__((cleanup(fn)))
#define cleanup_free CLEANUP(util_freep)
#define cleanup_close CLEANUP(util_closep)

/* DEFINE_CLEANUP(struct vm *, vm_free) makes vm_freep() for CLEANUP(). */
#define DEFINE_CLEANUP(type_, fn_) \
    static inline __attribute__((unused)) void fn_##p(__typeof__(type_) *p_) \
    { \
        if (*p_) { \
            fn_(*p_); \
            *p_ = NULL; \
        } \
    } \
    struct util_semicolon_

#define TAKE_PTR(p) \
    ({ \
        __typeof__(p) taken_ = (p); \
        (p) = NULL; \
        taken_; \
    })
#define TAKE_FD(fd) \
    ({ \
        int taken_ = (fd); \
        (fd) = FD_NONE; \
        taken_; \
    })

/* Cleanup helpers; both keep errno. */
void util_freep(void *pointer_to_pointer);
void util_closep(int *fd);
/* Closes fd when it is one, keeps errno, returns FD_NONE so that one can write fd = fd_close(fd). */
int fd_close(int fd);

/* Allocation that ends the process when there is no memory. Memory from xnew is zeroed. */
#define xnew(type_) ((type_ *)xcalloc(1, sizeof(type_)))
#define xnew_n(type_, n_) ((type_ *)xcalloc((n_), sizeof(type_)))
void *xcalloc(size_t n, size_t size) MUST_CHECK __attribute__((returns_nonnull, malloc));
void *xmalloc(size_t size) MUST_CHECK __attribute__((returns_nonnull, malloc));
void *xrealloc(void *p, size_t size) MUST_CHECK __attribute__((returns_nonnull));
char *xstrdup(const char *s) MUST_CHECK __attribute__((returns_nonnull, malloc));
char *xstrndup(const char *s, size_t n) MUST_CHECK __attribute__((returns_nonnull, malloc));
void *xmemdup(const void *p, size_t n) MUST_CHECK __attribute__((returns_nonnull, malloc));
char *xasprintf(const char *fmt, ...) MUST_CHECK PRINTF(1, 2) __attribute__((returns_nonnull));

/* FNV-1a: to spread and to tell apart, not against who chooses the text. */
uint32_t str_hash(const char *text) MUST_CHECK;

static inline bool str_eq(const char *a, const char *b)
{
    return __builtin_strcmp(a, b) == 0;
}
bool str_starts(const char *s, const char *prefix);
/* True when the string is empty or NULL. */
bool str_empty(const char *s);
/*
 * Decimal digits only (no sign, no space, nothing after them), at most max.
 * -EINVAL: not a number; -ERANGE: larger than max.
 */
MUST_CHECK int str_to_u64(const char *s, uint64_t max, uint64_t *ret);
/* Copies with a terminating NUL; -ENAMETOOLONG when it does not fit (dst is then untouched). */
MUST_CHECK int str_copy(char *dst, size_t dst_size, const char *src);

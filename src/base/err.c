/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* One table from errno to the status and general word that an API client sees. */
static const struct {
    int code;
    int status;
    const char *reason;
} general[] = {
    {EINVAL, 400, "invalid_request"},
    {EBADMSG, 400, "invalid_request"},
    {ENAMETOOLONG, 400, "name_too_long"},
    {ERANGE, 400, "out_of_range"},
    {EKEYREJECTED, 401, "unauthorized"},
    {EACCES, 403, "permission_denied"},
    {EPERM, 403, "not_permitted"},
    {ENOENT, 404, "not_found"},
    {ESRCH, 404, "not_found"},
    {ENOTDIR, 400, "not_a_directory"},
    {EISDIR, 400, "is_a_directory"},
    {ELOOP, 400, "too_many_links"},
    {EEXIST, 409, "already_exists"},
    {EBUSY, 409, "busy"},
    {ECANCELED, 499, "client_gone"},
    {ENOTEMPTY, 409, "not_empty"},
    {ETXTBSY, 409, "file_busy"},
    {EXDEV, 409, "other_file_system"},
    {ESTALE, 409, "conflict"},
    {E2BIG, 413, "too_large"},
    {EFBIG, 413, "too_large"},
    {EDQUOT, 429, "quota_exceeded"},
    {EAGAIN, 429, "try_again"},
    {EUSERS, 429, "too_many"},
    {ENOSPC, 507, "no_space"},
    {EROFS, 409, "read_only"},
    {ENOMEM, 503, "no_memory"},
    {ENOSYS, 501, "not_supported"},
    {EOPNOTSUPP, 501, "not_supported"},
    {ETIMEDOUT, 504, "timed_out"},
    {ECONNREFUSED, 503, "unavailable"},
    {ECONNRESET, 502, "connection_lost"},
    {EPIPE, 502, "connection_lost"},
    {EPROTO, 502, "bad_answer"},
    {ENOTCONN, 503, "unavailable"},
    {EHOSTDOWN, 503, "unavailable"},
    {ESHUTDOWN, 503, "shutting_down"},
};

/* Reasons whose status differs from their errno's. */
static const struct {
    const char *reason;
    int status;
} special[] = {
    {"template_not_found", 400}, {"pool_full", 507},          {"no_capacity", 503},
    {"rate_limited", 429},       {"method_not_allowed", 405}, {"client_too_slow", 408},
    {"websocket_expected", 426}, {"unavailable", 503},        {"bad_answer", 502},
    {"answer_cut", 502},         {"answer_too_large", 502},   {"port_closed", 502},
    {"snapshot_damaged", 409},   {"other_node", 503},
};

/* A text that was cut inside a UTF-8 character loses the rest of that character, so that JSON can carry it. */
static void drop_partial_character(char *s)
{
    size_t len = strlen(s);
    size_t back = 0;
    unsigned char lead;

    while (back < 4 && back < len && ((unsigned char)s[len - 1 - back] & 0xc0) == 0x80) {
        back++;
    }
    if (back == len || back == 4) {
        return;
    }
    lead = (unsigned char)s[len - 1 - back];
    if ((lead >= 0xf0 && back < 3) || (lead >= 0xe0 && lead < 0xf0 && back < 2) ||
        (lead >= 0xc0 && lead < 0xe0 && back < 1)) {
        s[len - 1 - back] = '\0';
    }
}

static PRINTF(4, 0) void err_put(struct err *e, int code, const char *reason, const char *fmt,
                                 va_list ap)
{
    ASSERT(code < 0);
    if (!e) {
        return;
    }
    memset(e, 0, sizeof(*e));
    e->code = code;
    snprintf(e->reason, sizeof(e->reason), "%s", reason ? reason : "");
    vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    drop_partial_character(e->msg);
}

int err_set(struct err *e, int code, const char *reason, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    err_put(e, code, reason, fmt, ap);
    va_end(ap);
    return code;
}

int err_field(struct err *e, int code, const char *reason, const char *field, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    err_put(e, code, reason, fmt, ap);
    va_end(ap);
    if (e) {
        snprintf(e->field, sizeof(e->field), "%s", field ? field : "");
        drop_partial_character(e->field);
    }
    return code;
}

int err_wrap(struct err *e, int code, const char *fmt, ...)
{
    char inner[sizeof(e->msg)];
    size_t used;
    va_list ap;

    ASSERT(code < 0);
    if (!e) {
        return code;
    }
    if (e->code == code && e->msg[0]) {
        memcpy(inner, e->msg, sizeof(inner));
    } else {
        const char *text = strerrordesc_np(-code);

        memset(e, 0, sizeof(*e));
        snprintf(inner, sizeof(inner), "%s", text ? text : "unknown error");
    }
    e->code = code;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    used = strlen(e->msg);
    snprintf(e->msg + used, sizeof(e->msg) - used, ": %s", inner);
    drop_partial_character(e->msg);
    return code;
}

int err_http_status(const struct err *e)
{
    for (size_t i = 0; i < ARRAY_SIZE(special); i++) {
        if (str_eq(special[i].reason, e->reason)) {
            return special[i].status;
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(general); i++) {
        if (general[i].code == -e->code) {
            return general[i].status;
        }
    }
    return 500;
}

const char *err_reason(const struct err *e)
{
    if (e->reason[0]) {
        return e->reason;
    }
    for (size_t i = 0; i < ARRAY_SIZE(general); i++) {
        if (general[i].code == -e->code) {
            return general[i].reason;
        }
    }
    return "internal";
}

int err_from_http(struct err *e, int status, const char *reason, const char *message)
{
    int code = EIO;

    for (size_t i = 0; i < ARRAY_SIZE(general); i++) {
        if (general[i].status == status && reason && str_eq(general[i].reason, reason)) {
            code = general[i].code;
            break;
        }
        if (general[i].status == status && code == EIO) {
            code = general[i].code;
        }
    }
    return err_set(e, -code, reason, "%s", str_empty(message) ? "no message was given" : message);
}

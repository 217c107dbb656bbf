/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http1.h"

#include <stdio.h>
#include <string.h>

static const struct {
    unsigned status;
    const char *text;
} statuses[] = {
    {100, "Continue"},
    {101, "Switching Protocols"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {402, "Payment Required"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {426, "Upgrade Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

const char *http1_status_text(unsigned status)
{
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        if (statuses[i].status == status) {
            return statuses[i].text;
        }
    }
    return "";
}

int http1_print_request(struct buf *b, const char *method, const char *target)
{
    if (!http1_is_token(method, strlen(method)) || target[0] == '\0') {
        return -EINVAL;
    }
    for (const char *p = target; *p; p++) {
        if (*p <= 0x20 || *p >= 0x7f || *p == '#') {
            return -EINVAL;
        }
    }
    return buf_printf(b, "%s %s HTTP/1.1\r\n", method, target);
}

int http1_print_status(struct buf *b, unsigned minor, unsigned status)
{
    ASSERT(minor <= 1 && status >= 100 && status <= 599);
    return buf_printf(b, "HTTP/1.%u %u %s\r\n", minor, status, http1_status_text(status));
}

/* Straight appends: every field of every reply comes through here. */
int http1_print_field(struct buf *b, const char *name, const char *value)
{
    size_t name_len = strlen(name);
    size_t value_len = strlen(value);
    void *room = NULL;
    char *p;
    int r;

    if (!http1_is_token(name, name_len) || !http1_is_value(value, value_len)) {
        return -EINVAL;
    }
    r = buf_reserve(b, name_len + value_len + 4, &room);
    if (r < 0) {
        return r;
    }
    p = mempcpy(room, name, name_len);
    p = mempcpy(p, ": ", 2);
    p = mempcpy(p, value, value_len);
    memcpy(p, "\r\n", 2);
    buf_commit(b, name_len + value_len + 4);
    return 0;
}

int http1_print_end(struct buf *b)
{
    return buf_add(b, "\r\n", 2);
}

size_t http1_print_chunk(char ret[static HTTP1_CHUNK_LINE_SIZE], uint64_t len)
{
    return (size_t)snprintf(ret, HTTP1_CHUNK_LINE_SIZE, "%llx\r\n", (unsigned long long)len);
}

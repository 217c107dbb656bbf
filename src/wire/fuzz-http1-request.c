/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/http1.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool within(const char *data, size_t size, struct http1_view v)
{
    return v.len == 0 || (v.p >= data && v.p + v.len <= data + size) ||
           (v.len == 1 && v.p[0] == '/');
}

static void check_views(const char *data, size_t size, const struct http1_head *h)
{
    ASSERT(within(data, size, h->method) && within(data, size, h->target) &&
           within(data, size, h->path) && within(data, size, h->query) &&
           within(data, size, h->authority));
    ASSERT(h->n_fields <= HTTP1_MAX_FIELDS);
    for (size_t i = 0; i < h->n_fields; i++) {
        ASSERT(within(data, size, h->fields[i].name) && within(data, size, h->fields[i].value));
        ASSERT(http1_is_token(h->fields[i].name.p, h->fields[i].name.len));
        ASSERT(http1_is_value(h->fields[i].value.p, h->fields[i].value.len));
    }
}

/* What was understood, printed and read again, is the same. */
static void check_round_trip(const struct http1_head *h)
{
    cleanup_buf struct buf b = BUF_INIT(HTTP1_MAX_HEAD * 2);
    cleanup_free char *method = xstrndup(h->method.p, h->method.len);
    cleanup_free char *target = xstrndup(h->target.p, h->target.len);
    struct http1_head again;
    struct http1_scan scan = {0};
    size_t len = 0;

    ASSERT(http1_print_request(&b, method, target) == 0);
    for (size_t i = 0; i < h->n_fields; i++) {
        cleanup_free char *name = xstrndup(h->fields[i].name.p, h->fields[i].name.len);
        cleanup_free char *value = xstrndup(h->fields[i].value.p, h->fields[i].value.len);

        ASSERT(http1_print_field(&b, name, value) == 0);
    }
    ASSERT(http1_print_end(&b) == 0);
    if (h->minor == 0 || b.len > HTTP1_MAX_HEAD) {
        return; /* we print 1.1 only, and "A:b" grows by a space */
    }
    ASSERT(http1_scan(&scan, b.data, b.len, &len) == 0 && len == b.len);
    ASSERT(http1_parse_request(b.data, b.len, &again) == HTTP1_OK);
    ASSERT(again.framing == h->framing && again.content_length == h->content_length &&
           again.form == h->form && again.n_fields == h->n_fields &&
           again.keep_alive == h->keep_alive && again.path.len == h->path.len);
}

/* The end is found at the same place however the bytes arrive. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *data = (const char *)bytes;
    struct http1_scan whole = {0};
    struct http1_scan slow = {0};
    struct http1_head head;
    size_t len = 0;
    size_t slow_len = 0;
    int r = http1_scan(&whole, data, size, &len);
    int slow_r = -EAGAIN;

    for (size_t n = 0; n <= size && slow_r == -EAGAIN; n++) {
        slow_r = http1_scan(&slow, data, n, &slow_len);
    }
    ASSERT(r == slow_r && len == slow_len);
    if (r != 0) {
        return 0;
    }
    ASSERT(len > 0 && len <= size);
    if (http1_parse_request(data, len, &head) == HTTP1_OK) {
        ASSERT(!(head.framing == HTTP1_BODY_CHUNKED && head.has_length));
        ASSERT(head.framing != HTTP1_BODY_CLOSE);
        check_views(data, len, &head);
        check_round_trip(&head);
    }
    return 0;
}

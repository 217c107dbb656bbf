/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/post.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "base/clock.h"
#include "model/netpolicy.h"

#define ANSWER_MAX 65536u

static bool public_only(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET) {
        struct sockaddr_in in;

        memcpy(&in, a, sizeof(in));
        return netpolicy_addr_public(in.sin_addr);
    }
    return false; /* nothing here can tell public IPv6 addresses from others */
}

/* The base of "https://host/path", and what follows it together with `more`. */
static void split_url(const char *url, const char *more, char **ret_base, char **ret_target)
{
    size_t base = strlen("https://") + strcspn(url + strlen("https://"), "/");
    size_t end = strlen(url);

    while (more && end > base && url[end - 1] == '/') {
        end--;
    }
    *ret_base = xstrndup(url, base);
    *ret_target = xasprintf("%.*s%s", (int)(end - base), url + base,
                            more          ? more
                            : end == base ? "/"
                                          : "");
}

int post_to(const struct post_opts *opts, const struct post *post, int *ret_status, char **ret_text,
            size_t *ret_len, struct err *e)
{
    struct http_client_opts client_opts = {
        .ca_file = opts->ca_file,
        .address_allowed = opts->allow_private ? NULL : public_only,
    };
    CLEANUP(http_client_freep) struct http_client *http = NULL;
    CLEANUP(http_call_freep) struct http_call *call = NULL;
    cleanup_free char *base = NULL;
    cleanup_free char *target = NULL;
    int r;
    struct http_call_opts call_opts = {
        .method = "POST",
        .headers = post->headers,
        .body_length = (int64_t)post->body->len,
        .content_type = post->content_type,
        .deadline_ns = deadline_in_ms(POST_MS),
    };

    split_url(post->url, post->more, &base, &target);
    call_opts.target = target;
    r = http_client_new(base, &client_opts, &http, e);
    r = r < 0 ? r : http_call_new(http, &call_opts, &call, e);
    if (r == 0 && post->body->len > 0) {
        r = http_call_write(call, post->body->data, post->body->len, e);
        r = r < 0 ? r : http_call_end(call, e);
    }
    r = r < 0 ? r : http_call_head(call, e);
    r = r < 0 ? r : http_call_all(call, ANSWER_MAX, ret_text, ret_len, e);
    if (r == 0) {
        *ret_status = http_call_status(call);
    }
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */

/* What visitors are told when there is nothing to pass on, and what the record says about them. Pure. */
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "gateway/preview.h"

/* Written for a person who does not know SPACE and cannot mend it elsewhere. All that is filled in is digits and [a-z0-9]. */
static const char page[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n%s"
    "<title>%s</title>\n<style>\n"
    "body{font:1rem/1.5 system-ui,sans-serif;margin:15vh auto;max-width:34rem;padding:0 1.5rem;"
    "color:#1b1f24;background:#fff}\n"
    "h1{font-size:1.5rem}code{background:#eef0f3;padding:.1em .3em;border-radius:.2em}\n"
    "footer{margin-top:3rem;color:#5b636d;font-size:.85rem}\n"
    "@media(prefers-color-scheme:dark){body{color:#e6e8eb;background:#15181c}code{background:#"
    "262b31}"
    "footer{color:#9aa2ab}}\n"
    "</style>\n</head>\n<body>\n<h1>%s</h1>\n<p>%s</p>\n"
    "<footer>Sandbox <code>%s</code>, port <code>%u</code></footer>\n</body>\n</html>\n";

int preview_page(const struct preview_trouble *t, const struct address *to, struct buf *out)
{
    return buf_printf(out, page, t->retry ? "<meta http-equiv=\"refresh\" content=\"3\">\n" : "",
                      t->title, t->title, t->text, to->id, to->port);
}

int preview_json(const struct preview_trouble *t, const struct address *to, struct buf *out)
{
    cleanup_json json_t *json =
        json_pack("{s:s, s:s, s:i}", "sandboxId", to->id, "message", t->message, "code", t->status);

    ASSERT(json);
    if (t->port) {
        json_object_set_new(json, "port", json_integer(to->port));
    }
    return json_write(json, out);
}

bool preview_wants_page(const char *accept)
{
    const char *html = accept ? strcasestr(accept, "text/html") : NULL;
    const char *json = accept ? strcasestr(accept, "application/json") : NULL;

    return html && (!json || html < json);
}

/* ${PORT} filled in; false: it is too long, or no host. */
static bool fill_in(const char *mask, uint16_t port, char *ret, size_t size)
{
    static const char word[] = "${PORT}";
    size_t used = 0;

    while (*mask) {
        int n = strncmp(mask, word, sizeof(word) - 1) == 0
                    ? snprintf(ret + used, size - used, "%u", port)
                    : snprintf(ret + used, size - used, "%c", *mask);

        if (*mask <= ' ' || *mask > '~' || (size_t)n >= size - used) {
            return false;
        }
        used += (size_t)n;
        mask += strncmp(mask, word, sizeof(word) - 1) == 0 ? sizeof(word) - 1 : 1;
    }
    return true;
}

void preview_policy_read(const char *surface, uint16_t port, struct preview_policy *ret)
{
    cleanup_json json_t *json = NULL;
    const json_t *network;
    const char *mask;

    *ret = (struct preview_policy){0};
    if (str_empty(surface)) {
        return;
    }
    if (json_parse_object(surface, strlen(surface), &json, NULL) < 0) {
        ret->private = true;
        return;
    }
    network = json_object_get(json, "network");
    ret->private = network && json_is_false(json_object_get(network, "allowPublicTraffic"));
    mask = network ? json_string_value(json_object_get(network, "maskRequestHost")) : NULL;
    if (mask && !fill_in(mask, port, ret->mask_host, sizeof(ret->mask_host))) {
        ret->mask_host[0] = '\0';
    }
}

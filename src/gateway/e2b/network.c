/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What clients ask of a sandbox's network. A sandbox has none: nothing leaves it. So to deny is to say what
 * is so anyway, to allow cannot be kept and is refused. All of that is decided here.
 *
 * allow_internet_access true is not refused although it is not kept: older clients say it in each request. The sandbox
 * shows null for it then, and what tries to reach the internet fails at once.
 */
#include <string.h>

#include "gateway/e2b/private.h"

#define MASK_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:[]${}"

static int not_honoured(const char *field, struct err *e)
{
    return err_field(e, -EINVAL, "not_supported", field,
                     "'%s' cannot be kept here: sandboxes have no network, nothing leaves them; "
                     "leave it out",
                     field);
}

/* Refused unless empty. */
static int want_empty_array(json_t *network, const char *name, struct err *e)
{
    json_t *list = NULL;
    int r = e2b_array(network, name, &list, e);

    return r == 0 && json_array_size(list) > 0 ? not_honoured(name, e) : r;
}

static int want_empty_object(json_t *network, const char *name, struct err *e)
{
    json_t *object = NULL;
    int r = e2b_object(network, name, &object, e);

    return r == 0 && json_object_size(object) > 0 ? not_honoured(name, e) : r;
}

/* Names are for allowing only, as in E2B's API. */
static int check_denied(json_t *network, struct err *e)
{
    json_t *list = NULL;
    json_t *item;
    size_t i;
    int r = e2b_array(network, "denyOut", &list, e);

    json_array_foreach(list, i, item)
    {
        const char *text = json_string_value(item);

        if (!text || !text[0] || text[strspn(text, "0123456789abcdefABCDEF.:/")] != '\0') {
            return err_field(e, -EINVAL, "invalid_field", "denyOut",
                             "'denyOut' must hold addresses and ranges of addresses");
        }
    }
    return r;
}

static int check_rules(json_t *object, struct err *e)
{
    int r = want_empty_array(object, "allowOut", e);

    if (r == 0) {
        r = check_denied(object, e);
    }
    if (r == 0) {
        r = want_empty_object(object, "rules", e);
    }
    return r == 0 ? want_empty_object(object, "egressProxy", e) : r;
}

/* Of the way in: sandboxes' ports are reached through the gateway. */
static int check_ingress(json_t *network, struct e2b_box *box, struct err *e)
{
    const char *mask = NULL;
    bool public_traffic = true;
    int r = e2b_bool(network, "allowPublicTraffic", true, &public_traffic, e);

    if (r == 0) {
        r = e2b_string(network, "maskRequestHost", &mask, e);
    }
    if (r == 0 && mask &&
        (str_copy(box->mask_host, sizeof(box->mask_host), mask) < 0 ||
         mask[strspn(mask, MASK_CHARS)] != '\0')) {
        return err_field(e, -EINVAL, "invalid_field", "maskRequestHost",
                         "'maskRequestHost' must be a host, perhaps with ${PORT} in it");
    }
    box->private_traffic = !public_traffic;
    return r < 0 ? r : want_empty_array(network, "httpsPorts", e);
}

int e2b_network_from_json(json_t *body, struct e2b_box *box, struct err *e)
{
    json_t *network = NULL;
    bool denied = false;
    bool allowed = false;
    int r = e2b_bool(body, "allow_internet_access", false, &allowed, e);

    if (r == 0) {
        r = e2b_bool(body, "allow_internet_access", true, &denied, e);
        denied = !denied;
    }
    if (r == 0) {
        r = e2b_object(body, "network", &network, e);
    }
    if (r == 0 && network) {
        r = check_rules(network, e);
    }
    if (r == 0 && network) {
        r = check_ingress(network, box, e);
    }
    if (r == 0) {
        box->internet = denied    ? E2B_INTERNET_DENIED
                        : allowed ? E2B_INTERNET_ALLOWED
                                  : E2B_INTERNET_UNSAID;
    }
    return r;
}

int e2b_network_handler(struct http_request *req, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_sandbox_patch struct sandbox_patch patch = {0};
    cleanup_json json_t *body = NULL;
    struct e2b_box asked = {0};
    struct e2b_box box;
    int r = e2b_find(req, &sb, &box, e);

    if (r == 0) {
        r = http_body_json(req, GATEWAY_BODY_MAX, &body, e);
    }
    if (r == 0) {
        r = check_rules(body, e);
    }
    if (r == 0) {
        r = e2b_network_from_json(body, &asked, e);
    }
    if (r < 0) {
        return r;
    }
    box.internet = asked.internet;
    patch.surface = e2b_box_text(&box);
    r = control_patch(gateway_of(req)->control, actor_of(req), sb.id, &patch, &sb, e);
    return r < 0 ? r : http_reply_empty(req, 204, e);
}

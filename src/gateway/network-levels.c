/* SPDX-License-Identifier: Apache-2.0 */

/* What an organisation and a project let their sandboxes reach. */
#include "gateway/gateway.h"
#include "model/netpolicy.h"

#include <string.h>

#define BODY_MAX (NETPOLICY_OUTER_TEXT_MAX + 1024u)

/* A level that says nothing is shown as what says nothing. */
static int reply_level(struct http_request *req, enum netpolicy_level level, const char *id,
                       struct err *e)
{
    cleanup_free char *text = NULL;
    json_t *network;
    int r = db_network_get(gateway_of(req)->db, level, id, &text, e);

    if (r < 0) {
        return r;
    }
    network = str_empty(text) ? json_pack("{s:s}", "preset", "inherit") : json_loads(text, 0, NULL);
    if (!network) {
        return err_set(e, -EUCLEAN, "database_error", "the network policy cannot be read");
    }
    return http_reply_json_take(
        req, 200, json_pack("{s:s, s:o}", "level", netpolicy_level_name(level), "network", network),
        e);
}

static int set_level(struct http_request *req, const char *project, struct err *e)
{
    CLEANUP(netpolicy_unrefp) const struct netpolicy *policy = NULL;
    struct netpolicy *made = NULL;
    cleanup_json json_t *body = NULL;
    cleanup_free char *text = NULL;
    enum netpolicy_level level = project ? NETPOLICY_PROJECT : NETPOLICY_ORGANISATION;
    size_t later = 0;
    int r = http_body_json(req, BODY_MAX, &body, e);

    if (r == 0) {
        r = netpolicy_outer_from_json(body, &made, e);
        policy = made;
    }
    if (r < 0) {
        return r;
    }
    text = json_text(body);
    r = control_set_network(gateway_of(req)->control, actor_of(req), project, text, &later, e);
    return r < 0 ? r
                 : http_reply_json_take(req, 200,
                                        json_pack("{s:s, s:O, s:I}", "level",
                                                  netpolicy_level_name(level), "network", body,
                                                  "pending", (json_int_t)later),
                                        e);
}

int organisation_network_get_handler(struct http_request *req, struct err *e)
{
    return reply_level(req, NETPOLICY_ORGANISATION, actor_of(req)->organisation, e);
}

int organisation_network_put_handler(struct http_request *req, struct err *e)
{
    return set_level(req, /* project */ NULL, e);
}

int project_network_get_handler(struct http_request *req, struct err *e)
{
    struct project p = {0};
    int r = tenant_project_of_path(req, &p, e);

    return r < 0 ? r : reply_level(req, NETPOLICY_PROJECT, p.id, e);
}

int project_network_put_handler(struct http_request *req, struct err *e)
{
    struct project p = {0};
    int r = tenant_project_of_path(req, &p, e);

    return r < 0 ? r : set_level(req, p.id, e);
}

/* SPDX-License-Identifier: Apache-2.0 */

/* What the scheduler would choose, and why: nobody is asked to do anything, and nothing is counted. */
#include "base/clock.h"
#include "control/place.h"
#include "control/private.h"

#include <string.h>

#define LOOK_MS 5000

/* Where there is only the home node, nobody has asked it yet what it has. What it does not say now, the verdict says. */
static void hear_home(struct control *c)
{
    const char *home = fleet_home(c->fleet);
    struct node_call call = {.deadline_ns = deadline_in_ms(LOOK_MS)};
    cleanup_json json_t *told = NULL;

    if (!fleet_chooses(c->fleet) &&
        node_client_get(fleet_client(c->fleet, home), "/v1/node", &call, &told, NULL) == 0) {
        fleet_told(c->fleet, home, told);
    }
}

static json_t *verdict_json(const struct fleet_choice *choice)
{
    const struct schedule_verdict *v = &choice->verdict;
    bool fits = v->why == SCHEDULE_FITS;
    json_t *out = json_pack("{s:s, s:b, s:s, s:s}", "node", choice->name, "fits", fits, "reason",
                            schedule_why_name(v->why), "explanation", v->text);

    ASSERT(out);
    if (fits) {
        json_object_set_new(out, "score", json_integer(v->score));
        json_object_set_new(out, "from_disk", json_boolean(v->cold));
    }
    return out;
}

static json_t *explain(struct control *c, const struct schedule_wish *wish)
{
    cleanup_free struct fleet_choice *choices = NULL;
    json_t *nodes = json_array();
    json_t *chosen = json_null();
    size_t n = 0;
    size_t fit = fleet_schedule(c->fleet, wish, &choices, &n);

    for (size_t i = 0; i < n; i++) {
        json_array_append_new(nodes, verdict_json(&choices[i]));
    }
    /* As place_next() goes on when none fits: nodes know best. */
    for (size_t i = 0; i < n && json_is_null(chosen); i++) {
        if (i < fit || place_may_ask(choices[i].verdict.why)) {
            chosen = json_string(choices[i].name);
        }
    }
    return json_pack("{s:o, s:o}", "chosen", chosen, "nodes", nodes);
}

json_t *control_explain_new(struct control *c, const struct sandbox_spec *spec)
{
    const struct schedule_wish wish = {.shape = spec->shape, .template_name = spec->template_name};

    hear_home(c);
    return explain(c, &wish);
}

int control_explain(struct control *c, const struct control_actor *actor, const char *id,
                    json_t **ret, struct err *e)
{
    cleanup_sandbox struct sandbox sb = {0};
    struct fleet_origin origin;
    int r = control_get(c, actor, id, &sb, e);

    if (r == 0 && sb.desired == SANDBOX_STATE_DELETED) {
        r = control_not_found(e);
    }
    if (r < 0) {
        return r;
    }
    hear_home(c);
    fleet_origin(c->fleet, sb.node, &origin);
    {
        const struct schedule_wish wish = control_restore_wish(
            &sb, &origin, sb.node[0] ? sb.node : fleet_home(c->fleet), /* elsewhere */ false);

        *ret = explain(c, &wish);
    }
    return 0;
}

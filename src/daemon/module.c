/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/module.h"

#include "base/clock.h"
#include "daemon/command-routes.h"
#include "daemon/file-routes.h"
#include "daemon/port.h"

/* One line per module; later ones may rely on earlier ones. */
const struct module *const daemon_modules[] = {
    &state_module,
    &file_module,
    &command_module,
    &port_module,
};
const size_t n_daemon_modules = ARRAY_SIZE(daemon_modules);

int modules_init(struct daemon *d, struct err *e)
{
    ASSERT(n_daemon_modules <= MODULES_MAX);
    for (size_t i = 0; i < n_daemon_modules; i++) {
        int r;

        if (!daemon_modules[i]->init) {
            continue;
        }
        r = daemon_modules[i]->init(d, &d->module_state[i], e);
        if (r < 0) {
            return err_wrap(e, r, "starting %s", daemon_modules[i]->name);
        }
    }
    return 0;
}

void modules_teardown(struct daemon *d)
{
    for (size_t i = n_daemon_modules; i-- > 0;) {
        if (daemon_modules[i]->teardown) {
            daemon_modules[i]->teardown(d, d->module_state[i]);
        }
    }
}

void modules_metrics(struct daemon *d, json_t *obj)
{
    for (size_t i = 0; i < n_daemon_modules; i++) {
        if (daemon_modules[i]->metrics) {
            daemon_modules[i]->metrics(d, d->module_state[i], obj);
        }
    }
}

void modules_done(struct daemon *d)
{
    for (size_t i = n_daemon_modules; i-- > 0;) {
        if (daemon_modules[i]->done) {
            daemon_modules[i]->done(d, d->module_state[i]);
        }
        d->module_state[i] = NULL;
    }
}

void *module_state(const struct daemon *d, const struct module *m)
{
    for (size_t i = 0; i < n_daemon_modules; i++) {
        if (daemon_modules[i] == m) {
            return d->module_state[i];
        }
    }
    ASSERT(!"a module that is not in the list");
    return NULL;
}

void daemon_touch(struct daemon *d)
{
    d->activity.last_ns = clock_now_ns();
}

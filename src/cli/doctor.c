/* SPDX-License-Identifier: Apache-2.0 */
/* What SPACE has on the machine, and `space doctor` itself. */
#include "cli/doctor.h"

#include <dirent.h>
#include <pwd.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/progress.h"
#include "cli/verbs.h"

#define NODE_MS 5000u

void finding_ok(struct finding *f, const char *fmt, ...)
{
    va_list ap;

    *f = (struct finding){.level = DOCTOR_OK};
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof(f->text), fmt, ap);
    va_end(ap);
}

void finding_bad(struct finding *f, enum doctor_level level, const char *fix, const char *fmt, ...)
{
    va_list ap;

    *f = (struct finding){.level = level};
    snprintf(f->fix, sizeof(f->fix), "%s", fix);
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof(f->text), fmt, ap);
    va_end(ap);
}

static void check_programs(const struct doctor *d, struct finding *f)
{
    static const char *const programs[] = {"space-setup",           "space-node-manager",
                                           "space-sandbox-manager", "space-network-gateway",
                                           "space-gateway",         "space-daemon"};

    for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
        cleanup_free char *path = xasprintf("%s/%s", d->host.libexec_dir, programs[i]);

        if (access(path, X_OK) < 0) {
            finding_bad(f, DOCTOR_FAIL,
                        "Install SPACE again, or name the place with --libexec-dir.",
                        "there is no program %.200s", path);
            return;
        }
    }
    finding_ok(f, "all programs are in %s", d->host.libexec_dir);
}

static void check_paths(const struct doctor *d, struct finding *f)
{
    struct err e = {0};

    if (host_run_dir_fits(&d->host, &e) < 0) {
        finding_bad(f, DOCTOR_FAIL, "Choose a shorter --run-dir.", "%.300s", e.msg);
    } else {
        finding_ok(f, "sockets fit into %s", d->host.run_dir);
    }
}

static void check_users(const struct doctor *d, struct finding *f)
{
    const char *const users[] = {d->host.gateway_user, d->host.sandbox_user,
                                 d->host.credential_user, d->host.volume_user,
                                 d->host.network_user};

    for (size_t i = 0; i < ARRAY_SIZE(users); i++) {
        if (!getpwnam(users[i])) {
            finding_bad(f, DOCTOR_WARN, "Nothing: 'space up' makes it.", "there is no user %s yet",
                        users[i]);
            return;
        }
    }
    finding_ok(f, "users %s, %s, %s, %s and %s", users[0], users[1], users[2], users[3], users[4]);
}

static void check_guest(const struct doctor *d, struct finding *f)
{
    cleanup_free char *kernel = xasprintf("%s/guest/kernel", d->host.state_dir);
    cleanup_free char *initrd = xasprintf("%s/guest/initrd", d->host.state_dir);
    cleanup_free char *fix = xasprintf("Make it: %s/space-guest-build", d->host.libexec_dir);

    if (access(kernel, F_OK) < 0 || access(initrd, F_OK) < 0) {
        finding_bad(f, DOCTOR_FAIL, fix, "there is no kernel for the sandboxes in %s/guest",
                    d->host.state_dir);
    } else {
        finding_ok(f, "the sandboxes' kernel is there");
    }
}

static void check_templates(const struct doctor *d, struct finding *f)
{
    cleanup_free char *path = xasprintf("%s/pool/templates", d->host.state_dir);
    cleanup_free char *fix =
        xasprintf("Make one: %s/space-template-build debian", d->host.libexec_dir);
    DIR *dir = opendir(path);
    const struct dirent *entry;
    size_t n = 0;

    if (!dir) {
        finding_bad(f, DOCTOR_WARN,
                    errno == EACCES ? "Run: sudo space doctor" : "Run: sudo space up",
                    "the templates in %s cannot be seen: %s", path, strerror(errno));
        return;
    }
    while ((entry = readdir(dir))) {
        n += entry->d_name[0] != '.';
    }
    closedir(dir);
    if (n == 0) {
        finding_bad(f, DOCTOR_FAIL, fix, "there is no template to make sandboxes from");
    } else {
        finding_ok(f, "%zu %s", n, n == 1 ? "template" : "templates");
    }
}

static void check_port(const struct doctor *d, struct finding *f)
{
    struct err e = {0};

    if (d->up) {
        finding_ok(f, "the gateway's address is %s", d->host.listen);
    } else if (host_port_free(&d->host, &e) < 0) {
        finding_bad(f, DOCTOR_FAIL,
                    "End the other program, or choose another address with --listen.", "%.300s",
                    e.msg);
    } else {
        finding_ok(f, "%s is free for the gateway", d->host.listen);
    }
}

static void check_services(const struct doctor *d, struct finding *f)
{
    if (!d->up && host_health(&d->host, HOST_GATEWAY, /* e */ NULL) < 0) {
        finding_bad(f, DOCTOR_WARN, "Start it: sudo space up", "SPACE is not up");
        return;
    }
    for (size_t i = 0; i < HOST_SERVICE_COUNT_; i++) {
        struct err e = {0};

        if (host_health(&d->host, (enum host_service)i, &e) < 0 &&
            !(e.code == -EACCES && geteuid() != 0)) {
            finding_bad(f, DOCTOR_FAIL,
                        "Look into its log in /var/log/space, then: sudo space down; sudo space up",
                        "the %s does not answer: %.200s", host_service_name((enum host_service)i),
                        e.msg);
            return;
        }
    }
    finding_ok(f, "every service answers");
}

/* One that is a member of a cluster runs machines only as long as a gateway renews its lease. */
static void check_lease(const struct doctor *d, struct finding *f)
{
    json_t *lease = json_object_get(d->node, "lease");

    if (!json_get_bool(lease, "leased", false)) {
        finding_ok(f, "this node belongs to no cluster");
    } else if (json_get_bool(lease, "fenced", false)) {
        finding_bad(
            f, DOCTOR_FAIL,
            "See that a gateway reaches this node (space node show NODE). If it has left its "
            "cluster: docs/cluster.md, Nodes",
            "all sandboxes stand still: no gateway has renewed this node's lease");
    } else {
        finding_ok(f, "leased for another %lld s",
                   (long long)(json_get_int(lease, "left_ms", 0) / 1000));
    }
}

static void check_key(const struct doctor *d, struct finding *f)
{
    struct conf conf = {0};
    struct err e = {0};

    (void)d;
    if (conf_load(/* url */ NULL, /* key */ NULL, &conf, &e) < 0) {
        finding_bad(f, DOCTOR_FAIL, "Mend or remove the file.", "%.300s", e.msg);
    } else if (!conf.key) {
        finding_bad(f, DOCTOR_WARN, "Set SPACE_API_KEY; root makes one with: space key create",
                    "this user has no key");
    } else if (conf.exposed) {
        finding_bad(f, DOCTOR_WARN, "Run: chmod 600 ~/.config/space/config.json",
                    "other users can read this user's key");
    } else {
        finding_ok(f, "this user has a key, for %s", conf.url);
    }
    conf_done(&conf);
}

const struct doctor_check doctor_space_checks[] = {
    {"programs", check_programs},
    {"paths", check_paths},
    {"users", check_users},
    {"guest kernel", check_guest},
    {"templates", check_templates},
    {"port", check_port},
    {"services", check_services},
    {"lease", check_lease},
    {"key", check_key},
    {NULL, NULL},
};

static const char *level_name(enum doctor_level level)
{
    static const char *const names[DOCTOR_LEVEL_COUNT_] = {
        [DOCTOR_OK] = "ok", [DOCTOR_WARN] = "warn", [DOCTOR_FAIL] = "fail"};

    return names[level];
}

static void doctor_show(struct cli *cli, const char *name, const struct finding *f)
{
    static const enum ui_colour colours[DOCTOR_LEVEL_COUNT_] = {
        [DOCTOR_OK] = UI_GREEN, [DOCTOR_WARN] = UI_YELLOW, [DOCTOR_FAIL] = UI_RED};
    cleanup_free char *text = ui_clean(f->text, strlen(f->text), /* lines */ false);

    if (cli->args->quiet && f->level == DOCTOR_OK) {
        return;
    }
    printf("%s%-4s%s  %-12s  %s\n", ui_out_colour(&cli->ui, colours[f->level]),
           level_name(f->level), ui_out_colour(&cli->ui, UI_PLAIN), name, text);
    if (f->fix[0]) {
        printf("%20s%s\n", "", f->fix);
    }
    fflush(stdout);
}

static void doctor_run(struct cli *cli, const struct doctor *d, const struct doctor_check *checks,
                       json_t *list, size_t *counts)
{
    for (const struct doctor_check *c = checks; c->name; c++) {
        struct finding f = {0};

        c->run(d, &f);
        counts[f.level]++;
        if (!cli->args->json) {
            doctor_show(cli, c->name, &f);
            continue;
        }
        cleanup_free char *text = ui_clean(f.text, strlen(f.text), /* lines */ false);
        json_t *row = json_pack("{s:s, s:s, s:s}", "check", c->name, "level", level_name(f.level),
                                "message", text);

        ASSERT(row);
        json_object_set_new(row, "fix", f.fix[0] ? json_string(f.fix) : json_null());
        json_array_append_new(list, row);
    }
}

int verb_doctor(struct cli *cli)
{
    size_t counts[DOCTOR_LEVEL_COUNT_] = {0};
    cleanup_json json_t *status = NULL;
    cleanup_json json_t *list = json_array();
    struct doctor d = {0};

    host_init(&d.host, cli->args);
    d.up = host_supervisor(&d.host) > 0;
    if (d.up && !cli->args->listen && host_status_read(&d.host, &status, /* e */ NULL) == 0) {
        d.host.listen = json_get_string(status, "listen", d.host.listen);
    }
    if (host_node_call(&d.host, "GET", "/v1/node", deadline_in_ms(NODE_MS), &d.node, /* e */ NULL) <
        0) {
        d.node = NULL;
    }
    doctor_run(cli, &d, doctor_host_checks, list, counts);
    doctor_run(cli, &d, doctor_space_checks, list, counts);
    json_decref(d.node);
    host_done(&d.host);
    if (cli->args->json) {
        cleanup_json json_t *doc =
            json_pack("{s:b, s:O}", "ok", counts[DOCTOR_FAIL] == 0, "checks", list);

        cli_print_json(cli, doc);
    } else if (!cli->args->quiet) {
        printf("\n%zu ok, %zu warnings, %zu failures\n", counts[DOCTOR_OK], counts[DOCTOR_WARN],
               counts[DOCTOR_FAIL]);
    }
    return counts[DOCTOR_FAIL] ? CLI_EXIT_FAILED : CLI_EXIT_OK;
}

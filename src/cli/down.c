/* SPDX-License-Identifier: Apache-2.0 */
/* `space down` and `space status`. */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "cli/host.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/verbs.h"

#define DOWN_TIMEOUT_S 60u
#define STOP_ONE_MS 60000u

static int failed(struct cli *cli, const struct err *e)
{
    ui_error(&cli->ui, e);
    return CLI_EXIT_FAILED;
}

/* Has it a machine, or will it have one in a moment? The node waits for what is under way. */
static bool has_machine(const char *state)
{
    static const char *const none[] = {"stopped", "failed", "suspended", "deleting", "deleted"};

    for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
        if (str_eq(state, none[i])) {
            return false;
        }
    }
    return true;
}

/* Stops every sandbox of this node through the sandbox manager itself, whoever owns it. */
static int stop_all(struct cli *cli, const struct host *host, struct err *e)
{
    cleanup_json json_t *answer = NULL;
    struct progress *progress;
    const json_t *list;
    int failures = 0;
    int r;

    r = host_node_call(host, "GET", "/v1/sandboxes", deadline_in_ms(STOP_ONE_MS), &answer, e);
    if (r < 0) {
        return err_wrap(e, r, "asking for the sandboxes");
    }
    list = json_object_get(answer, "sandboxes");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *s = json_array_get(list, i);
        const char *id = json_get_string(s, "id", "");
        cleanup_free char *target = xasprintf("/v1/sandboxes/%s/stop", id);
        struct err mine = {0};

        if (!has_machine(json_get_string(s, "state", "")) || !id_valid(ID_SANDBOX, id)) {
            continue;
        }
        progress = progress_start(&cli->ui, "stopping sandbox %s", id);
        r = host_node_call(host, "POST", target, deadline_in_ms(STOP_ONE_MS), /* ret */ NULL,
                           &mine);
        progress_end(progress);
        if (r < 0) {
            failures++;
            ui_warn(&cli->ui, "sandbox %s could not be stopped: %s", id, mine.msg);
        }
    }
    return failures ? err_set(e, -EIO, "stop_failed",
                              "%d sandboxes could not be stopped; SPACE stays up", failures)
                    : 0;
}

static int down_wait(int pidfd, uint64_t deadline_ns, struct err *e)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    int r;

    do {
        r = poll(&p, 1, deadline_poll_ms(deadline_ns));
    } while (r < 0 && errno == EINTR);
    return r > 0 ? 0
                 : err_set(e, -ETIMEDOUT, "still_stopping",
                           "the services are still ending; look again with 'space status'");
}

static int down_supervisor(struct cli *cli, const struct host *host, pid_t pid, struct err *e)
{
    uint64_t timeout_s = cli->args->timeout_given ? cli->args->timeout_s : DOWN_TIMEOUT_S;
    cleanup_close int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct progress *progress;
    int r;

    if (pidfd < 0) {
        return errno == ESRCH ? 0 : err_wrap(e, -errno, "finding the supervisor");
    }
    /* The descriptor holds whoever has the pid now; the lock says whether that is still the supervisor. */
    if (host_supervisor(host) != pid) {
        return 0;
    }
    if (syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, /* info */ NULL, 0) < 0) {
        return errno == EPERM ? err_set(e, -EPERM, "not_root",
                                        "'space down' must be run by root: sudo space down")
                              : err_wrap(e, -errno, "asking the supervisor to end");
    }
    progress = progress_start(&cli->ui, "stopping the services");
    r = down_wait(pidfd, deadline_in_ms(timeout_s * 1000), e);
    progress_end(progress);
    return r;
}

int verb_down(struct cli *cli)
{
    struct err e = {0};
    CLEANUP(host_done) struct host host = {0};
    pid_t pid;
    int r = 0;

    host_init(&host, cli->args);
    pid = host_supervisor(&host);
    if (pid == 0) {
        if (cli->args->json) {
            printf("{\"was_up\":false}\n");
        } else {
            ui_note(&cli->ui, "SPACE is not up here");
        }
        return CLI_EXIT_OK;
    }
    if (cli->args->all) {
        r = stop_all(cli, &host, &e);
    }
    r = r < 0 ? r : down_supervisor(cli, &host, pid, &e);
    if (r < 0) {
        return failed(cli, &e);
    }
    if (cli->args->json) {
        printf("{\"was_up\":true}\n");
    } else {
        ui_note(&cli->ui, "SPACE is down%s", cli->args->all ? "" : "; its sandboxes go on running");
    }
    return CLI_EXIT_OK;
}

/* ---- status ---- */

/* What the supervisor wrote about this service, or NULL. */
static json_t *status_service(json_t *status, const char *name)
{
    const json_t *list = json_object_get(status, "services");

    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *s = json_array_get(list, i);

        if (str_eq(json_get_string(s, "name", ""), name)) {
            return s;
        }
    }
    return NULL;
}

static json_t *status_services(const struct host *host, json_t *written, bool *ret_all_well)
{
    json_t *list = json_array();

    *ret_all_well = true;
    for (size_t i = 0; i < HOST_SERVICE_COUNT_; i++) {
        const char *name = host_service_name((enum host_service)i);
        json_t *known = status_service(written, name);
        struct err e = {0};
        bool well = host_health(host, (enum host_service)i, &e) == 0;
        json_t *row = json_pack("{s:s, s:b, s:I, s:I}", "name", name, "healthy", well, "pid",
                                (json_int_t)json_get_int(known, "pid", 0), "restarts",
                                (json_int_t)json_get_int(known, "restarts", 0));

        ASSERT(row);
        json_object_set_new(row, "error", well ? json_null() : json_string(e.msg));
        json_array_append_new(list, row);
        /* Who may not ask cannot know. */
        *ret_all_well = *ret_all_well && (well || e.code == -EACCES);
    }
    return list;
}

static void status_print(struct cli *cli, json_t *doc)
{
    static const struct table_column columns[] = {{.title = "SERVICE"},
                                                  {.title = "HEALTH"},
                                                  {.title = "PID", .right = true},
                                                  {.title = "RESTARTS", .right = true},
                                                  {.title = "ERROR", .cut = true}};
    json_t *node = json_object_get(doc, "node");
    const json_t *list = json_object_get(doc, "services");
    char free_text[32];
    struct table t;

    printf("SPACE is %s, %s\n\n", json_get_bool(doc, "up", false) ? "up" : "not up here",
           json_get_string(doc, "url", ""));
    table_init(&t, columns, ARRAY_SIZE(columns));
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *s = json_array_get(list, i);

        table_cell(&t, json_get_string(s, "name", NULL));
        table_cell(&t, json_get_bool(s, "healthy", false) ? "ok" : "no answer");
        table_cellf(&t, "%" PRId64, json_get_int(s, "pid", 0));
        table_cellf(&t, "%" PRId64, json_get_int(s, "restarts", 0));
        table_cell(&t, json_get_string(s, "error", NULL));
    }
    table_print(&t, &cli->ui, stdout, ui_width(&cli->ui));
    table_done(&t);
    if (json_is_object(node)) {
        ui_size((uint64_t)MAX(json_get_int(node, "pool_free_bytes", 0), (int64_t)0), free_text,
                sizeof(free_text));
        printf("\nsandboxes   %" PRId64 "\nmachines    %s (%s)\npool        %s free\n",
               json_get_int(node, "sandboxes", 0), json_get_string(node, "accel", "?"),
               json_get_string(node, "accel_why", "?"), free_text);
    }
}

int verb_status(struct cli *cli)
{
    cleanup_json json_t *written = NULL;
    cleanup_json json_t *doc = NULL;
    cleanup_free char *url = NULL;
    json_t *node = NULL;
    CLEANUP(host_done) struct host host = {0};
    bool well;
    pid_t pid;

    host_init(&host, cli->args);
    pid = host_supervisor(&host);
    if (pid > 0 && host_status_read(&host, &written, /* e */ NULL) == 0 && !cli->args->listen) {
        host.listen = json_get_string(written, "listen", host.listen);
    }
    url = host_url(&host);
    doc = json_pack("{s:b, s:s, s:I, s:o}", "up", pid > 0, "url", url, "pid", (json_int_t)pid,
                    "services", status_services(&host, written, &well));
    ASSERT(doc);
    if (host_node_call(&host, "GET", "/v1/node", deadline_in_ms(STOP_ONE_MS), &node,
                       /* e */ NULL) == 0) {
        json_object_set_new(doc, "node", node);
    } else {
        json_object_set_new(doc, "node", json_null());
    }
    json_object_set_new(doc, "healthy", json_boolean(well));
    if (cli->args->json) {
        cli_print_json(cli, doc);
    } else if (!cli->args->quiet) {
        status_print(cli, doc);
    }
    return well ? CLI_EXIT_OK : CLI_EXIT_FAILED;
}

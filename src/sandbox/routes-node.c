/* SPDX-License-Identifier: Apache-2.0 */
/* What the node is and has, and until when it may run machines. */
#include "base/fs.h"
#include "sandbox/base.h"
#include "sandbox/routes.h"
#include "sandbox/template.h"
#include "sandbox/tenure.h"
#include "sandbox/warm.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define BODY_MAX 4096u
#define PROC_MAX (256u * 1024)
#define CPU_MODEL_SIZE 100

static struct node *node_of(const struct http_request *req)
{
    return http_request_ctx(req);
}

/* What follows "key", spaces and a colon at the beginning of a line; "" when there is none. */
static void proc_value(const char *path, const char *key, char *ret, size_t size)
{
    cleanup_buf struct buf text = BUF_INIT(PROC_MAX);
    const char *at;

    ret[0] = '\0';
    IGNORE_RESULT(fs_read_file(AT_FDCWD, path, &text)); /* as far as it goes: many processors */
    at = strstr(buf_str(&text), key);
    if (at) {
        at += strlen(key);
        at += strspn(at, "\t :");
        snprintf(ret, size, "%.*s", (int)MIN(strcspn(at, "\n"), size - 1), at);
    }
}

static json_int_t memory_mib(const char *key)
{
    char text[32];

    proc_value("/proc/meminfo", key, text, sizeof(text));
    return (json_int_t)(strtoull(text, NULL, 10) >> 10);
}

/* By name: what more there is to say of one is GET /v1/templates. */
static json_t *template_names(const struct node *node)
{
    cleanup_json json_t *all = NULL;
    json_t *names = json_array();
    json_t *entry;
    size_t i;

    if (template_list(node, &all, NULL) == 0) {
        json_array_foreach(all, i, entry)
        {
            json_array_append_new(names, json_string(json_get_string(entry, "name", "")));
        }
    }
    return names;
}

static void add_capacity(struct node *node, json_t *out)
{
    char cpu[CPU_MODEL_SIZE];
    json_int_t vcpus = 0;

    for (struct resident *res = resident_next_take(node, NULL); res;
         res = resident_next_take(node, res)) {
        vcpus +=
            resident_state(res) == SANDBOX_STATE_RUNNING ? (json_int_t)res->record.shape.vcpus : 0;
    }
    proc_value("/proc/cpuinfo", "model name", cpu, sizeof(cpu));
    json_object_set_new(out, "cpu_model", json_string(cpu[0] ? cpu : "unknown"));
    json_object_set_new(out, "cpus", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    json_object_set_new(out, "vcpus_used", json_integer(vcpus));
    json_object_set_new(out, "memory_mib", json_integer(memory_mib("MemTotal:")));
    json_object_set_new(out, "memory_free_mib", json_integer(memory_mib("MemAvailable:")));
    json_object_set_new(out, "templates", template_names(node));
    json_object_set_new(out, "warm", node->warm ? warm_json(node->warm) : json_array());
}

int route_node(struct http_request *req, struct err *e)
{
    struct node *node = node_of(req);
    uint64_t free_bytes = 0;
    uint64_t total_bytes = 0;
    char identity[NODE_IDENTITY_SIZE];
    struct utsname host;
    json_t *out;
    int r = node_pool_space(node, &free_bytes, &total_bytes);

    r = r < 0 ? r : node_identity(node, identity);

    if (r < 0) {
        return err_wrap(e, r, "looking at the pool");
    }
    uname(&host);
    pthread_mutex_lock(&node->lock);
    out = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:{s:i,s:i,s:i,s:i}}", "id",
                    identity, "version", SPACE_VERSION, "accel", node_accel_name(node->accel),
                    "accel_why", node->accel_why, "vmm_version", node->vmm_version, "guest",
                    node->guest_id, "kernel", host.release, "sandboxes",
                    (json_int_t)node->n_residents, "pool_free_bytes", (json_int_t)free_bytes,
                    "pool_size_bytes", (json_int_t)total_bytes, "limits", "vcpus_max",
                    SHAPE_VCPUS_MAX, "memory_mib_max", SHAPE_MEMORY_MIB_MAX, "disk_mib_max",
                    SHAPE_DISK_MIB_MAX, "sandboxes_max", NODE_RESIDENTS_MAX);
    pthread_mutex_unlock(&node->lock);
    add_capacity(node, out);
    /* Last: the stamp is the lease's beginning, and what comes before it takes time. */
    json_object_set_new(out, "lease", tenure_json(node->tenure));
    return http_reply_json_take(req, 200, out, e);
}

/* Builds the base machine of a shape ahead of the first create. */
int route_node_prepare(struct http_request *req, struct err *e)
{
    cleanup_json json_t *body = NULL;
    struct base *base = NULL;
    struct shape shape;
    int r = http_body_json(req, BODY_MAX, &body, e);

    if (r == 0) {
        r = shape_from_json(body, &shape, e);
    }
    if (r == 0) {
        r = base_get(node_of(req), shape.vcpus, shape.memory_mib, &base, e);
    }
    if (r < 0) {
        return r;
    }
    ASSERT(base);
    r = http_reply_json_take(
        req, 200, json_pack("{s:s, s:s}", "base", base->key, "accel", node_accel_name(base->accel)),
        e);
    base_put(node_of(req), base);
    return r;
}

int route_node_lease(struct http_request *req, struct err *e)
{
    static const struct json_field fields[] = {
        {"epoch", JSON_FIELD_STRING, JSON_REQUIRED},
        {"stamp_ms", JSON_FIELD_INT, JSON_REQUIRED},
        {"for_ms", JSON_FIELD_INT, JSON_REQUIRED},
    };
    cleanup_json json_t *body = NULL;
    struct lease_grant grant;
    int r = http_body_json(req, BODY_MAX, &body, e);

    r = r == 0 ? json_check_object(body, fields, ARRAY_SIZE(fields), e) : r;
    if (r < 0) {
        return r;
    }
    grant = (struct lease_grant){.stamp_ms = json_get_int(body, "stamp_ms", 0),
                                 .for_ms = json_get_int(body, "for_ms", 0)};
    /* One that is too long is another epoch's as well. */
    snprintf(grant.epoch, sizeof(grant.epoch), "%s", json_get_string(body, "epoch", ""));
    r = tenure_grant(node_of(req)->tenure, &grant, e);
    return r < 0 ? r : http_reply_json_take(req, 200, tenure_json(node_of(req)->tenure), e);
}

int route_node_lease_end(struct http_request *req, struct err *e)
{
    int r = tenure_end(node_of(req)->tenure, e);

    return r < 0 ? r : http_reply_json_take(req, 200, tenure_json(node_of(req)->tenure), e);
}

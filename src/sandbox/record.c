/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/record.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/fs.h"
#include "model/lifetime.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RECORD_VERSION 1

void record_done(struct record *rec)
{
    json_decref(rec->env);
    rec->env = NULL;
    netpolicy_unref(rec->network);
    rec->network = NULL;
}

static int copy_field(json_t *root, const char *name, char *dst, size_t size)
{
    return str_copy(dst, size, json_get_string(root, name, ""));
}

int record_end_from_json(json_t *body, int64_t *ret_end_at_ms, enum sandbox_at_end *ret,
                         struct err *e)
{
    int64_t end_at_ms = json_get_int(body, "end_at_ms", 0);

    if (end_at_ms < 0) {
        return err_field(e, -EINVAL, "out_of_range", "end_at_ms",
                         "'end_at_ms' must be a time, or 0 for never");
    }
    if (!sandbox_at_end_parse(json_get_string(body, "at_end", ""), ret)) {
        return err_field(e, -EINVAL, "invalid_field", "at_end",
                         "'at_end' must be 'pause', 'sleep', 'stop' or ''");
    }
    *ret_end_at_ms = end_at_ms;
    return 0;
}

static int read_network(json_t *body, const struct netpolicy **ret, struct err *e)
{
    json_t *object = json_object_get(body, "network");
    struct netpolicy *policy = NULL;
    int r = json_is_object(object) ? netpolicy_stack_from_json(object, &policy, e) : 0;

    if (r == 0) {
        *ret = policy;
    }
    return r;
}

int record_from_request(json_t *body, struct record *ret, struct err *e)
{
    static const struct json_field fields[] = {
        {"id", JSON_FIELD_STRING, JSON_REQUIRED},
        {"template", JSON_FIELD_STRING, JSON_REQUIRED},
        {"vcpus", JSON_FIELD_INT, 0},
        {"memory_mib", JSON_FIELD_INT, 0},
        {"disk_mib", JSON_FIELD_INT, 0},
        {"env", JSON_FIELD_STRING_MAP, JSON_NULLABLE},
        {"metadata", JSON_FIELD_OBJECT, JSON_NULLABLE},
        {"org", JSON_FIELD_STRING, JSON_NULLABLE},
        {"project", JSON_FIELD_STRING, JSON_NULLABLE},
        {"policy", JSON_FIELD_OBJECT, JSON_NULLABLE},
        {"network", JSON_FIELD_OBJECT, JSON_NULLABLE},
        {"end_at_ms", JSON_FIELD_INT, 0},
        {"at_end", JSON_FIELD_STRING, 0},
    };
    struct record rec = {.state = SANDBOX_STATE_CREATING, .policy = policy_default()};
    uint8_t machine_id[16];
    int r = json_check_object(body, fields, ARRAY_SIZE(fields), e);

    if (r < 0) {
        return r;
    }
    if (!id_valid(ID_SANDBOX, json_get_string(body, "id", ""))) {
        return err_field(e, -EINVAL, "invalid_field", "id", "'id' is not a sandbox id");
    }
    r = shape_from_json(body, &rec.shape, e);
    if (r == 0 && json_is_object(json_object_get(body, "policy"))) {
        r = policy_from_json(json_object_get(body, "policy"), &rec.policy, e);
    }
    if (r == 0) {
        r = record_end_from_json(body, &rec.end_at_ms, &rec.at_end, e);
    }
    if (r < 0) {
        return r;
    }
    if (copy_field(body, "id", rec.id, sizeof(rec.id)) < 0 ||
        copy_field(body, "template", rec.template_name, sizeof(rec.template_name)) < 0 ||
        copy_field(body, "org", rec.org, sizeof(rec.org)) < 0 ||
        copy_field(body, "project", rec.project, sizeof(rec.project)) < 0) {
        return err_set(e, -EINVAL, "invalid_field", "a name is too long");
    }
    r = read_network(body, &rec.network, e);
    if (r < 0) {
        return r;
    }
    random_bytes(machine_id, sizeof(machine_id));
    hex_encode(machine_id, sizeof(machine_id), rec.machine_id);
    rec.env = json_is_object(json_object_get(body, "env"))
                  ? json_deep_copy(json_object_get(body, "env"))
                  : json_object();
    rec.created_at_ms = clock_wall_ms();
    *ret = rec;
    return 0;
}

void record_enter(struct record *rec, enum sandbox_state to)
{
    rec->state = to;
    lifetime_enter(&rec->end_at_ms, &rec->paused_at_ms, to, (int64_t)clock_wall_ms());
}

bool record_same_spec(const struct record *a, const struct record *b)
{
    return str_eq(a->template_name, b->template_name) && a->shape.vcpus == b->shape.vcpus &&
           a->shape.memory_mib == b->shape.memory_mib && a->shape.disk_mib == b->shape.disk_mib &&
           json_equal(a->env, b->env) && str_eq(a->org, b->org) && str_eq(a->project, b->project);
}

json_t *record_to_json(const struct record *rec)
{
    json_t *root = json_pack(
        "{s:i, s:s, s:s, s:i, s:i, s:i, s:O, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:i, s:i, "
        "s:i, s:b}",
        "version", RECORD_VERSION, "id", rec->id, "template", rec->template_name, "vcpus",
        (int)rec->shape.vcpus, "memory_mib", (int)rec->shape.memory_mib, "disk_mib",
        (int)rec->shape.disk_mib, "env", rec->env, "org", rec->org, "project", rec->project,
        "machine_id", rec->machine_id, "state", sandbox_state_name(rec->state), "reason",
        rec->reason, "created_at_ms", (json_int_t)rec->created_at_ms, "started_at_ms",
        (json_int_t)rec->started_at_ms, "accel", rec->accel == QEMU_ACCEL_KVM ? "kvm" : "tcg",
        "disk_n", (int)rec->disk_n, "last_n", (int)rec->last_n, "parent_n", (int)rec->parent_n,
        "wake_on_request", rec->wake_on_request);

    ASSERT(root);
    json_object_set_new(root, "policy", policy_to_json(&rec->policy));
    if (rec->network) {
        json_object_set(root, "network", netpolicy_json(rec->network));
    }
    json_object_set_new(root, "end_at_ms", json_integer(rec->end_at_ms));
    json_object_set_new(root, "at_end", json_string(sandbox_at_end_name(rec->at_end)));
    json_object_set_new(root, "paused_at_ms", json_integer(rec->paused_at_ms));
    json_object_set_new(root, "origin", json_string(rec->origin));
    json_object_set_new(root, "origin_n", json_integer(rec->origin_n));
    json_object_set_new(root, "durable_at_ms", json_integer((json_int_t)rec->durable_at_ms));
    if (rec->has_machine) {
        json_object_set_new(root, "machine",
                            json_pack("{s:s, s:i, s:I, s:i}", "id", rec->machine.id, "pid",
                                      rec->machine.pid, "start_time",
                                      (json_int_t)rec->machine.start_time, "slot",
                                      (int)rec->machine.slot));
    }
    return root;
}

static int machine_from_json(json_t *m, struct record *rec)
{
    int64_t slot = json_get_int(m, "slot", -1);

    if (!m) {
        return 0;
    }
    if (copy_field(m, "id", rec->machine.id, sizeof(rec->machine.id)) < 0 || slot < 0 ||
        slot > (int64_t)PRIV_MACHINE_SLOT_MAX) {
        return -EBADMSG;
    }
    rec->machine.pid = (int32_t)json_get_int(m, "pid", 0);
    rec->machine.start_time = (uint64_t)json_get_int(m, "start_time", 0);
    rec->machine.slot = (uint32_t)slot;
    rec->has_machine = true;
    return 0;
}

int record_from_json(json_t *root, struct record *ret)
{
    struct record rec = {.policy = policy_default()};
    json_t *env = json_object_get(root, "env");
    json_t *policy = json_object_get(root, "policy");

    if (json_get_int(root, "version", 0) != RECORD_VERSION || !json_is_object(env) ||
        copy_field(root, "id", rec.id, sizeof(rec.id)) < 0 || !id_valid(ID_SANDBOX, rec.id) ||
        copy_field(root, "template", rec.template_name, sizeof(rec.template_name)) < 0 ||
        copy_field(root, "org", rec.org, sizeof(rec.org)) < 0 ||
        copy_field(root, "project", rec.project, sizeof(rec.project)) < 0 ||
        copy_field(root, "machine_id", rec.machine_id, sizeof(rec.machine_id)) < 0 ||
        copy_field(root, "reason", rec.reason, sizeof(rec.reason)) < 0 ||
        record_end_from_json(root, &rec.end_at_ms, &rec.at_end, NULL) < 0 ||
        copy_field(root, "origin", rec.origin, sizeof(rec.origin)) < 0 ||
        !sandbox_state_parse(json_get_string(root, "state", ""), &rec.state) ||
        shape_from_json(root, &rec.shape, NULL) < 0 ||
        (policy && policy_from_json(policy, &rec.policy, NULL) < 0) ||
        machine_from_json(json_object_get(root, "machine"), &rec) < 0 ||
        read_network(root, &rec.network, NULL) < 0) {
        return -EBADMSG;
    }
    rec.accel =
        str_eq(json_get_string(root, "accel", "tcg"), "kvm") ? QEMU_ACCEL_KVM : QEMU_ACCEL_TCG;
    rec.created_at_ms = (uint64_t)json_get_int(root, "created_at_ms", 0);
    rec.started_at_ms = (uint64_t)json_get_int(root, "started_at_ms", 0);
    rec.paused_at_ms = json_get_int(root, "paused_at_ms", 0);
    rec.durable_at_ms = (uint64_t)json_get_int(root, "durable_at_ms", 0);
    rec.origin_n = (uint32_t)json_get_int(root, "origin_n", 0);
    rec.disk_n = (uint32_t)json_get_int(root, "disk_n", 0);
    rec.last_n = (uint32_t)json_get_int(root, "last_n", 0);
    rec.parent_n = (uint32_t)json_get_int(root, "parent_n", 0);
    rec.wake_on_request = json_get_bool(root, "wake_on_request", false);
    rec.env = json_incref(env);
    *ret = rec;
    return 0;
}

static void file_name(const char *id, char ret[static ID_SIZE + 6])
{
    snprintf(ret, ID_SIZE + 6, "%.*s.json", ID_LEN, id);
}

static int write_replaced(int dir_fd, const char *name, const struct buf *text)
{
    cleanup_close int fd = FD_NONE;
    char temp[ID_SIZE + 12];
    int r;

    snprintf(temp, sizeof(temp), ".%s", name);
    fd = openat(dir_fd, temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -errno;
    }
    r = fs_write_all(fd, text->data, text->len);
    if (r == 0 && renameat(dir_fd, temp, dir_fd, name) < 0) {
        r = -errno;
    }
    return r;
}

int record_write(int records_fd, const struct record *rec, enum record_durability durability)
{
    cleanup_json json_t *root = record_to_json(rec);
    cleanup_buf struct buf text = BUF_INIT(RECORD_MAX);
    char name[ID_SIZE + 6];
    int r = FAULT("record.write") ? -EIO : json_write(root, &text);

    if (r < 0) {
        return r;
    }
    file_name(rec->id, name);
    if (durability == RECORD_SURVIVES_HOST) {
        return fs_write_file_durable(records_fd, name, text.data, text.len, 0600);
    }
    return write_replaced(records_fd, name, &text);
}

int record_remove(int records_fd, const char *id)
{
    char name[ID_SIZE + 6];

    file_name(id, name);
    if (unlinkat(records_fd, name, 0) < 0 && errno != ENOENT) {
        return -errno;
    }
    return 0;
}

int record_read(int records_fd, const char *id, struct record *ret)
{
    cleanup_buf struct buf text = BUF_INIT(RECORD_MAX);
    cleanup_json json_t *root = NULL;
    char name[ID_SIZE + 6];
    int r;

    file_name(id, name);
    r = fs_read_file(records_fd, name, &text);
    if (r < 0) {
        return r;
    }
    if (json_parse_object(buf_str(&text), text.len, &root, NULL) < 0) {
        return -EBADMSG;
    }
    return record_from_json(root, ret);
}

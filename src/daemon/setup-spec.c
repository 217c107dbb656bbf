/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/setup-spec.h"

#include "base/base64.h"
#include "base/json.h"
#include "daemon/trust.h"

#include <string.h>

static const struct json_field identity_fields[] = {
    {"hostname", JSON_FIELD_STRING, 0},       {"epoch_ns", JSON_FIELD_INT, 0},
    {"entropy_base64", JSON_FIELD_STRING, 0}, {"machine_id", JSON_FIELD_STRING, 0},
    {"env", JSON_FIELD_STRING_MAP, 0},        {"authority", JSON_FIELD_STRING, 0},
    {"ssh_host_key", JSON_FIELD_STRING, 0},
};
static const struct json_field setup_fields[] = {
    {"hostname", JSON_FIELD_STRING, 0},       {"epoch_ns", JSON_FIELD_INT, 0},
    {"entropy_base64", JSON_FIELD_STRING, 0}, {"machine_id", JSON_FIELD_STRING, 0},
    {"env", JSON_FIELD_STRING_MAP, 0},        {"default_user", JSON_FIELD_STRING, JSON_NULLABLE},
    {"disk", JSON_FIELD_OBJECT, 0},           {"rehearse", JSON_FIELD_BOOL, 0},
    {"limits", JSON_FIELD_OBJECT, 0},         {"authority", JSON_FIELD_STRING, 0},
    {"ssh_host_key", JSON_FIELD_STRING, 0},
};
static const struct json_field disk_fields[] = {
    {"device", JSON_FIELD_STRING, JSON_REQUIRED},
    {"fstype", JSON_FIELD_STRING, JSON_REQUIRED},
    {"size_bytes", JSON_FIELD_INT, 0},
    {"fresh", JSON_FIELD_BOOL, 0},
};
static const struct json_field limit_fields[] = {
    {"max_processes", JSON_FIELD_INT, 0},
};

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define DIGITS "0123456789"

/* Copies a string made of the given characters only. */
static int take_string(const char *value, const char *field, const char *chars, char *ret,
                       size_t size, struct err *e)
{
    if (value[strspn(value, chars)] != '\0' || str_copy(ret, size, value) < 0) {
        return err_field(e, -EINVAL, "invalid_request", field,
                         "'%s' has characters it may not have, or too many", field);
    }
    return 0;
}

static int take_entropy(json_t *body, struct setup_spec *s, struct err *e)
{
    const char *text = json_get_string(body, "entropy_base64", "");
    cleanup_buf struct buf bytes = BUF_INIT(SETUP_ENTROPY_MAX);

    if (base64_decode(text, strlen(text), &bytes) < 0) {
        return err_field(e, -EINVAL, "invalid_request", "entropy_base64",
                         "'entropy_base64' must be base64 of at most %d bytes", SETUP_ENTROPY_MAX);
    }
    if (bytes.len > 0) {
        memcpy(s->entropy, bytes.data, bytes.len);
    }
    s->n_entropy = bytes.len;
    return 0;
}

static int take_identity(json_t *body, struct setup_spec *s, struct err *e)
{
    const struct json_bounds clock = {0, INT64_MAX, 0};
    int r = take_string(json_get_string(body, "hostname", ""), "hostname", LOWER DIGITS "-.",
                        s->hostname, sizeof(s->hostname), e);

    if (r == 0) {
        r = json_get_bounded(body, "epoch_ns", clock, &s->epoch_ns, e);
    }
    if (r == 0) {
        r = take_entropy(body, s, e);
    }
    if (r == 0) {
        r = take_string(json_get_string(body, "machine_id", ""), "machine_id", "abcdef" DIGITS,
                        s->machine_id, sizeof(s->machine_id), e);
    }
    if (r == 0 && s->machine_id[0] && strlen(s->machine_id) != 32) {
        r = err_field(e, -EINVAL, "invalid_request", "machine_id",
                      "'machine_id' must be 32 hex digits");
    }
    return r;
}

static int take_env(json_t *env, struct setup_spec *s, struct err *e)
{
    const char *key;
    json_t *value;
    size_t bytes = 0;
    size_t n = 0;

    if (!env) {
        return 0;
    }
    s->env = xnew_n(char *, SETUP_ENV_MAX + 1);
    json_object_foreach(env, key, value)
    {
        bytes += strlen(key) + json_string_length(value) + 2;
        if (n >= SETUP_ENV_MAX || bytes > SETUP_ENV_BYTES_MAX || !key[0] || strchr(key, '=') ||
            strlen(json_string_value(value)) != json_string_length(value)) {
            return err_field(e, -EINVAL, "invalid_request", "env",
                             "'env' has a name that is empty or holds '=', or is too large");
        }
        s->env[n++] = xasprintf("%s=%s", key, json_string_value(value));
    }
    return 0;
}

/* One certificate in PEM: nothing else goes into the system's bundle. */
static int take_authority(json_t *body, struct setup_spec *s, struct err *e)
{
    static const char begin[] = "-----BEGIN CERTIFICATE-----\n";
    static const char end[] = "\n-----END CERTIFICATE-----\n";
    static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" LOWER DIGITS "+/=\n";
    const char *pem = json_get_string(body, "authority", NULL);
    size_t len = pem ? strlen(pem) : 0;

    if (!pem) {
        return 0;
    }
    if (len > TRUST_PEM_MAX || len < sizeof(begin) + sizeof(end) || !str_starts(pem, begin) ||
        !str_eq(pem + len - (sizeof(end) - 1), end) ||
        strspn(pem + sizeof(begin) - 1, base64) != len - (sizeof(begin) - 1) - (sizeof(end) - 2)) {
        return err_field(e, -EINVAL, "invalid_request", "authority",
                         "'authority' must be one certificate in PEM");
    }
    s->authority = xstrdup(pem);
    return 0;
}

/* It goes into a script: nothing but a key. */
static int take_ssh_host_key(json_t *body, struct setup_spec *s, struct err *e)
{
    static const char begin[] = "ssh-ed25519 ";
    static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" LOWER DIGITS "+/=";
    const char *line = json_get_string(body, "ssh_host_key", NULL);
    size_t len = line ? strlen(line) : 0;

    if (!line) {
        return 0;
    }
    if (len > TRUST_SSH_MAX || len < sizeof(begin) + 40 || !str_starts(line, begin) ||
        strspn(line + sizeof(begin) - 1, base64) != len - (sizeof(begin) - 1)) {
        return err_field(e, -EINVAL, "invalid_request", "ssh_host_key",
                         "'ssh_host_key' must be one public key of Ed25519");
    }
    s->ssh_host_key = xstrdup(line);
    return 0;
}

static int take_disk(json_t *disk, struct setup_spec *s, struct err *e)
{
    int r;

    if (!disk) {
        return 0;
    }
    r = json_check_object(disk, disk_fields, ARRAY_SIZE(disk_fields), e);
    if (r < 0) {
        return r;
    }
    r = json_get_bounded(disk, "size_bytes", (struct json_bounds){0, INT64_MAX, 0}, &s->disk_bytes,
                         e);
    if (r < 0) {
        return r;
    }
    s->disk_fresh = json_get_bool(disk, "fresh", false);
    r = take_string(json_get_string(disk, "device", ""), "device", "/" LOWER DIGITS, s->device,
                    sizeof(s->device), e);
    if (r == 0 && !str_starts(s->device, "/dev/vd")) {
        r = err_field(e, -EINVAL, "invalid_request", "device", "'device' must be a /dev/vd...");
    }
    if (r == 0) {
        r = take_string(json_get_string(disk, "fstype", ""), "fstype", LOWER DIGITS, s->fstype,
                        sizeof(s->fstype), e);
    }
    if (r == 0 && !str_eq(s->fstype, "ext4")) {
        r = err_field(e, -EINVAL, "invalid_request", "fstype", "'fstype' must be ext4");
    }
    return r;
}

static int take_limits(json_t *limits, struct setup_spec *s, struct err *e)
{
    const struct json_bounds processes = {16, 4000000, 0};
    int r;

    if (!limits) {
        return 0;
    }
    r = json_check_object(limits, limit_fields, ARRAY_SIZE(limit_fields), e);
    return r < 0 ? r : json_get_bounded(limits, "max_processes", processes, &s->max_processes, e);
}

int identity_spec_parse(json_t *body, struct setup_spec *ret, struct err *e)
{
    struct setup_spec s = {0};
    int r = json_check_object(body, identity_fields, ARRAY_SIZE(identity_fields), e);

    if (r == 0) {
        r = take_identity(body, &s, e);
    }
    if (r == 0) {
        r = take_env(json_object_get(body, "env"), &s, e);
    }
    if (r == 0) {
        r = take_authority(body, &s, e);
    }
    r = r < 0 ? r : take_ssh_host_key(body, &s, e);
    if (r < 0) {
        setup_spec_done(&s);
        return r;
    }
    *ret = s;
    return 0;
}

int setup_spec_parse(json_t *body, struct setup_spec *ret, struct err *e)
{
    struct setup_spec s = {0};
    const char *user;
    int r = json_check_object(body, setup_fields, ARRAY_SIZE(setup_fields), e);

    if (r < 0) {
        return r;
    }
    s.rehearse = json_get_bool(body, "rehearse", false);
    r = take_identity(body, &s, e);
    if (r == 0) {
        r = take_env(json_object_get(body, "env"), &s, e);
    }
    if (r == 0) {
        r = take_authority(body, &s, e);
    }
    r = r < 0 ? r : take_ssh_host_key(body, &s, e);
    user = json_get_string(body, "default_user", "");
    if (r == 0 && str_copy(s.default_user, sizeof(s.default_user), user) < 0) {
        r = err_field(e, -EINVAL, "invalid_request", "default_user", "'default_user' is too long");
    }
    if (r == 0) {
        r = take_disk(json_object_get(body, "disk"), &s, e);
    }
    if (r == 0) {
        r = take_limits(json_object_get(body, "limits"), &s, e);
    }
    if (r < 0) {
        setup_spec_done(&s);
        return r;
    }
    *ret = s;
    return 0;
}

void setup_spec_done(struct setup_spec *s)
{
    for (size_t i = 0; s->env && s->env[i]; i++) {
        free(s->env[i]);
    }
    free(s->env);
    free(s->authority);
    s->authority = NULL;
    free(s->ssh_host_key);
    s->ssh_host_key = NULL;
    s->env = NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A credential as JSON, both ways. */
#include "credential/credential.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "credential/ssh-key.h"
#include "wire/http1.h"
#include "wire/url.h"

#define PORT_HTTPS 443
#define PORT_SSH 22

/* Fields that we print ourselves, or that say how a message is framed or a connection kept. */
static const char *const ours_alone[] = {
    "host",    "connection", "content-length", "transfer-encoding", "te",     "trailer",
    "upgrade", "keep-alive", "expect",         "accept-encoding",   "cookie", "proxy-connection"};

/* Copies a text that must fit and consist of visible characters (and spaces). */
static int copy_text(json_t *json, const char *field, char *ret, size_t size, struct err *e)
{
    const char *text = json_get_string(json, field, "");

    for (const char *s = text; *s; s++) {
        if ((unsigned char)*s < 0x20 || (unsigned char)*s >= 0x7f) {
            return err_field(e, -EINVAL, "invalid_field", field,
                             "'%s' must consist of printable ASCII characters", field);
        }
    }
    if (str_copy(ret, size, text) < 0) {
        return err_field(e, -EINVAL, "invalid_field", field, "'%s' is longer than %zu characters",
                         field, size - 1);
    }
    return 0;
}

static int methods_from_json(json_t *list, struct credential_target *ret, struct err *e)
{
    size_t n = json_array_size(list);

    if (n > CREDENTIAL_METHODS_MAX) {
        return err_field(e, -EINVAL, "invalid_field", "target.methods", "at most %u methods",
                         CREDENTIAL_METHODS_MAX);
    }
    for (size_t i = 0; i < n; i++) {
        const char *m = json_string_value(json_array_get(list, i));
        bool fine = m && http1_is_token(m, strlen(m)) && strlen(m) < CREDENTIAL_METHOD_SIZE;

        for (const char *s = m; fine && *s; s++) {
            fine = isupper((unsigned char)*s) || *s == '-';
        }
        if (!fine) {
            return err_field(e, -EINVAL, "invalid_field", "target.methods",
                             "a method is a word in capitals, like GET");
        }
        snprintf(ret->methods[i], CREDENTIAL_METHOD_SIZE, "%s", m);
    }
    ret->n_methods = n;
    return 0;
}

/* port: the usual one. */
static int target_from_json(json_t *json, int64_t port, struct credential_target *ret,
                            struct err *e)
{
    static const struct json_field fields[] = {
        {"host", JSON_FIELD_STRING, JSON_REQUIRED},
        {"port", JSON_FIELD_INT, 0},
        {"path", JSON_FIELD_STRING, 0},
        {"methods", JSON_FIELD_ARRAY, 0},
    };
    const char *host = json_get_string(json, "host", "");
    const char *path = json_get_string(json, "path", "/");
    struct credential_target t = {0};
    size_t len = strlen(path);
    int r;

    r = json_check_object(json, fields, ARRAY_SIZE(fields), e);
    if (r == 0) {
        r = json_get_bounded(
            json, "port", (struct json_bounds){.min = 1, .max = 65535, .fallback = port}, &port, e);
    }
    if (r < 0) {
        return r;
    }
    t.port = (uint16_t)port;
    if (strlen(host) >= sizeof(t.host)) {
        host = "";
    }
    for (size_t i = 0; host[i]; i++) {
        t.host[i] = (char)tolower((unsigned char)host[i]);
    }
    if (!credential_host_valid(t.host)) {
        return err_field(e, -EINVAL, "invalid_field", "target.host",
                         "the host must be a name like api.example.com or *.example.com");
    }
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    if (len >= sizeof(t.path)) {
        return err_field(e, -EINVAL, "invalid_field", "target.path",
                         "the path is longer than %u bytes", CREDENTIAL_PATH_SIZE - 1);
    }
    memcpy(t.path, path, len);
    if (!credential_path_plain(t.path)) {
        return err_field(e, -EINVAL, "invalid_field", "target.path",
                         "the path must begin with '/' and have no empty or dot segments");
    }
    r = methods_from_json(json_object_get(json, "methods"), &t, e);
    if (r == 0) {
        *ret = t;
    }
    return r;
}

static int surfaces_from_json(json_t *list, unsigned *ret, struct err *e)
{
    static const char *const names[] = {"header", "query", "body"};

    *ret = list ? 0 : CREDENTIAL_IN_HEADER;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        size_t at = 0;

        while (name && at < ARRAY_SIZE(names) && !str_eq(name, names[at])) {
            at++;
        }
        if (!name || at == ARRAY_SIZE(names)) {
            *ret = 0;
            break;
        }
        *ret |= 1u << at;
    }
    return *ret ? 0
                : err_field(e, -EINVAL, "invalid_field", "inject.in",
                            "'in' is a list of header, query and body");
}

static int field_name_valid(const struct credential_inject *in, struct err *e)
{
    bool needed = in->type == CREDENTIAL_HEADER || in->type == CREDENTIAL_QUERY ||
                  in->type == CREDENTIAL_COOKIE || in->type == CREDENTIAL_BODY;
    bool token = in->type == CREDENTIAL_HEADER || in->type == CREDENTIAL_COOKIE;

    if (needed != (in->name[0] != '\0') || (token && !http1_is_token(in->name, strlen(in->name)))) {
        return err_field(e, -EINVAL, "invalid_field", "inject.name",
                         needed ? "'%s' needs a 'name': of the header, parameter, cookie or field"
                                : "'%s' takes no 'name'",
                         credential_type_name(in->type));
    }
    for (size_t i = 0; in->type == CREDENTIAL_HEADER && i < ARRAY_SIZE(ours_alone); i++) {
        if (strcasecmp(in->name, ours_alone[i]) == 0) {
            return err_field(e, -EINVAL, "invalid_field", "inject.name",
                             "the header '%s' cannot carry a credential", in->name);
        }
    }
    return 0;
}

static int url_is_https(const char *text)
{
    struct url url;

    return url_parse(text, &url) == 0 && url.scheme == URL_HTTPS && str_starts(text, "https://");
}

static int ssh_texts(json_t *list, const char *field,
                     int (*add)(struct ssh_rule *rule, const char *text), struct ssh_rule *rule,
                     struct err *e)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        int r = text ? add(rule, text) : -EINVAL;

        if (r < 0) {
            return err_field(e, -EINVAL, "invalid_field", field,
                             r == -E2BIG ? "'%s' has more than 8 entries"
                                         : "'%s' has an entry that is none",
                             field);
        }
    }
    return 0;
}

/* Who logs in, to which keys of the host, for what. Nothing of it for other types. */
static int ssh_from_json(json_t *json, struct credential_inject *in, struct err *e)
{
    json_t *keys = json_object_get(json, "host_keys");
    json_t *commands = json_object_get(json, "commands");
    int r;

    if (in->type != CREDENTIAL_SSH) {
        return keys || commands ? err_field(e, -EINVAL, "invalid_field", "inject",
                                            "'host_keys' and 'commands' belong to the type 'ssh'")
                                : 0;
    }
    if (!in->user[0] || strpbrk(in->user, " :/@")) {
        return err_field(e, -EINVAL, "invalid_field", "inject.user",
                         "'ssh' needs the 'user' to log in as, like git");
    }
    r = ssh_texts(keys, "host_keys", ssh_rule_add_key, &in->ssh, e);
    r = r < 0 ? r : ssh_texts(commands, "commands", ssh_rule_add_command, &in->ssh, e);
    if (r == 0 && in->ssh.n_keys == 0) {
        r = err_field(e, -EINVAL, "invalid_field", "inject.host_keys",
                      "'ssh' needs the 'host_keys' that the host may have: lines like those of "
                      "ssh-keyscan without the host, or SHA256: fingerprints");
    }
    return r;
}

/* What each type cannot do without. */
static int inject_complete(struct credential_inject *in, struct err *e)
{
    if (in->type == CREDENTIAL_GITHUB_APP && !in->token_url[0]) {
        snprintf(in->token_url, sizeof(in->token_url), "https://api.github.com");
    }
    if (in->type == CREDENTIAL_BASIC && strchr(in->user, ':')) {
        return err_field(e, -EINVAL, "invalid_field", "inject.user", "a user has no colon");
    }
    if ((in->type == CREDENTIAL_OAUTH2 || in->type == CREDENTIAL_GITHUB_APP) &&
        !url_is_https(in->token_url)) {
        return err_field(e, -EINVAL, "invalid_field", "inject.token_url",
                         "'token_url' must be an https:// address");
    }
    if ((in->type == CREDENTIAL_OAUTH2 || in->type == CREDENTIAL_SIGV4 ||
         in->type == CREDENTIAL_GITHUB_APP) &&
        !in->client_id[0]) {
        return err_field(e, -EINVAL, "invalid_field", "inject.client_id",
                         "'%s' needs a 'client_id' (the access key id, the app's id)",
                         credential_type_name(in->type));
    }
    if (in->type == CREDENTIAL_GITHUB_APP &&
        (!in->installation[0] ||
         strspn(in->installation, "0123456789") != strlen(in->installation))) {
        return err_field(e, -EINVAL, "invalid_field", "inject.installation",
                         "'github_app' needs the number of an 'installation'");
    }
    return field_name_valid(in, e);
}

static int inject_from_json(json_t *json, struct credential_inject *ret, struct err *e)
{
    static const struct json_field fields[] = {
        {"type", JSON_FIELD_STRING, JSON_REQUIRED},
        {"name", JSON_FIELD_STRING, 0},
        {"prefix", JSON_FIELD_STRING, 0},
        {"user", JSON_FIELD_STRING, 0},
        {"in", JSON_FIELD_ARRAY, 0},
        {"token_url", JSON_FIELD_STRING, 0},
        {"client_id", JSON_FIELD_STRING, 0},
        {"scope", JSON_FIELD_STRING, 0},
        {"refresh", JSON_FIELD_BOOL, 0},
        {"installation", JSON_FIELD_STRING, 0},
        {"region", JSON_FIELD_STRING, 0},
        {"service", JSON_FIELD_STRING, 0},
        {"host_keys", JSON_FIELD_ARRAY, 0},
        {"commands", JSON_FIELD_ARRAY, 0},
    };
    struct credential_inject in = {.refresh = json_get_bool(json, "refresh", false)};
    const struct {
        const char *field;
        char *to;
        size_t size;
    } texts[] = {
        {"name", in.name, sizeof(in.name)},
        {"prefix", in.prefix, sizeof(in.prefix)},
        {"user", in.user, sizeof(in.user)},
        {"token_url", in.token_url, sizeof(in.token_url)},
        {"client_id", in.client_id, sizeof(in.client_id)},
        {"scope", in.oauth_scope, sizeof(in.oauth_scope)},
        {"installation", in.installation, sizeof(in.installation)},
        {"region", in.region, sizeof(in.region)},
        {"service", in.service, sizeof(in.service)},
    };
    int r = json_check_object(json, fields, ARRAY_SIZE(fields), e);

    if (r < 0) {
        return r;
    }
    while (in.type < CREDENTIAL_TYPE_COUNT_ &&
           !str_eq(credential_type_name(in.type), json_get_string(json, "type", ""))) {
        in.type++;
    }
    if (in.type == CREDENTIAL_TYPE_COUNT_) {
        return err_field(e, -EINVAL, "invalid_field", "inject.type",
                         "there is no way of injection '%.40s'", json_get_string(json, "type", ""));
    }
    for (size_t i = 0; i < ARRAY_SIZE(texts) && r == 0; i++) {
        r = copy_text(json, texts[i].field, texts[i].to, texts[i].size, e);
    }
    if (r == 0) {
        r = surfaces_from_json(json_object_get(json, "in"), &in.surfaces, e);
    }
    r = r < 0 ? r : inject_complete(&in, e);
    r = r < 0 ? r : ssh_from_json(json, &in, e);
    if (r == 0) {
        *ret = in;
    }
    return r;
}

static int rate_from_json(json_t *json, struct credential *c, struct err *e)
{
    static const struct json_field fields[] = {
        {"uses", JSON_FIELD_INT, JSON_REQUIRED},
        {"per_s", JSON_FIELD_INT, JSON_REQUIRED},
    };
    struct json_bounds uses = {.min = 1, .max = CREDENTIAL_RATE_MAX};
    struct json_bounds per = {.min = 1, .max = 86400};
    int r;

    if (!json || json_is_null(json)) {
        c->rate_count = c->rate_s = 0;
        return 0;
    }
    r = json_check_object(json, fields, ARRAY_SIZE(fields), e);
    r = r < 0 ? r : json_get_bounded(json, "uses", uses, &c->rate_count, e);
    return r < 0 ? r : json_get_bounded(json, "per_s", per, &c->rate_s, e);
}

static int scope_from_json(json_t *json, struct credential *c, struct err *e)
{
    const char *scope = json_get_string(json, "scope", "project");
    const char *sandbox = json_get_string(json, "sandbox", "");

    while (c->scope < CREDENTIAL_SCOPE_COUNT_ && !str_eq(credential_scope_name(c->scope), scope)) {
        c->scope++;
    }
    if (c->scope == CREDENTIAL_SCOPE_COUNT_) {
        return err_field(e, -EINVAL, "invalid_field", "scope",
                         "a scope is 'organisation', 'project' or 'sandbox'");
    }
    if ((c->scope == CREDENTIAL_SANDBOX) != id_valid(ID_SANDBOX, sandbox) ||
        (c->scope != CREDENTIAL_SANDBOX && sandbox[0])) {
        return err_field(e, -EINVAL, "invalid_field", "sandbox",
                         "the scope 'sandbox', and only that, needs the id of a sandbox");
    }
    snprintf(c->sandbox, sizeof(c->sandbox), "%s", sandbox);
    return 0;
}

static const struct json_field public_fields[] = {
    {"name", JSON_FIELD_STRING, JSON_REQUIRED},
    {"scope", JSON_FIELD_STRING, 0},
    {"sandbox", JSON_FIELD_STRING, 0},
    {"target", JSON_FIELD_OBJECT, JSON_REQUIRED},
    {"inject", JSON_FIELD_OBJECT, JSON_REQUIRED},
    {"value", JSON_FIELD_STRING, 0},
    {"vault", JSON_FIELD_STRING, 0},
    {"ref", JSON_FIELD_STRING, 0},
    {"expires_at_ms", JSON_FIELD_INT, 0},
    {"rate", JSON_FIELD_OBJECT, JSON_NULLABLE},
};

/* A webhook is told at one place. */
static int target_suits(const struct credential *c, struct err *e)
{
    if (c->inject.type == CREDENTIAL_WEBHOOK &&
        (c->target.host[0] == '*' || c->target.n_methods > 0)) {
        return err_field(e, -EINVAL, "invalid_field", "target",
                         "the target of a webhook is one host, a port and a path");
    }
    if (c->inject.type == CREDENTIAL_SSH &&
        (!str_eq(c->target.path, "/") || c->target.n_methods > 0)) {
        return err_field(e, -EINVAL, "invalid_field", "target",
                         "the target of 'ssh' is a host and a port");
    }
    return 0;
}

static int64_t usual_port(const struct credential *c)
{
    return c->inject.type == CREDENTIAL_SSH ? PORT_SSH : PORT_HTTPS;
}

/* What both the public and the private form say. */
static int common_from_json(json_t *json, struct credential *c, struct err *e)
{
    struct json_bounds times = {.min = 0, .max = INT64_MAX, .fallback = 0};
    const char *name = json_get_string(json, "name", "");
    int r;

    if (!credential_name_valid(name)) {
        return err_field(e, -EINVAL, "invalid_field", "name",
                         "a name has 1 to %u letters, digits, '-', '_' and '.', and begins with a "
                         "letter or digit",
                         CREDENTIAL_NAME_SIZE - 1);
    }
    snprintf(c->name, sizeof(c->name), "%s", name);
    r = scope_from_json(json, c, e);
    r = r < 0 ? r : inject_from_json(json_object_get(json, "inject"), &c->inject, e);
    r = r < 0 ? r : target_from_json(json_object_get(json, "target"), usual_port(c), &c->target, e);
    r = r < 0 ? r : target_suits(c, e);
    r = r < 0 ? r : rate_from_json(json_object_get(json, "rate"), c, e);
    r = r < 0 ? r : json_get_bounded(json, "expires_at_ms", times, &c->expires_at_ms, e);
    r = r < 0 ? r : copy_text(json, "vault", c->vault, sizeof(c->vault), e);
    return r < 0 ? r : copy_text(json, "ref", c->ref, sizeof(c->ref), e);
}

int credential_from_json(json_t *json, struct credential *ret, struct err *e)
{
    struct credential c = {0};
    int r;

    ASSERT(json && ret);
    r = json_check_object(json, public_fields, ARRAY_SIZE(public_fields), e);
    r = r < 0 ? r : common_from_json(json, &c, e);
    if (r == 0) {
        *ret = c;
    }
    return r;
}

int credential_patch(json_t *json, struct credential *c, struct err *e)
{
    static const struct json_field fields[] = {
        {"target", JSON_FIELD_OBJECT, 0},
        {"value", JSON_FIELD_STRING, 0},
        {"expires_at_ms", JSON_FIELD_INT, 0},
        {"rate", JSON_FIELD_OBJECT, JSON_NULLABLE},
    };
    struct json_bounds times = {.min = 0, .max = INT64_MAX, .fallback = c->expires_at_ms};
    json_t *target = json_object_get(json, "target");
    json_t *rate = json_object_get(json, "rate");
    struct credential changed = *c;
    int r;

    r = json_check_object(json, fields, ARRAY_SIZE(fields), e);
    r = r < 0 || !target ? r : target_from_json(target, usual_port(c), &changed.target, e);
    r = r < 0 ? r : target_suits(&changed, e);
    r = r < 0 || !rate ? r : rate_from_json(rate, &changed, e);
    r = r < 0 ? r : json_get_bounded(json, "expires_at_ms", times, &changed.expires_at_ms, e);
    if (r == 0) {
        *c = changed;
    }
    return r;
}

static json_t *text_or_null(const char *s)
{
    return s[0] ? json_string(s) : NULL;
}

static json_t *target_json(const struct credential_target *t)
{
    json_t *methods = json_array();

    for (size_t i = 0; i < t->n_methods; i++) {
        json_array_append_new(methods, json_string(t->methods[i]));
    }
    return json_pack("{s:s, s:i, s:s, s:o}", "host", t->host, "port", (int)t->port, "path", t->path,
                     "methods", methods);
}

static json_t *texts_json(const char *first, size_t size, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) {
        json_array_append_new(list, json_string(first + i * size));
    }
    return list;
}

static json_t *inject_json(const struct credential_inject *in)
{
    json_t *json =
        json_pack("{s:s, s:o*, s:o*, s:o*, s:o*, s:o*, s:o*, s:o*, s:o*, s:o*}", "type",
                  credential_type_name(in->type), "name", text_or_null(in->name), "prefix",
                  text_or_null(in->prefix), "user", text_or_null(in->user), "token_url",
                  text_or_null(in->token_url), "client_id", text_or_null(in->client_id), "scope",
                  text_or_null(in->oauth_scope), "installation", text_or_null(in->installation),
                  "region", text_or_null(in->region), "service", text_or_null(in->service));

    ASSERT(json);
    if (in->refresh) {
        json_object_set_new(json, "refresh", json_true());
    }
    if (in->type == CREDENTIAL_SSH) {
        json_object_set_new(
            json, "host_keys",
            texts_json(&in->ssh.keys[0][0], sizeof(in->ssh.keys[0]), in->ssh.n_keys));
        json_object_set_new(
            json, "commands",
            texts_json(&in->ssh.commands[0][0], sizeof(in->ssh.commands[0]), in->ssh.n_commands));
    }
    if (in->type == CREDENTIAL_PLACEHOLDER) {
        static const char *const names[] = {"header", "query", "body"};
        json_t *list = json_array();

        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
            if (in->surfaces & (1u << i)) {
                json_array_append_new(list, json_string(names[i]));
            }
        }
        json_object_set_new(json, "in", list);
    }
    return json;
}

json_t *credential_json(const struct credential *c, bool private)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:o*, s:o*, s:o, s:o, s:s, s:I, s:I}", "id", c->id,
                             "name", c->name, "scope", credential_scope_name(c->scope), "project",
                             text_or_null(c->project), "sandbox", text_or_null(c->sandbox),
                             "target", target_json(&c->target), "inject", inject_json(&c->inject),
                             "vault", c->vault, "created_at_ms", (json_int_t)c->created_at_ms,
                             "rotated_at_ms", (json_int_t)c->rotated_at_ms);

    ASSERT(json);
    if (c->expires_at_ms) {
        json_object_set_new(json, "expires_at_ms", json_integer(c->expires_at_ms));
    }
    if (c->rate_count) {
        json_object_set_new(json, "rate",
                            json_pack("{s:I, s:I}", "uses", (json_int_t)c->rate_count, "per_s",
                                      (json_int_t)c->rate_s));
    }
    if (private || !c->ours) {
        json_object_set_new(json, "ref", json_string(c->ref));
    }
    if (private) {
        json_object_set_new(json, "organisation", json_string(c->organisation));
        json_object_set_new(json, "ours", json_boolean(c->ours));
    }
    return json;
}

int credential_from_private(json_t *json, struct credential *ret, struct err *e)
{
    struct credential c = {
        .created_at_ms = json_get_int(json, "created_at_ms", 0),
        .rotated_at_ms = json_get_int(json, "rotated_at_ms", 0),
        .ours = json_get_bool(json, "ours", false),
    };
    int r = common_from_json(json, &c, e);

    if (r < 0) {
        return r;
    }
    if (str_copy(c.id, sizeof(c.id), json_get_string(json, "id", "")) < 0 ||
        str_copy(c.organisation, sizeof(c.organisation),
                 json_get_string(json, "organisation", "")) < 0 ||
        str_copy(c.project, sizeof(c.project), json_get_string(json, "project", "")) < 0 ||
        !id_valid(ID_CREDENTIAL, c.id) || !id_valid(ID_ORGANISATION, c.organisation) ||
        (c.scope != CREDENTIAL_ORGANISATION && !id_valid(ID_PROJECT, c.project))) {
        return err_set(e, -EINVAL, NULL, "the stored credential '%s' has no proper ids", c.name);
    }
    *ret = c;
    return 0;
}

int credential_value_valid(const struct credential *c, const char *value, size_t len, struct err *e)
{
    bool free_form = c->inject.type == CREDENTIAL_GITHUB_APP || c->inject.type == CREDENTIAL_BODY ||
                     c->inject.type == CREDENTIAL_SSH; /* a PEM file */

    if (len < CREDENTIAL_VALUE_MIN || len > CREDENTIAL_VALUE_MAX) {
        return err_field(e, -EINVAL, "invalid_field", "value", "a value has %u to %u bytes",
                         CREDENTIAL_VALUE_MIN, CREDENTIAL_VALUE_MAX);
    }
    for (size_t i = 0; i < len; i++) {
        unsigned char ch = (unsigned char)value[i];

        if (ch == 0 || (!free_form && (ch < 0x20 || ch == 0x7f))) {
            return err_field(e, -EINVAL, "invalid_field", "value",
                             "the value has a control character (a line's end?), which cannot be "
                             "sent this way");
        }
    }
    if (!free_form && (value[0] == ' ' || value[len - 1] == ' ')) {
        return err_field(e, -EINVAL, "invalid_field", "value",
                         "the value begins or ends with a space");
    }
    if (c->inject.type == CREDENTIAL_SSH) {
        cleanup_ssh_key struct ssh_key key = {0};

        return ssh_key_parse(value, len, &key, e);
    }
    if (c->inject.type == CREDENTIAL_COOKIE && strpbrk(value, " \",;\\")) {
        return err_field(e, -EINVAL, "invalid_field", "value",
                         "the value has a character that a cookie cannot hold");
    }
    return 0;
}

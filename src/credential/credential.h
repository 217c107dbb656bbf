/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a credential is: a name, who may use it (scope), where it may go (target), how it gets there (method), until
 * when and how often. The value is not here; it stays in a vault. Pure: JSON to struct, struct to JSON, and the
 * decision which credentials a request gets.
 *
 * Scope. A credential belongs to an organisation, or to one of its projects, or to one sandbox. Of several with the
 * same name the nearest counts (sandbox, project, organisation), whether or not its target fits: a sandbox that has
 * its own "github" never falls back to the organisation's. Of several with different names that would fill the same
 * place of the same request, the nearest wins, then the longest path, then the exact host, then the first name.
 *
 * Target. A host name, exact or "*." and at least two labels (then any number of labels in its place, never none);
 * a port; a path prefix that ends at a border between segments; methods. Paths that another parser could read
 * differently (dot segments, also encoded; empty segments; backslashes; encoded slashes) fit only the prefix "/".
 *
 * Values are 8 bytes or more, so that an answer can be searched for them without damage, and have no control
 * characters where they become part of a head.
 */
#pragma once

#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "credential/ssh-rule.h"

#define CREDENTIAL_NAME_SIZE 64u
#define CREDENTIAL_HOST_SIZE 254u
#define CREDENTIAL_PATH_SIZE 256u
#define CREDENTIAL_METHODS_MAX 8u
#define CREDENTIAL_METHOD_SIZE 24u
#define CREDENTIAL_TEXT_SIZE 256u
#define CREDENTIAL_URL_SIZE 512u
#define CREDENTIAL_VALUE_MIN 8u
#define CREDENTIAL_VALUE_MAX 16384u
#define CREDENTIAL_RATE_MAX 100000

enum credential_scope {
    CREDENTIAL_ORGANISATION,
    CREDENTIAL_PROJECT,
    CREDENTIAL_SANDBOX,
    CREDENTIAL_SCOPE_COUNT_,
};

enum credential_type {
    CREDENTIAL_BEARER,      /* Authorization: Bearer VALUE */
    CREDENTIAL_HEADER,      /* NAME: PREFIX VALUE */
    CREDENTIAL_BASIC,       /* Authorization: Basic base64(USER:VALUE); also git over HTTPS */
    CREDENTIAL_QUERY,       /* ?NAME=VALUE */
    CREDENTIAL_COOKIE,      /* Cookie: NAME=VALUE */
    CREDENTIAL_BODY,        /* a field NAME of a JSON or form body */
    CREDENTIAL_PLACEHOLDER, /* {{credential name}} where the guest put it */
    CREDENTIAL_OAUTH2,      /* a bearer token that we fetch and renew; the value is the secret */
    CREDENTIAL_SIGV4,       /* the request is signed; the value is the secret access key */
    CREDENTIAL_GITHUB_APP,  /* an installation token that we fetch; the value is the app's key */
    CREDENTIAL_WEBHOOK, /* goes into no request: signs what we tell the target of questions (notify.h) */
    CREDENTIAL_SSH, /* goes into no request: logs in with SSH (manager-ssh.c); the value is a private key */
    CREDENTIAL_TYPE_COUNT_,
};

/* Where a placeholder is looked for. */
#define CREDENTIAL_IN_HEADER (1u << 0)
#define CREDENTIAL_IN_QUERY (1u << 1)
#define CREDENTIAL_IN_BODY (1u << 2)

struct credential_target {
    char host[CREDENTIAL_HOST_SIZE]; /* lower case */
    uint16_t port;
    char path[CREDENTIAL_PATH_SIZE]; /* "/" or "/a/b", without '/' at its end */
    char methods[CREDENTIAL_METHODS_MAX][CREDENTIAL_METHOD_SIZE];
    size_t n_methods; /* 0: any */
};

struct credential_inject {
    enum credential_type type;
    char name[CREDENTIAL_TEXT_SIZE];      /* header, query parameter, cookie, body field */
    char prefix[CREDENTIAL_TEXT_SIZE];    /* header: before the value, with its space */
    char user[CREDENTIAL_TEXT_SIZE];      /* basic; ssh */
    unsigned surfaces;                    /* placeholder: CREDENTIAL_IN_* */
    char token_url[CREDENTIAL_URL_SIZE];  /* oauth2; github_app: the API, https://api.github.com */
    char client_id[CREDENTIAL_TEXT_SIZE]; /* oauth2; sigv4: access key id; github_app: app id */
    char oauth_scope[CREDENTIAL_TEXT_SIZE];
    bool refresh;                            /* oauth2: the value is a refresh token */
    char installation[CREDENTIAL_TEXT_SIZE]; /* github_app */
    char region[CREDENTIAL_TEXT_SIZE];       /* sigv4; "": the one the guest signed for */
    char service[CREDENTIAL_TEXT_SIZE];
    struct ssh_rule ssh;
};

struct credential {
    char id[ID_SIZE];
    char name[CREDENTIAL_NAME_SIZE];
    enum credential_scope scope;
    char organisation[ID_SIZE];
    char project[ID_SIZE]; /* "" with the scope of the organisation */
    char sandbox[ID_SIZE]; /* "" but with the scope of a sandbox */
    struct credential_target target;
    struct credential_inject inject;
    char vault[16];                /* back end */
    char ref[CREDENTIAL_URL_SIZE]; /* where it is in there */
    bool ours;                     /* we wrote the value there and remove it with the credential */
    int64_t expires_at_ms;         /* 0: never */
    int64_t rate_count;            /* uses per rate_s seconds; 0: no limit */
    int64_t rate_s;
    int64_t created_at_ms;
    int64_t rotated_at_ms;
};

const char *credential_scope_name(enum credential_scope scope);
const char *credential_type_name(enum credential_type type);

/*
 * What a client says (POST /v1/credentials), without value, ids and times: those are the caller's. -EINVAL naming the
 * field.
 */
MUST_CHECK int credential_from_json(json_t *json, struct credential *ret, struct err *e);
/* A change (PATCH): only target, expires_at_ms and rate may be given. */
MUST_CHECK int credential_patch(json_t *json, struct credential *c, struct err *e);
/* The public object; there is no value in it. With private set also what only our own file needs. */
json_t *credential_json(const struct credential *c, bool private);
/* What credential_json() with private set wrote. */
MUST_CHECK int credential_from_private(json_t *json, struct credential *ret, struct err *e);
/* -EINVAL: the value does not fit the way it is injected. */
MUST_CHECK int credential_value_valid(const struct credential *c, const char *value, size_t len,
                                      struct err *e);

/* Who is asking and for what, all from our own gateway. */
struct credential_request {
    const char *organisation; /* all borrowed for the call */
    const char *project;
    const char *sandbox;
    const char *host; /* lower case, without a dot at its end */
    uint16_t port;
    const char *method;
    const char *path; /* without the query */
};

/* Does the scope include the sandbox? */
bool credential_in_scope(const struct credential *c, const struct credential_request *q);
/* Host and port only: is a connection to there worth looking into? */
bool credential_wants(const struct credential *c, const char *host, uint16_t port);
bool credential_target_fits(const struct credential_target *t, const struct credential_request *q);
/*
 * Of all, those that the request gets, best first in each place; ret has room for n. Expired ones are among them: the
 * caller refuses. Returns how many.
 */
size_t credential_choose(const struct credential *const *all, size_t n,
                         const struct credential_request *q, const struct credential **ret);
/* The nearest one of that name whatever its target; NULL. */
const struct credential *credential_named(const struct credential *const *all, size_t n,
                                          const struct credential_request *q, const char *name);

/* Who is told of a question in the request's sandbox: the nearest webhook, of several the first by name; NULL: nobody. */
const struct credential *credential_webhook(const struct credential *const *all, size_t n,
                                            const struct credential_request *q);

/* What a connection with SSH to the request's host and port logs in with; the best one, NULL: none. */
const struct credential *credential_ssh(const struct credential *const *all, size_t n,
                                        const struct credential_request *q);

/* Pure pieces, for tests. */
bool credential_host_valid(const char *pattern);
bool credential_host_fits(const char *pattern, const char *host);
bool credential_path_plain(const char *path);
bool credential_name_valid(const char *name);

/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Who owns what: organisations hold projects, projects hold sandboxes and keys. Plain values that may be
 * copied; nothing here does I/O.
 *
 * A key belongs to one project and acts on that project's things. Its scope says what else it may: manage the
 * organisation's projects and their keys ("organisation"), say how much the projects of anybody may hold ("operator":
 * who runs this SPACE), or nothing ("project"). Each scope may what the ones before it may.
 *
 * Keys look like e2b_ and 40 hex digits, because the e2b SDKs insist on that form. Only the SHA-256 of a
 * key is kept; people recognise it later by its first KEY_PREFIX_LEN characters.
 */
#pragma once

#include "base/err.h"
#include "base/id.h"

#include <stdint.h>

#define TENANT_NAME_MAX 63
#define TENANT_NAME_SIZE (TENANT_NAME_MAX + 1)

#define KEY_HEX_LEN 40
#define KEY_TEXT_LEN (4 + KEY_HEX_LEN)
#define KEY_TEXT_SIZE (KEY_TEXT_LEN + 1)
#define KEY_PREFIX_LEN 10
#define KEY_PREFIX_SIZE (KEY_PREFIX_LEN + 1)
#define KEY_HASH_SIZE 65 /* SHA-256 in hex */

/* What a project may hold until an operator says otherwise. */
#define PROJECT_MAX_SANDBOXES_DEFAULT 1000
#define PROJECT_MAX_SANDBOXES_LIMIT 1000000
/* What an organisation may make of them without an operator: quotas would mean nothing without a number. */
#define ORGANISATION_MAX_PROJECTS 100

enum key_scope {
    KEY_SCOPE_PROJECT,
    KEY_SCOPE_ORGANISATION,
    KEY_SCOPE_OPERATOR,
    KEY_SCOPE_COUNT_
};

struct organisation {
    char id[ID_SIZE];
    char name[TENANT_NAME_SIZE];
    int64_t created_at_ms;
};

struct project {
    char id[ID_SIZE];
    char organisation[ID_SIZE];
    char name[TENANT_NAME_SIZE];
    int64_t max_sandboxes;
    int64_t created_at_ms;
};

struct api_key {
    char id[ID_SIZE];
    char project[ID_SIZE];
    char organisation[ID_SIZE]; /* the project's; filled in by the database */
    enum key_scope scope;
    char name[TENANT_NAME_SIZE];
    char hash[KEY_HASH_SIZE];
    char prefix[KEY_PREFIX_SIZE];
    int64_t created_at_ms;
    int64_t last_used_at_ms; /* 0: never */
    int64_t revoked_at_ms;   /* 0: valid */
};

const char *key_scope_name(enum key_scope scope);
bool key_scope_parse(const char *word, enum key_scope *ret);

/* e2b_ and 40 lower-case hex digits. Takes any string. */
bool key_text_valid(const char *text);

/*
 * Names of organisations, projects and keys: 1 to 63 printable characters of UTF-8, no control characters,
 * no space at either end. -EINVAL with FIELD named.
 */
int tenant_name_check(const char *field, const char *name, struct err *e);

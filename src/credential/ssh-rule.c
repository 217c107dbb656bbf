/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/ssh-rule.h"

#include <ctype.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "wire/ssh-agent.h"

#define PREFIX "SHA256:"
#define DIGITS 43u
#define KEY_BLOB_MAX 4096u

static const char *const types[] = {"ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384",
                                    "ecdsa-sha2-nistp521", "ssh-rsa"};
static const char *const git[] = {"git-upload-pack", "git-receive-pack", "git-upload-archive"};

static bool is_fingerprint(const char *text)
{
    return str_starts(text, PREFIX) && strlen(text) == sizeof(PREFIX) - 1 + DIGITS &&
           strspn(text + sizeof(PREFIX) - 1,
                  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") == DIGITS;
}

/* The digest of what BASE64 says, if that is a key of the type. */
static int fingerprint_of(const char *type, const char *base64, char *ret, size_t size)
{
    cleanup_buf struct buf blob = BUF_INIT(KEY_BLOB_MAX);
    cleanup_buf struct buf text = BUF_INIT(128);
    unsigned char digest[32];
    struct ssh_view rest;
    struct ssh_view name;

    if (base64_decode(base64, strcspn(base64, " \t\n"), &blob) < 0) {
        return -EINVAL;
    }
    rest = (struct ssh_view){(const uint8_t *)blob.data, blob.len};
    if (ssh_take_string(&rest, &name) < 0 || !ssh_view_is(name, type) ||
        !EVP_Q_digest(NULL, "SHA256", NULL, blob.data, blob.len, digest, NULL) ||
        base64_encode(digest, sizeof(digest), &text) < 0) {
        return -EINVAL;
    }
    snprintf(ret, size, "%s %s%.*s", type, PREFIX, (int)DIGITS, buf_str(&text));
    return 0;
}

int ssh_rule_add_key(struct ssh_rule *rule, const char *text)
{
    char *to = rule->keys[rule->n_keys];
    size_t len = strcspn(text, " ");
    int r = -EINVAL;

    if (rule->n_keys == SSH_RULE_KEYS_MAX) {
        return -E2BIG;
    }
    if (is_fingerprint(text)) {
        snprintf(to, SSH_RULE_KEY_SIZE, "%s", text);
        r = 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(types) && text[len] == ' '; i++) {
        if (strlen(types[i]) == len && strncmp(text, types[i], len) == 0) {
            r = is_fingerprint(text + len + 1)
                    ? (snprintf(to, SSH_RULE_KEY_SIZE, "%s", text), 0)
                    : fingerprint_of(types[i], text + len + 1, to, SSH_RULE_KEY_SIZE);
        }
    }
    rule->n_keys += r == 0;
    return r;
}

static bool is_plain(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("._/:@=+,~-", c));
}

int ssh_rule_add_command(struct ssh_rule *rule, const char *text)
{
    size_t len = strlen(text);
    bool fine = str_eq(text, "*") || str_eq(text, "@shell") || str_eq(text, "@sftp");

    if (rule->n_commands == SSH_RULE_COMMANDS_MAX) {
        return -E2BIG;
    }
    for (size_t i = 0; !fine && is_plain(text[i]); i++) {
        fine = i + 1 == len && text[0] != '@' && text[0] != '-';
    }
    if (!fine || len >= SSH_RULE_COMMAND_SIZE) {
        return -EINVAL;
    }
    memcpy(rule->commands[rule->n_commands++], text, len + 1);
    return 0;
}

bool ssh_rule_knows(const struct ssh_rule *rule, const char *type, const char *fingerprint)
{
    for (size_t i = 0; i < rule->n_keys; i++) {
        const char *space = strchr(rule->keys[i], ' ');
        const char *known = space ? space + 1 : rule->keys[i];
        size_t len = space ? (size_t)(space - rule->keys[i]) : 0;

        if (str_eq(known, fingerprint) &&
            (!space || (strlen(type) == len && strncmp(rule->keys[i], type, len) == 0))) {
            return true;
        }
    }
    return false;
}

static bool lists(const struct ssh_rule *rule, const char *word)
{
    for (size_t i = 0; i < rule->n_commands; i++) {
        if (str_eq(rule->commands[i], word)) {
            return true;
        }
    }
    return false;
}

/* Words only; the first one, which must be plain, is ret. */
static bool is_words(const char *s, char *ret, size_t size)
{
    size_t n = 0;

    while (is_plain(s[n])) {
        n++;
    }
    if (n == 0 || n >= size || (s[n] && s[n] != ' ')) {
        return false;
    }
    memcpy(ret, s, n);
    ret[n] = '\0';
    for (s += n; *s; s++) {
        if (*s == '\'') {
            const char *end = strchr(s + 1, '\'');

            if (!end || memchr(s, '\n', (size_t)(end - s))) {
                return false;
            }
            s = end;
        } else if (*s == '\\') {
            s++;
            if (*s != '\'' && *s != '!') {
                return false;
            }
        } else if (*s != ' ' && !is_plain(*s)) {
            return false;
        }
    }
    return true;
}

bool ssh_rule_allows(const struct ssh_rule *rule, const char *command)
{
    char word[SSH_RULE_COMMAND_SIZE];

    if (rule->n_commands == 0 || lists(rule, "*")) {
        return true;
    }
    if (!is_words(command, word, sizeof(word))) {
        return false;
    }
    for (size_t i = 0; i < ARRAY_SIZE(git); i++) {
        if (str_eq(word, git[i]) && lists(rule, "git")) {
            return true;
        }
    }
    return !str_eq(word, "git") && lists(rule, word);
}

bool ssh_rule_allows_shell(const struct ssh_rule *rule)
{
    return lists(rule, "@shell");
}

bool ssh_rule_allows_subsystem(const struct ssh_rule *rule, const char *name)
{
    return str_eq(name, "sftp") && lists(rule, "@sftp");
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "credential/credential.h"
#include "credential/ssh-key.h"
#include "credential/test-ssh-keys.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#define VIEW(text) ((struct ssh_view){(const uint8_t *)(text), sizeof(text) - 1})
#define FINGERPRINT "SHA256:0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"

static int parse(const char *pem, struct ssh_key *ret, struct err *e)
{
    return ssh_key_parse(pem, strlen(pem), ret, e);
}

static void keys_that_ssh_keygen_writes(void)
{
    static const struct {
        const char *pem;
        const char *name;
        struct ssh_view algorithm;
    } cases[] = {
        {KEY_ED25519, "ssh-ed25519", VIEW("ssh-ed25519")},
        {KEY_ECDSA, "ecdsa-sha2-nistp384", VIEW("ecdsa-sha2-nistp384")},
        {KEY_RSA, "ssh-rsa", VIEW("rsa-sha2-256")},
        {KEY_RSA, "ssh-rsa", VIEW("rsa-sha2-512")},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup_ssh_key struct ssh_key key = {0};
        cleanup_buf struct buf signature = BUF_INIT(SSH_KEY_BLOB_MAX);
        struct ssh_view rest;
        struct ssh_view algorithm;
        struct ssh_view bytes;

        REQUIRE(parse(cases[i].pem, &key, NULL) == 0);
        CHECK_STR(key.name, cases[i].name);
        CHECK_INT(ssh_key_sign(&key, cases[i].algorithm, VIEW("text"), &signature, NULL), 0);
        rest = (struct ssh_view){(const uint8_t *)signature.data, signature.len};
        CHECK(ssh_take_string(&rest, &algorithm) == 0 && ssh_take_string(&rest, &bytes) == 0 &&
              rest.len == 0 && bytes.len >= 64);
        CHECK(algorithm.len == cases[i].algorithm.len &&
              memcmp(algorithm.p, cases[i].algorithm.p, algorithm.len) == 0);
        CHECK_INT(ssh_key_sign(&key, VIEW("ssh-rsa"), VIEW("text"), &signature, NULL), -EINVAL);
        CHECK_INT(ssh_key_sign(&key, VIEW("ssh-dss"), VIEW("text"), &signature, NULL), -EINVAL);
    }
}

static void keys_that_are_not_taken(void)
{
    static const struct {
        const char *pem;
        const char *why;
    } cases[] = {
        {KEY_RSA_SHORT, "less than 3072"},
        {KEY_ENCRYPTED, "passphrase"},
        {"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "format"},
        {"12345678", "format"},
        {"-----BEGIN OPENSSH PRIVATE KEY-----\n", "format"},
        {"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
         "damaged"},
        {"-----BEGIN OPENSSH PRIVATE KEY-----\n-----END OPENSSH PRIVATE KEY-----\n", "damaged"},
        {" " KEY_ED25519, "format"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct ssh_key key;
        struct err e = {0};

        CHECK_INT(parse(cases[i].pem, &key, &e), -EINVAL);
        CHECK_STR(e.field, "value");
        if (!strstr(e.msg, cases[i].why)) {
            TEST_FAIL("'%s' does not say '%s'", e.msg, cases[i].why);
        }
    }
}

static void a_new_key_is_one_and_its_signature_holds(void)
{
    cleanup_buf struct buf pem = BUF_INIT(4096);
    cleanup_buf struct buf signature = BUF_INIT(SSH_KEY_BLOB_MAX);
    cleanup_ssh_key struct ssh_key key = {0};
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_PKEY *public;

    CHECK_INT(ssh_key_generate(&pem, NULL), 0);
    REQUIRE(parse(buf_str(&pem), &key, NULL) == 0);
    CHECK_INT(ssh_key_sign(&key, VIEW("ssh-ed25519"), VIEW("text"), &signature, NULL), 0);
    CHECK_INT((int)signature.len, 4 + 11 + 4 + 64);
    public = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key.parts[0].p, 32);
    CHECK(public && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, public) == 1 &&
          EVP_DigestVerify(ctx, (const unsigned char *)signature.data + 19, 64,
                           (const unsigned char *)"text", 4) == 1);
    EVP_PKEY_free(public);
    EVP_MD_CTX_free(ctx);
}

static void host_keys_are_known_by_type_and_digest(void)
{
    struct ssh_rule rule = {0};
    cleanup_ssh_key struct ssh_key key = {0};
    cleanup_buf struct buf line = BUF_INIT(4096);

    REQUIRE(parse(KEY_ED25519, &key, NULL) == 0 && ssh_key_public_text(&key, &line) == 0);
    CHECK_INT(ssh_rule_add_key(&rule, buf_str(&line)), 0);
    CHECK(str_starts(rule.keys[0], "ssh-ed25519 SHA256:"));
    CHECK_INT(ssh_rule_add_key(&rule, FINGERPRINT), 0);
    CHECK_INT(ssh_rule_add_key(&rule, rule.keys[0]), 0); /* what was written is read */
    CHECK_STR(rule.keys[2], rule.keys[0]);
    CHECK(ssh_rule_knows(&rule, "ssh-ed25519", rule.keys[0] + 12));
    CHECK(!ssh_rule_knows(&rule, "ssh-rsa", rule.keys[0] + 12));
    CHECK(!ssh_rule_knows(&rule, "ssh-ed2551", rule.keys[0] + 12));
    CHECK(ssh_rule_knows(&rule, "ssh-rsa", FINGERPRINT));
    CHECK(!ssh_rule_knows(&rule, "ssh-ed25519", ""));
    CHECK_INT(ssh_rule_add_key(&rule, ""), -EINVAL);
    CHECK_INT(ssh_rule_add_key(&rule, "SHA256:short"), -EINVAL);
    CHECK_INT(ssh_rule_add_key(&rule, "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAA"), -EINVAL);
    CHECK_INT(ssh_rule_add_key(&rule, "ssh-ed25519"), -EINVAL);
    CHECK_INT(ssh_rule_add_key(&rule, "example.com ssh-ed25519 AAAA"), -EINVAL);
    CHECK_INT(ssh_rule_add_key(&rule, "ssh-dss " FINGERPRINT), -EINVAL);
    CHECK_INT((int)rule.n_keys, 3);
}

static void commands_are_words(void)
{
    struct ssh_rule rule = {0};
    static const char *const good[] = {"git-upload-pack '/a b.git'", "git-receive-pack 'it'\\''s'",
                                       "git-upload-pack /x",         "git-upload-archive 'a'\\!'b'",
                                       "deploy --now a=b",           "deploy"};
    static const char *const bad[] = {
        "",
        "true",
        "git",
        "git upload-pack x",
        "git-upload-pack 'x';id",
        "git-upload-pack $(id)",
        "git-upload-pack \"x\"",
        "git-upload-pack 'x",
        "git-upload-pack 'x\n'",
        "git-upload-pack x\nid",
        "git-upload-pack x|id",
        "git-upload-pack x&",
        "git-upload-pack x>y",
        "git-upload-pack \\",
        "git-upload-pack \\x",
        "git-upload-pack {a,b}",
        "git-upload-pack *",
        "git-upload-pack\tx",
        " git-upload-pack x",
        "'git-upload-pack' x",
        "git-upload-packs x",
        "deploy'x'",
        "@shell",
        "PATH=x deploy",
    };

    CHECK(ssh_rule_allows(&rule, "any; thing") && !ssh_rule_allows_shell(&rule) &&
          !ssh_rule_allows_subsystem(&rule, "sftp"));
    CHECK_INT(ssh_rule_add_command(&rule, "git"), 0);
    CHECK_INT(ssh_rule_add_command(&rule, "deploy"), 0);
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        if (!ssh_rule_allows(&rule, good[i])) {
            TEST_FAIL("'%s' is not allowed", good[i]);
        }
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (ssh_rule_allows(&rule, bad[i])) {
            TEST_FAIL("'%s' is allowed", bad[i]);
        }
    }
    CHECK(!ssh_rule_allows_shell(&rule) && !ssh_rule_allows_subsystem(&rule, "sftp"));
    CHECK(ssh_rule_add_command(&rule, "a b") == -EINVAL &&
          ssh_rule_add_command(&rule, "@x") == -EINVAL &&
          ssh_rule_add_command(&rule, "") == -EINVAL);
    CHECK_INT(ssh_rule_add_command(&rule, "@sftp"), 0);
    CHECK(ssh_rule_allows_subsystem(&rule, "sftp") && !ssh_rule_allows_subsystem(&rule, "netconf"));
}

static json_t *body(const char *more)
{
    cleanup_free char *text = xasprintf("{\"name\":\"a\",\"target\":{\"host\":\"git.example.com\"},"
                                        "\"inject\":{\"type\":\"ssh\"%s}}",
                                        more);
    json_t *json = NULL;

    ASSERT(json_parse_object(text, strlen(text), &json, NULL) == 0);
    return json;
}

static void the_credential_says_whom_and_where(void)
{
    static const char *const bad[] = {"",
                                      ",\"user\":\"git\"",
                                      ",\"host_keys\":[\"" FINGERPRINT "\"]",
                                      ",\"user\":\"git\",\"host_keys\":[\"x\"]",
                                      ",\"user\":\"git\",\"host_keys\":[1]",
                                      ",\"user\":\"git\",\"host_keys\":[]",
                                      ",\"user\":\"a b\",\"host_keys\":[\"" FINGERPRINT "\"]",
                                      ",\"user\":\"git\",\"host_keys\":[\"" FINGERPRINT
                                      "\"],\"commands\":[\"a;b\"]"};
    cleanup_json json_t *good =
        body(",\"user\":\"git\",\"host_keys\":[\"" FINGERPRINT "\"],\"commands\":[\"git\"]");
    struct credential_request q = {.organisation = "",
                                   .project = "",
                                   .sandbox = "",
                                   .host = "git.example.com",
                                   .port = 22,
                                   .method = "SSH",
                                   .path = "/"};
    const struct credential *chosen[1];
    const struct credential *all[1];
    struct credential c = {0};

    REQUIRE(credential_from_json(good, &c, NULL) == 0);
    CHECK_INT(c.target.port, 22);
    all[0] = &c;
    c.scope = CREDENTIAL_ORGANISATION;
    CHECK(credential_ssh(all, 1, &q) == &c);
    CHECK_INT((int)credential_choose(all, 1, &q, chosen), 0); /* it goes into no request */
    q.port = 443;
    CHECK(!credential_ssh(all, 1, &q));
    q.port = 22;
    q.organisation = "o2222222222222222222";
    CHECK(!credential_ssh(all, 1, &q));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        cleanup_json json_t *json = body(bad[i]);

        CHECK_INT(credential_from_json(json, &c, NULL), -EINVAL);
    }
}

TEST_MAIN(T(keys_that_ssh_keygen_writes), T(keys_that_are_not_taken),
          T(a_new_key_is_one_and_its_signature_holds), T(host_keys_are_known_by_type_and_digest),
          T(commands_are_words), T(the_credential_says_whom_and_where))

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The volume manager's command line and configuration file, and the store and key management service that they name.
 *
 * The file is a JSON object of strings: members are called as the options with a value are, without the dashes. It is read
 * first, so that the command line wins. config.json in the state folder is read when it is there.
 */
#pragma once

#include "volume/kms.h"
#include "volume/store.h"

#define VOLUME_PROGRAM "space-volume-manager"

/* Strings are borrowed: from argv, from config, static. */
struct volume_options {
    const char *state_dir;
    const char *run_dir;
    const char *user;
    const char *peer_user;
    const char *config;
    const char *threads_text;
    const char *store; /* a path, or s3://BUCKET[/PREFIX] */
    const char *s3_endpoint;
    const char *s3_region;
    const char *s3_credentials;
    const char *s3_ca_file;
    const char *s3_style; /* "path" or "host" */
    const char *keys;     /* a path, "transit", "aws" or "pkcs11" */
    const char *transit_url;
    const char *transit_mount;
    const char *transit_prefix;
    const char *transit_token_file;
    const char *transit_namespace;
    const char *transit_ca_file;
    const char *aws_region;
    const char *aws_credentials;
    const char *aws_prefix;
    const char *aws_endpoint;
    const char *aws_ca_file;
    const char *pkcs11_module;
    const char *pkcs11_token;
    const char *pkcs11_pin_file;
    unsigned threads;
    bool check;               /* only open all, then end */
    const char *ask;          /* an operation to ask the one that serves for; NULL: serve */
    const char *organisation; /* of ask */
    struct json_t *loaded;    /* owned: the file's strings */
};

/* 0: go on; 1: it has answered (--help); negative: wrong, and it has said so. */
MUST_CHECK int volume_options_read(int argc, char **argv, struct volume_options *ret);
void volume_options_done(struct volume_options *o);
MUST_CHECK int volume_options_store(const struct volume_options *o, struct store **ret,
                                    struct err *e);
MUST_CHECK int volume_options_kms(const struct volume_options *o, struct kms **ret, struct err *e);

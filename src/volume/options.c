/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/options.h"

#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "volume/kms-aws.h"
#include "volume/kms-pkcs11.h"
#include "volume/kms-transit.h"
#include "volume/s3.h"
#include "volume/transfer.h"

#define CONFIG_MAX 65536u
#define S3_SCHEME "s3://"

static const char usage[] =
    "Usage: " VOLUME_PROGRAM " [OPTION]...\n"
    "Brings sandboxes to and from an object store, encrypted; started by 'space up' or systemd.\n\n"
    "  --state-dir DIR        where objects and keys are when nothing else is said\n"
    "                         (/var/lib/space/volume)\n"
    "  --run-dir DIR          where sockets are (/run/space)\n"
    "  --user USER            become this user at once; needed when started as root\n"
    "  --peer-user USER       the user besides root that may ask it (space-sandbox)\n"
    "  --config FILE          options as JSON (config.json in the state folder, when it is there)\n"
    "  --check-config         open store and keys, then end\n"
    "  --threads N            for each transfer (4)\n"
    "  --store PLACE          a folder (objects in the state folder), or s3://BUCKET[/PREFIX]\n"
    "  --s3-endpoint URL, --s3-region NAME (us-east-1), --s3-credentials FILE,\n"
    "  --s3-ca-file FILE, --s3-style path|host (path)\n"
    "  --keys PLACE           a folder (keys in the state folder), 'transit', 'aws', or 'pkcs11'\n"
    "  --transit-url URL, --transit-token-file FILE, --transit-mount NAME (transit),\n"
    "  --transit-prefix TEXT (space-), --transit-namespace NAME, --transit-ca-file FILE\n"
    "  --aws-region NAME, --aws-credentials FILE, --aws-prefix TEXT (space-),\n"
    "  --aws-endpoint URL (that of the region), --aws-ca-file FILE\n"
    "  --pkcs11-module FILE, --pkcs11-token LABEL, --pkcs11-pin-file FILE\n"
    "  --help, --version\n\n"
    "Asks the one that serves, as root:\n"
    "  --rotate ORG           a new version of the organisation's key; wraps its data keys by it\n"
    "  --shred ORG            destroys the organisation's key: what is stored of it is lost\n"
    "  --collect              removes objects that nothing needs; twice, an hour apart\n"
    "  --ping                 says where objects and keys are\n";

/* Options with a value: name and where it goes. */
static const struct slot {
    const char *name;
    size_t offset;
} slots[] = {
    {"state-dir", offsetof(struct volume_options, state_dir)},
    {"run-dir", offsetof(struct volume_options, run_dir)},
    {"user", offsetof(struct volume_options, user)},
    {"peer-user", offsetof(struct volume_options, peer_user)},
    {"config", offsetof(struct volume_options, config)},
    {"threads", offsetof(struct volume_options, threads_text)},
    {"store", offsetof(struct volume_options, store)},
    {"s3-endpoint", offsetof(struct volume_options, s3_endpoint)},
    {"s3-region", offsetof(struct volume_options, s3_region)},
    {"s3-credentials", offsetof(struct volume_options, s3_credentials)},
    {"s3-ca-file", offsetof(struct volume_options, s3_ca_file)},
    {"s3-style", offsetof(struct volume_options, s3_style)},
    {"keys", offsetof(struct volume_options, keys)},
    {"transit-url", offsetof(struct volume_options, transit_url)},
    {"transit-mount", offsetof(struct volume_options, transit_mount)},
    {"transit-prefix", offsetof(struct volume_options, transit_prefix)},
    {"transit-token-file", offsetof(struct volume_options, transit_token_file)},
    {"transit-namespace", offsetof(struct volume_options, transit_namespace)},
    {"transit-ca-file", offsetof(struct volume_options, transit_ca_file)},
    {"aws-region", offsetof(struct volume_options, aws_region)},
    {"aws-credentials", offsetof(struct volume_options, aws_credentials)},
    {"aws-prefix", offsetof(struct volume_options, aws_prefix)},
    {"aws-endpoint", offsetof(struct volume_options, aws_endpoint)},
    {"aws-ca-file", offsetof(struct volume_options, aws_ca_file)},
    {"pkcs11-module", offsetof(struct volume_options, pkcs11_module)},
    {"pkcs11-token", offsetof(struct volume_options, pkcs11_token)},
    {"pkcs11-pin-file", offsetof(struct volume_options, pkcs11_pin_file)},
};

/* Options without, and those that ask. */
enum {
    OPTION_CHECK = 1000,
    OPTION_ROTATE,
    OPTION_SHRED,
    OPTION_COLLECT,
    OPTION_PING,
    OPTION_HELP,
    OPTION_VERSION,
};
static const struct option others[] = {
    {"check-config", no_argument, NULL, OPTION_CHECK},
    {"rotate", required_argument, NULL, OPTION_ROTATE},
    {"shred", required_argument, NULL, OPTION_SHRED},
    {"collect", no_argument, NULL, OPTION_COLLECT},
    {"ping", no_argument, NULL, OPTION_PING},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
};

static int wrong(const char *what)
{
    fprintf(stderr, VOLUME_PROGRAM ": %s\nTry '" VOLUME_PROGRAM " --help'.\n", what);
    return -EINVAL;
}

static const char **text_of(struct volume_options *o, const struct slot *slot)
{
    return (const char **)(void *)((char *)o + slot->offset);
}

static int set_ask(struct volume_options *o, const char *op, const char *organisation)
{
    o->ask = op;
    o->organisation = organisation;
    return organisation && !id_valid(ID_ORGANISATION, organisation)
               ? wrong("that is not the id of an organisation")
               : 0;
}

static int take(struct volume_options *o, int which)
{
    switch (which) {
    case OPTION_CHECK:
        o->check = true;
        return 0;
    case OPTION_ROTATE:
        return set_ask(o, "rotate", optarg);
    case OPTION_SHRED:
        return set_ask(o, "shred", optarg);
    case OPTION_COLLECT:
        return set_ask(o, "collect", NULL);
    case OPTION_PING:
        return set_ask(o, "ping", NULL);
    case OPTION_HELP:
        fputs(usage, stdout);
        return 1;
    case OPTION_VERSION:
        puts(VOLUME_PROGRAM " " SPACE_VERSION);
        return 1;
    default:
        return wrong("that option is not known, or lacks its value");
    }
}

static int read_line(int argc, char **argv, struct volume_options *o)
{
    struct option table[ARRAY_SIZE(slots) + ARRAY_SIZE(others) + 1] = {0};
    int c;

    for (size_t i = 0; i < ARRAY_SIZE(slots); i++) {
        table[i] = (struct option){slots[i].name, required_argument, NULL, (int)i};
    }
    memcpy(table + ARRAY_SIZE(slots), others, sizeof(others));
    optind = 0; /* it is read twice */
    opterr = 0;
    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        int r = 0;

        if (c >= 0 && c < (int)ARRAY_SIZE(slots)) {
            *text_of(o, &slots[c]) = optarg;
        } else {
            r = take(o, c);
        }
        if (r != 0) {
            return r;
        }
    }
    return optind == argc ? 0 : wrong("there is an argument too many");
}

/* ---- the file ---- */

static int take_member(struct volume_options *o, const char *name, const json_t *value)
{
    for (size_t i = 0; i < ARRAY_SIZE(slots); i++) {
        if (str_eq(slots[i].name, name) && !str_eq(name, "config") && json_is_string(value)) {
            *text_of(o, &slots[i]) = json_string_value(value);
            return 0;
        }
    }
    fprintf(stderr, VOLUME_PROGRAM ": '%.60s' in the configuration is no option with a string\n",
            name);
    return -EINVAL;
}

static int read_config(struct volume_options *o)
{
    cleanup_free char *usual = xasprintf("%s/config.json", o->state_dir);
    const char *path = o->config ? o->config : usual;
    cleanup_buf struct buf text = BUF_INIT(CONFIG_MAX);
    struct err e = {0};
    const char *name;
    json_t *value;
    int r = fs_read_file(AT_FDCWD, path, &text);

    /* Root asks the one that serves, which may have a folder that nobody else can look into. */
    if (r == -ENOENT && !o->config) {
        return 0;
    }
    if (r == 0) {
        r = json_parse_object(buf_str(&text), text.len, &o->loaded, &e);
    }
    if (r < 0) {
        fprintf(stderr, VOLUME_PROGRAM ": reading '%s': %s\n", path,
                e.msg[0] ? e.msg : strerror(-r));
        return r;
    }
    json_object_foreach(o->loaded, name, value)
    {
        r = r < 0 ? r : take_member(o, name, value);
    }
    return r;
}

static int check(struct volume_options *o)
{
    uint64_t n = 0;

    if (o->threads_text && (str_to_u64(o->threads_text, TRANSFER_THREADS_MAX, &n) < 0 || n == 0)) {
        return wrong("--threads takes a number from 1 to 32");
    }
    o->threads = (unsigned)n;
    if (!str_eq(o->s3_style, "path") && !str_eq(o->s3_style, "host")) {
        return wrong("--s3-style is path or host");
    }
    return 0;
}

int volume_options_read(int argc, char **argv, struct volume_options *ret)
{
    struct volume_options o = {.state_dir = "/var/lib/space/volume",
                               .run_dir = "/run/space",
                               .peer_user = "space-sandbox",
                               .s3_region = "us-east-1",
                               .s3_style = "path",
                               .transit_mount = "transit",
                               .transit_prefix = "space-",
                               .aws_prefix = "space-"};
    int r = read_line(argc, argv, &o); /* says where the file is */

    if (r == 0 && !o.ask) {
        r = read_config(&o);
        r = r < 0 ? r : read_line(argc, argv, &o);
    }
    if (r == 0) {
        r = check(&o);
    }
    if (r != 0) {
        volume_options_done(&o);
        return r;
    }
    *ret = o;
    return 0;
}

void volume_options_done(struct volume_options *o)
{
    json_decref(o->loaded);
    o->loaded = NULL;
}

/* ---- what they name ---- */

static int open_s3(const struct volume_options *o, struct store **ret, struct err *e)
{
    cleanup_free char *bucket = xstrdup(o->store + strlen(S3_SCHEME));
    char *slash = strchr(bucket, '/');
    struct s3_opts opts = {.endpoint = o->s3_endpoint,
                           .bucket = bucket,
                           .region = o->s3_region,
                           .credentials_file = o->s3_credentials,
                           .ca_file = o->s3_ca_file,
                           .path_style = str_eq(o->s3_style, "path")};

    if (slash) {
        *slash = '\0';
        opts.prefix = slash + 1;
    }
    if (!o->s3_endpoint || !o->s3_credentials) {
        return err_set(e, -EINVAL, NULL, "an s3:// store needs s3-endpoint and s3-credentials");
    }
    return store_s3_open(&opts, ret, e);
}

int volume_options_store(const struct volume_options *o, struct store **ret, struct err *e)
{
    cleanup_free char *path = o->store ? xstrdup(o->store) : xasprintf("%s/objects", o->state_dir);

    return str_starts(path, S3_SCHEME) ? open_s3(o, ret, e) : store_dir_open(path, ret, e);
}

int volume_options_kms(const struct volume_options *o, struct kms **ret, struct err *e)
{
    cleanup_free char *path = o->keys ? xstrdup(o->keys) : xasprintf("%s/keys", o->state_dir);
    const struct kms_transit_opts transit = {.url = o->transit_url,
                                             .mount = o->transit_mount,
                                             .prefix = o->transit_prefix,
                                             .token_file = o->transit_token_file,
                                             .name_space = o->transit_namespace,
                                             .ca_file = o->transit_ca_file};
    const struct kms_aws_opts aws = {.region = o->aws_region,
                                     .endpoint = o->aws_endpoint,
                                     .prefix = o->aws_prefix,
                                     .credentials_file = o->aws_credentials,
                                     .ca_file = o->aws_ca_file};
    const struct kms_pkcs11_opts pkcs11 = {
        .module = o->pkcs11_module, .token = o->pkcs11_token, .pin_file = o->pkcs11_pin_file};

    if (str_eq(path, "transit")) {
        return kms_transit_open(&transit, ret, e);
    }
    if (str_eq(path, "aws")) {
        return kms_aws_open(&aws, ret, e);
    }
    if (str_eq(path, "pkcs11")) {
        return kms_pkcs11_open(&pkcs11, ret, e);
    }

    return kms_local_open(path, ret, e);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* With SoftHSM2, in a folder of its own. Skipped where it is not installed. */
#include "base/clock.h"
#include "base/fs.h"
#include "base/proc.h"
#include "volume/conformance-kms.h"
#include "volume/kms-pkcs11-token.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TOOL "/usr/bin/softhsm2-util"
#define MODULE "/usr/lib/softhsm/libsofthsm2.so"

static char folder[] = "/tmp/space-hsm-XXXXXX";
static struct pkcs11 *token;

static void remove_folder(void)
{
    IGNORE_RESULT(fs_remove_tree(AT_FDCWD, folder)); /* a leftover in /tmp fails no test */
}

static void write_text(const char *path, const char *text)
{
    int fd = fs_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    ASSERT(fd >= 0 && fs_write_all(fd, text, strlen(text)) == 0);
    close(fd);
}

static void make_token(void)
{
    static const char *const argv[] = {TOOL,       "--init-token", "--free", "--label", "customer",
                                       "--so-pin", "1234",         "--pin",  "5678",    NULL};
    cleanup_free char *conf = xasprintf("%s/softhsm2.conf", folder);
    cleanup_free char *tokens = xasprintf("%s/tokens", folder);
    cleanup_free char *text = xasprintf(
        "directories.tokendir = %s\nobjectstore.backend = file\nlog.level = ERROR\n", tokens);
    const int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    const struct proc_spec spec = {
        .argv = argv, .stdin_fd = FD_NONE, .stdout_fd = null_fd, .stderr_fd = FD_NONE};
    struct proc proc;
    int status = -1;

    ASSERT(fs_mkdir_all(tokens, 0700) == 0);
    write_text(conf, text);
    ASSERT(setenv("SOFTHSM2_CONF", conf, 1) == 0);
    ASSERT(proc_spawn(&spec, &proc, NULL) == 0);
    ASSERT(proc_wait(&proc, deadline_in_ms(60000), &status) == 0 && status == 0);
    close(null_fd);
}

struct kms *conformance_open(void)
{
    cleanup_free char *pin = NULL;
    struct kms_pkcs11_opts opts = {.module = MODULE, .token = "customer"};
    struct kms *k = NULL;
    const char *must = getenv("MUST_WORK");

    if (access(TOOL, X_OK) < 0 || access(MODULE, R_OK) < 0) {
        puts("1..0 # SKIP softhsm2 is not installed");
        exit(must && str_eq(must, "1") ? 1 : 77);
    }
    ASSERT(mkdtemp(folder));
    pin = xasprintf("%s/pin", folder);
    make_token();
    write_text(pin, "5678\n");
    opts.pin_file = pin;
    ASSERT(kms_pkcs11_open(&opts, &k, NULL) == 0);
    ASSERT(atexit(remove_folder) == 0);
    token = (struct pkcs11 *)k;
    return k;
}

void conformance_revoke(const char *organisation, bool revoked)
{
    struct pkcs11_key keys[PKCS11_VERSIONS_MAX];
    CK_BBOOL may = revoked ? CK_FALSE : CK_TRUE;
    CK_ATTRIBUTE set[] = {{CKA_DECRYPT, &may, sizeof(may)}, {CKA_ENCRYPT, &may, sizeof(may)}};
    CK_SESSION_HANDLE session = 0;
    int n;

    ASSERT(pkcs11_begin(token, &session, NULL) == 0);
    n = pkcs11_find(token, session, organisation, keys, NULL);
    ASSERT(n > 0);
    for (int i = 0; i < n; i++) {
        ASSERT(token->f->C_SetAttributeValue(session, keys[i].handle, set, ARRAY_SIZE(set)) ==
               CKR_OK);
    }
    token->f->C_CloseSession(session);
}

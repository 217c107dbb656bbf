/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/tokens.h"

#include "base/fs.h"
#include "base/test.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

static char dir[] = "/tmp/test-tokens-XXXXXX";
static const char first[] = "s2345abcdefghijkmnpq";
static const char second[] = "s2345abcdefghijkmnpr";

static void secret_is_made_once_and_private(void)
{
    CLEANUP(tokens_freep) struct tokens *a = NULL;
    CLEANUP(tokens_freep) struct tokens *b = NULL;
    cleanup_free char *path = xasprintf("%s/token-secret", dir);
    struct stat st = {0};
    char one[TOKEN_SIZE];
    char two[TOKEN_SIZE];

    CHECK_INT(tokens_open(dir, &a, NULL), 0);
    CHECK_INT(tokens_open(dir, &b, NULL), 0);
    CHECK_INT(stat(path, &st), 0);
    CHECK_INT(st.st_mode & 0777, 0600);
    CHECK_INT(st.st_size, 32);
    CHECK_INT(st.st_nlink, 1);
    tokens_make(a, TOKEN_ENVD, first, one);
    tokens_make(b, TOKEN_ENVD, first, two);
    CHECK_STR(one, two);
}

static void tokens_differ_by_kind_and_sandbox(void)
{
    CLEANUP(tokens_freep) struct tokens *t = NULL;
    char envd[TOKEN_SIZE];
    char traffic[TOKEN_SIZE];
    char other[TOKEN_SIZE];

    CHECK_INT(tokens_open(dir, &t, NULL), 0);
    tokens_make(t, TOKEN_ENVD, first, envd);
    tokens_make(t, TOKEN_TRAFFIC, first, traffic);
    tokens_make(t, TOKEN_ENVD, second, other);
    CHECK(str_starts(envd, "envd_") && strlen(envd) == 5 + 64);
    CHECK(str_starts(traffic, "traffic_") && strlen(traffic) == 8 + 64);
    CHECK(strcmp(envd + 5, traffic + 8) != 0);
    CHECK(strcmp(envd, other) != 0);

    CHECK(tokens_check(t, TOKEN_ENVD, first, envd));
    CHECK(tokens_check(t, TOKEN_TRAFFIC, first, traffic));
    CHECK(!tokens_check(t, TOKEN_ENVD, second, envd));
    CHECK(!tokens_check(t, TOKEN_TRAFFIC, first, envd));
    CHECK(!tokens_check(t, TOKEN_ENVD, first, NULL));
    CHECK(!tokens_check(t, TOKEN_ENVD, first, ""));
    envd[strlen(envd) - 1] ^= 1;
    CHECK(!tokens_check(t, TOKEN_ENVD, first, envd));
}

static void a_damaged_secret_is_refused(void)
{
    CLEANUP(tokens_freep) struct tokens *t = NULL;
    cleanup_close int fd = fs_open(dir, O_RDONLY | O_DIRECTORY, 0);
    struct err e = {0};

    CHECK_INT(fs_write_file_durable(fd, "token-secret", "short", 5, 0600), 0);
    CHECK_INT(tokens_open(dir, &t, &e), -EBADMSG);
    CHECK_STR(e.reason, "bad_token_secret");
    CHECK_INT(
        fs_write_file_durable(fd, "token-secret", "0123456789012345678901234567890123", 34, 0600),
        0);
    CHECK_INT(tokens_open(dir, &t, &e), -EBADMSG);
    CHECK_INT(fs_remove_tree(AT_FDCWD, dir), 0);
}

static void setup(void)
{
    CHECK(mkdtemp(dir) != NULL);
}

TEST_MAIN(T(setup), T(secret_is_made_once_and_private), T(tokens_differ_by_kind_and_sandbox),
          T(a_damaged_secret_is_refused))

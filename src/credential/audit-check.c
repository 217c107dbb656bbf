/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the chain back. */
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/json.h"
#include "credential/audit-check.h"

#define TAIL_LEN (sizeof(",\"hash\":\"") - 1 + AUDIT_HASH_SIZE - 1 + 2)

int audit_check_line(const char *line, size_t len, uint64_t after, const char *prev,
                     uint64_t *ret_n, char ret_hash[static AUDIT_HASH_SIZE])
{
    cleanup_json json_t *json = NULL;
    EVP_MD_CTX *ctx;
    unsigned char digest[EVP_MAX_MD_SIZE];
    char hash[AUDIT_HASH_SIZE];
    int64_t n;

    if (len <= TAIL_LEN || len > AUDIT_LINE_MAX ||
        json_parse_untrusted(line, len, &json, NULL) < 0 ||
        strncmp(line + len - TAIL_LEN, ",\"hash\":\"", 9) != 0) {
        return -EBADMSG;
    }
    ctx = EVP_MD_CTX_new();
    ASSERT(ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) &&
           EVP_DigestUpdate(ctx, line, len - TAIL_LEN) && EVP_DigestUpdate(ctx, "}", 1) &&
           EVP_DigestFinal_ex(ctx, digest, NULL));
    EVP_MD_CTX_free(ctx);
    hex_encode(digest, 32, hash);
    n = json_get_int(json, "n", -1);
    if (!str_eq(json_get_string(json, "hash", ""), hash) || n < 1 ||
        (prev[0] &&
         (!str_eq(json_get_string(json, "prev", ""), prev) || (uint64_t)n != after + 1))) {
        return -EBADMSG;
    }
    *ret_n = (uint64_t)n;
    snprintf(ret_hash, AUDIT_HASH_SIZE, "%s", hash);
    return 0;
}

/* All lines of one file. Goes on until the first that is wrong. */
static int check_file(FILE *file, struct audit_check *c)
{
    char line[AUDIT_LINE_MAX + 2];
    char prev[AUDIT_HASH_SIZE];
    uint64_t n;

    while (c->intact && fgets(line, sizeof(line), file)) {
        size_t len = strlen(line);
        bool whole = len > 0 && line[len - 1] == '\n';

        snprintf(prev, sizeof(prev), "%s", c->hash);
        if (!whole || audit_check_line(line, len - 1, c->last, prev, &n, c->hash) < 0) {
            c->intact = false;
            snprintf(c->what, sizeof(c->what), "the line after number %llu is not what was written",
                     (unsigned long long)c->last);
            break;
        }
        c->first = c->first ? c->first : n;
        c->last = n;
    }
    return ferror(file) ? -EIO : 0;
}

int audit_verify(const char *dir, struct audit_check *ret, struct err *e)
{
    struct audit_check c = {.intact = true};

    for (unsigned i = AUDIT_FILES_MAX; i-- > 0;) {
        cleanup_free char *path =
            i ? xasprintf("%s/audit.log.%u", dir, i) : xasprintf("%s/audit.log", dir);
        FILE *file = fopen(path, "re");
        int r;

        if (!file && errno == ENOENT && (i > 0 || c.last == 0)) {
            continue;
        }
        if (!file) {
            return err_wrap(e, -errno, "opening '%s'", path);
        }
        r = check_file(file, &c);
        fclose(file);
        if (r < 0) {
            return err_wrap(e, r, "reading '%s'", path);
        }
    }
    *ret = c;
    return 0;
}

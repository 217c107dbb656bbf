/* SPDX-License-Identifier: Apache-2.0 */
/* Foreign text: list cursors, names to be shown, /etc/passwd. The same bytes go to each. */
#include "base/base64.h"
#include "base/json.h"
#include "daemon/file-entry.h"
#include "daemon/file-request.h"
#include "daemon/file-text.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void cursor(const char *text)
{
    cleanup_free char *path = NULL;
    cleanup_free char *token = NULL;
    cleanup_free char *again = NULL;

    if (file_cursor_parse(text, &path) < 0) {
        return;
    }
    token = file_cursor_print(path);
    ASSERT(file_cursor_parse(token, &again) == 0 && str_eq(path, again));
    ASSERT(path[0] != '/' && strlen(path) <= FILE_PATH_MAX);
}

/* A JSON parser must get out what went in, exactly, from one member or the other. */
static void name(const char *text)
{
    cleanup_buf struct buf b = BUF_INIT(1 << 22);
    cleanup_buf struct buf exact = BUF_INIT(1 << 22);
    cleanup_json json_t *object = NULL;
    const char *coded;
    char shown[64];

    ASSERT(buf_add_str(&b, "{") == 0 && file_text_member(&b, "k", text) == 0 &&
           buf_add_str(&b, "}") == 0);
    ASSERT(json_parse_object(b.data, b.len, &object, NULL) == 0);
    coded = json_get_string(object, "k_base64", NULL);
    ASSERT(!coded == file_text_is_utf8(text, strlen(text)));
    if (coded) {
        ASSERT(base64_decode(coded, strlen(coded), &exact) == 0 && str_eq(buf_str(&exact), text));
    } else {
        ASSERT(str_eq(json_get_string(object, "k", ""), text));
    }
    file_text_show(shown, sizeof(shown), text);
    ASSERT(file_text_is_utf8(shown, strlen(shown)) && !strchr(shown, '\n'));
}

static void passwd(const char *text)
{
    char user[64];
    uint32_t id = 0;

    for (uint32_t i = 0; i < 3; i++) {
        if (file_names_find_name(text, i, user, sizeof(user)) == 0) {
            ASSERT(user[0] && !strpbrk(user, ":\n\"\\ ") &&
                   file_names_find_id(text, user, &id) == 0);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup_free char *text = xmalloc(size + 1);

    if (size > (1 << 18)) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = '\0';
    cursor(text);
    name(text);
    passwd(text);
    return 0;
}

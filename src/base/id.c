/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"

#include <string.h>
#include <sys/random.h>

void random_bytes(void *ret, size_t len)
{
    char *p = ret;

    while (len > 0) {
        ssize_t n = getrandom(p, MIN(len, (size_t)256), 0);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        ASSERT(n > 0);
        p += n;
        len -= (size_t)n;
    }
}

void id_new(enum id_kind kind, char ret[static ID_SIZE])
{
    static const char alphabet[32] = "0123456789abcdefghjkmnpqrstvwxyz";
    uint8_t raw[ID_LEN];

    random_bytes(raw, sizeof(raw));
    ret[0] = (char)kind;
    for (size_t i = 1; i < ID_LEN; i++) {
        ret[i] = alphabet[raw[i] & 31];
    }
    ret[ID_LEN] = '\0';
}

bool id_valid(enum id_kind kind, const char *s)
{
    if (!s || s[0] != (char)kind || strnlen(s, ID_SIZE) != ID_LEN) {
        return false;
    }
    for (size_t i = 1; i < ID_LEN; i++) {
        if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9'))) {
            return false;
        }
    }
    return true;
}

void hex_encode(const void *data, size_t len, char *ret)
{
    static const char digits[] = "0123456789abcdef";
    const uint8_t *p = data;

    for (size_t i = 0; i < len; i++) {
        ret[2 * i] = digits[p[i] >> 4];
        ret[2 * i + 1] = digits[p[i] & 15];
    }
    ret[2 * len] = '\0';
}

bool bytes_equal_constant_time(const void *a, const void *b, size_t len)
{
    const volatile uint8_t *x = a;
    const volatile uint8_t *y = b;
    uint8_t differ = 0;

    for (size_t i = 0; i < len; i++) {
        differ |= (uint8_t)(x[i] ^ y[i]);
    }
    return differ == 0;
}

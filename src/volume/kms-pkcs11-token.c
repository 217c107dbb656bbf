/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/kms-pkcs11-token.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"

#define SLOTS_MAX 64u
#define PIN_MAX 256u
#define LABEL_PREFIX "space-"

int pkcs11_failed(CK_RV rv, const char *doing, const char *organisation, struct err *e)
{
    switch (rv) {
    case CKR_KEY_FUNCTION_NOT_PERMITTED:
    case CKR_KEY_HANDLE_INVALID:
    case CKR_OBJECT_HANDLE_INVALID:
    case CKR_KEY_TYPE_INCONSISTENT:
        return kms_refused(organisation, "the token does not let us use it", e);
    case CKR_ENCRYPTED_DATA_INVALID:
    case CKR_ENCRYPTED_DATA_LEN_RANGE:
    case CKR_GENERAL_ERROR: /* what some tokens say of a tag that is wrong */
        if (str_eq(doing, "unwrapping")) {
            return kms_damaged(e);
        }
        break;
    default:
        break;
    }
    return err_set(e, -EHOSTDOWN, "key_service_unavailable", "the token fails at %s: 0x%lx", doing,
                   (unsigned long)rv);
}

/* Labels in a token are padded with spaces. */
static bool is_called(const CK_TOKEN_INFO *info, const char *label)
{
    size_t len = strlen(label);

    if (len > sizeof(info->label) || memcmp(info->label, label, len) != 0) {
        return false;
    }
    for (size_t i = len; i < sizeof(info->label); i++) {
        if (info->label[i] != ' ') {
            return false;
        }
    }
    return true;
}

static int find_slot(struct pkcs11 *p, CK_SLOT_ID *ret, struct err *e)
{
    CK_SLOT_ID slots[SLOTS_MAX];
    CK_ULONG n = SLOTS_MAX;
    CK_RV rv = p->f->C_GetSlotList(CK_TRUE, slots, &n);

    if (rv != CKR_OK) {
        return pkcs11_failed(rv, "listing slots", "", e);
    }
    for (CK_ULONG i = 0; i < n; i++) {
        CK_TOKEN_INFO info;

        if (p->f->C_GetTokenInfo(slots[i], &info) == CKR_OK && is_called(&info, p->token)) {
            *ret = slots[i];
            return 0;
        }
    }
    return err_set(e, -EHOSTDOWN, "key_service_unavailable", "there is no token '%s'", p->token);
}

static int login(struct pkcs11 *p, CK_SESSION_HANDLE session, struct err *e)
{
    cleanup_secret_buf struct buf pin = BUF_INIT(PIN_MAX);
    CK_RV rv;
    int r = fs_read_file(AT_FDCWD, p->pin_file, &pin);

    if (r < 0) {
        return err_set(e, -EHOSTDOWN, "key_service_unavailable",
                       "the token's PIN cannot be read from '%s'", p->pin_file);
    }
    while (pin.len > 0 && strchr("\r\n", pin.data[pin.len - 1])) {
        pin.data[--pin.len] = '\0';
    }
    rv = p->f->C_Login(session, CKU_USER, (CK_UTF8CHAR *)pin.data, pin.len);
    if (rv == CKR_OK || rv == CKR_USER_ALREADY_LOGGED_IN) {
        return 0;
    }
    /* Not tried again: a token locks itself after some wrong PINs. */
    return pkcs11_failed(rv, "logging in", "", e);
}

int pkcs11_begin(struct pkcs11 *p, CK_SESSION_HANDLE *ret, struct err *e)
{
    CK_SESSION_HANDLE session = 0;
    CK_SLOT_ID slot = 0;
    CK_RV rv;
    int r = find_slot(p, &slot, e);

    if (r < 0) {
        return r;
    }
    rv = p->f->C_OpenSession(slot, CKF_SERIAL_SESSION | CKF_RW_SESSION, NULL, NULL, &session);
    if (rv != CKR_OK) {
        return pkcs11_failed(rv, "opening a session", "", e);
    }
    r = login(p, session, e);
    if (r < 0) {
        p->f->C_CloseSession(session);
        return r;
    }
    *ret = session;
    return 0;
}

static void label_of(const char *organisation, char ret[static 40])
{
    snprintf(ret, 40, LABEL_PREFIX "%s", organisation);
}

/* Its version. -EBADMSG: it is none of ours. */
static int read_version(struct pkcs11 *p, CK_SESSION_HANDLE session, CK_OBJECT_HANDLE handle,
                        uint32_t *ret)
{
    unsigned char id[4];
    CK_ATTRIBUTE want = {CKA_ID, id, sizeof(id)};

    if (p->f->C_GetAttributeValue(session, handle, &want, 1) != CKR_OK ||
        want.ulValueLen != sizeof(id)) {
        return -EBADMSG;
    }
    *ret = (uint32_t)id[0] << 24 | (uint32_t)id[1] << 16 | (uint32_t)id[2] << 8 | id[3];
    return 0;
}

int pkcs11_find(struct pkcs11 *p, CK_SESSION_HANDLE session, const char *organisation,
                struct pkcs11_key ret[static PKCS11_VERSIONS_MAX], struct err *e)
{
    CK_OBJECT_CLASS class = CKO_SECRET_KEY;
    CK_OBJECT_HANDLE handles[PKCS11_VERSIONS_MAX];
    CK_ULONG n = 0;
    char label[40];
    int found = 0;
    CK_RV rv;

    label_of(organisation, label);
    CK_ATTRIBUTE like[] = {{CKA_CLASS, &class, sizeof(class)}, {CKA_LABEL, label, strlen(label)}};

    rv = p->f->C_FindObjectsInit(session, like, ARRAY_SIZE(like));
    if (rv == CKR_OK) {
        rv = p->f->C_FindObjects(session, handles, PKCS11_VERSIONS_MAX, &n);
        p->f->C_FindObjectsFinal(session);
    }
    if (rv != CKR_OK) {
        return pkcs11_failed(rv, "looking for a key", organisation, e);
    }
    for (CK_ULONG i = 0; i < n; i++) {
        ret[found].handle = handles[i];
        found += read_version(p, session, handles[i], &ret[found].version) == 0;
    }
    return found;
}

int pkcs11_generate(struct pkcs11 *p, CK_SESSION_HANDLE session, const char *organisation,
                    struct pkcs11_key *ret_key, struct err *e)
{
    CK_MECHANISM mechanism = {CKM_AES_KEY_GEN, NULL, 0};
    CK_OBJECT_CLASS class = CKO_SECRET_KEY;
    CK_KEY_TYPE type = CKK_AES;
    CK_ULONG bytes = 32;
    CK_BBOOL yes = CK_TRUE;
    CK_BBOOL no = CK_FALSE;
    uint32_t v = ret_key->version;
    unsigned char id[4] = {(unsigned char)(v >> 24), (unsigned char)(v >> 16),
                           (unsigned char)(v >> 8), (unsigned char)v};
    char label[40];
    CK_RV rv;

    label_of(organisation, label);
    CK_ATTRIBUTE key[] = {
        {CKA_CLASS, &class, sizeof(class)},
        {CKA_KEY_TYPE, &type, sizeof(type)},
        {CKA_VALUE_LEN, &bytes, sizeof(bytes)},
        {CKA_LABEL, label, strlen(label)},
        {CKA_ID, id, sizeof(id)},
        {CKA_TOKEN, &yes, sizeof(yes)},
        {CKA_PRIVATE, &yes, sizeof(yes)},
        {CKA_SENSITIVE, &yes, sizeof(yes)},
        {CKA_EXTRACTABLE, &no, sizeof(no)},
        {CKA_ENCRYPT, &yes, sizeof(yes)},
        {CKA_DECRYPT, &yes, sizeof(yes)},
        {CKA_WRAP, &no, sizeof(no)},
        {CKA_UNWRAP, &no, sizeof(no)},
    };

    rv = p->f->C_GenerateKey(session, &mechanism, key, ARRAY_SIZE(key), &ret_key->handle);
    return rv == CKR_OK ? 0 : pkcs11_failed(rv, "making a key", organisation, e);
}

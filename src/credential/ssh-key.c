/* SPDX-License-Identifier: Apache-2.0 */
#include "credential/ssh-key.h"

#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <string.h>

#include "base/base64.h"
#include "base/id.h"

#define BEGIN "-----BEGIN OPENSSH PRIVATE KEY-----"
#define END "-----END OPENSSH PRIVATE KEY-----"
#define MAGIC "openssh-key-v1"
#define ED25519 "ssh-ed25519"
#define RSA "ssh-rsa"

static const struct ssh_curve {
    const char *name; /* of the key, and of its signatures */
    const char *curve;
    const char *group; /* OpenSSL's name */
    const char *digest;
} curves[] = {
    {"ecdsa-sha2-nistp256", "nistp256", "prime256v1", "SHA256"},
    {"ecdsa-sha2-nistp384", "nistp384", "secp384r1", "SHA384"},
    {"ecdsa-sha2-nistp521", "nistp521", "secp521r1", "SHA512"},
};

static int wrong(struct err *e, const char *what)
{
    return err_field(e, -EINVAL, "invalid_field", "value", "the private key %s", what);
}

void ssh_key_done(struct ssh_key *key)
{
    secret_done(&key->bytes);
    *key = (struct ssh_key){0};
}

/* ---- reading ---- */

/* The bytes between the two lines. */
static int read_armor(const char *pem, size_t len, struct secret *ret, struct err *e)
{
    cleanup_secret_buf struct buf text = BUF_INIT(SECRET_MAX);
    cleanup_secret_buf struct buf bytes = BUF_INIT(SECRET_MAX);
    const char *from = memmem(pem, len, BEGIN, sizeof(BEGIN) - 1);
    const char *to = memmem(pem, len, END, sizeof(END) - 1);
    int r = 0;

    if (from != pem || !to || to < from + sizeof(BEGIN) - 1) {
        return wrong(e, "is not in OpenSSH's own format; 'ssh-keygen -p -f FILE' writes it anew");
    }
    for (const char *s = from + sizeof(BEGIN) - 1; s < to && r == 0; s++) {
        r = *s == '\n' || *s == '\r' ? 0 : buf_add(&text, s, 1);
    }
    r = r < 0 ? r : base64_decode(buf_str(&text), text.len, &bytes);
    r = r < 0 || bytes.len == 0 ? -EINVAL : secret_init(ret, bytes.data, bytes.len);
    return r < 0 ? wrong(e, "is damaged") : 0;
}

static const struct ssh_curve *curve_of(struct ssh_view name)
{
    for (size_t i = 0; i < ARRAY_SIZE(curves); i++) {
        if (ssh_view_is(name, curves[i].name)) {
            return &curves[i];
        }
    }
    return NULL;
}

static size_t bits_of(struct ssh_view n)
{
    size_t bits;

    while (n.len > 0 && n.p[0] == 0) {
        n.p++;
        n.len--;
    }
    bits = n.len * 8;
    for (unsigned top = n.len ? n.p[0] : 0x80; !(top & 0x80); top <<= 1) {
        bits--;
    }
    return bits;
}

/* How many strings follow the key's name. */
static size_t name_key(struct ssh_key *key, struct ssh_view name)
{
    const struct ssh_curve *curve = curve_of(name);

    if (ssh_view_is(name, ED25519)) {
        key->name = ED25519;
        return 2; /* public, private and public */
    }
    if (ssh_view_is(name, RSA)) {
        key->name = RSA;
        return 6; /* n, e, d, iqmp, p, q */
    }
    if (curve) {
        key->name = curve->name;
        return 3; /* curve, public, private */
    }
    return 0;
}

/* Do the private half's own numbers make the public half that stands before it? */
static bool halves_agree(const struct ssh_key *key)
{
    cleanup_buf struct buf b = BUF_INIT(SSH_KEY_BLOB_MAX);
    bool is_rsa = str_eq(key->name, RSA);
    int r = ssh_put_string(&b, key->name, strlen(key->name));

    if (str_eq(key->name, ED25519)) {
        if (key->parts[0].len != 32 || key->parts[1].len != 64 ||
            memcmp(key->parts[0].p, key->parts[1].p + 32, 32) != 0) {
            return false;
        }
        r = r < 0 ? r : ssh_put_string(&b, key->parts[0].p, key->parts[0].len);
    } else {
        const struct ssh_view *first = &key->parts[is_rsa ? 1 : 0];
        const struct ssh_view *second = &key->parts[is_rsa ? 0 : 1];

        r = r < 0 ? r : ssh_put_string(&b, first->p, first->len);
        r = r < 0 ? r : ssh_put_string(&b, second->p, second->len);
    }
    return r == 0 && b.len == key->public.len && memcmp(b.data, key->public.p, b.len) == 0;
}

static int read_private(struct ssh_view section, struct ssh_key *key, struct err *e)
{
    struct ssh_view name;
    uint32_t check[2];
    size_t n;

    if (ssh_take_u32(&section, &check[0]) < 0 || ssh_take_u32(&section, &check[1]) < 0 ||
        check[0] != check[1] || ssh_take_string(&section, &name) < 0) {
        return wrong(e, "is damaged");
    }
    n = name_key(key, name);
    if (n == 0) {
        return wrong(e, "is of a kind that is not used here: Ed25519, ECDSA and RSA are");
    }
    for (size_t i = 0; i < n; i++) {
        if (ssh_take_string(&section, &key->parts[i]) < 0 || key->parts[i].len == 0) {
            return wrong(e, "is damaged");
        }
    }
    if (str_eq(key->name, RSA) && (bits_of(key->parts[0]) < SSH_KEY_RSA_BITS_MIN ||
                                   bits_of(key->parts[0]) > SSH_KEY_RSA_BITS_MAX)) {
        return wrong(e, "is an RSA key of less than 3072 bits, or of more than 8192");
    }
    return halves_agree(key) ? 0 : wrong(e, "has a public half that is not its own");
}

static int read_file(struct ssh_key *key, struct err *e)
{
    struct ssh_view rest = {(const uint8_t *)key->bytes.p, key->bytes.len};
    struct ssh_view cipher;
    struct ssh_view kdf;
    struct ssh_view options;
    struct ssh_view section;
    uint32_t n = 0;

    if (rest.len < sizeof(MAGIC) || memcmp(rest.p, MAGIC, sizeof(MAGIC)) != 0) {
        return wrong(e, "is damaged");
    }
    rest.p += sizeof(MAGIC);
    rest.len -= sizeof(MAGIC);
    if (ssh_take_string(&rest, &cipher) < 0 || ssh_take_string(&rest, &kdf) < 0 ||
        ssh_take_string(&rest, &options) < 0 || ssh_take_u32(&rest, &n) < 0 || n != 1 ||
        ssh_take_string(&rest, &key->public) < 0 || ssh_take_string(&rest, &section) < 0 ||
        rest.len > 0) {
        return wrong(e, "is damaged");
    }
    if (!ssh_view_is(cipher, "none")) {
        return wrong(e, "is behind a passphrase; 'ssh-keygen -p -f FILE' takes it away");
    }
    return read_private(section, key, e);
}

int ssh_key_parse(const char *pem, size_t len, struct ssh_key *ret, struct err *e)
{
    struct ssh_key key = {0};
    int r = read_armor(pem, len, &key.bytes, e);

    r = r < 0 ? r : read_file(&key, e);
    if (r < 0) {
        ssh_key_done(&key);
        return r;
    }
    *ret = key;
    return 0;
}

/* ---- signing ---- */

bool ssh_key_signs(const struct ssh_key *key, struct ssh_view algorithm)
{
    return str_eq(key->name, RSA)
               ? ssh_view_is(algorithm, "rsa-sha2-256") || ssh_view_is(algorithm, "rsa-sha2-512")
               : ssh_view_is(algorithm, key->name);
}

static bool push_number(OSSL_PARAM_BLD *bld, const char *name, struct ssh_view v, BIGNUM **ret)
{
    *ret = BN_secure_new();
    return *ret && BN_bin2bn(v.p, (int)v.len, *ret) && OSSL_PARAM_BLD_push_BN(bld, name, *ret);
}

static EVP_PKEY *from_params(const char *type, OSSL_PARAM_BLD *bld)
{
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(bld);
    EVP_PKEY *key = NULL;

    if (!ctx || !params || EVP_PKEY_fromdata_init(ctx) <= 0 ||
        EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_KEYPAIR, params) <= 0) {
        key = NULL;
    }
    OSSL_PARAM_free(params);
    EVP_PKEY_CTX_free(ctx);
    return key;
}

static EVP_PKEY *load(const struct ssh_key *key)
{
    const struct ssh_curve *curve =
        curve_of((struct ssh_view){(const uint8_t *)key->name, strlen(key->name)});
    OSSL_PARAM_BLD *bld;
    BIGNUM *numbers[3] = {NULL, NULL, NULL};
    EVP_PKEY *ret = NULL;

    if (str_eq(key->name, ED25519)) {
        return EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, key->parts[1].p, 32);
    }
    bld = OSSL_PARAM_BLD_new();
    if (bld && curve &&
        OSSL_PARAM_BLD_push_utf8_string(bld, OSSL_PKEY_PARAM_GROUP_NAME, curve->group, 0) &&
        OSSL_PARAM_BLD_push_octet_string(bld, OSSL_PKEY_PARAM_PUB_KEY, key->parts[1].p,
                                         key->parts[1].len) &&
        push_number(bld, OSSL_PKEY_PARAM_PRIV_KEY, key->parts[2], &numbers[0])) {
        ret = from_params("EC", bld);
    } else if (bld && !curve &&
               push_number(bld, OSSL_PKEY_PARAM_RSA_N, key->parts[0], &numbers[0]) &&
               push_number(bld, OSSL_PKEY_PARAM_RSA_E, key->parts[1], &numbers[1]) &&
               push_number(bld, OSSL_PKEY_PARAM_RSA_D, key->parts[2], &numbers[2])) {
        ret = from_params("RSA", bld);
    }
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        BN_clear_free(numbers[i]);
    }
    OSSL_PARAM_BLD_free(bld);
    return ret;
}

/* ECDSA's signature travels as two numbers, not as OpenSSL writes it. */
static int put_ecdsa(const uint8_t *der, size_t len, struct buf *ret)
{
    cleanup_buf struct buf pair = BUF_INIT(SSH_KEY_BLOB_MAX);
    ECDSA_SIG *sig = d2i_ECDSA_SIG(NULL, &der, (long)len);
    uint8_t number[80];
    int r = sig ? 0 : -EIO;

    for (int i = 0; i < 2 && r == 0; i++) {
        const BIGNUM *n = i == 0 ? ECDSA_SIG_get0_r(sig) : ECDSA_SIG_get0_s(sig);
        int bytes = BN_num_bytes(n);

        r = bytes > (int)sizeof(number) ? -EIO : 0;
        if (r == 0) {
            BN_bn2bin(n, number);
            r = ssh_put_mpint(&pair, number, (size_t)bytes);
        }
    }
    ECDSA_SIG_free(sig);
    return r < 0 ? r : ssh_put_string(ret, pair.data, pair.len);
}

static const char *digest_of(const struct ssh_key *key, struct ssh_view algorithm)
{
    const struct ssh_curve *curve = curve_of(algorithm);

    if (str_eq(key->name, ED25519)) {
        return NULL;
    }
    return curve ? curve->digest : ssh_view_is(algorithm, "rsa-sha2-256") ? "SHA256" : "SHA512";
}

static int sign(EVP_PKEY *pkey, const char *digest, struct ssh_view data, uint8_t *ret, size_t *len)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool done = ctx && EVP_DigestSignInit_ex(ctx, NULL, digest, NULL, NULL, pkey, NULL) > 0 &&
                EVP_DigestSign(ctx, ret, len, data.p, data.len) > 0;

    EVP_MD_CTX_free(ctx);
    return done ? 0 : -EIO;
}

int ssh_key_sign(const struct ssh_key *key, struct ssh_view algorithm, struct ssh_view data,
                 struct buf *ret, struct err *e)
{
    uint8_t raw[SSH_KEY_RSA_BITS_MAX / 8];
    size_t len = sizeof(raw);
    EVP_PKEY *pkey;
    int r;

    if (!ssh_key_signs(key, algorithm)) {
        return err_set(e, -EINVAL, "invalid_request", "the key does not sign that way");
    }
    pkey = load(key);
    r = pkey ? sign(pkey, digest_of(key, algorithm), data, raw, &len) : -EIO;
    EVP_PKEY_free(pkey);
    r = r < 0 ? r : ssh_put_string(ret, algorithm.p, algorithm.len);
    if (r == 0) {
        r = curve_of(algorithm) ? put_ecdsa(raw, len, ret) : ssh_put_string(ret, raw, len);
    }
    ERR_clear_error();
    return r < 0 ? err_set(e, r, NULL, "signing with the key has failed") : 0;
}

/* ---- making ---- */

static int print_section(const uint8_t *public, const uint8_t *private, struct buf *ret)
{
    uint8_t both[64];
    uint8_t check[4];
    int r;

    memcpy(both, private, 32);
    memcpy(both + 32, public, 32);
    random_bytes(check, sizeof(check));
    r = buf_add(ret, check, sizeof(check));
    r = r < 0 ? r : buf_add(ret, check, sizeof(check));
    r = r < 0 ? r : ssh_put_string(ret, ED25519, sizeof(ED25519) - 1);
    r = r < 0 ? r : ssh_put_string(ret, public, 32);
    r = r < 0 ? r : ssh_put_string(ret, both, sizeof(both));
    r = r < 0 ? r : ssh_put_string(ret, "space", 5);
    explicit_bzero(both, sizeof(both));
    for (uint8_t pad = 1; r == 0 && ret->len % 8 != 0; pad++) {
        r = buf_add(ret, &pad, 1);
    }
    return r;
}

static int print_file(const uint8_t *public, const uint8_t *private, struct buf *ret)
{
    cleanup_secret_buf struct buf section = BUF_INIT(1024);
    cleanup_buf struct buf blob = BUF_INIT(1024);
    int r = print_section(public, private, &section);

    r = r < 0 ? r : ssh_put_string(&blob, ED25519, sizeof(ED25519) - 1);
    r = r < 0 ? r : ssh_put_string(&blob, public, 32);
    r = r < 0 ? r : buf_add(ret, MAGIC, sizeof(MAGIC));
    r = r < 0 ? r : ssh_put_string(ret, "none", 4);
    r = r < 0 ? r : ssh_put_string(ret, "none", 4);
    r = r < 0 ? r : ssh_put_string(ret, "", 0);
    r = r < 0 ? r : ssh_put_u32(ret, 1);
    r = r < 0 ? r : ssh_put_string(ret, blob.data, blob.len);
    return r < 0 ? r : ssh_put_string(ret, section.data, section.len);
}

int ssh_key_generate(struct buf *ret, struct err *e)
{
    cleanup_secret_buf struct buf bytes = BUF_INIT(2048);
    cleanup_secret_buf struct buf text = BUF_INIT(4096);
    EVP_PKEY *pkey = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    uint8_t public[32];
    uint8_t private[32];
    size_t n_public = sizeof(public);
    size_t n_private = sizeof(private);
    int r = pkey && EVP_PKEY_get_raw_public_key(pkey, public, &n_public) > 0 &&
                    EVP_PKEY_get_raw_private_key(pkey, private, &n_private) > 0
                ? print_file(public, private, &bytes)
                : -EIO;

    EVP_PKEY_free(pkey);
    explicit_bzero(private, sizeof(private));
    r = r < 0 ? r : base64_encode(bytes.data, bytes.len, &text);
    r = r < 0 ? r : buf_add_str(ret, BEGIN "\n");
    for (size_t at = 0; r == 0 && at < text.len; at += 70) {
        r = buf_add(ret, text.data + at, MIN(text.len - at, (size_t)70));
        r = r < 0 ? r : buf_add_str(ret, "\n");
    }
    r = r < 0 ? r : buf_add_str(ret, END "\n");
    return r < 0 ? err_wrap(e, r, "making a key") : 0;
}

int ssh_key_public_text(const struct ssh_key *key, struct buf *ret)
{
    int r = buf_printf(ret, "%s ", key->name);

    return r < 0 ? r : base64_encode(key->public.p, key->public.len, ret);
}

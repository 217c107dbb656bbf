/* SPDX-License-Identifier: Apache-2.0 */
#include "volume/conformance-kms.h"

#include "base/test.h"

static struct kms *kms;
static char organisation[ID_SIZE];
static char other[ID_SIZE];

static void key_of(char fill, struct secret *ret)
{
    char bytes[32];

    memset(bytes, fill, sizeof(bytes));
    CHECK_INT(secret_init(ret, bytes, sizeof(bytes)), 0);
}

static void wrap(const char *org, const char *id, char fill, struct buf *ret)
{
    cleanup_secret struct secret key = {0};
    struct err e = {0};

    key_of(fill, &key);
    CHECK_INT(kms_wrap(kms, &(struct kms_use){org, id}, &key, ret, &e), 0);
    CHECK_STR(e.msg, "");
    CHECK(ret->len > 0 && ret->len <= KMS_WRAPPED_MAX);
    for (size_t i = 0; i < ret->len; i++) {
        CHECK(ret->data[i] > 0x20 && ret->data[i] < 0x7f);
    }
}

static void gives(const char *org, const char *id, const char *wrapped, char fill)
{
    cleanup_secret struct secret key = {0};
    cleanup_secret struct secret want = {0};
    struct err e = {0};

    key_of(fill, &want);
    CHECK_INT(kms_unwrap(kms, &(struct kms_use){org, id}, wrapped, &key, &e), 0);
    CHECK_STR(e.msg, "");
    CHECK(key.p && key.len == want.len && memcmp(key.p, want.p, want.len) == 0);
}

static int refuses(const char *org, const char *id, const char *wrapped, struct err *e)
{
    cleanup_secret struct secret key = {0};
    int r = kms_unwrap(kms, &(struct kms_use){org, id}, wrapped, &key, e);

    CHECK(!key.p);
    return r;
}

static void what_was_wrapped_unwraps(void)
{
    cleanup_buf struct buf one = BUF_INIT(KMS_WRAPPED_MAX);
    cleanup_buf struct buf two = BUF_INIT(KMS_WRAPPED_MAX);

    wrap(organisation, "k1", 'a', &one);
    wrap(organisation, "k1", 'a', &two);
    CHECK(strcmp(buf_str(&one), buf_str(&two)) != 0); /* the same key does not look the same */
    gives(organisation, "k1", buf_str(&one), 'a');
    gives(organisation, "k1", buf_str(&two), 'a');
}

static void a_wrapped_key_is_bound_to_its_place(void)
{
    cleanup_buf struct buf one = BUF_INIT(KMS_WRAPPED_MAX);
    cleanup_buf struct buf mine = BUF_INIT(KMS_WRAPPED_MAX);
    struct err e = {0};

    wrap(organisation, "k1", 'a', &one);
    wrap(other, "k1", 'b', &mine); /* so that it has a key */
    CHECK(refuses(organisation, "k2", buf_str(&one), &e) < 0);
    CHECK(refuses(other, "k1", buf_str(&one), &e) < 0);
    gives(other, "k1", buf_str(&mine), 'b');
}

static void a_changed_one_is_refused(void)
{
    static const char *const nonsense[] = {"",
                                           "x",
                                           "local:",
                                           "local:1:",
                                           "local:1:AAAA",
                                           "local:0:AAAA",
                                           "local:99:AAAA",
                                           "vault:v1:",
                                           "vault:v1:AAAA",
                                           "pkcs11:",
                                           "pkcs11:1:AAAA"};
    cleanup_buf struct buf one = BUF_INIT(KMS_WRAPPED_MAX);
    struct err e = {0};
    char *last;

    wrap(organisation, "k1", 'a', &one);
    last = one.data + one.len - 8;
    *last = *last == 'A' ? 'B' : 'A';
    CHECK(refuses(organisation, "k1", buf_str(&one), &e) < 0);
    for (size_t i = 0; i < ARRAY_SIZE(nonsense); i++) {
        CHECK(refuses(organisation, "k1", nonsense[i], &e) < 0);
    }
}

static void rotating_leaves_what_was_wrapped_readable(void)
{
    cleanup_buf struct buf before = BUF_INIT(KMS_WRAPPED_MAX);
    cleanup_buf struct buf after = BUF_INIT(KMS_WRAPPED_MAX);
    struct err e = {0};

    wrap(organisation, "k1", 'a', &before);
    CHECK_INT(kms_rotate(kms, organisation, &e), 0);
    wrap(organisation, "k1", 'b', &after);
    gives(organisation, "k1", buf_str(&before), 'a');
    gives(organisation, "k1", buf_str(&after), 'b');
    CHECK_INT(kms_rotate(kms, organisation, &e), 0);
    gives(organisation, "k1", buf_str(&before), 'a');
}

static void a_revoked_key_is_refused_until_it_is_back(void)
{
    cleanup_buf struct buf one = BUF_INIT(KMS_WRAPPED_MAX);
    struct err e = {0};

    wrap(organisation, "k1", 'a', &one);
    conformance_revoke(organisation, true);
    CHECK_INT(refuses(organisation, "k1", buf_str(&one), &e), -EACCES);
    CHECK_STR(e.reason, "key_refused");
    conformance_revoke(organisation, false);
    gives(organisation, "k1", buf_str(&one), 'a');
}

static void a_destroyed_key_is_gone_for_ever(void)
{
    cleanup_buf struct buf one = BUF_INIT(KMS_WRAPPED_MAX);
    cleanup_buf struct buf mine = BUF_INIT(KMS_WRAPPED_MAX);
    cleanup_buf struct buf again = BUF_INIT(KMS_WRAPPED_MAX);
    struct err e = {0};

    wrap(organisation, "k1", 'a', &one);
    wrap(other, "k1", 'b', &mine);
    CHECK_INT(kms_destroy(kms, organisation, &e), 0);
    CHECK_INT(refuses(organisation, "k1", buf_str(&one), &e), -EACCES);
    CHECK_STR(e.reason, "key_refused");
    gives(other, "k1", buf_str(&mine), 'b');
    CHECK_INT(kms_destroy(kms, organisation, &e), 0);
    wrap(organisation, "k1", 'c',
         &again); /* a new one, which does not open what the old one closed */
    CHECK(refuses(organisation, "k1", buf_str(&one), &e) < 0);
    gives(organisation, "k1", buf_str(&again), 'c');
}

static void close_it(void)
{
    kms_free(TAKE_PTR(kms));
}

__attribute__((constructor)) static void open_it(void)
{
    kms = conformance_open();
    id_new(ID_ORGANISATION, organisation);
    id_new(ID_ORGANISATION, other);
    atexit(close_it);
}

TEST_MAIN(T(what_was_wrapped_unwraps), T(a_wrapped_key_is_bound_to_its_place),
          T(a_changed_one_is_refused), T(rotating_leaves_what_was_wrapped_readable),
          T(a_revoked_key_is_refused_until_it_is_back), T(a_destroyed_key_is_gone_for_ever))

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/test.h"
#include "model/policy.h"

#define MIN_MS (60ull * 1000)
#define HOUR_MS (60 * MIN_MS)
#define DAY_MS (24 * HOUR_MS)
#define NOW (1000 * DAY_MS)

static int parse(const char *text, struct policy *ret, struct err *e)
{
    cleanup_json json_t *root = NULL;
    int r = json_parse_object(text, strlen(text), &root, e);

    return r < 0 ? r : policy_from_json(root, ret, e);
}

static void fields_are_checked_and_named(void)
{
    static const struct {
        const char *text;
        const char *field;
    } cases[] = {{"{\"disk_every_s\":1}", "disk_every_s"},
                 {"{\"disk_every_s\":\"5\"}", "disk_every_s"},
                 {"{\"keep_day\":-1}", "keep_day"},
                 {"{\"recover\":\"yes\"}", "recover"},
                 {"{\"before_commands\":\"full\"}", "before_commands"},
                 {"{\"before_commands\":1}", "before_commands"},
                 {"{\"cold_restore\":\"no\"}", "cold_restore"},
                 {"{\"backup_every_s\":29}", "backup_every_s"},
                 {"{\"color\":1}", "color"}};
    struct policy p;
    struct err e = {0};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        CHECK_INT(parse(cases[i].text, &p, &e), -EINVAL);
        CHECK_STR(e.field, cases[i].field);
    }
    CHECK_INT(parse("{\"disk_every_s\":5,\"recover\":\"disk\",\"keep_month\":0}", &p, &e), 0);
    CHECK(p.disk_every_s == 5 && p.recover == POLICY_RECOVER_DISK && p.keep_month == 0);
    CHECK_INT(p.keep_hour, policy_default().keep_hour);
    CHECK_INT(p.before_commands, POLICY_BEFORE_NONE);
}

static void a_policy_survives_json(void)
{
    struct policy p = policy_default();
    struct policy back;
    json_t *json;

    p.full_every_s = 600;
    p.recover = POLICY_RECOVER_NONE;
    p.before_commands = POLICY_BEFORE_DISK;
    p.cold_restore = POLICY_COLD_REFUSE;
    p.backup_every_s = 600;
    json = policy_to_json(&p);
    CHECK_INT(policy_from_json(json, &back, NULL), 0);
    CHECK_MEM(&p, &back, sizeof(p));
    json_decref(json);
}

static size_t kept(const struct policy_item *items, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++) {
        count += !items[i].drop;
    }
    return count;
}

/* A snapshot every five minutes for forty days. */
static void thinning_gets_coarser_with_age(void)
{
    enum {
        N = 40 * 24 * 12
    };
    struct policy p = policy_default();
    struct policy_item *items = xnew_n(struct policy_item, N);
    uint64_t oldest_kept = NOW;

    for (size_t i = 0; i < N; i++) {
        items[i].created_at_ms = NOW - i * 5 * MIN_MS;
    }
    policy_thin(&p, NOW, items, N);
    for (size_t i = 0; i < N; i++) {
        oldest_kept = items[i].drop ? oldest_kept : items[i].created_at_ms;
    }
    CHECK(kept(items, N) <= p.keep_hour + p.keep_day + p.keep_week + p.keep_month);
    CHECK(kept(items, N) >= 35);
    CHECK(NOW - oldest_kept > 28 * DAY_MS);
    CHECK(!items[0].drop);
    free(items);
}

static void thinning_twice_changes_nothing(void)
{
    enum {
        N = 500
    };
    struct policy p = policy_default();
    struct policy_item items[N] = {0};
    size_t n = 0;

    for (size_t i = 0; i < N; i++) {
        items[i].created_at_ms = NOW - i * 7 * MIN_MS;
        items[i].full = i % 5 == 0;
    }
    policy_thin(&p, NOW, items, N);
    for (size_t i = 0; i < N; i++) {
        if (!items[i].drop) {
            items[n++] = items[i];
        }
    }
    policy_thin(&p, NOW, items, n);
    CHECK_INT(kept(items, n), n);
}

static void what_is_fixed_stays(void)
{
    struct policy p = policy_default();
    struct policy_item items[3] = {
        {.created_at_ms = NOW - 400 * DAY_MS, .fixed = true},
        {.created_at_ms = NOW - 401 * DAY_MS, .full = true, .fixed = true},
        {.created_at_ms = NOW - 402 * DAY_MS}};

    p.keep_month = 0;
    policy_thin(&p, NOW, items, 3);
    CHECK(!items[0].drop && !items[1].drop && items[2].drop);
}

TEST_MAIN(T(fields_are_checked_and_named), T(a_policy_survives_json),
          T(thinning_gets_coarser_with_age), T(thinning_twice_changes_nothing),
          T(what_is_fixed_stays))

/* SPDX-License-Identifier: Apache-2.0 */
#include "database/conformance.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/test.h"

/* A database with two organisations; one project in the first, two in the second. */
struct fixture {
    struct db *db; /* borrowed: the case's */
    struct organisation org[2];
    struct project project[3];
};

static void fixture_init(struct fixture *f)
{
    static const char *const org_names[] = {"first", "second"};
    static const char *const project_names[] = {"default", "default", "other"};
    static const int owner[] = {0, 1, 1};

    for (size_t i = 0; i < ARRAY_SIZE(f->org); i++) {
        f->org[i].created_at_ms = 1000 + (int64_t)i;
        id_new(ID_ORGANISATION, f->org[i].id);
        snprintf(f->org[i].name, sizeof(f->org[i].name), "%s", org_names[i]);
        ASSERT(db_organisation_insert(f->db, &f->org[i], NULL) == 0);
    }
    for (size_t i = 0; i < ARRAY_SIZE(f->project); i++) {
        struct project *p = &f->project[i];

        p->max_sandboxes = 10000;
        p->created_at_ms = 2000 + (int64_t)i;
        id_new(ID_PROJECT, p->id);
        snprintf(p->organisation, sizeof(p->organisation), "%s", f->org[owner[i]].id);
        snprintf(p->name, sizeof(p->name), "%s", project_names[i]);
        ASSERT(db_project_insert(f->db, p, NULL) == 0);
    }
}

#define FIXTURE(f_) \
    CONFORMANCE_DB(db_of_##f_); \
    struct fixture f_ = {.db = db_of_##f_}; \
    fixture_init(&f_)

static struct sandbox make_sandbox(const char *project, const char *metadata, int64_t created_at_ms)
{
    struct sandbox sb = {
        .desired = SANDBOX_STATE_RUNNING,
        .observed = SANDBOX_STATE_CREATING,
        .generation = 1,
        .template_name = "debian",
        .shape = {2, 512, 4096},
        .env = xstrdup("{\"A\":\"1\"}"),
        .metadata = xstrdup(metadata),
        .timeout_s = 60,
        .created_at_ms = created_at_ms,
        .changed_at_ms = created_at_ms,
        .end_at_ms = created_at_ms + 60000,
    };

    id_new(ID_SANDBOX, sb.id);
    snprintf(sb.project, sizeof(sb.project), "%s", project);
    return sb;
}

static struct operation make_operation(const struct sandbox *sb, const char *key)
{
    struct operation op = {.created_at_ms = sb->created_at_ms, .owner = "rowner"};

    snprintf(op.project, sizeof(op.project), "%s", sb->project);
    snprintf(op.sandbox, sizeof(op.sandbox), "%s", sb->id);
    snprintf(op.key, sizeof(op.key), "%s", key);
    memset(op.fingerprint, 'f', sizeof(op.fingerprint) - 1);
    return op;
}

static int insert_one(struct db *db, const char *project, const char *metadata, int64_t at,
                      struct sandbox *ret)
{
    cleanup_sandbox struct sandbox sb = make_sandbox(project, metadata, at);
    int r = db_sandbox_insert(db, &sb, NULL, 10000, NULL);

    if (ret) {
        *ret = sb;
        sb = (struct sandbox){0};
    }
    return r;
}

/* --- organisations, projects, keys --- */

static void names_of_organisations_and_projects_are_unique(void)
{
    FIXTURE(f);
    struct organisation org = {.id = "oother", .name = "first"};
    struct organisation found;
    struct project p = f.project[0];
    struct project got;
    struct err e = {0};

    CHECK_INT(db_organisation_insert(f.db, &org, &e), -EEXIST);
    CHECK_STR(e.field, "name");
    CHECK_INT(db_organisation_by_name(f.db, "second", &found, NULL), 0);
    CHECK_STR(found.id, f.org[1].id);
    CHECK_INT(db_organisation_by_name(f.db, "third", &found, NULL), -ENOENT);

    id_new(ID_PROJECT, p.id);
    CHECK_INT(db_project_insert(f.db, &p, NULL), -EEXIST);
    CHECK_INT(db_project_by_name(f.db, f.org[1].id, "default", &got, NULL), 0);
    CHECK_STR(got.id, f.project[1].id);
    CHECK_INT(db_project_set_quota(f.db, got.id, 5, NULL), 0);
    CHECK_INT(db_project_get(f.db, got.id, &got, NULL), 0);
    CHECK_INT(got.max_sandboxes, 5);
    CHECK_INT(db_project_set_quota(f.db, "pnothing", 5, NULL), -ENOENT);
    CHECK_INT(db_project_get(f.db, "pnothing", &got, NULL), -ENOENT);
}

static void levels_of_networks_are_read_with_each_sandbox(void)
{
    FIXTURE(f);
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_sandbox struct sandbox got = {0};
    cleanup_free char *text = NULL;

    REQUIRE(insert_one(f.db, f.project[0].id, "{}", 1, &sb) == 0);
    CHECK_INT(db_network_set(f.db, NETPOLICY_ORGANISATION, f.org[0].id, "{\"a\":1}", NULL), 0);
    CHECK_INT(db_network_set(f.db, NETPOLICY_PROJECT, f.project[0].id, "{\"b\":1}", NULL), 0);
    CHECK_INT(db_network_set(f.db, NETPOLICY_PROJECT, "pnothing", "{}", NULL), -ENOENT);
    CHECK_INT(db_network_set(f.db, NETPOLICY_ORGANISATION, "onothing", "{}", NULL), -ENOENT);
    REQUIRE(db_sandbox_get(f.db, sb.id, NULL, &got, NULL) == 0);
    CHECK_STR(got.network_outer[NETPOLICY_ORGANISATION], "{\"a\":1}");
    CHECK_STR(got.network_outer[NETPOLICY_PROJECT], "{\"b\":1}");
    CHECK_INT(db_network_get(f.db, NETPOLICY_ORGANISATION, f.org[1].id, &text, NULL), 0);
    CHECK_STR(text, "");
    CHECK_INT(db_network_get(f.db, NETPOLICY_PROJECT, "pnothing", &text, NULL), -ENOENT);
    got.changed_at_ms++; /* what is written is the row alone */
    CHECK_INT(db_sandbox_update(f.db, &got, NULL, NULL), 0);
}

static void unknown_parents_are_refused(void)
{
    FIXTURE(f);
    struct project p = {.id = "pnew", .organisation = "onothing", .name = "x", .max_sandboxes = 1};
    cleanup_sandbox struct sandbox sb = make_sandbox("pnothing", "{}", 1);

    CHECK(db_project_insert(f.db, &p, NULL) < 0);
    CHECK(db_sandbox_insert(f.db, &sb, NULL, 10, NULL) < 0);
    CHECK_INT(db_sandbox_get(f.db, sb.id, NULL, &sb, NULL), -ENOENT);
}

static struct api_key make_key(const char *project, char letter)
{
    struct api_key k = {
        .scope = KEY_SCOPE_PROJECT, .name = "a key", .created_at_ms = 10, .prefix = "e2b_abcdef"};

    id_new(ID_KEY, k.id);
    snprintf(k.project, sizeof(k.project), "%s", project);
    memset(k.hash, letter, sizeof(k.hash) - 1);
    return k;
}

static void keys_are_found_by_hash_until_revoked(void)
{
    FIXTURE(f);
    struct api_key k = make_key(f.project[1].id, 'a');
    struct api_key got;

    CHECK_INT(db_key_by_hash(f.db, k.hash, &got, NULL), -ENOENT);
    CHECK_INT(db_key_insert(f.db, &k, NULL), 0);
    CHECK_INT(db_key_by_hash(f.db, k.hash, &got, NULL), 0);
    CHECK_STR(got.id, k.id);
    CHECK_STR(got.project, f.project[1].id);
    CHECK_STR(got.organisation, f.org[1].id);
    CHECK_INT(got.last_used_at_ms, 0);

    CHECK_INT(db_key_touch(f.db, k.id, 77, NULL), 0);
    CHECK_INT(db_key_touch(f.db, k.id, 50, NULL), 0); /* never backwards */
    CHECK_INT(db_key_get(f.db, k.id, &got, NULL), 0);
    CHECK_INT(got.last_used_at_ms, 77);

    CHECK_INT(db_key_revoke(f.db, k.id, 90, NULL), 0);
    CHECK_INT(db_key_revoke(f.db, k.id, 95, NULL), 0);
    CHECK_INT(db_key_by_hash(f.db, k.hash, &got, NULL), -ENOENT);
    CHECK_INT(db_key_get(f.db, k.id, &got, NULL), 0);
    CHECK_INT(got.revoked_at_ms, 90);
}

static int count_keys(void *ctx, const struct api_key *k)
{
    ASSERT(k->id[0]);
    (*(int *)ctx)++;
    return 0;
}

static int count_projects(void *ctx, const struct project *p)
{
    ASSERT(p->id[0]);
    (*(int *)ctx)++;
    return 0;
}

static void key_lists_stay_in_their_organisation(void)
{
    FIXTURE(f);
    int n = 0;

    for (int i = 0; i < 3; i++) {
        struct api_key k = make_key(f.project[i].id, (char)('a' + i));

        CHECK_INT(db_key_insert(f.db, &k, NULL), 0);
    }
    CHECK_INT(db_key_list(f.db, f.org[0].id, NULL, count_keys, &n, NULL), 0);
    CHECK_INT(n, 1);
    n = 0;
    CHECK_INT(db_key_list(f.db, f.org[1].id, NULL, count_keys, &n, NULL), 0);
    CHECK_INT(n, 2);
    n = 0;
    CHECK_INT(db_key_list(f.db, f.org[1].id, f.project[2].id, count_keys, &n, NULL), 0);
    CHECK_INT(n, 1);
    n = 0;
    CHECK_INT(db_key_list(f.db, f.org[0].id, f.project[2].id, count_keys, &n, NULL), 0);
    CHECK_INT(n, 0);
    CHECK_INT(db_project_list(f.db, f.org[1].id, count_projects, &n, NULL), 0);
    CHECK_INT(n, 2);
}

/* --- sandboxes --- */

static void check_same(const struct sandbox *a, const struct sandbox *b)
{
    CHECK_STR(a->id, b->id);
    CHECK_STR(a->project, b->project);
    CHECK_INT(a->desired, b->desired);
    CHECK_INT(a->observed, b->observed);
    CHECK_INT(a->generation, b->generation);
    CHECK_STR(a->node, b->node);
    CHECK_STR(a->owner, b->owner);
    CHECK_STR(a->template_name, b->template_name);
    CHECK_MEM(&a->shape, &b->shape, sizeof(a->shape));
    CHECK_STR(a->accel, b->accel);
    CHECK_STR(a->env, b->env);
    CHECK_STR(a->metadata, b->metadata);
    CHECK_INT(a->timeout_s, b->timeout_s);
    CHECK_INT(a->created_at_ms, b->created_at_ms);
    CHECK_INT(a->started_at_ms, b->started_at_ms);
    CHECK_INT(a->changed_at_ms, b->changed_at_ms);
    CHECK_INT(a->end_at_ms, b->end_at_ms);
    CHECK_INT(a->paused_at_ms, b->paused_at_ms);
    CHECK_INT(a->at_end, b->at_end);
    CHECK_STR(a->surface ? a->surface : "", b->surface ? b->surface : "");
    CHECK(policy_equal(&a->policy, &b->policy));
    CHECK_STR(a->parent, b->parent);
    CHECK_STR(a->batch, b->batch);
    CHECK_STR(a->reason, b->reason);
}

static void sandbox_comes_back_as_written(void)
{
    FIXTURE(f);
    cleanup_sandbox struct sandbox sb = make_sandbox(f.project[0].id, "{\"a\":\"b\"}", 5);
    cleanup_sandbox struct sandbox got = {0};
    cleanup_sandbox struct sandbox again = {0};

    snprintf(sb.owner, sizeof(sb.owner), "r1");
    snprintf(sb.parent, sizeof(sb.parent), "sparent");
    snprintf(sb.batch, sizeof(sb.batch), "sfirst");
    sb.at_end = SANDBOX_AT_END_SLEEP;
    sb.surface = xstrdup("{\"x\":1}");
    sb.policy = policy_default();
    CHECK_INT(db_sandbox_insert(f.db, &sb, NULL, 1, NULL), 0);
    REQUIRE(db_sandbox_get(f.db, sb.id, f.project[0].id, &got, NULL) == 0);
    check_same(&sb, &got);

    sandbox_move(&got, (struct sandbox_move){SANDBOX_STATE_RUNNING, SANDBOX_BY_NODE, 1},
                 "a reason");
    snprintf(got.node, sizeof(got.node), "local");
    snprintf(got.accel, sizeof(got.accel), "tcg");
    got.owner[0] = '\0';
    got.started_at_ms = 7;
    got.changed_at_ms = 8;
    got.end_at_ms = 0;
    got.timeout_s = 0;
    got.paused_at_ms = 9;
    got.policy.idle_pause_s = 77;
    got.policy.recover = POLICY_RECOVER_NONE;
    got.at_end = SANDBOX_AT_END_STOP;
    free(got.surface);
    got.surface = xstrdup("");
    free(got.metadata);
    got.metadata = xstrdup("{\"c\":\"d\"}");
    CHECK_INT(db_sandbox_update(f.db, &got, NULL, NULL), 0);
    CHECK_INT(got.generation, 2);
    REQUIRE(db_sandbox_get(f.db, sb.id, NULL, &again, NULL) == 0);
    check_same(&got, &again);
}

/* n sandboxes of one project, the first of them naming the batch. */
static void make_batch(const char *project, struct sandbox *sbs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sbs[i] = make_sandbox(project, "{\"a\":\"b\"}", 100);
        snprintf(sbs[i].batch, sizeof(sbs[i].batch), "%s", sbs[0].id);
    }
}

static void end_batch(struct sandbox *sbs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sandbox_done(&sbs[i]);
    }
}

static int count_row(void *ctx, const struct sandbox *sb)
{
    (void)sb;
    ++*(int *)ctx;
    return 0;
}

static int rows_of(struct db *db, const struct sandbox_query *q)
{
    int n = 0;

    ASSERT(db_sandbox_list(db, q, count_row, &n, NULL) == 0);
    return n;
}

static void batches_are_all_or_nothing(void)
{
    FIXTURE(f);
    struct sandbox sbs[3] = {0};
    struct operation op;
    struct operation found = {0};
    struct sandbox_query all = {0};
    struct sandbox_query batch = {0};
    cleanup_sandbox struct sandbox got = {0};

    make_batch(f.project[0].id, sbs, 3);
    op = make_operation(&sbs[0], "k");
    CHECK_INT(db_sandbox_insert_all(f.db, sbs, 3, &(struct db_beside){.operation = &op}, 2, NULL),
              -EDQUOT);
    CHECK_INT(rows_of(f.db, &all), 0);
    CHECK_INT(db_operation_get(f.db, op.project, "k", &found, NULL), -ENOENT);
    CHECK_INT(db_sandbox_insert_all(f.db, sbs, 3, &(struct db_beside){.operation = &op}, 3, NULL),
              0);
    batch.batch = sbs[0].id;
    CHECK_INT(rows_of(f.db, &batch), 3);
    for (size_t i = 0; i < 3; i++) { /* each knows the operation of its batch */
        CHECK_INT(db_operation_of_sandbox(f.db, sbs[i].id, &found, NULL), 0);
        CHECK_STR(found.key, "k");
        operation_done(&found);
    }
    REQUIRE(db_sandbox_get(f.db, sbs[2].id, NULL, &got, NULL) == 0);
    CHECK_INT(db_sandbox_update(f.db, &got, NULL, NULL), 0); /* somebody is faster with the last */
    sbs[0].timeout_s = 1234;
    CHECK_INT(db_sandbox_update_all(f.db, sbs, 3, NULL, NULL), -ESTALE);
    CHECK_INT(sbs[0].generation, 1);
    sandbox_done(&got);
    REQUIRE(db_sandbox_get(f.db, sbs[0].id, NULL, &got, NULL) == 0);
    CHECK_INT(got.timeout_s, 60);
    sbs[2].generation = 2;
    CHECK_INT(db_sandbox_update_all(f.db, sbs, 3, NULL, NULL), 0);
    CHECK_INT(sbs[0].generation, 2);
    CHECK_INT(sbs[2].generation, 3);
    end_batch(sbs, 3);
}

static void paused_ones_do_not_expire(void)
{
    FIXTURE(f);
    cleanup_sandbox struct sandbox sb = {0};
    struct sandbox_query expired = {.expired_at_ms = 1000000};
    const struct db_beside relaxed = {.relaxed = true}; /* everybody sees it at once all the same */

    REQUIRE(insert_one(f.db, f.project[0].id, "{}", 1, &sb) == 0);
    CHECK_INT(rows_of(f.db, &expired), 1);
    sb.paused_at_ms = 5;
    CHECK_INT(db_sandbox_update(f.db, &sb, &relaxed, NULL), 0);
    CHECK_INT(rows_of(f.db, &expired), 0);
    sb.paused_at_ms = 0;
    sb.at_end = SANDBOX_AT_END_STOP; /* it is creating: nothing runs that could be stopped */
    CHECK_INT(db_sandbox_update(f.db, &sb, NULL, NULL), 0);
    CHECK_INT(rows_of(f.db, &expired), 0);
    sb.observed = SANDBOX_STATE_RUNNING;
    CHECK_INT(db_sandbox_update(f.db, &sb, &relaxed, NULL), 0);
    CHECK_INT(rows_of(f.db, &expired), 1);
}

static int keep_snapshot(void *ctx, const struct snapshot_row *row)
{
    *(struct snapshot_row *)ctx = *row;
    return 0;
}

static void snapshots_are_found_by_id_and_by_name(void)
{
    FIXTURE(f);
    struct snapshot_row row = {.sandbox = "s1", .name = "a", .created_at_ms = 5};
    struct snapshot_row got = {0};
    struct snapshot_query q = {.project = f.project[0].id, .limit = 10};
    char was[ID_SIZE];
    char first[ID_SIZE];

    snprintf(row.project, sizeof(row.project), "%s", f.project[0].id);
    id_new(ID_SNAPSHOT, row.id);
    snprintf(first, sizeof(first), "%s", row.id);
    CHECK_INT(db_snapshot_put(f.db, &row, was, NULL), 0);
    CHECK_STR(was, "");
    CHECK_INT(db_snapshot_find(f.db, row.project, "a", &got, NULL), 0);
    CHECK_STR(got.id, first);
    id_new(ID_SNAPSHOT, row.id);
    row.created_at_ms = 6;
    CHECK_INT(db_snapshot_put(f.db, &row, was, NULL), 0); /* the name goes to the newer one */
    CHECK_STR(was, first);
    CHECK_INT(db_snapshot_find(f.db, row.project, first, &got, NULL), 0);
    CHECK_STR(got.name, "");
    CHECK_INT(db_snapshot_find(f.db, f.project[1].id, "a", &got, NULL), -ENOENT);
    CHECK_INT(db_snapshot_find(f.db, row.project, "", &got, NULL), -ENOENT);
    q.after_ms = 6;
    q.after_id = row.id;
    CHECK_INT(db_snapshot_list(f.db, &q, keep_snapshot, &got, NULL), 0);
    CHECK_STR(got.id, first);
    CHECK_INT(db_snapshot_forget(f.db, row.project, row.id, NULL), 0);
    CHECK_INT(db_snapshot_forget(f.db, row.project, row.id, NULL), 0);
    CHECK_INT(db_snapshot_find(f.db, row.project, "a", &got, NULL), -ENOENT);
}

static void sandbox_of_another_project_is_not_found(void)
{
    FIXTURE(f);
    cleanup_sandbox struct sandbox sb = {0};
    struct sandbox got;
    struct err other = {0};
    struct err unknown = {0};

    REQUIRE(insert_one(f.db, f.project[0].id, "{}", 1, &sb) == 0);
    CHECK_INT(db_sandbox_get(f.db, sb.id, f.project[1].id, &got, &other), -ENOENT);
    CHECK_INT(db_sandbox_get(f.db, "snothing", f.project[1].id, &got, &unknown), -ENOENT);
    CHECK_MEM(&other, &unknown, sizeof(other));
}

static void update_needs_the_generation_it_was_decided_on(void)
{
    FIXTURE(f);
    cleanup_sandbox struct sandbox a = {0};
    cleanup_sandbox struct sandbox b = {0};
    cleanup_sandbox struct sandbox got = {0};

    REQUIRE(insert_one(f.db, f.project[0].id, "{\"k\":\"v\"}", 1, &a) == 0);
    sandbox_copy(&b, &a);
    a.end_at_ms = 999;
    CHECK_INT(db_sandbox_update(f.db, &a, NULL, NULL), 0);
    b.desired = SANDBOX_STATE_DELETED;
    free(b.metadata);
    b.metadata = xstrdup("{}");
    CHECK_INT(db_sandbox_update(f.db, &b, NULL, NULL), -ESTALE);
    CHECK_INT(b.generation, 1);
    REQUIRE(db_sandbox_get(f.db, a.id, NULL, &got, NULL) == 0);
    check_same(&a, &got);
}

static int count_sandboxes(void *ctx, const struct sandbox *sb)
{
    ASSERT(sb->metadata);
    (*(int *)ctx)++;
    return 0;
}

static int count_list(struct db *db, const struct sandbox_query *q)
{
    int n = 0;
    int r = db_sandbox_list(db, q, count_sandboxes, &n, NULL);

    return r < 0 ? r : n;
}

static void delete_needs_the_generation_and_takes_everything_along(void)
{
    FIXTURE(f);
    cleanup_sandbox struct sandbox sb = {0};
    struct sandbox got;

    REQUIRE(insert_one(f.db, f.project[0].id, "{\"k\":\"v\"}", 1, &sb) == 0);
    sb.generation = 7;
    CHECK_INT(db_sandbox_delete(f.db, &sb, NULL, NULL), -ESTALE);
    sb.generation = 1;
    CHECK_INT(db_sandbox_delete(f.db, &sb, NULL, NULL), 0);
    CHECK_INT(db_sandbox_delete(f.db, &sb, NULL, NULL), -ENOENT);
    CHECK_INT(db_sandbox_get(f.db, sb.id, NULL, &got, NULL), -ENOENT);
    /* The same id again must find none of the old metadata in its way. */
    CHECK_INT(db_sandbox_insert(f.db, &sb, NULL, 10, NULL), 0);
    CHECK_INT(count_list(f.db, &(struct sandbox_query){.filters = {{"k", "v"}}, .n_filters = 1}),
              1);
}

static void update_never_revives_what_was_deleted(void)
{
    FIXTURE(f);
    cleanup_sandbox struct sandbox sb = {0};

    REQUIRE(insert_one(f.db, f.project[0].id, "{}", 1, &sb) == 0);
    CHECK_INT(db_sandbox_delete(f.db, &sb, NULL, NULL), 0);
    CHECK_INT(db_sandbox_update(f.db, &sb, NULL, NULL), -ENOENT);
    CHECK_INT(count_list(f.db, &(struct sandbox_query){0}), 0);
}

struct worker {
    struct fixture *f; /* borrowed: the case joins its workers */
    int index;
    int result;
};

#define WORKERS 12

static void run_workers(struct fixture *f, void *(*run)(void *), struct worker *workers)
{
    pthread_t threads[WORKERS];

    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.f = f, .index = i};
        ASSERT(pthread_create(&threads[i], NULL, run, &workers[i]) == 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        ASSERT(pthread_join(threads[i], NULL) == 0);
    }
}

static void *insert_under_quota(void *arg)
{
    struct worker *w = arg;
    cleanup_sandbox struct sandbox sb = make_sandbox(w->f->project[0].id, "{}", 1);

    w->result = db_sandbox_insert(w->f->db, &sb, NULL, 5, NULL);
    return NULL;
}

static void quota_holds_under_concurrent_inserts(void)
{
    FIXTURE(f);
    struct worker workers[WORKERS];
    int fine = 0;
    int full = 0;

    run_workers(&f, insert_under_quota, workers);
    for (int i = 0; i < WORKERS; i++) {
        fine += workers[i].result == 0;
        full += workers[i].result == -EDQUOT;
    }
    CHECK_INT(fine, 5);
    CHECK_INT(full, WORKERS - 5);
    CHECK_INT(insert_one(f.db, f.project[1].id, "{}", 1, NULL),
              0); /* the neighbour's quota is its own */
}

struct page {
    int n;
    int64_t last_ms;
    char last_id[ID_SIZE];
    char ids[64][ID_SIZE];
};

static int add_to_page(void *ctx, const struct sandbox *sb)
{
    struct page *p = ctx;

    ASSERT(p->n < 64);
    snprintf(p->ids[p->n++], ID_SIZE, "%s", sb->id);
    snprintf(p->last_id, ID_SIZE, "%s", sb->id);
    p->last_ms = sb->created_at_ms;
    return 0;
}

static void list_pages_through_all_rows_once(void)
{
    FIXTURE(f);
    struct page all = {0};
    struct page paged = {0};
    struct sandbox_query q = {.project = f.project[0].id, .limit = 4};
    int before = -1;

    for (int i = 0; i < 25; i++) {
        REQUIRE(insert_one(f.db, f.project[0].id, "{}", 100 + i / 3, NULL) ==
                0); /* many share a moment */
    }
    REQUIRE(insert_one(f.db, f.project[1].id, "{}", 105, NULL) == 0);
    CHECK_INT(db_sandbox_list(f.db, &(struct sandbox_query){.project = f.project[0].id},
                              add_to_page, &all, NULL),
              0);
    CHECK_INT(all.n, 25);
    while (paged.n != before) {
        before = paged.n;
        CHECK_INT(db_sandbox_list(f.db, &q, add_to_page, &paged, NULL), 0);
        q.after_id = paged.last_id;
        q.after_ms = paged.last_ms;
        /* What is inserted meanwhile is newer and does not shift the pages. */
        REQUIRE(insert_one(f.db, f.project[0].id, "{}", 900, NULL) == 0);
    }
    CHECK_INT(paged.n, 25);
    for (int i = 0; i < 25; i++) {
        CHECK_STR(paged.ids[i], all.ids[i]);
    }
}

static void list_filters_by_state_metadata_and_expiry(void)
{
    FIXTURE(f);
    cleanup_sandbox struct sandbox a = {0};
    cleanup_sandbox struct sandbox b = {0};
    cleanup_sandbox struct sandbox c = {0};
    struct db *db = f.db;

    REQUIRE(insert_one(db, f.project[0].id, "{\"app\":\"x\",\"n\":\"1\"}", 10, &a) == 0);
    REQUIRE(insert_one(db, f.project[0].id, "{\"app\":\"x\",\"n\":\"2\"}", 20, &b) == 0);
    REQUIRE(insert_one(db, f.project[1].id, "{\"app\":\"x\",\"n\":\"1\"}", 30, &c) == 0);
    sandbox_move(&a, (struct sandbox_move){SANDBOX_STATE_RUNNING, SANDBOX_BY_NODE, 1}, NULL);
    a.end_at_ms = 0;
    REQUIRE(db_sandbox_update(db, &a, NULL, NULL) == 0);

    CHECK_INT(count_list(db, &(struct sandbox_query){.states = 1u << SANDBOX_STATE_RUNNING}), 1);
    CHECK_INT(count_list(db, &(struct sandbox_query){.states = (1u << SANDBOX_STATE_RUNNING) |
                                                               (1u << SANDBOX_STATE_CREATING)}),
              3);
    CHECK_INT(count_list(db, &(struct sandbox_query){.filters = {{"app", "x"}}, .n_filters = 1}),
              3);
    CHECK_INT(count_list(db, &(struct sandbox_query){.filters = {{"app", "x"}, {"n", "1"}},
                                                     .n_filters = 2}),
              2);
    CHECK_INT(count_list(db, &(struct sandbox_query){.project = f.project[0].id,
                                                     .filters = {{"app", "x"}, {"n", "1"}},
                                                     .n_filters = 2}),
              1);
    CHECK_INT(count_list(db, &(struct sandbox_query){.filters = {{"app", "X"}}, .n_filters = 1}),
              0);
    CHECK_INT(count_list(db, &(struct sandbox_query){.no_builders = true}), 3);
    {
        cleanup_sandbox struct sandbox builder = {0};

        REQUIRE(insert_one(db, f.project[0].id, "{\"space.build\":\"b\"}", 40, &builder) == 0);
        CHECK_INT(count_list(db, &(struct sandbox_query){0}), 4);
        CHECK_INT(count_list(db, &(struct sandbox_query){.no_builders = true}), 3);
        REQUIRE(db_sandbox_delete(db, &builder, NULL, NULL) == 0);
    }
    /* a never ends, b ends at 60020, c at 60030. */
    CHECK_INT(count_list(db, &(struct sandbox_query){.expired_at_ms = 60019}), 0);
    CHECK_INT(count_list(db, &(struct sandbox_query){.expired_at_ms = 60020}), 1);
    CHECK_INT(count_list(db, &(struct sandbox_query){.expired_at_ms = INT64_MAX}), 2);
}

static void deleting_rows_are_listed_by_their_desired_state(void)
{
    FIXTURE(f);
    cleanup_sandbox struct sandbox sb = {0};
    struct sandbox_counts counts = {0};

    REQUIRE(insert_one(f.db, f.project[0].id, "{}", 10, &sb) == 0);
    sandbox_move(&sb, (struct sandbox_move){SANDBOX_STATE_RUNNING, SANDBOX_BY_NODE, 1}, NULL);
    sb.desired = SANDBOX_STATE_DELETED;
    REQUIRE(db_sandbox_update(f.db, &sb, NULL, NULL) == 0);
    CHECK_INT(count_list(f.db, &(struct sandbox_query){.states = 1u << SANDBOX_STATE_RUNNING}), 0);
    CHECK_INT(count_list(f.db, &(struct sandbox_query){.states = 1u << SANDBOX_STATE_DELETING}), 1);
    CHECK_INT(count_list(f.db, &(struct sandbox_query){.expired_at_ms = INT64_MAX}), 0);
    CHECK_INT(db_sandbox_count(f.db, &counts, NULL), 0);
    CHECK_INT(counts.n[SANDBOX_STATE_RUNNING], 1);
    CHECK_INT(counts.n[SANDBOX_STATE_CREATING], 0);
}

static int stop_at_two(void *ctx, const struct sandbox *sb)
{
    ASSERT(sb->id[0]);
    return ++*(int *)ctx == 2 ? -EINTR : 0;
}

static void callback_ends_a_list_early(void)
{
    FIXTURE(f);
    int n = 0;

    for (int i = 0; i < 5; i++) {
        REQUIRE(insert_one(f.db, f.project[0].id, "{}", i + 1, NULL) == 0);
    }
    CHECK_INT(db_sandbox_list(f.db, &(struct sandbox_query){0}, stop_at_two, &n, NULL), -EINTR);
    CHECK_INT(n, 2);
    CHECK_INT(count_list(f.db, &(struct sandbox_query){0}), 5); /* the connection is usable */
}

static void hostile_text_stays_text(void)
{
    FIXTURE(f);
    static const char nasty[] = "x'); DROP TABLE sandboxes; -- \xc3\xa9 \"quoted\" \\ $1 %s";
    cleanup_free char *text = NULL;
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_sandbox struct sandbox got = {0};
    json_t *map = json_object();

    json_object_set_new(map, nasty, json_string(nasty));
    text = json_dumps(map, JSON_COMPACT);
    json_decref(map);
    REQUIRE(insert_one(f.db, f.project[0].id, text, 1, &sb) == 0);
    REQUIRE(db_sandbox_get(f.db, sb.id, f.project[0].id, &got, NULL) == 0);
    CHECK_STR(got.metadata, text);
    CHECK_INT(
        count_list(f.db, &(struct sandbox_query){.filters = {{nasty, nasty}}, .n_filters = 1}), 1);
    CHECK_INT(count_list(f.db, &(struct sandbox_query){.project = nasty}), 0);
    CHECK_INT(db_sandbox_get(f.db, nasty, nasty, &got, NULL), -ENOENT);
}

/* --- operations --- */

static void operation_is_written_with_its_sandbox_or_not_at_all(void)
{
    FIXTURE(f);
    cleanup_sandbox struct sandbox sb = make_sandbox(f.project[0].id, "{}", 1);
    cleanup_sandbox struct sandbox other = make_sandbox(f.project[0].id, "{}", 1);
    struct operation op = make_operation(&sb, "key");
    CLEANUP(operation_done) struct operation got = {0};
    CLEANUP(operation_done) struct operation done = {0};

    /* Over the quota: neither the sandbox nor the operation. */
    CHECK_INT(db_sandbox_insert(f.db, &sb, &(struct db_beside){.operation = &op}, 0, NULL),
              -EDQUOT);
    CHECK_INT(db_operation_get(f.db, op.project, op.key, &got, NULL), -ENOENT);

    CHECK_INT(db_sandbox_insert(f.db, &sb, &(struct db_beside){.operation = &op}, 1, NULL), 0);
    /* A retry is known as one although the quota is full now, and writes no second sandbox. */
    CHECK_INT(db_sandbox_insert(f.db, &other, &(struct db_beside){.operation = &op}, 1, NULL),
              -EEXIST);
    CHECK_INT(count_list(f.db, &(struct sandbox_query){0}), 1);
    REQUIRE(db_operation_get(f.db, op.project, op.key, &got, NULL) == 0);
    CHECK_INT(got.status, 0);
    CHECK(got.answer == NULL);
    CHECK_STR(got.sandbox, sb.id);

    op.status = 201;
    op.answer = xstrdup("{\"id\":1}");
    CHECK_INT(db_sandbox_update(f.db, &sb, &(struct db_beside){.operation = &op}, NULL), 0);
    REQUIRE(db_operation_of_sandbox(f.db, sb.id, &done, NULL) == 0);
    CHECK_INT(done.status, 201);
    CHECK_STR(done.answer, "{\"id\":1}");

    CHECK_INT(db_sandbox_delete(f.db, &sb, &(struct db_beside){.operation = &op}, NULL), 0);
    operation_done(&got);
    CHECK_INT(db_operation_get(f.db, op.project, op.key, &got, NULL), -ENOENT);
    operation_done(&op);
}

static void operation_key_is_per_project(void)
{
    FIXTURE(f);

    for (int i = 0; i < 3; i++) {
        cleanup_sandbox struct sandbox sb = make_sandbox(f.project[i].id, "{}", 1);
        struct operation op = make_operation(&sb, "same key");

        CHECK_INT(db_sandbox_insert(f.db, &sb, &(struct db_beside){.operation = &op}, 1, NULL), 0);
    }
}

static void *insert_same_operation(void *arg)
{
    struct worker *w = arg;
    cleanup_sandbox struct sandbox sb = make_sandbox(w->f->project[0].id, "{}", 1);
    struct operation op = make_operation(&sb, "key");

    w->result = db_sandbox_insert(w->f->db, &sb, &(struct db_beside){.operation = &op}, 100, NULL);
    return NULL;
}

static void one_of_many_concurrent_operations_wins(void)
{
    FIXTURE(f);
    struct worker workers[WORKERS];
    int fine = 0;
    int known = 0;

    run_workers(&f, insert_same_operation, workers);
    for (int i = 0; i < WORKERS; i++) {
        fine += workers[i].result == 0;
        known += workers[i].result == -EEXIST;
    }
    CHECK_INT(fine, 1);
    CHECK_INT(known, WORKERS - 1);
    CHECK_INT(count_list(f.db, &(struct sandbox_query){0}), 1);
}

static void operation_is_taken_over_once(void)
{
    FIXTURE(f);
    cleanup_sandbox struct sandbox sb = make_sandbox(f.project[0].id, "{}", 1);
    struct operation op = make_operation(&sb, "key");

    REQUIRE(db_sandbox_insert(f.db, &sb, &(struct db_beside){.operation = &op}, 1, NULL) == 0);
    CHECK_INT(db_operation_take_over(f.db, &op, "rnew", NULL), 0);
    CHECK_INT(db_operation_take_over(f.db, &op, "rlate", NULL), -ESTALE);
    CHECK_INT(db_operation_delete(f.db, op.project, op.key, NULL), 0);
    CHECK_INT(db_operation_delete(f.db, op.project, op.key, NULL), 0);
    CHECK_INT(db_operation_take_over(f.db, &op, "rlate", NULL), -ESTALE);
}

static void old_finished_operations_are_pruned(void)
{
    FIXTURE(f);
    struct operation got = {0};

    for (int i = 0; i < 3; i++) {
        cleanup_sandbox struct sandbox sb = make_sandbox(f.project[0].id, "{}", i == 2 ? 500 : 100);
        CLEANUP(operation_done)
        struct operation op = make_operation(&sb, i == 0 ? "running" : i == 1 ? "old" : "young");

        REQUIRE(db_sandbox_insert(f.db, &sb, &(struct db_beside){.operation = &op}, 100, NULL) ==
                0);
        op.status = 201;
        op.answer = xstrdup("{}");
        if (i > 0) {
            REQUIRE(db_sandbox_update(f.db, &sb, &(struct db_beside){.operation = &op}, NULL) == 0);
        }
    }
    CHECK_INT(db_operation_prune(f.db, 300, NULL), 0);
    CHECK_INT(db_operation_get(f.db, f.project[0].id, "old", &got, NULL), -ENOENT);
    CHECK_INT(db_operation_get(f.db, f.project[0].id, "running", &got, NULL), 0);
    operation_done(&got);
    CHECK_INT(db_operation_get(f.db, f.project[0].id, "young", &got, NULL), 0);
    operation_done(&got);
}

/* --- audit --- */

static int collect_actions(void *ctx, const struct audit_event *ev)
{
    return buf_printf(ctx, "%s ", ev->action);
}

static void audit_events_are_listed_newest_first(void)
{
    FIXTURE(f);
    cleanup_sandbox struct sandbox sb = make_sandbox(f.project[0].id, "{}", 1);
    struct audit_event ev = {.action = "sandbox.create", .at_ms = 1};
    cleanup_buf struct buf all = BUF_INIT(1024);

    id_new(ID_REQUEST, ev.id);
    snprintf(ev.project, sizeof(ev.project), "%s", f.project[0].id);
    REQUIRE(db_sandbox_insert(f.db, &sb, &(struct db_beside){.audit = &ev}, 1, NULL) == 0);
    id_new(ID_REQUEST, ev.id);
    ev.at_ms = 2;
    snprintf(ev.action, sizeof(ev.action), "sandbox.delete");
    REQUIRE(db_sandbox_delete(f.db, &sb, &(struct db_beside){.audit = &ev}, NULL) == 0);
    id_new(ID_REQUEST, ev.id);
    ev.at_ms = 3;
    snprintf(ev.action, sizeof(ev.action), "key.revoke");
    CHECK_INT(db_audit_add(f.db, &ev, NULL), 0);

    CHECK_INT(db_audit_list(f.db, f.project[0].id, 10, collect_actions, &all, NULL), 0);
    CHECK_STR(buf_str(&all), "key.revoke sandbox.delete sandbox.create ");
    buf_reset(&all);
    CHECK_INT(db_audit_list(f.db, f.project[1].id, 10, collect_actions, &all, NULL), 0);
    CHECK_STR(buf_str(&all), "");
    CHECK_INT(db_audit_prune(f.db, 3, NULL), 0);
    CHECK_INT(db_audit_list(f.db, f.project[0].id, 10, collect_actions, &all, NULL), 0);
    CHECK_STR(buf_str(&all), "key.revoke ");
}

/* --- the whole --- */

static void everything_survives_a_restart(void)
{
    FIXTURE(f);
    cleanup_sandbox struct sandbox sb = {0};
    cleanup_sandbox struct sandbox got = {0};
    struct project p;

    REQUIRE(insert_one(f.db, f.project[0].id, "{\"a\":\"b\"}", 1, &sb) == 0);
    f.db = db_of_f = conformance_reopen_take(f.db);
    CHECK_INT(db_ping(f.db, NULL), 0);
    REQUIRE(db_sandbox_get(f.db, sb.id, NULL, &got, NULL) == 0);
    check_same(&sb, &got);
    CHECK_INT(db_project_get(f.db, f.project[2].id, &p, NULL), 0);
}

static void *read_and_write(void *arg)
{
    struct worker *w = arg;

    for (int i = 0; i < 10 && w->result == 0; i++) {
        cleanup_sandbox struct sandbox sb = {0};

        w->result =
            insert_one(w->f->db, w->f->project[w->index % 3].id, "{\"w\":\"1\"}", 1 + i, &sb);
        for (int k = 0; k < 3 && w->result == 0; k++) {
            sb.changed_at_ms++;
            w->result = db_sandbox_update(w->f->db, &sb, NULL, NULL);
        }
        if (w->result == 0) {
            int n = count_list(w->f->db,
                               &(struct sandbox_query){.filters = {{"w", "1"}}, .n_filters = 1});

            w->result = n > 0 ? 0 : -EIO;
        }
        if (w->result == 0 && i % 2) {
            w->result = db_sandbox_delete(w->f->db, &sb, NULL, NULL);
        }
    }
    return NULL;
}

static void readers_and_writers_run_together(void)
{
    FIXTURE(f);
    struct worker workers[WORKERS];

    run_workers(&f, read_and_write, workers);
    for (int i = 0; i < WORKERS; i++) {
        CHECK_INT(workers[i].result, 0);
    }
    CHECK_INT(count_list(f.db, &(struct sandbox_query){0}), WORKERS * 5);
}

TEST_MAIN(T(names_of_organisations_and_projects_are_unique), T(unknown_parents_are_refused),
          T(levels_of_networks_are_read_with_each_sandbox), T(keys_are_found_by_hash_until_revoked),
          T(key_lists_stay_in_their_organisation), T(sandbox_comes_back_as_written),
          T(batches_are_all_or_nothing), T(paused_ones_do_not_expire),
          T(snapshots_are_found_by_id_and_by_name), T(sandbox_of_another_project_is_not_found),
          T(update_needs_the_generation_it_was_decided_on),
          T(delete_needs_the_generation_and_takes_everything_along),
          T(update_never_revives_what_was_deleted), T(quota_holds_under_concurrent_inserts),
          T(list_pages_through_all_rows_once), T(list_filters_by_state_metadata_and_expiry),
          T(deleting_rows_are_listed_by_their_desired_state), T(callback_ends_a_list_early),
          T(hostile_text_stays_text), T(operation_is_written_with_its_sandbox_or_not_at_all),
          T(operation_key_is_per_project), T(one_of_many_concurrent_operations_wins),
          T(operation_is_taken_over_once), T(old_finished_operations_are_pruned),
          T(audit_events_are_listed_newest_first), T(everything_survives_a_restart),
          T(readers_and_writers_run_together))

/* SPDX-License-Identifier: Apache-2.0 */

/* The cases of templates, builds, tags and layers, against whichever product it is linked with. */
#include "database/conformance.h"
#include "database/templates.h"

#include <stdio.h>
#include <string.h>

#include "base/test.h"

/* Two projects of one organisation. */
struct fixture {
    struct db *db; /* borrowed: the case's */
    char project[2][ID_SIZE];
};

static void fixture_init(struct fixture *f)
{
    struct organisation org = {.name = "o"};

    id_new(ID_ORGANISATION, org.id);
    ASSERT(db_organisation_insert(f->db, &org, NULL) == 0);
    for (int i = 0; i < 2; i++) {
        struct project p = {.max_sandboxes = 10};

        id_new(ID_PROJECT, p.id);
        snprintf(p.organisation, sizeof(p.organisation), "%s", org.id);
        snprintf(p.name, sizeof(p.name), "p%d", i);
        ASSERT(db_project_insert(f->db, &p, NULL) == 0);
        memcpy(f->project[i], p.id, ID_SIZE);
    }
}

#define FIXTURE(f_) \
    CONFORMANCE_DB(db_of_##f_); \
    struct fixture f_ = {.db = db_of_##f_}; \
    fixture_init(&f_)

static int begin(struct fixture *f, const char *project, const char *name, struct template_row *t,
                 struct build_row *b, int64_t max)
{
    *t = (struct template_row){.created_at_ms = 5};
    *b = (struct build_row){.created_at_ms = 6, .shape = shape_default()};
    id_new(ID_TEMPLATE, t->id);
    id_new(ID_BUILD, b->id);
    snprintf(t->project, sizeof(t->project), "%s", project);
    snprintf(t->name, sizeof(t->name), "%s", name);
    return db_build_begin(f->db, t, b, max, NULL);
}

static int count_template(void *ctx, const struct template_row *row)
{
    (void)row;
    *(int *)ctx += 1;
    return 0;
}

static int count_build(void *ctx, const struct build_row *row)
{
    (void)row;
    *(int *)ctx += 1;
    return 0;
}

static int count_tag(void *ctx, const struct template_tag *tag)
{
    (void)tag;
    *(int *)ctx += 1;
    return 0;
}

static void a_name_is_one_template_of_its_project(void)
{
    FIXTURE(f);
    struct template_row t[3];
    struct build_row b[3];
    struct template_row got = {0};
    int n = 0;

    CHECK_INT(begin(&f, f.project[0], "a", &t[0], &b[0], 1), 0);
    CHECK_INT(begin(&f, f.project[0], "a", &t[1], &b[1], 1), 0);
    CHECK_STR(t[0].id, t[1].id);
    CHECK_STR(b[1].template_id, t[0].id);
    CHECK_INT(begin(&f, f.project[1], "a", &t[2], &b[2], 1), 0);
    CHECK(!str_eq(t[0].id, t[2].id));
    CHECK_INT(begin(&f, f.project[0], "b", &t[1], &b[1], 1), -EDQUOT);
    CHECK_INT(db_template_find(f.db, f.project[0], "a", &got, NULL), 0);
    CHECK(got.builds == 2 && got.created_at_ms == 5 && got.spawned == 0);
    CHECK_INT(db_template_spawned(f.db, got.id, 77, NULL), 0);
    CHECK_INT(db_template_find(f.db, f.project[0], t[0].id, &got, NULL), 0);
    CHECK(got.spawned == 1 && got.spawned_at_ms == 77);
    CHECK_INT(db_template_find(f.db, f.project[1], t[0].id, &got, NULL), -ENOENT);
    CHECK_INT(db_template_find(f.db, f.project[0], "", &got, NULL), -ENOENT);
    CHECK_INT(db_template_list(f.db, f.project[0], count_template, &n, NULL), 0);
    CHECK_INT(n, 1);
}

static void a_finished_build_has_its_tags(void)
{
    FIXTURE(f);
    static const char *const tags[] = {"default", "v1"};
    struct template_row t;
    struct build_row b;
    cleanup_build_row struct build_row got = {0};
    struct template_tag tag;
    int n = 0;

    CHECK_INT(begin(&f, f.project[0], "a", &t, &b, 9), 0);
    b.status = BUILD_READY;
    b.ended_at_ms = 9;
    snprintf(b.sandbox, sizeof(b.sandbox), "s1");
    snprintf(b.snapshot, sizeof(b.snapshot), "n1");
    b.config = xstrdup("{\"a\":1}");
    b.log = xstrdup("[]");
    CHECK_INT(db_build_finish(f.db, &b, tags, ARRAY_SIZE(tags), NULL), 0);
    CHECK_INT(db_build_get(f.db, f.project[0], b.id, &got, NULL), 0);
    CHECK(got.status == BUILD_READY && got.shape.vcpus == b.shape.vcpus && got.ended_at_ms == 9);
    CHECK_STR(got.config, "{\"a\":1}");
    CHECK_STR(got.log, "[]");
    CHECK_STR(got.snapshot, "n1");
    CHECK_INT(db_build_get(f.db, f.project[1], b.id, &got, NULL), -ENOENT);
    CHECK_INT(db_tag_find(f.db, t.id, "v1", &tag, NULL), 0);
    CHECK_STR(tag.build, b.id);
    CHECK_INT(db_tag_delete(f.db, t.id, "v1", NULL), 0);
    CHECK_INT(db_tag_delete(f.db, t.id, "v1", NULL), 0);
    CHECK_INT(db_tag_find(f.db, t.id, "v1", &tag, NULL), -ENOENT);
    snprintf(tag.tag, sizeof(tag.tag), "x");
    CHECK_INT(db_tag_put(f.db, t.id, &tag, NULL), 0);
    CHECK_INT(db_tag_put(f.db, t.id, &tag, NULL), 0);
    CHECK_INT(db_tag_list(f.db, t.id, count_tag, &n, NULL), 0);
    CHECK_INT(n, 2);
    CHECK_INT(db_build_delete(f.db, b.id, NULL), 0);
    n = 0;
    CHECK_INT(db_tag_list(f.db, t.id, count_tag, &n, NULL), 0);
    CHECK_INT(n, 0);
    CHECK_INT(db_build_update(f.db, &b, NULL), -ENOENT);
    build_row_done(&b);
}

static void a_template_goes_with_all_that_is_its_own(void)
{
    FIXTURE(f);
    static const char *const tags[] = {"default"};
    struct layer_row layer = {.hash = "h", .sandbox = "s1", .snapshot = "n", .used_at_ms = 1};
    struct template_row t;
    struct build_row b;
    int n = 0;

    CHECK_INT(begin(&f, f.project[0], "a", &t, &b, 9), 0);
    snprintf(b.sandbox, sizeof(b.sandbox), "s1");
    b.status = BUILD_READY;
    CHECK_INT(db_build_finish(f.db, &b, tags, 1, NULL), 0);
    memcpy(layer.project, f.project[0], ID_SIZE);
    CHECK_INT(db_layer_put(f.db, &layer, NULL), 0);
    CHECK_INT(db_template_delete(f.db, f.project[1], t.id, NULL), 0);
    CHECK_INT(db_template_find(f.db, f.project[0], "a", &t, NULL), 0);
    CHECK_INT(db_template_delete(f.db, f.project[0], t.id, NULL), 0);
    CHECK_INT(db_template_delete(f.db, f.project[0], t.id, NULL), 0);
    CHECK_INT(db_template_find(f.db, f.project[0], "a", &t, NULL), -ENOENT);
    CHECK_INT(db_build_list(f.db, f.project[0], NULL, count_build, &n, NULL), 0);
    CHECK_INT(n, 0);
    CHECK_INT(db_layer_use(f.db, f.project[0], "h", 5, &layer, NULL), -ENOENT);
}

static void put_layer(struct fixture *f, const char *hash, const char *sandbox, int64_t at_ms)
{
    cleanup_layer_row struct layer_row layer = {
        .snapshot = "n", .used_at_ms = at_ms, .config = xasprintf("of %s", hash)};

    memcpy(layer.project, f->project[0], ID_SIZE);
    snprintf(layer.hash, sizeof(layer.hash), "%s", hash);
    snprintf(layer.sandbox, sizeof(layer.sandbox), "%s", sandbox);
    CHECK_INT(db_layer_put(f->db, &layer, NULL), 0);
}

static void old_layers_go_unless_a_tag_needs_their_sandbox(void)
{
    FIXTURE(f);
    static const char *const tags[] = {"default"};
    const char *project = f.project[0];
    cleanup_layer_row struct layer_row got = {0};
    struct template_row t;
    struct build_row b;
    char sandbox[ID_SIZE] = "";

    put_layer(&f, "h1", "s1", 10);
    put_layer(&f, "h2", "s2", 20);
    put_layer(&f, "h3", "s3", 30);
    CHECK_INT(begin(&f, project, "a", &t, &b, 9), 0);
    snprintf(b.sandbox, sizeof(b.sandbox), "s1");
    b.status = BUILD_READY;
    CHECK_INT(db_build_finish(f.db, &b, tags, 1, NULL), 0);
    CHECK_INT(db_layer_stale(f.db, project, 15, 10, sandbox, NULL), -ENOENT);
    CHECK_INT(db_layer_stale(f.db, project, 25, 10, sandbox, NULL), 0);
    CHECK_STR(sandbox, "s2");
    CHECK_INT(db_layer_use(f.db, project, "h2", 40, &got, NULL), 0);
    CHECK_STR(got.sandbox, "s2");
    CHECK_STR(got.config, "of h2");
    CHECK_INT(db_layer_stale(f.db, project, 25, 10, sandbox, NULL), -ENOENT);
    CHECK_INT(db_layer_stale(f.db, project, 25, 1, sandbox, NULL), 0);
    CHECK_STR(sandbox, "s3");
    CHECK_INT(db_layer_forget_sandbox(f.db, project, "s3", NULL), 0);
    CHECK_INT(db_layer_use(f.db, project, "h3", 40, &got, NULL), -ENOENT);
    CHECK_INT(db_layer_use(f.db, f.project[1], "h2", 40, &got, NULL), -ENOENT);
    CHECK_INT(db_layer_forget(f.db, project, "h2", NULL), 0);
    CHECK_INT(db_tag_delete(f.db, t.id, "default", NULL), 0);
    CHECK_INT(db_layer_stale(f.db, project, 15, 10, sandbox, NULL), 0);
    CHECK_STR(sandbox, "s1");
}

TEST_MAIN(T(a_name_is_one_template_of_its_project), T(a_finished_build_has_its_tags),
          T(a_template_goes_with_all_that_is_its_own),
          T(old_layers_go_unless_a_tag_needs_their_sandbox))

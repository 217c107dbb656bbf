/* SPDX-License-Identifier: Apache-2.0 */

/* Sandboxes: insert under a quota, compare-and-set updates, keyset lists. */
#include "base/json.h"
#include "database/operations.h"
#include "database/private.h"

#include <stdio.h>
#include <string.h>

#define COLUMNS \
    "id, project_id, desired, observed, generation, node, owner, template, vcpus, memory_mib, " \
    "disk_mib, " \
    "accel, env, metadata, timeout_s, created_at_ms, started_at_ms, changed_at_ms, end_at_ms, " \
    "reason, paused_at_ms, policy, parent, batch, at_end, surface, network"
/* The same with what is not the row's own; it is read together, so that it cannot be forgotten. */
#define READ_COLUMNS \
    COLUMNS \
    ", (SELECT o.network FROM projects p JOIN organisations o ON o.id = p.organisation_id " \
    "WHERE p.id = sandboxes.project_id), " \
    "(SELECT p.network FROM projects p WHERE p.id = sandboxes.project_id)"

static int insert_metadata(struct db_tx *tx, const struct sandbox *sb, struct err *e)
{
    static const char sql[] =
        "INSERT INTO sandbox_metadata (sandbox_id, key, value) VALUES ($1, $2, $3)";
    cleanup_json json_t *map = NULL;
    const char *key;
    json_t *value;
    int r;

    r = json_parse_object(sb->metadata, strlen(sb->metadata), &map, e);
    ASSERT(r == 0); /* the model made the text */
    json_object_foreach(map, key, value)
    {
        r = db_run(tx,
                   DB_QUERY(sql, DB_TEXT(sb->id), DB_TEXT(key), DB_TEXT(json_string_value(value))),
                   NULL, e);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

static int replace_metadata(struct db_tx *tx, const struct sandbox *sb, struct err *e)
{
    static const char sql[] = "DELETE FROM sandbox_metadata WHERE sandbox_id = $1";
    int r;

    r = db_run(tx, DB_QUERY(sql, DB_TEXT(sb->id)), NULL, e);
    return r < 0 ? r : insert_metadata(tx, sb, e);
}

/* Why did the counter not move? */
static int explain_quota(struct db_tx *tx, const char *project, int64_t more, int64_t max,
                         struct err *e)
{
    static const char sql[] = "SELECT n_sandboxes FROM projects WHERE id = $1";
    cleanup_result struct db_result res = {0};
    int r = db_first(tx, DB_QUERY(sql, DB_TEXT(project)), &res, e);

    if (r <= 0) {
        return r < 0 ? r
                     : err_set(e, -EINVAL, "database_error", "there is no project '%s'", project);
    }
    return err_set(e, -EDQUOT, "sandbox_quota_exceeded",
                   "the project has %lld sandboxes of its quota of %lld: delete %s first",
                   (long long)db_get_int(&res, 0), (long long)max, more == 1 ? "one" : "some");
}

/* One statement compares and counts, so that no two can both take the last place, in any product. */
static int take_quota(struct db_tx *tx, const char *project, int64_t more, int64_t max,
                      struct err *e)
{
    static const char sql[] = "UPDATE projects SET n_sandboxes = n_sandboxes + $2 WHERE id = $1 "
                              "AND n_sandboxes + $2 <= $3";
    int64_t changes = 0;
    int r;

    r = db_run(tx, DB_QUERY(sql, DB_TEXT(project), DB_INT(more), DB_INT(max)), &changes, e);
    if (r < 0) {
        return r;
    }
    return changes == 0 ? explain_quota(tx, project, more, max, e) : 0;
}

static int give_quota_back(struct db_tx *tx, const char *project, struct err *e)
{
    static const char sql[] = "UPDATE projects SET n_sandboxes = n_sandboxes - 1 WHERE id = $1";

    return db_run(tx, DB_QUERY(sql, DB_TEXT(project)), NULL, e);
}

static char *policy_text(const struct sandbox *sb)
{
    cleanup_json json_t *object = policy_to_json(&sb->policy);

    return json_text(object);
}

static int insert_row(struct db_tx *tx, const struct sandbox *sb, struct err *e)
{
    static const char sql[] =
        "INSERT INTO sandboxes (" COLUMNS ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, "
        "$10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27)";
    cleanup_free char *policy = policy_text(sb);

    return db_run(
        tx,
        DB_QUERY(
            sql, DB_TEXT(sb->id), DB_TEXT(sb->project), DB_TEXT(sandbox_state_name(sb->desired)),
            DB_TEXT(sandbox_state_name(sb->observed)), DB_INT(sb->generation), DB_TEXT(sb->node),
            DB_TEXT(sb->owner), DB_TEXT(sb->template_name), DB_INT(sb->shape.vcpus),
            DB_INT(sb->shape.memory_mib), DB_INT(sb->shape.disk_mib), DB_TEXT(sb->accel),
            DB_TEXT(sb->env), DB_TEXT(sb->metadata), DB_INT(sb->timeout_s),
            DB_INT(sb->created_at_ms), DB_INT(sb->started_at_ms), DB_INT(sb->changed_at_ms),
            DB_INT(sb->end_at_ms), DB_TEXT(sb->reason), DB_INT(sb->paused_at_ms), DB_TEXT(policy),
            DB_TEXT(sb->parent), DB_TEXT(sb->batch), DB_TEXT(sandbox_at_end_name(sb->at_end)),
            DB_TEXT(sb->surface ? sb->surface : ""), DB_TEXT(sb->network ? sb->network : "")),
        NULL, e);
}

static int insert_rows(struct db_tx *tx, const struct sandbox *sbs, size_t n, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++) {
        ASSERT(sbs[i].generation > 0 && sbs[i].env && sbs[i].metadata);
        ASSERT(str_eq(sbs[i].project, sbs[0].project));
        r = insert_row(tx, &sbs[i], e);
        if (r < 0) {
            ASSERT(r !=
                   -EEXIST); /* ids are random; and -EEXIST means the operation to our caller */
            return r;
        }
        r = insert_metadata(tx, &sbs[i], e);
    }
    return r;
}

static int insert_all(struct db *db, const struct sandbox *sbs, size_t n,
                      const struct db_beside *beside, int64_t max, struct err *e)
{
    cleanup_tx struct db_tx tx = {0};
    int r;

    r = db_begin(db, DB_WRITE, &tx, e);
    if (r < 0) {
        return r;
    }
    /* The operation first: a retry is answered as a retry even when the quota has filled up since. */
    if (beside && beside->operation) {
        r = operation_insert(&tx, beside->operation, e);
        if (r < 0) {
            return r;
        }
    }
    r = take_quota(&tx, sbs->project, (int64_t)n, max, e);
    if (r == 0) {
        r = insert_rows(&tx, sbs, n, e);
    }
    if (r == 0 && beside && beside->audit) {
        r = audit_insert(&tx, beside->audit, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

int db_sandbox_insert_all(struct db *db, const struct sandbox *sbs, size_t n,
                          const struct db_beside *beside, int64_t max, struct err *e)
{
    ASSERT(sbs && n > 0);
    return DB_RETRIED(insert_all(db, sbs, n, beside, max, e));
}

int db_sandbox_insert(struct db *db, const struct sandbox *sb, const struct db_beside *beside,
                      int64_t max, struct err *e)
{
    return db_sandbox_insert_all(db, sb, 1, beside, max, e);
}

static int read_states(struct db_result *res, struct sandbox *ret, struct err *e)
{
    char desired[32];
    char observed[32];

    db_get_text(res, 2, desired, sizeof(desired));
    db_get_text(res, 3, observed, sizeof(observed));
    if (!sandbox_state_parse(desired, &ret->desired) ||
        !sandbox_state_parse(observed, &ret->observed)) {
        return err_set(e, -EUCLEAN, "database_error",
                       "the sandbox '%s' has unknown states '%s', '%s'", ret->id, desired,
                       observed);
    }
    return 0;
}

/* Rows from before there were policies have none. */
static int read_policy(struct db_result *res, struct sandbox *ret, struct err *e)
{
    cleanup_free char *text = db_get_text_dup(res, 21);
    cleanup_json json_t *object = NULL;

    ret->policy = policy_default();
    if (text[0] == '\0') {
        return 0;
    }
    if (json_parse_object(text, strlen(text), &object, NULL) < 0 ||
        policy_from_json(object, &ret->policy, NULL) < 0) {
        return err_set(e, -EUCLEAN, "database_error", "the sandbox '%s' has an unreadable policy",
                       ret->id);
    }
    return 0;
}

static int read_at_end(struct db_result *res, struct sandbox *ret, struct err *e)
{
    char word[16];

    db_get_text(res, 24, word, sizeof(word));
    if (!sandbox_at_end_parse(word, &ret->at_end)) {
        return err_set(e, -EUCLEAN, "database_error", "the sandbox '%s' has the unknown end '%s'",
                       ret->id, word);
    }
    return 0;
}

/* The strings of *ret are owned by it afterwards. */
static int read_sandbox(struct db_result *res, struct sandbox *ret, struct err *e)
{
    struct sandbox sb = {0};
    int r;

    db_get_text(res, 0, sb.id, sizeof(sb.id));
    r = read_states(res, &sb, e);
    if (r < 0) {
        return r;
    }
    db_get_text(res, 1, sb.project, sizeof(sb.project));
    sb.generation = db_get_int(res, 4);
    db_get_text(res, 5, sb.node, sizeof(sb.node));
    db_get_text(res, 6, sb.owner, sizeof(sb.owner));
    db_get_text(res, 7, sb.template_name, sizeof(sb.template_name));
    sb.shape.vcpus = (unsigned)db_get_int(res, 8);
    sb.shape.memory_mib = (unsigned)db_get_int(res, 9);
    sb.shape.disk_mib = (unsigned)db_get_int(res, 10);
    db_get_text(res, 11, sb.accel, sizeof(sb.accel));
    sb.env = db_get_text_dup(res, 12);
    sb.metadata = db_get_text_dup(res, 13);
    sb.timeout_s = db_get_int(res, 14);
    sb.created_at_ms = db_get_int(res, 15);
    sb.started_at_ms = db_get_int(res, 16);
    sb.changed_at_ms = db_get_int(res, 17);
    sb.end_at_ms = db_get_int(res, 18);
    db_get_text(res, 19, sb.reason, sizeof(sb.reason));
    sb.paused_at_ms = db_get_int(res, 20);
    db_get_text(res, 22, sb.parent, sizeof(sb.parent));
    db_get_text(res, 23, sb.batch, sizeof(sb.batch));
    sb.surface = db_get_text_dup(res, 25);
    sb.network = db_get_text_dup(res, 26);
    sb.network_outer[NETPOLICY_ORGANISATION] = db_get_text_dup(res, 27);
    sb.network_outer[NETPOLICY_PROJECT] = db_get_text_dup(res, 28);
    r = read_policy(res, &sb, e);
    if (r == 0) {
        r = read_at_end(res, &sb, e);
    }
    if (r < 0) {
        sandbox_done(&sb);
        return r;
    }
    *ret = sb;
    return 0;
}

static int not_found(struct err *e)
{
    return err_set(e, -ENOENT, "sandbox_not_found", "there is no such sandbox");
}

int db_sandbox_get(struct db *db, const char *id, const char *project, struct sandbox *ret,
                   struct err *e)
{
    static const char any[] = "SELECT " READ_COLUMNS " FROM sandboxes WHERE id = $1";
    static const char of_project[] =
        "SELECT " READ_COLUMNS " FROM sandboxes WHERE id = $1 AND project_id = $2";
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r;

    ASSERT(id && ret);
    r = project
            ? db_read_first(db, DB_QUERY(of_project, DB_TEXT(id), DB_TEXT(project)), &tx, &res, e)
            : db_read_first(db, DB_QUERY(any, DB_TEXT(id)), &tx, &res, e);
    if (r <= 0) {
        return r < 0 ? r : not_found(e);
    }
    return read_sandbox(&res, ret, e);
}

/* Why did a compare-and-set change nothing? */
static int explain_miss(struct db_tx *tx, const char *id, struct err *e)
{
    static const char sql[] = "SELECT generation FROM sandboxes WHERE id = $1";
    cleanup_result struct db_result res = {0};
    int r = db_first(tx, DB_QUERY(sql, DB_TEXT(id)), &res, e);

    if (r <= 0) {
        return r < 0 ? r : not_found(e);
    }
    return err_set(e, -ESTALE, "conflict",
                   "the sandbox has changed meanwhile: read it again and retry");
}

static int update_row(struct db_tx *tx, const struct sandbox *sb, int64_t *ret_changes,
                      struct err *e)
{
    static const char sql[] =
        "UPDATE sandboxes SET desired = $3, observed = $4, node = $5, owner = $6, accel = $7, "
        "metadata = $8, "
        "timeout_s = $9, started_at_ms = $10, changed_at_ms = $11, end_at_ms = $12, reason = $13, "
        "paused_at_ms = $14, policy = $15, at_end = $16, surface = $17, network = $18, generation "
        "= generation + "
        "1 WHERE id = $1 AND "
        "generation = $2";
    cleanup_free char *policy = policy_text(sb);

    return db_run(
        tx,
        DB_QUERY(sql, DB_TEXT(sb->id), DB_INT(sb->generation),
                 DB_TEXT(sandbox_state_name(sb->desired)),
                 DB_TEXT(sandbox_state_name(sb->observed)), DB_TEXT(sb->node), DB_TEXT(sb->owner),
                 DB_TEXT(sb->accel), DB_TEXT(sb->metadata), DB_INT(sb->timeout_s),
                 DB_INT(sb->started_at_ms), DB_INT(sb->changed_at_ms), DB_INT(sb->end_at_ms),
                 DB_TEXT(sb->reason), DB_INT(sb->paused_at_ms), DB_TEXT(policy),
                 DB_TEXT(sandbox_at_end_name(sb->at_end)), DB_TEXT(sb->surface ? sb->surface : ""),
                 DB_TEXT(sb->network ? sb->network : "")),
        ret_changes, e);
}

static int metadata_differs(struct db_tx *tx, const struct sandbox *sb, bool *ret, struct err *e)
{
    static const char sql[] = "SELECT metadata FROM sandboxes WHERE id = $1";
    cleanup_result struct db_result res = {0};
    cleanup_free char *text = NULL;
    int r = db_first(tx, DB_QUERY(sql, DB_TEXT(sb->id)), &res, e);

    if (r < 0) {
        return r;
    }
    if (r == 1) {
        text = db_get_text_dup(&res, 0);
    }
    *ret = text && !str_eq(text, sb->metadata);
    return 0;
}

/* An operation that ends with this change, and the audit event of it. */
static int finish_beside(struct db_tx *tx, const struct db_beside *beside, struct err *e)
{
    int r = 0;

    if (beside && beside->operation) {
        r = operation_finish(tx, beside->operation, e);
    }
    if (r == 0 && beside && beside->audit) {
        r = audit_insert(tx, beside->audit, e);
    }
    return r;
}

static int update_one(struct db_tx *tx, const struct sandbox *sb, struct err *e)
{
    bool new_metadata = false;
    int64_t changes = 0;
    int r;

    ASSERT(sb->metadata && sandbox_state_may_be_desired(sb->desired));
    r = metadata_differs(tx, sb, &new_metadata, e);
    if (r == 0) {
        r = update_row(tx, sb, &changes, e);
    }
    if (r < 0) {
        return r;
    }
    if (changes == 0) {
        return explain_miss(tx, sb->id, e);
    }
    return new_metadata ? replace_metadata(tx, sb, e) : 0;
}

static int update_all(struct db *db, struct sandbox *sbs, size_t n, const struct db_beside *beside,
                      struct err *e)
{
    cleanup_tx struct db_tx tx = {0};
    int r;

    r = db_begin(db, beside && beside->relaxed ? DB_WRITE_RELAXED : DB_WRITE, &tx, e);
    for (size_t i = 0; i < n && r == 0; i++) {
        r = update_one(&tx, &sbs[i], e);
    }
    if (r == 0) {
        r = finish_beside(&tx, beside, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

int db_sandbox_update_all(struct db *db, struct sandbox *sbs, size_t n,
                          const struct db_beside *beside, struct err *e)
{
    int r;

    ASSERT(sbs && n > 0);
    r = DB_RETRIED(update_all(db, sbs, n, beside, e));
    for (size_t i = 0; i < n && r == 0; i++) {
        sbs[i].generation++;
    }
    return r;
}

int db_sandbox_update(struct db *db, struct sandbox *sb, const struct db_beside *beside,
                      struct err *e)
{
    return db_sandbox_update_all(db, sb, 1, beside, e);
}

static int delete_one(struct db *db, const struct sandbox *sb, const struct db_beside *beside,
                      struct err *e)
{
    static const char sql[] = "DELETE FROM sandboxes WHERE id = $1 AND generation = $2";
    cleanup_tx struct db_tx tx = {0};
    int64_t changes = 0;
    int r;

    r = db_begin(db, DB_WRITE, &tx, e);
    if (r < 0) {
        return r;
    }
    r = db_run(&tx, DB_QUERY(sql, DB_TEXT(sb->id), DB_INT(sb->generation)), &changes, e);
    if (r < 0) {
        return r;
    }
    if (changes == 0) {
        return explain_miss(&tx, sb->id, e);
    }
    r = give_quota_back(&tx, sb->project, e);
    if (r == 0 && beside && beside->operation) {
        r = operation_forget(&tx, beside->operation, e);
    }
    if (r == 0 && beside && beside->audit) {
        r = audit_insert(&tx, beside->audit, e);
    }
    return r < 0 ? r : db_commit(&tx, e);
}

int db_sandbox_delete(struct db *db, const struct sandbox *sb, const struct db_beside *beside,
                      struct err *e)
{
    ASSERT(sb);
    return DB_RETRIED(delete_one(db, sb, beside, e));
}

/* A statement that is put together from the parts of a sandbox_query that are there. */
#define LIST_PARAMS_MAX (SANDBOX_STATE_COUNT_ + 2 * SANDBOX_FILTER_MAX + 7)

struct list_query {
    struct buf sql; /* owned */
    struct db_value params[LIST_PARAMS_MAX];
    size_t n;
};

static size_t add_param(struct list_query *lq, struct db_value v)
{
    ASSERT(lq->n < LIST_PARAMS_MAX);
    lq->params[lq->n++] = v;
    return lq->n;
}

static void add_text(struct list_query *lq, const char *text)
{
    int r = buf_add_str(&lq->sql, text);

    ASSERT(r == 0); /* the parts are ours and bounded */
}

static void add_placeholder(struct list_query *lq, const char *before, struct db_value v,
                            const char *after)
{
    int r = buf_printf(&lq->sql, "%s$%zu%s", before, add_param(lq, v), after);

    ASSERT(r == 0);
}

static void add_states(struct list_query *lq, unsigned states)
{
    const char *before = " AND (";

    /* What is shown as deleting is a matter of the desired state; see sandbox_shown_state(). */
    for (unsigned s = 0; s < SANDBOX_STATE_COUNT_; s++) {
        if (!(states & (1u << s))) {
            continue;
        }
        if (s == SANDBOX_STATE_DELETING) {
            add_text(lq, before);
            add_text(lq, "desired = 'deleted'");
        } else {
            add_text(lq, before);
            add_placeholder(lq, "(desired <> 'deleted' AND observed = ",
                            DB_TEXT(sandbox_state_name((enum sandbox_state)s)), ")");
        }
        before = " OR ";
    }
    add_text(lq, ")");
}

static void build_list(const struct sandbox_query *q, struct list_query *lq)
{
    add_text(lq, "SELECT " READ_COLUMNS " FROM sandboxes WHERE 1 = 1");
    if (q->project) {
        add_placeholder(lq, " AND project_id = ", DB_TEXT(q->project), "");
    }
    if (q->states) {
        add_states(lq, q->states);
    }
    for (size_t i = 0; i < q->n_filters; i++) {
        add_placeholder(
            lq,
            " AND EXISTS (SELECT 1 FROM sandbox_metadata m WHERE m.sandbox_id = sandboxes.id "
            "AND m.key = ",
            DB_TEXT(q->filters[i].key), "");
        add_placeholder(lq, " AND m.value = ", DB_TEXT(q->filters[i].value), ")");
    }
    if (q->expired_at_ms) {
        add_placeholder(lq, " AND end_at_ms > 0 AND end_at_ms <= ", DB_INT(q->expired_at_ms),
                        " AND paused_at_ms = 0 AND desired <> 'deleted'");
        /* What is not to be deleted at its end is left as it is when nothing runs any more. */
        add_text(lq, " AND (at_end = '' OR observed = 'running')");
    }
    if (q->node) {
        add_placeholder(lq, " AND (node = ", DB_TEXT(q->node),
                        q->or_nowhere ? " OR node = '')" : ")");
    }
    if (q->batch) {
        add_placeholder(lq, " AND batch = ", DB_TEXT(q->batch), "");
    }
    if (q->no_builders) {
        add_placeholder(lq,
                        " AND NOT EXISTS (SELECT 1 FROM sandbox_metadata m WHERE m.sandbox_id = "
                        "sandboxes.id AND m.key = ",
                        DB_TEXT(SANDBOX_METADATA_BUILD), ")");
    }
    if (q->after_id) {
        add_text(lq, " AND (created_at_ms, id) ");
        add_text(lq, q->oldest_first ? ">" : "<");
        add_placeholder(lq, " (", DB_INT(q->after_ms), ", ");
        add_placeholder(lq, "", DB_TEXT(q->after_id), ")");
    }
    add_text(lq, q->oldest_first ? " ORDER BY created_at_ms, id"
                                 : " ORDER BY created_at_ms DESC, id DESC");
    if (q->limit) {
        add_placeholder(lq, " LIMIT ", DB_INT(q->limit), "");
    }
}

int db_sandbox_list(struct db *db, const struct sandbox_query *q, db_sandbox_fn *each, void *ctx,
                    struct err *e)
{
    struct list_query lq = {.sql = BUF_INIT(8192)};
    cleanup_buf struct buf sql = BUF_INIT(8192); /* takes over lq.sql */
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    int r;

    ASSERT(q && each && q->n_filters <= SANDBOX_FILTER_MAX);
    build_list(q, &lq);
    sql = lq.sql;

    r = db_begin(db, DB_READ, &tx, e);
    if (r < 0) {
        return r;
    }
    r = db_select(&tx,
                  &(struct db_query){
                      .sql = buf_str(&sql), .params = lq.params, .n_params = lq.n, .once = true},
                  &res, e);
    if (r < 0) {
        return r;
    }
    while ((r = db_next(&res, e)) == 1) {
        cleanup_sandbox struct sandbox sb = {0};

        r = read_sandbox(&res, &sb, e);
        if (r == 0) {
            r = each(ctx, &sb);
        }
        if (r != 0) {
            return r;
        }
    }
    return r;
}

int db_sandbox_count(struct db *db, struct sandbox_counts *ret, struct err *e)
{
    static const char sql[] = "SELECT observed, COUNT(*) FROM sandboxes GROUP BY observed";
    struct sandbox_counts counts = {0};
    cleanup_tx struct db_tx tx = {0};
    cleanup_result struct db_result res = {0};
    enum sandbox_state state;
    char word[32];
    int r;

    ASSERT(ret);
    r = db_begin(db, DB_READ, &tx, e);
    if (r < 0) {
        return r;
    }
    r = db_select(&tx, &(struct db_query){.sql = sql}, &res, e);
    if (r < 0) {
        return r;
    }
    while ((r = db_next(&res, e)) == 1) {
        db_get_text(&res, 0, word, sizeof(word));
        if (sandbox_state_parse(word, &state)) {
            counts.n[state] = db_get_int(&res, 1);
        }
    }
    if (r == 0) {
        *ret = counts;
    }
    return r;
}

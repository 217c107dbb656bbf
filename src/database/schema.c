/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The schema, as migrations that only go forward. A migration that was released is never edited: the
 * next change is the next number. Each runs in a transaction together with the line that says so.
 * Older programs go on while a newer one migrates and afterwards: a new column has a default, and nothing that an
 * older program reads changes its meaning. Programs that start together take turns (schema_lock in driver.h).
 *
 * Only BIGINT and TEXT, nothing NULL: 0 and '' stand for "none", which spares every reader a case.
 * Times are milliseconds since 1970.
 */
#include "base/clock.h"
#include "database/private.h"

struct migration {
    const char *name;
    const char *sql;
};

static const struct migration migrations[] = {
    {"first tables",
     "CREATE TABLE organisations ("
     "  id TEXT PRIMARY KEY,"
     "  name TEXT NOT NULL UNIQUE,"
     "  created_at_ms BIGINT NOT NULL);"

     "CREATE TABLE projects ("
     "  id TEXT PRIMARY KEY,"
     "  organisation_id TEXT NOT NULL REFERENCES organisations (id),"
     "  name TEXT NOT NULL,"
     "  max_sandboxes BIGINT NOT NULL,"
     "  created_at_ms BIGINT NOT NULL,"
     "  UNIQUE (organisation_id, name));"

     "CREATE TABLE api_keys ("
     "  id TEXT PRIMARY KEY,"
     "  project_id TEXT NOT NULL REFERENCES projects (id),"
     "  scope TEXT NOT NULL,"
     "  name TEXT NOT NULL,"
     "  hash TEXT NOT NULL UNIQUE,"
     "  prefix TEXT NOT NULL,"
     "  created_at_ms BIGINT NOT NULL,"
     "  last_used_at_ms BIGINT NOT NULL,"
     "  revoked_at_ms BIGINT NOT NULL);"
     "CREATE INDEX api_keys_of_project ON api_keys (project_id, created_at_ms);"

     "CREATE TABLE sandboxes ("
     "  id TEXT PRIMARY KEY,"
     "  project_id TEXT NOT NULL REFERENCES projects (id),"
     "  desired TEXT NOT NULL,"
     "  observed TEXT NOT NULL,"
     "  generation BIGINT NOT NULL,"
     "  node TEXT NOT NULL,"
     "  owner TEXT NOT NULL,"
     "  template TEXT NOT NULL,"
     "  vcpus BIGINT NOT NULL,"
     "  memory_mib BIGINT NOT NULL,"
     "  disk_mib BIGINT NOT NULL,"
     "  accel TEXT NOT NULL,"
     "  env TEXT NOT NULL,"
     "  metadata TEXT NOT NULL,"
     "  timeout_s BIGINT NOT NULL,"
     "  created_at_ms BIGINT NOT NULL,"
     "  started_at_ms BIGINT NOT NULL,"
     "  changed_at_ms BIGINT NOT NULL,"
     "  end_at_ms BIGINT NOT NULL,"
     "  reason TEXT NOT NULL);"
     "CREATE INDEX sandboxes_of_project ON sandboxes (project_id, created_at_ms, id);"
     "CREATE INDEX sandboxes_newest ON sandboxes (created_at_ms, id);"
     "CREATE INDEX sandboxes_ending ON sandboxes (end_at_ms) WHERE end_at_ms > 0;"

     /* The same pairs as in sandboxes.metadata, so that a filter is an index look-up in any product. */
     "CREATE TABLE sandbox_metadata ("
     "  sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,"
     "  key TEXT NOT NULL,"
     "  value TEXT NOT NULL,"
     "  PRIMARY KEY (sandbox_id, key));"

     "CREATE TABLE operations ("
     "  project_id TEXT NOT NULL REFERENCES projects (id),"
     "  key TEXT NOT NULL,"
     "  fingerprint TEXT NOT NULL,"
     "  sandbox_id TEXT NOT NULL," /* no reference: the operation may outlive the sandbox */
     "  owner TEXT NOT NULL,"
     "  status BIGINT NOT NULL,"
     "  answer TEXT NOT NULL,"
     "  created_at_ms BIGINT NOT NULL,"
     "  PRIMARY KEY (project_id, key));"
     "CREATE INDEX operations_of_sandbox ON operations (sandbox_id);"
     "CREATE INDEX operations_by_age ON operations (created_at_ms);"

     "CREATE TABLE audit_events ("
     "  id TEXT PRIMARY KEY,"
     "  at_ms BIGINT NOT NULL,"
     "  project_id TEXT NOT NULL,"
     "  key_id TEXT NOT NULL,"
     "  action TEXT NOT NULL,"
     "  target TEXT NOT NULL,"
     "  detail TEXT NOT NULL);"
     "CREATE INDEX audit_events_of_project ON audit_events (project_id, at_ms, id);"
     "CREATE INDEX audit_events_by_age ON audit_events (at_ms);"},

    {"pauses, policies and forks",
     "ALTER TABLE sandboxes ADD COLUMN paused_at_ms BIGINT NOT NULL DEFAULT 0;"
     "ALTER TABLE sandboxes ADD COLUMN policy TEXT NOT NULL DEFAULT '';" /* '': the default one */
     "ALTER TABLE sandboxes ADD COLUMN parent TEXT NOT NULL DEFAULT '';" /* may be gone */
     "ALTER TABLE sandboxes ADD COLUMN batch TEXT NOT NULL DEFAULT '';"
     "CREATE INDEX sandboxes_of_batch ON sandboxes (batch) WHERE batch <> '';"},

    {"what happens at the end, and what other surfaces remember",
     "ALTER TABLE sandboxes ADD COLUMN at_end TEXT NOT NULL DEFAULT '';"
     "ALTER TABLE sandboxes ADD COLUMN surface TEXT NOT NULL DEFAULT '';"
     /* No reference to the sandbox: what it was taken of is deleted after its snapshots. */
     "CREATE TABLE snapshots ("
     "  id TEXT PRIMARY KEY,"
     "  project_id TEXT NOT NULL REFERENCES projects (id),"
     "  sandbox_id TEXT NOT NULL,"
     "  name TEXT NOT NULL,"
     "  created_at_ms BIGINT NOT NULL);"
     "CREATE INDEX snapshots_of_project ON snapshots (project_id, created_at_ms, id);"
     "CREATE UNIQUE INDEX snapshots_by_name ON snapshots (project_id, name) WHERE name <> '';"},

    /* Who set this SPACE up made the first key, and had all the rights that there were. */
    {"keys of operators",
     "UPDATE api_keys SET scope = 'operator' WHERE scope = 'organisation' AND created_at_ms ="
     "  (SELECT MIN(created_at_ms) FROM api_keys);"},

    /* JSON of model/netpolicy.h; '': nothing may be reached. */
    {"networks", "ALTER TABLE sandboxes ADD COLUMN network TEXT NOT NULL DEFAULT '';"},

    /* No reference to sandboxes and snapshots: the node's may go before these. */
    {"templates that clients build",
     "CREATE TABLE templates ("
     "  id TEXT PRIMARY KEY,"
     "  project_id TEXT NOT NULL REFERENCES projects (id),"
     "  name TEXT NOT NULL,"
     "  created_at_ms BIGINT NOT NULL,"
     "  updated_at_ms BIGINT NOT NULL,"
     "  spawned_at_ms BIGINT NOT NULL,"
     "  spawned BIGINT NOT NULL);"
     "CREATE UNIQUE INDEX templates_by_name ON templates (project_id, name);"
     "CREATE TABLE template_builds ("
     "  id TEXT PRIMARY KEY,"
     "  template_id TEXT NOT NULL REFERENCES templates (id),"
     "  project_id TEXT NOT NULL,"
     "  status BIGINT NOT NULL," /* enum build_status */
     "  vcpus BIGINT NOT NULL,"
     "  memory_mib BIGINT NOT NULL,"
     "  disk_mib BIGINT NOT NULL,"
     "  sandbox_id TEXT NOT NULL,"
     "  snapshot_id TEXT NOT NULL,"
     "  config TEXT NOT NULL,"
     "  reason TEXT NOT NULL,"
     "  log TEXT NOT NULL,"
     "  created_at_ms BIGINT NOT NULL,"
     "  ended_at_ms BIGINT NOT NULL);"
     "CREATE INDEX template_builds_of ON template_builds (template_id, created_at_ms);"
     "CREATE INDEX template_builds_in ON template_builds (project_id, sandbox_id);"
     "CREATE TABLE template_tags ("
     "  template_id TEXT NOT NULL REFERENCES templates (id),"
     "  tag TEXT NOT NULL,"
     "  build_id TEXT NOT NULL REFERENCES template_builds (id),"
     "  created_at_ms BIGINT NOT NULL,"
     "  PRIMARY KEY (template_id, tag));"
     "CREATE INDEX template_tags_of_build ON template_tags (build_id);"
     "CREATE TABLE template_layers ("
     "  project_id TEXT NOT NULL,"
     "  hash TEXT NOT NULL,"
     "  sandbox_id TEXT NOT NULL,"
     "  snapshot_id TEXT NOT NULL,"
     "  used_at_ms BIGINT NOT NULL,"
     "  PRIMARY KEY (project_id, hash));"
     "CREATE INDEX template_layers_in ON template_layers (project_id, sandbox_id);"},

    /* A project knows how many sandboxes it has: counting them would take longer the more there are. */
    {"counters of projects",
     "ALTER TABLE projects ADD COLUMN n_sandboxes BIGINT NOT NULL DEFAULT 0;"
     "UPDATE projects SET n_sandboxes ="
     "  (SELECT COUNT(*) FROM sandboxes WHERE sandboxes.project_id = projects.id);"},

    /* See database.h. Nothing refers to a gateway: what it left behind outlives its row. */
    {"gateways that share a database",
     "CREATE TABLE gateways (id TEXT PRIMARY KEY, until_ms BIGINT NOT NULL);"
     "CREATE TABLE holds ("
     "  name TEXT PRIMARY KEY,"
     "  owner TEXT NOT NULL,"
     "  wanted BIGINT NOT NULL);"
     "CREATE INDEX holds_of_owner ON holds (owner);"
     "CREATE TABLE turns ("
     "  name TEXT PRIMARY KEY,"
     "  owner TEXT NOT NULL,"
     "  until_ms BIGINT NOT NULL,"
     "  next_ms BIGINT NOT NULL);"
     "CREATE INDEX turns_due ON turns (next_ms);"
     "CREATE TABLE secrets (name TEXT PRIMARY KEY, value TEXT NOT NULL);"},

    /* See nodes.h. No reference from sandboxes: a row may name a node before the node is here. */
    {"nodes", "CREATE TABLE nodes ("
              "  name TEXT PRIMARY KEY,"
              "  id TEXT NOT NULL," /* the node's own; '': not known yet */
              "  address TEXT NOT NULL,"
              "  wanted TEXT NOT NULL,"
              "  leased BIGINT NOT NULL,"
              "  lost BIGINT NOT NULL DEFAULT 0,"
              "  generation BIGINT NOT NULL DEFAULT 1,"
              "  until_ms BIGINT NOT NULL DEFAULT 0," /* of the lease; 0: none yet */
              "  renewals BIGINT NOT NULL DEFAULT 0,"
              "  joined_at_ms BIGINT NOT NULL,"
              "  told_at_ms BIGINT NOT NULL DEFAULT 0,"
              "  vcpus BIGINT NOT NULL DEFAULT 0,"
              "  memory_mib BIGINT NOT NULL DEFAULT 0,"
              "  memory_free_mib BIGINT NOT NULL DEFAULT 0,"
              "  pool_bytes BIGINT NOT NULL DEFAULT 0,"
              "  pool_free_bytes BIGINT NOT NULL DEFAULT 0,"
              "  n_sandboxes BIGINT NOT NULL DEFAULT 0,"
              "  warm BIGINT NOT NULL DEFAULT 0,"
              "  told TEXT NOT NULL DEFAULT '');"
              "CREATE UNIQUE INDEX nodes_by_id ON nodes (id) WHERE id <> '';"
              "CREATE TABLE node_tokens (hash TEXT PRIMARY KEY, until_ms BIGINT NOT NULL);"
              "CREATE INDEX sandboxes_of_node ON sandboxes (node);"},

    /* JSON of model/netpolicy.h; '': that level says nothing. */
    {"networks of organisations and projects",
     "ALTER TABLE organisations ADD COLUMN network TEXT NOT NULL DEFAULT '';"
     "ALTER TABLE projects ADD COLUMN network TEXT NOT NULL DEFAULT '';"},
    {"layers that say what their image is configured with",
     "ALTER TABLE template_layers ADD COLUMN config TEXT NOT NULL DEFAULT '';"},
};

int64_t db_schema_version(void)
{
    return (int64_t)ARRAY_SIZE(migrations);
}

static int current_version(const struct db_driver *driver, struct db_conn *conn, int64_t *ret,
                           struct err *e)
{
    struct db_query q = {.sql = "SELECT COALESCE(MAX(version), 0) FROM schema_migrations"};
    struct db_rows *rows = NULL;
    int r;

    r = driver->query(conn, &q, &rows, e);
    if (r < 0) {
        return r;
    }
    r = driver->next(rows, e);
    if (r == 1) {
        *ret = driver->get_int(rows, 0);
    }
    driver->finish(rows);
    if (r == 0) {
        return err_set(e, -EIO, NULL, "the table of migrations gave no answer");
    }
    return r < 0 ? r : 0;
}

static int apply(const struct db_driver *driver, struct db_conn *conn, size_t i, struct err *e)
{
    const struct db_value params[] = {
        DB_INT(i + 1),
        DB_TEXT(migrations[i].name),
        DB_INT(clock_wall_ms()),
    };
    struct db_query q = {
        .sql = "INSERT INTO schema_migrations (version, name, applied_at_ms) VALUES ($1, $2, $3)",
        .params = params,
        .n_params = ARRAY_SIZE(params),
    };
    struct db_rows *rows = NULL;
    int r;

    r = driver->script(conn, migrations[i].sql, e);
    if (r < 0) {
        return r;
    }
    r = driver->query(conn, &q, &rows, e);
    if (r < 0) {
        return r;
    }
    r = driver->next(rows, e);
    driver->finish(rows);
    return r < 0 ? r : 0;
}

/* All missing migrations in one write transaction: two programs that start together cannot both apply. */
static int migrate_locked(const struct db_driver *driver, struct db_conn *conn, struct err *e)
{
    int64_t version = 0;
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(driver->schema_lock) && driver->schema_lock[i]; i++) {
        r = driver->script(conn, driver->schema_lock[i], e);
        if (r < 0) {
            return err_wrap(e, r, "waiting for another program that migrates");
        }
    }
    r = driver->script(conn,
                       "CREATE TABLE IF NOT EXISTS schema_migrations ("
                       "  version BIGINT PRIMARY KEY,"
                       "  name TEXT NOT NULL,"
                       "  applied_at_ms BIGINT NOT NULL)",
                       e);
    if (r < 0) {
        return r;
    }
    r = current_version(driver, conn, &version, e);
    if (r < 0) {
        return r;
    }
    if (version > db_schema_version()) {
        return err_set(
            e, -ENOTSUP, "database_too_new",
            "the database has schema version %lld, this program knows %lld: use a newer program",
            (long long)version, (long long)db_schema_version());
    }
    for (size_t i = (size_t)version; i < ARRAY_SIZE(migrations); i++) {
        r = apply(driver, conn, i, e);
        if (r < 0) {
            return err_wrap(e, r, "migration %zu (%s)", i + 1, migrations[i].name);
        }
    }
    return 0;
}

int db_schema_migrate(const struct db_driver *driver, struct db_conn *conn, struct err *e)
{
    int r;

    ASSERT(driver && conn);

    r = driver->begin(conn, DB_WRITE, e);
    if (r < 0) {
        return r;
    }
    r = migrate_locked(driver, conn, e);
    if (r < 0) {
        driver->rollback(conn);
        return r;
    }
    r = driver->commit(conn, e);
    if (r < 0) {
        driver->rollback(conn);
    }
    return r;
}

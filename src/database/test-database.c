/* SPDX-License-Identifier: Apache-2.0 */

/* What is not the business of a product's conformance: URLs, schema versions, the file itself. */
#include "base/fs.h"
#include "base/test.h"
#include "database/private.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct folder {
    char path[32];
    char file[48];
    char url[64];
};

static void folder_init(struct folder *d)
{
    snprintf(d->path, sizeof(d->path), "/tmp/space-db-XXXXXX");
    ASSERT(mkdtemp(d->path));
    snprintf(d->file, sizeof(d->file), "%s/space.db", d->path);
    snprintf(d->url, sizeof(d->url), "sqlite:%s", d->file);
}

static void folder_done(struct folder *d)
{
    cleanup_close int dir_fd = fs_open("/tmp", O_RDONLY | O_DIRECTORY, 0);

    ASSERT(dir_fd >= 0);
    ASSERT(fs_remove_tree(dir_fd, d->path + 5) == 0);
}
#define FOLDER(d_) \
    CLEANUP(folder_done) struct folder d_; \
    folder_init(&d_)

static void unknown_urls_are_refused(void)
{
    static const char *const urls[] = {"", "sqlite", "mysql://x/y", ":", "sqlitex:/tmp/x"};
    struct db *db = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
        struct err e = {0};

        CHECK_INT(db_open(urls[i], &db, &e), -EINVAL);
        CHECK(strstr(e.msg, "sqlite:/path"));
    }
}

static void newer_schema_is_refused(void)
{
    FOLDER(d);
    CLEANUP(db_freep) struct db *db = NULL;
    sqlite3 *raw = NULL;
    struct err e = {0};

    REQUIRE(db_open(d.url, &db, NULL) == 0);
    db_free(TAKE_PTR(db));
    REQUIRE(sqlite3_open(d.file, &raw) == SQLITE_OK);
    CHECK_INT(sqlite3_exec(raw, "INSERT INTO schema_migrations VALUES (1000, 'later', 1)", NULL,
                           NULL, NULL),
              0);
    sqlite3_close(raw);
    CHECK_INT(db_open(d.url, &db, &e), -ENOTSUP);
    CHECK_STR(e.reason, "database_too_new");
}

/* What an older program has left: the first schema, with a sandbox in it. */
static void older_schema_is_brought_up_to_date(void)
{
    FOLDER(d);
    CLEANUP(db_freep) struct db *db = NULL;
    cleanup_sandbox struct sandbox sb = {0};
    struct policy policy = policy_default();
    sqlite3 *raw = NULL;

    REQUIRE(db_open(d.url, &db, NULL) == 0);
    db_free(TAKE_PTR(db));
    REQUIRE(sqlite3_open(d.file, &raw) == SQLITE_OK);
    CHECK_INT(sqlite3_exec(
                  raw,
                  "DROP TABLE snapshots;"
                  "DROP TABLE template_layers;"
                  "DROP TABLE template_tags;"
                  "DROP TABLE template_builds;"
                  "DROP TABLE templates;"
                  "DROP TABLE nodes; DROP TABLE node_tokens; DROP INDEX sandboxes_of_node;"
                  "DROP TABLE gateways; DROP TABLE holds; DROP TABLE turns; DROP TABLE secrets;"
                  "ALTER TABLE projects DROP COLUMN n_sandboxes;"
                  "ALTER TABLE projects DROP COLUMN network;"
                  "ALTER TABLE organisations DROP COLUMN network;"
                  "DROP INDEX sandboxes_of_batch;"
                  "ALTER TABLE sandboxes DROP COLUMN at_end;"
                  "ALTER TABLE sandboxes DROP COLUMN surface;"
                  "ALTER TABLE sandboxes DROP COLUMN network;"
                  "ALTER TABLE sandboxes DROP COLUMN paused_at_ms;"
                  "ALTER TABLE sandboxes DROP COLUMN policy;"
                  "ALTER TABLE sandboxes DROP COLUMN parent;"
                  "ALTER TABLE sandboxes DROP COLUMN batch;"
                  "DELETE FROM schema_migrations WHERE version > 1;"
                  "INSERT INTO organisations VALUES ('o1', 'o', 1);"
                  "INSERT INTO projects VALUES ('p1', 'o1', 'p', 5, 1);"
                  "INSERT INTO sandboxes VALUES ('s1', 'p1', 'running', 'running', 3, 'local', '', "
                  "'tiny', 1, 256, 1024, 'tcg', '{}', '{}', 60, 1, 2, 3, 4, 'why');",
                  NULL, NULL, NULL),
              0);
    sqlite3_close(raw);
    REQUIRE(db_open(d.url, &db, NULL) == 0);
    REQUIRE(db_sandbox_get(db, "s1", "p1", &sb, NULL) == 0);
    CHECK_INT(sb.generation, 3);
    CHECK_INT(sb.end_at_ms, 4);
    CHECK_STR(sb.reason, "why");
    CHECK_INT(sb.paused_at_ms, 0);
    CHECK_STR(sb.parent, "");
    CHECK(policy_equal(&sb.policy, &policy));
    CHECK_INT(sb.at_end, SANDBOX_AT_END_DELETE);
    CHECK_INT(db_sandbox_update(db, &sb, NULL, NULL), 0);
}

static void unreadable_policy_is_an_error(void)
{
    FOLDER(d);
    CLEANUP(db_freep) struct db *db = NULL;
    cleanup_sandbox struct sandbox sb = {0};
    sqlite3 *raw = NULL;
    struct err e = {0};

    REQUIRE(db_open(d.url, &db, NULL) == 0);
    db_free(TAKE_PTR(db));
    REQUIRE(sqlite3_open(d.file, &raw) == SQLITE_OK);
    CHECK_INT(sqlite3_exec(
                  raw,
                  "INSERT INTO organisations VALUES ('o1', 'o', 1, '');"
                  "INSERT INTO projects VALUES ('p1', 'o1', 'p', 5, 1, 1, '');"
                  "INSERT INTO sandboxes VALUES ('s1', 'p1', 'running', 'running', 3, 'local', '', "
                  "'tiny', 1, 256, 1024, 'tcg', '{}', '{}', 60, 1, 2, 3, 4, '', 0, '{\"x\":1}', "
                  "'', '', '', '', '');",
                  NULL, NULL, NULL),
              0);
    sqlite3_close(raw);
    REQUIRE(db_open(d.url, &db, NULL) == 0);
    CHECK_INT(db_sandbox_get(db, "s1", "p1", &sb, &e), -EUCLEAN);
    CHECK_STR(e.reason, "database_error");
}

static void damaged_file_is_an_error_not_an_empty_database(void)
{
    FOLDER(d);
    CLEANUP(db_freep) struct db *db = NULL;
    cleanup_close int fd = open(d.file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    char junk[8192];

    memset(junk, 'x', sizeof(junk));
    REQUIRE(fs_write_all(fd, junk, sizeof(junk)) == 0);
    CHECK_INT(db_open(d.url, &db, NULL), -EUCLEAN);
}

static void file_is_private(void)
{
    FOLDER(d);
    CLEANUP(db_freep) struct db *db = NULL;
    struct stat st;

    REQUIRE(db_open(d.url, &db, NULL) == 0);
    REQUIRE(stat(d.file, &st) == 0);
    CHECK_INT(st.st_mode & 0777, 0600);
}

static void unwritable_folder_is_explained(void)
{
    CLEANUP(db_freep) struct db *db = NULL;
    struct err e = {0};

    CHECK(db_open("sqlite:/nonexistent/folder/space.db", &db, &e) < 0);
    CHECK(strstr(e.msg, "/nonexistent/folder"));
}

TEST_MAIN(T(unknown_urls_are_refused), T(newer_schema_is_refused),
          T(older_schema_is_brought_up_to_date), T(unreadable_policy_is_an_error),
          T(damaged_file_is_an_error_not_an_empty_database), T(file_is_private),
          T(unwritable_folder_is_explained))

-- The advisory database: one file, written once by an update and only read from then on.
--   advisories  what is told of an advisory that holds
--   packages    which versions of a package an advisory is about; all that matching looks at
--   names       every id of an alias group -> the group
--   epss, kev   the two feeds, by CVE
--   facts       format, and where each kind of data is from
-- The index over packages is made after the rows are in, which is several times faster.

-- name: make_tables
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE advisories (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE packages (ecosystem TEXT NOT NULL, name TEXT NOT NULL, advisory INTEGER NOT NULL, affected BLOB NOT NULL);
CREATE TABLE names (name TEXT PRIMARY KEY, "group" INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE epss (cve TEXT PRIMARY KEY, score REAL NOT NULL, percentile REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE kev (cve TEXT PRIMARY KEY) WITHOUT ROWID;

-- name: make_indexes
CREATE INDEX packages_by_name ON packages (ecosystem, name);
CREATE INDEX names_by_group ON names ("group");

-- name: advisory_add
INSERT INTO advisories (number, body) VALUES (?, ?)

-- name: package_add
INSERT INTO packages (ecosystem, name, advisory, affected) VALUES (?, ?, ?, ?)

-- name: superseded_note
CREATE TEMP TABLE IF NOT EXISTS superseded (number INTEGER PRIMARY KEY)

-- name: superseded_add
INSERT INTO superseded (number) VALUES (?)

-- name: superseded_packages_remove
DELETE FROM packages WHERE advisory IN (SELECT number FROM superseded)

-- name: superseded_advisories_remove
DELETE FROM advisories WHERE number IN (SELECT number FROM superseded)

-- name: name_add
INSERT INTO names (name, "group") VALUES (?, ?)

-- name: epss_add
INSERT OR REPLACE INTO epss (cve, score, percentile) VALUES (?, ?, ?)

-- name: kev_add
INSERT OR REPLACE INTO kev (cve) VALUES (?)

-- name: fact_add
INSERT INTO facts (name, value) VALUES (?, ?)

-- name: copy_advisories
INSERT INTO main.advisories SELECT * FROM before.advisories;
INSERT INTO main.packages SELECT * FROM before.packages;
INSERT INTO main.names SELECT * FROM before.names;

-- name: copy_epss
INSERT INTO main.epss SELECT * FROM before.epss;

-- name: copy_kev
INSERT INTO main.kev SELECT * FROM before.kev;

-- name: ecosystem_counts
SELECT ecosystem, count(DISTINCT advisory) FROM packages GROUP BY ecosystem ORDER BY ecosystem

-- name: facts_all
SELECT name, value FROM facts

-- name: packages_of
SELECT advisory, affected FROM packages WHERE ecosystem = ? AND name = ? ORDER BY advisory

-- name: advisory_get
SELECT body FROM advisories WHERE number = ?

-- name: group_of
SELECT "group" FROM names WHERE name = ?

-- name: names_of
SELECT name FROM names WHERE "group" = ? ORDER BY name

-- name: epss_get
SELECT score, percentile FROM epss WHERE cve = ?

-- name: kev_get
SELECT 1 FROM kev WHERE cve = ?

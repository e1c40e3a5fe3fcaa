-- Statements on tables whose names are known only at run time; layout.py fills the {places} with quoted names.

-- name: postgres_columns
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, n.nspname AS schema, CAST(c.reltuples AS double precision) AS about
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relname = $2 AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
  AND CASE WHEN CAST($1 AS text) IS NULL THEN pg_table_is_visible(c.oid) ELSE n.nspname = $1 END
ORDER BY a.attnum

-- name: postgres_tables
SELECT CASE WHEN pg_table_is_visible(c.oid) THEN c.relname ELSE n.nspname || '.' || c.relname END AS name
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'holdfast')

-- name: postgres_indexes
SELECT i.indexrelid,
       (SELECT pg_catalog.array_agg(a.attname ORDER BY k.ord)
          FROM pg_catalog.unnest(i.indkey) WITH ORDINALITY AS k(attnum, ord)
          JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum) AS columns
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2 AND i.indisvalid AND i.indpred IS NULL

-- name: enum_words
SELECT e.enumlabel AS word
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
JOIN pg_enum e ON e.enumtypid = a.atttypid
WHERE n.nspname = $1 AND c.relname = $2 AND a.attname = $3 ORDER BY e.enumsortorder

-- name: sqlite_columns
SELECT i.name, i.type FROM sqlite_schema s JOIN pragma_table_info(s.name) i WHERE s.type = 'table' AND s.name = $1

-- name: sqlite_tables
SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~' AND name NOT LIKE 'holdfast~_%' ESCAPE '~'

-- name: sqlite_indexes
SELECT l.name AS index_name, i.name AS column_name
FROM pragma_index_list($1) l JOIN pragma_index_info(l.name) i WHERE l.partial = 0 ORDER BY l.name, i.seqno

-- name: rows_expired
-- $1 now, $2 at most so many, $3 running, $4 factors by stage, $5 the factor of other stages, $6 grace behind a deadline,
-- $7 attempts where a row does not say
SELECT t.{id} AS id, t.{locked_by} AS locked_by, t.{stage} AS stage, coalesce(t.{attempt_count}, 0) AS attempt,
       coalesce(t.{max_attempts}, CAST($7 AS integer)) AS attempts,
       CASE WHEN {past:lease_expires_at} THEN 'lease_expired' ELSE 'deadline_exceeded' END AS reason
FROM {table} AS t
WHERE t.{status} = $3
  AND (t.{next_earliest_run_at} IS NULL OR {past:next_earliest_run_at})
  AND ({past:lease_expires_at}
       OR {seconds:started_at} + t.{expected_duration_ms} * {factor} / 1000.0 + CAST($6 AS double precision)
          <= CAST($1 AS double precision))
ORDER BY t.{lease_expires_at} LIMIT {limit} {lock}

-- name: rows_leave
UPDATE {table} AS t
SET {status} = g.status, {locked_by} = NULL, {lease_expires_at} = NULL, {started_at} = NULL,
    {next_earliest_run_at} = {moment:next_earliest_run_at},
    {fail_code} = coalesce(g.fail_code, t.{fail_code}), {fail_reason} = coalesce(g.fail_reason, t.{fail_reason})
FROM {given} WHERE t.{id} = g.id

-- name: events_write
INSERT INTO {events} (job_id, data) SELECT g.job_id, g.data FROM {given} WHERE true

-- name: rows_claimable
-- $1 now, $2 at most so many, $3 queued, $4 stage or null, $5 attempts where a row does not say
SELECT t.*, coalesce(t.{attempt_count}, 0) + 1 AS "holdfast attempt", coalesce(t.{max_attempts}, CAST($5 AS integer)) AS "holdfast attempts"
FROM {table} AS t
WHERE t.{status} = $3 AND (t.{next_earliest_run_at} IS NULL OR {past:next_earliest_run_at})
  AND (CAST($4 AS text) IS NULL OR CAST(t.{stage} AS text) = $4)
ORDER BY t.{next_earliest_run_at} NULLS FIRST, t.{id} LIMIT {limit} {lock}

-- name: rows_claim
UPDATE {table} AS t
SET {status} = g.status, {locked_by} = g.locked_by, {lease_expires_at} = {moment:lease_expires_at},
    {last_heartbeat_at} = {moment:last_heartbeat_at}, {started_at} = {moment:started_at},
    {attempt_count} = g.attempt_count, {next_earliest_run_at} = NULL
FROM {given} WHERE t.{id} = g.id

-- name: row_beat
UPDATE {table} AS t
SET {lease_expires_at} = {moment:lease_expires_at}, {last_heartbeat_at} = {moment:last_heartbeat_at}
FROM {given}
WHERE t.{id} = g.id AND t.{status} = g.held AND t.{locked_by} = g.locked_by AND t.{attempt_count} = g.attempt_count
RETURNING 1 AS held

-- name: row_leave
-- The same as rows_leave, by the run that still holds its row.
UPDATE {table} AS t
SET {status} = g.status, {locked_by} = NULL, {lease_expires_at} = NULL, {started_at} = NULL,
    {next_earliest_run_at} = {moment:next_earliest_run_at}, {fail_code} = g.fail_code, {fail_reason} = g.fail_reason
FROM {given}
WHERE t.{id} = g.id AND t.{status} = g.held AND t.{locked_by} = g.locked_by AND t.{attempt_count} = g.attempt_count
RETURNING 1 AS held

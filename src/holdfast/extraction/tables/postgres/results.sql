-- name: dependencies_save
INSERT INTO holdfast.extraction_dependencies AS d
       (repository_id, key, fingerprint, purl, name, version, ecosystem, scope, direct, manifest, depends_on)
SELECT $1, n.key, n.fingerprint, n.purl, n.name, n.version, n.ecosystem, n.scope, n.direct, n.manifest, n.depends_on
  FROM jsonb_to_recordset(CAST($2 AS jsonb)) AS n (
       key text, fingerprint text, purl text, name text, version text, ecosystem text, scope text, direct boolean,
       manifest text, depends_on jsonb)
ON CONFLICT (repository_id, key) DO UPDATE
   SET scope = excluded.scope, direct = excluded.direct, depends_on = excluded.depends_on
 WHERE (d.scope, d.direct, d.depends_on) IS DISTINCT FROM (excluded.scope, excluded.direct, excluded.depends_on);

-- name: dependencies_forget
DELETE FROM holdfast.extraction_dependencies
 WHERE repository_id = $1 AND key NOT IN (SELECT jsonb_array_elements_text(CAST($2 AS jsonb)));

-- name: dependencies_list
SELECT * FROM holdfast.extraction_dependencies WHERE repository_id = $1 ORDER BY manifest COLLATE "C", purl COLLATE "C";

-- name: dependencies_pending
SELECT DISTINCT purl FROM holdfast.extraction_dependencies WHERE repository_id = $1 AND enrichment IS NULL ORDER BY purl;

-- name: dependencies_enrich
UPDATE holdfast.extraction_dependencies AS d SET enrichment = n.value
  FROM jsonb_each(CAST($2 AS jsonb)) AS n
 WHERE d.repository_id = $1 AND d.purl = n.key;

-- name: vulnerabilities_save
INSERT INTO holdfast.extraction_vulnerabilities AS v
       (repository_id, key, fingerprint, id, purl, aliases, severity, cvss_score, cvss_vector, fixed_in, summary, epss,
        percentile, kev, reachable)
SELECT $1, n.key, n.fingerprint, n.id, n.purl, n.aliases, n.severity, n.cvss_score, n.cvss_vector, n.fixed_in, n.summary,
       n.epss, n.percentile, n.kev, n.reachable
  FROM jsonb_to_recordset(CAST($2 AS jsonb)) AS n (
       key text, fingerprint text, id text, purl text, aliases jsonb, severity text, cvss_score double precision,
       cvss_vector text, fixed_in jsonb, summary text, epss double precision, percentile double precision, kev boolean,
       reachable boolean)
ON CONFLICT (repository_id, key) DO UPDATE
   SET aliases = excluded.aliases, severity = excluded.severity, cvss_score = excluded.cvss_score,
       cvss_vector = excluded.cvss_vector, fixed_in = excluded.fixed_in, summary = excluded.summary, epss = excluded.epss,
       percentile = excluded.percentile, kev = excluded.kev, reachable = excluded.reachable;

-- name: vulnerabilities_forget
DELETE FROM holdfast.extraction_vulnerabilities
 WHERE repository_id = $1 AND key NOT IN (SELECT jsonb_array_elements_text(CAST($2 AS jsonb)));

-- name: vulnerabilities_list
SELECT * FROM holdfast.extraction_vulnerabilities WHERE repository_id = $1 ORDER BY purl COLLATE "C", id COLLATE "C";

-- name: findings_save
INSERT INTO holdfast.extraction_findings AS f
       (repository_id, key, fingerprint, rule, path, line, end_line, severity, message, cwes)
SELECT $1, n.key, n.fingerprint, n.rule, n.path, n.line, n.end_line, n.severity, n.message, n.cwes
  FROM jsonb_to_recordset(CAST($2 AS jsonb)) AS n (
       key text, fingerprint text, rule text, path text, line integer, end_line integer, severity text, message text,
       cwes jsonb)
ON CONFLICT (repository_id, key) DO UPDATE
   SET end_line = excluded.end_line, severity = excluded.severity, message = excluded.message, cwes = excluded.cwes;

-- name: findings_forget
DELETE FROM holdfast.extraction_findings
 WHERE repository_id = $1 AND key NOT IN (SELECT jsonb_array_elements_text(CAST($2 AS jsonb)));

-- name: findings_list
SELECT * FROM holdfast.extraction_findings WHERE repository_id = $1 ORDER BY path COLLATE "C", line, rule COLLATE "C";

-- name: secrets_save
INSERT INTO holdfast.extraction_secrets AS s (repository_id, key, fingerprint, kind, path, line, verified, commit)
SELECT $1, n.key, n.fingerprint, n.kind, n.path, n.line, n.verified, n.commit
  FROM jsonb_to_recordset(CAST($2 AS jsonb)) AS n (
       key text, fingerprint text, kind text, path text, line integer, verified boolean, commit text)
ON CONFLICT (repository_id, key) DO UPDATE SET verified = excluded.verified;

-- name: secrets_forget
DELETE FROM holdfast.extraction_secrets
 WHERE repository_id = $1 AND key NOT IN (SELECT jsonb_array_elements_text(CAST($2 AS jsonb)));

-- name: secrets_list
SELECT * FROM holdfast.extraction_secrets WHERE repository_id = $1 ORDER BY path COLLATE "C", line, kind COLLATE "C";

-- name: reports_save
INSERT INTO holdfast.extraction_reports AS p (repository_id, key, fingerprint, name, location, media_type, bytes)
SELECT $1, n.key, n.fingerprint, n.name, n.location, n.media_type, n.bytes
  FROM jsonb_to_recordset(CAST($2 AS jsonb)) AS n (
       key text, fingerprint text, name text, location text, media_type text, bytes bigint)
ON CONFLICT (repository_id, key) DO UPDATE
   SET location = excluded.location, media_type = excluded.media_type, bytes = excluded.bytes;

-- name: reports_forget
DELETE FROM holdfast.extraction_reports
 WHERE repository_id = $1 AND key NOT IN (SELECT jsonb_array_elements_text(CAST($2 AS jsonb)));

-- name: reports_list
SELECT * FROM holdfast.extraction_reports WHERE repository_id = $1 ORDER BY name COLLATE "C";

-- name: scan_save
INSERT INTO holdfast.extraction_scans (job_id, kind, repository_id, scanned, reason, count, seen, details)
VALUES ($1, $2, $3, $4, $5, $6, CAST($7 AS jsonb), CAST($8 AS jsonb))
ON CONFLICT (job_id, kind) DO UPDATE
   SET scanned = excluded.scanned, reason = excluded.reason, count = excluded.count, seen = excluded.seen,
       details = excluded.details, saved_at = clock_timestamp();

-- name: scan_forget_older
-- Two are enough to compare; those further back keep their counts.
UPDATE holdfast.extraction_scans SET seen = NULL
 WHERE repository_id = $1 AND kind = $2 AND seen IS NOT NULL AND job_id NOT IN (
       SELECT s.job_id FROM holdfast.extraction_scans s JOIN holdfast.extraction_runs r USING (job_id)
        WHERE s.repository_id = $1 AND s.kind = $2 AND s.seen IS NOT NULL ORDER BY r.number DESC LIMIT 2);

-- name: scan_newest
-- Of each kind the newest row: what a run that failed on the way has not looked for, the run before it still answers.
SELECT DISTINCT ON (s.kind) s.*, r.number
  FROM holdfast.extraction_scans s JOIN holdfast.extraction_runs r USING (job_id)
 WHERE s.repository_id = $1 ORDER BY s.kind, r.number DESC;

-- name: scan_seen_before
SELECT s.seen, r.number FROM holdfast.extraction_scans s JOIN holdfast.extraction_runs r USING (job_id)
 WHERE s.repository_id = $1 AND s.kind = $2 AND s.seen IS NOT NULL AND r.number < $3 ORDER BY r.number DESC LIMIT 1;

-- name: scan_kinds
SELECT kind, count FROM holdfast.extraction_scans WHERE job_id = $1;

-- name: dependencies_save
INSERT INTO holdfast_extraction_dependencies AS d
       (repository_id, key, fingerprint, purl, name, version, ecosystem, scope, direct, manifest, depends_on)
SELECT $1, n.value ->> 'key', n.value ->> 'fingerprint', n.value ->> 'purl', n.value ->> 'name',
       n.value ->> 'version', n.value ->> 'ecosystem', n.value ->> 'scope', n.value ->> 'direct',
       n.value ->> 'manifest', n.value ->> 'depends_on'
  FROM json_each($2) AS n WHERE true
ON CONFLICT (repository_id, key) DO UPDATE
   SET scope = excluded.scope, direct = excluded.direct, depends_on = excluded.depends_on
 WHERE (d.scope, d.direct, d.depends_on) IS NOT (excluded.scope, excluded.direct, excluded.depends_on);

-- name: dependencies_forget
DELETE FROM holdfast_extraction_dependencies
 WHERE repository_id = $1 AND key NOT IN (SELECT value FROM json_each($2));

-- name: dependencies_list
SELECT * FROM holdfast_extraction_dependencies WHERE repository_id = $1 ORDER BY manifest, purl;

-- name: dependencies_pending
SELECT DISTINCT purl FROM holdfast_extraction_dependencies WHERE repository_id = $1 AND enrichment IS NULL ORDER BY purl;

-- name: dependencies_enrich
UPDATE holdfast_extraction_dependencies AS d SET enrichment = n.value
  FROM json_each($2) AS n
 WHERE d.repository_id = $1 AND d.purl = n.key;

-- name: vulnerabilities_save
INSERT INTO holdfast_extraction_vulnerabilities AS v
       (repository_id, key, fingerprint, id, purl, aliases, severity, cvss_score, cvss_vector, fixed_in, summary, epss,
        percentile, kev, reachable)
SELECT $1, n.value ->> 'key', n.value ->> 'fingerprint', n.value ->> 'id', n.value ->> 'purl', n.value ->> 'aliases',
       n.value ->> 'severity', n.value ->> 'cvss_score', n.value ->> 'cvss_vector', n.value ->> 'fixed_in',
       n.value ->> 'summary',
       n.value ->> 'epss', n.value ->> 'percentile', n.value ->> 'kev', n.value ->> 'reachable'
  FROM json_each($2) AS n WHERE true
ON CONFLICT (repository_id, key) DO UPDATE
   SET aliases = excluded.aliases, severity = excluded.severity, cvss_score = excluded.cvss_score,
       cvss_vector = excluded.cvss_vector, fixed_in = excluded.fixed_in, summary = excluded.summary, epss = excluded.epss,
       percentile = excluded.percentile, kev = excluded.kev, reachable = excluded.reachable;

-- name: vulnerabilities_forget
DELETE FROM holdfast_extraction_vulnerabilities
 WHERE repository_id = $1 AND key NOT IN (SELECT value FROM json_each($2));

-- name: vulnerabilities_list
SELECT * FROM holdfast_extraction_vulnerabilities WHERE repository_id = $1 ORDER BY purl, id;

-- name: findings_save
INSERT INTO holdfast_extraction_findings AS f
       (repository_id, key, fingerprint, rule, path, line, end_line, severity, message, cwes)
SELECT $1, n.value ->> 'key', n.value ->> 'fingerprint', n.value ->> 'rule', n.value ->> 'path', n.value ->> 'line',
       n.value ->> 'end_line', n.value ->> 'severity', n.value ->> 'message', n.value ->> 'cwes'
  FROM json_each($2) AS n WHERE true
ON CONFLICT (repository_id, key) DO UPDATE
   SET end_line = excluded.end_line, severity = excluded.severity, message = excluded.message, cwes = excluded.cwes;

-- name: findings_forget
DELETE FROM holdfast_extraction_findings
 WHERE repository_id = $1 AND key NOT IN (SELECT value FROM json_each($2));

-- name: findings_list
SELECT * FROM holdfast_extraction_findings WHERE repository_id = $1 ORDER BY path, line, rule;

-- name: secrets_save
INSERT INTO holdfast_extraction_secrets AS s (repository_id, key, fingerprint, kind, path, line, verified, "commit")
SELECT $1, n.value ->> 'key', n.value ->> 'fingerprint', n.value ->> 'kind', n.value ->> 'path', n.value ->> 'line',
       n.value ->> 'verified', n.value ->> 'commit'
  FROM json_each($2) AS n WHERE true
ON CONFLICT (repository_id, key) DO UPDATE SET verified = excluded.verified;

-- name: secrets_forget
DELETE FROM holdfast_extraction_secrets
 WHERE repository_id = $1 AND key NOT IN (SELECT value FROM json_each($2));

-- name: secrets_list
SELECT * FROM holdfast_extraction_secrets WHERE repository_id = $1 ORDER BY path, line, kind;

-- name: reports_save
INSERT INTO holdfast_extraction_reports AS p (repository_id, key, fingerprint, name, location, media_type, bytes)
SELECT $1, n.value ->> 'key', n.value ->> 'fingerprint', n.value ->> 'name', n.value ->> 'location',
       n.value ->> 'media_type', n.value ->> 'bytes'
  FROM json_each($2) AS n WHERE true
ON CONFLICT (repository_id, key) DO UPDATE
   SET location = excluded.location, media_type = excluded.media_type, bytes = excluded.bytes;

-- name: reports_forget
DELETE FROM holdfast_extraction_reports
 WHERE repository_id = $1 AND key NOT IN (SELECT value FROM json_each($2));

-- name: reports_list
SELECT * FROM holdfast_extraction_reports WHERE repository_id = $1 ORDER BY name;

-- name: scan_save
INSERT INTO holdfast_extraction_scans (job_id, kind, repository_id, scanned, reason, count, seen, details)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (job_id, kind) DO UPDATE
   SET scanned = excluded.scanned, reason = excluded.reason, count = excluded.count, seen = excluded.seen,
       details = excluded.details, saved_at = ((julianday('now') - 2440587.5) * 86400.0);

-- name: scan_forget_older
-- Two are enough to compare; those further back keep their counts.
UPDATE holdfast_extraction_scans SET seen = NULL
 WHERE repository_id = $1 AND kind = $2 AND seen IS NOT NULL AND job_id NOT IN (
       SELECT s.job_id FROM holdfast_extraction_scans s JOIN holdfast_extraction_runs r USING (job_id)
        WHERE s.repository_id = $1 AND s.kind = $2 AND s.seen IS NOT NULL ORDER BY r.number DESC LIMIT 2);

-- name: scan_newest
-- Of each kind the newest row (beside max(), columns are those of its row): what a run that failed on the way has not
-- looked for, the run before it still answers.
SELECT s.*, max(r.number) AS number
  FROM holdfast_extraction_scans s JOIN holdfast_extraction_runs r USING (job_id)
 WHERE s.repository_id = $1 GROUP BY s.kind;

-- name: scan_seen_before
SELECT s.seen, r.number FROM holdfast_extraction_scans s JOIN holdfast_extraction_runs r USING (job_id)
 WHERE s.repository_id = $1 AND s.kind = $2 AND s.seen IS NOT NULL AND r.number < $3 ORDER BY r.number DESC LIMIT 1;

-- name: scan_kinds
SELECT kind, count FROM holdfast_extraction_scans WHERE job_id = $1;

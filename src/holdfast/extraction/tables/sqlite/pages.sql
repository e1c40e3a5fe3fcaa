-- Pages of what was found: `place` orders the rows, worst first where there is a worst, and the last one seen is the cursor.

-- name: dependencies_page
SELECT * FROM (
       SELECT *, (purl || ' ' || manifest || ' ' || key) AS place
         FROM holdfast_extraction_dependencies WHERE repository_id = $1) AS found
 WHERE place > $2
   AND (CAST($4 AS text) IS NULL OR instr(lower(purl || ' ' || manifest), lower($4)) > 0)
   AND CAST($5 AS text) IS NULL
 ORDER BY place LIMIT $3;

-- name: vulnerabilities_page
-- Of the same severity: what is known to be exploited first, then what is likelier to be.
SELECT * FROM (
       SELECT *, (CASE severity WHEN 'critical' THEN '0' WHEN 'high' THEN '1' WHEN 'medium' THEN '2' WHEN 'low' THEN '3' ELSE '4' END
                  || CASE WHEN kev THEN '0' ELSE '1' END
                  || printf('%07d', 1000000 - CAST(coalesce(epss, 0) * 1000000 AS integer)) || purl || ' ' || id) AS place
         FROM holdfast_extraction_vulnerabilities WHERE repository_id = $1) AS found
 WHERE place > $2
   AND (CAST($4 AS text) IS NULL OR instr(lower(id || ' ' || purl || ' ' || summary || ' ' || aliases), lower($4)) > 0)
   AND (CAST($5 AS text) IS NULL OR severity = $5)
 ORDER BY place LIMIT $3;

-- name: findings_page
SELECT * FROM (
       SELECT *, (CASE severity WHEN 'critical' THEN '0' WHEN 'high' THEN '1' WHEN 'medium' THEN '2' WHEN 'low' THEN '3' ELSE '4' END
                  || path || ' ' || printf('%09d', line) || ' ' || key) AS place
         FROM holdfast_extraction_findings WHERE repository_id = $1) AS found
 WHERE place > $2
   AND (CAST($4 AS text) IS NULL OR instr(lower(rule || ' ' || path || ' ' || message), lower($4)) > 0)
   AND (CAST($5 AS text) IS NULL OR severity = $5)
 ORDER BY place LIMIT $3;

-- name: secrets_page
SELECT * FROM (
       SELECT *, (path || ' ' || printf('%09d', line) || ' ' || key) AS place
         FROM holdfast_extraction_secrets WHERE repository_id = $1) AS found
 WHERE place > $2
   AND (CAST($4 AS text) IS NULL OR instr(lower(kind || ' ' || path), lower($4)) > 0)
   AND CAST($5 AS text) IS NULL
 ORDER BY place LIMIT $3;

-- name: overview
-- The newest scan of each kind, for the repositories of one page.
SELECT s.repository_id, s.kind, s.scanned, s.reason, s.count, s.saved_at, r.number
  FROM holdfast_extraction_scans s JOIN holdfast_extraction_runs r USING (job_id)
 WHERE s.repository_id IN (SELECT value FROM json_each($1))
   AND NOT EXISTS (
       SELECT 1 FROM holdfast_extraction_scans s2 JOIN holdfast_extraction_runs r2 USING (job_id)
        WHERE s2.repository_id = s.repository_id AND s2.kind = s.kind AND r2.number > r.number);

-- name: overview_severities
SELECT repository_id, severity, count(*) AS count FROM holdfast_extraction_vulnerabilities
 WHERE repository_id IN (SELECT value FROM json_each($1))
 GROUP BY repository_id, severity;

-- name: pending_count
SELECT count(DISTINCT purl) AS count FROM holdfast_extraction_dependencies WHERE repository_id = $1 AND enrichment IS NULL;

-- name: scan_of_job
SELECT scanned, details FROM holdfast_extraction_scans WHERE job_id = $1 AND kind = $2;

-- Pages of what was found: `place` orders the rows, worst first where there is a worst, and the last one seen is the cursor.

-- name: dependencies_page
SELECT * FROM (
       SELECT *, (purl || ' ' || manifest || ' ' || key) COLLATE "C" AS place
         FROM holdfast.extraction_dependencies WHERE repository_id = $1) AS found
 WHERE place > $2
   AND (CAST($4 AS text) IS NULL OR position(lower($4) IN lower(purl || ' ' || manifest)) > 0)
   AND CAST($5 AS text) IS NULL
 ORDER BY place LIMIT $3;

-- name: vulnerabilities_page
-- Of the same severity: what is known to be exploited first, then what is likelier to be.
SELECT * FROM (
       SELECT *, (CASE severity WHEN 'critical' THEN '0' WHEN 'high' THEN '1' WHEN 'medium' THEN '2' WHEN 'low' THEN '3' ELSE '4' END
                  || CASE WHEN kev THEN '0' ELSE '1' END
                  || lpad(CAST(1000000 - CAST(coalesce(epss, 0) * 1000000 AS integer) AS text), 7, '0') || purl || ' ' || id) COLLATE "C" AS place
         FROM holdfast.extraction_vulnerabilities WHERE repository_id = $1) AS found
 WHERE place > $2
   AND (CAST($4 AS text) IS NULL OR position(lower($4) IN lower(id || ' ' || purl || ' ' || summary || ' ' || CAST(aliases AS text))) > 0)
   AND (CAST($5 AS text) IS NULL OR severity = $5)
 ORDER BY place LIMIT $3;

-- name: findings_page
SELECT * FROM (
       SELECT *, (CASE severity WHEN 'critical' THEN '0' WHEN 'high' THEN '1' WHEN 'medium' THEN '2' WHEN 'low' THEN '3' ELSE '4' END
                  || path || ' ' || lpad(CAST(line AS text), 9, '0') || ' ' || key) COLLATE "C" AS place
         FROM holdfast.extraction_findings WHERE repository_id = $1) AS found
 WHERE place > $2
   AND (CAST($4 AS text) IS NULL OR position(lower($4) IN lower(rule || ' ' || path || ' ' || message)) > 0)
   AND (CAST($5 AS text) IS NULL OR severity = $5)
 ORDER BY place LIMIT $3;

-- name: secrets_page
SELECT * FROM (
       SELECT *, (path || ' ' || lpad(CAST(line AS text), 9, '0') || ' ' || key) COLLATE "C" AS place
         FROM holdfast.extraction_secrets WHERE repository_id = $1) AS found
 WHERE place > $2
   AND (CAST($4 AS text) IS NULL OR position(lower($4) IN lower(kind || ' ' || path)) > 0)
   AND CAST($5 AS text) IS NULL
 ORDER BY place LIMIT $3;

-- name: overview
-- The newest scan of each kind, for the repositories of one page.
SELECT s.repository_id, s.kind, s.scanned, s.reason, s.count, s.saved_at, r.number
  FROM holdfast.extraction_scans s JOIN holdfast.extraction_runs r USING (job_id)
 WHERE s.repository_id IN (SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))
   AND NOT EXISTS (
       SELECT 1 FROM holdfast.extraction_scans s2 JOIN holdfast.extraction_runs r2 USING (job_id)
        WHERE s2.repository_id = s.repository_id AND s2.kind = s.kind AND r2.number > r.number);

-- name: overview_severities
SELECT repository_id, severity, count(*) AS count FROM holdfast.extraction_vulnerabilities
 WHERE repository_id IN (SELECT jsonb_array_elements_text(CAST($1 AS jsonb)))
 GROUP BY repository_id, severity;

-- name: pending_count
SELECT count(DISTINCT purl) AS count FROM holdfast.extraction_dependencies WHERE repository_id = $1 AND enrichment IS NULL;

-- name: scan_of_job
SELECT scanned, details FROM holdfast.extraction_scans WHERE job_id = $1 AND kind = $2;

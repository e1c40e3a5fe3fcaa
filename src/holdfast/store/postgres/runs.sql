-- name: run_list
SELECT run_no, run_id::text, attempt, outcome, worker, machine_id, stage, error_code, error_message, started_at, finished_at
  FROM holdfast.runs WHERE job_id = $1
 ORDER BY run_no DESC

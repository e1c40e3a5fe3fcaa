-- name: run_insert
-- The run that a job's own row tells of goes into the history, before that row changes.
INSERT INTO holdfast_runs (
    job_id, run_no, run_id, attempt, outcome, worker, machine_id, stage, error_code, error_message, started_at, finished_at
)
SELECT id, run_no, run_id, attempt, :outcome, locked_by, machine_id, coalesce(:stage, stage), :error_code, :error_message,
    started_at, coalesce(finished_at, :now)
FROM holdfast_jobs WHERE id = :id;

-- name: run_list
SELECT run_no, run_id, attempt, outcome, worker, machine_id, stage, error_code, error_message, started_at, finished_at
FROM holdfast_runs WHERE job_id = :job_id ORDER BY run_no DESC;

-- name: run_delete
DELETE FROM holdfast_runs WHERE job_id IN (SELECT value FROM json_each(:ids));

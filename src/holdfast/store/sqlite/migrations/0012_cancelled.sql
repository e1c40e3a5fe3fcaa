-- Cancelled jobs, newest first: without it a list of them sorts all that there are. Written when a job is cancelled, and only then.

CREATE INDEX holdfast_jobs_cancelled ON holdfast_jobs (id) WHERE state = 'cancelled';

-- The deliveries of a webhook that failed: without it they are looked for among all of them. Written when one fails, and only then.

CREATE INDEX holdfast_jobs_deliveries_failed ON holdfast_jobs (project, id) WHERE task = 'holdfast:deliver' AND state = 'failed';
